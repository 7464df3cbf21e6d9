// The ownership chart: a row for each partition; a colour, a pattern and a number for each member.
const ROW = 17, MIN_HEIGHT = 96, MAX_HEIGHT = 442;
const LABEL_HEIGHT = 11, SWATCH = 28;
const COLOURS = 8, PATTERNS = 4, STYLES = COLOURS * PATTERNS;
const NO_OWNER = -1;
const OPAQUE = 255 << 24, HALF = 0x7f7f7f;
const NEAR_PIXELS = 12, CLOSE_PIXELS = 5;

// Returns a pixel as four bytes; its colour is a mix of two colours. Pixels are signed integers: an
// opaque pixel is then a small integer, which JavaScript engines handle fast.
function pixel(hex, other = hex, share = 0) {
  const part = (index) => {
    const [from, to] = [hex, other].map((colour) => parseInt(colour.slice(index, index + 2), 16));
    return Math.round(from + (to - from) * share);
  };
  return OPAQUE | part(5) << 16 | part(3) << 8 | part(1);
}

// Colour, stroke colour and pattern of each style: members use up the colours before patterns.
function memberStyles(theme, ratio) {
  const colours = theme.members.map((colour) => pixel(colour));
  const strokes = theme.members.map((colour) => pixel(colour, theme.ground, 0.6));
  const styles = Array.from({ length: STYLES }, (_, index) => index);
  return {
    colour: Int32Array.from(styles, (each) => colours[each % COLOURS]),
    stroke: Int32Array.from(styles, (each) => strokes[each % COLOURS]),
    pattern: Uint8Array.from(styles, (each) => Math.floor(each / COLOURS)),
    gap: Math.round(7 * ratio),
    thick: Math.round(1.5 * ratio),
  };
}

// Paints one line of pixels in the patterns plain, hatched up, hatched down and striped.
function paintLine(pixels, begin, y, owners, { colour, stroke, pattern, gap, thick }) {
  const slants = [0, y % gap, gap - (y % gap), 0];
  for (let x = 0; x < owners.length; x++) {
    const style = owners[x];
    if (style === NO_OWNER) continue;
    const hatching = pattern[style];
    const isStroke = hatching && (x + slants[hatching]) % gap < thick;
    pixels[begin + x] = isStroke ? stroke[style] : colour[style];
  }
}

// Returns a sample of a member's colour and pattern, for the table of members.
function swatch(rank) {
  const canvas = element('canvas', { class: 'swatch', 'aria-hidden': 'true' });
  const ratio = window.devicePixelRatio || 1;
  const [wide, high] = [SWATCH, LABEL_HEIGHT].map((length) => Math.round(length * ratio));
  Object.assign(canvas, { width: wide, height: high });
  const context = canvas.getContext('2d');
  const image = context.createImageData(wide, high);
  const owners = new Int8Array(wide).fill(rank % STYLES);
  const styles = memberStyles(currentTheme(), ratio);
  for (let y = 0; y < high; y++) paintLine(new Int32Array(image.data.buffer), y * wide, y, owners, styles);
  context.putImageData(image, 0, 0);
  return canvas;
}

class BandChart extends Plot {
  constructor(canvas, view, chart, bands, rebalances) {
    super(canvas, view);
    Object.assign(this, { chart, bands, rebalances, begin: 0, end: chart.rowTopic.length });
    this.styles = Int8Array.from(chart.members, (each) => each.rank % STYLES);
  }

  get rows() {
    return this.end - this.begin;
  }

  get preferredHeight() {
    return Math.min(Math.max(this.rows * ROW, MIN_HEIGHT), MAX_HEIGHT) + STRIP + AXIS;
  }

  y(row) {
    return this.top + ((row - this.begin) / this.rows) * (this.bottom - this.top);
  }

  rowAt(y) {
    const share = (y - this.top) / (this.bottom - this.top);
    if (share < 0 || share >= 1 || !this.rows) return null;
    return this.begin + Math.floor(share * this.rows);
  }

  // Returns the index of the band of a row at a time; null if no member owned the partition.
  bandAt(row, time) {
    const { first, since, until } = this.bands;
    const index = lowerBound(since, time + TIME_EPSILON, first[row], first[row + 1]) - 1;
    return index >= first[row] && time <= until[index] ? index : null;
  }

  paint(theme) {
    this.draw((context) => {
      const columns = columnsOf(this, this.rebalances);
      this.paintBands(context, theme, columns);
      this.paintNames(context, theme);
      if ((this.bottom - this.top) / this.rows >= LABEL_HEIGHT) this.paintLabels(context, theme);
      this.timeAxis(context, theme);
      paintSigns(context, theme, columns);
    });
  }

  // Paints the bands pixel by pixel, so that the time depends on the number of pixels and not of
  // bands. If several rows share a pixel, the first of them is shown.
  paintBands(context, theme, columns) {
    const wide = Math.round((this.right - this.left) * this.ratio);
    const high = Math.round((this.bottom - this.top) * this.ratio);
    if (wide < 1 || high < 1 || !this.rows) return;
    const image = context.createImageData(wide, high);
    const pixels = new Int32Array(image.data.buffer);
    const styles = memberStyles(theme, this.ratio);
    const owners = new Int8Array(wide);
    const lines = Math.min(this.rows, high);
    for (let line = 0; line < lines; line++) {
      const top = Math.floor((line * high) / lines);
      const next = Math.floor(((line + 1) * high) / lines);
      const bottom = next - top >= 4 * this.ratio ? next - Math.round(this.ratio) : next;
      this.findOwners(owners, this.begin + Math.floor((line * this.rows) / lines));
      for (let y = top; y < bottom; y++) paintLine(pixels, y * wide, y, owners, styles);
    }
    paintLines(this, pixels, wide, high, theme, columns);
    context.putImageData(image, Math.round(this.left * this.ratio), Math.round(this.top * this.ratio));
  }

  // Finds the style of each pixel of a row. If several bands share a pixel, the last band that
  // continues after it is shown.
  findOwners(owners, row) {
    const { since, until, member } = this.bands;
    const [index, last] = this.visibleBands(row);
    const { from, width } = this.view;
    const scale = owners.length / width;
    owners.fill(NO_OWNER);
    let painted = -Infinity;
    for (let band = index; band < last; band++) {
      if (until[band] <= painted) continue;
      const left = Math.max(Math.floor((since[band] - from) * scale), 0);
      const right = Math.min(Math.ceil((until[band] - from) * scale), owners.length);
      const style = this.styles[member[band]];
      for (let x = left; x < right; x++) owners[x] = style;
      painted = from + right / scale;
    }
  }

  // Returns the first and the end index of the bands of a row in the shown time range.
  visibleBands(row) {
    const { first, since } = this.bands;
    const begin = lowerBound(since, this.view.from, first[row], first[row + 1]);
    return [Math.max(begin - 1, first[row]), lowerBound(since, this.view.to, begin, first[row + 1])];
  }

  // Paints the names of the rows, as many as fit.
  paintNames(context, theme) {
    const room = (this.bottom - this.top) / this.rows;
    const every = Math.max(Math.ceil(LABEL_HEIGHT / room), 1);
    context.textAlign = 'right';
    context.fillStyle = theme.dim;
    for (let row = this.begin; row < this.end; row += every) {
      const middle = this.y(row) + Math.min(room / 2, LABEL_HEIGHT);
      const tail = `-${this.chart.rowPartition[row]}`;
      const width = this.left - 8 - textWidth(context, tail);
      const topic = truncateToWidth(context, this.chart.topics[this.chart.rowTopic[row]], width);
      context.fillText(topic + tail, this.left - 6, middle);
    }
  }

  paintLabels(context, theme) {
    context.textAlign = 'left';
    context.fillStyle = theme.label;
    const names = this.chart.members.map((member) => `${member.rank + 1} ${member.client}`);
    const least = this.time(this.left + 15) - this.view.from;
    for (let row = this.begin; row < this.end; row++) {
      const [index, last] = this.visibleBands(row);
      const middle = (this.y(row) + this.y(row + 1)) / 2;
      for (let band = index; band < last; band++) {
        if (this.bands.until[band] - this.bands.since[band] < least) continue;
        const left = Math.max(this.x(this.bands.since[band]), this.left) + 4;
        const room = Math.min(this.x(this.bands.until[band]), this.right) - left - 3;
        if (room < 8) continue;
        const text = names[this.bands.member[band]];
        const short = text.slice(0, text.indexOf(' '));
        if (textWidth(context, text) <= room) context.fillText(text, left, middle);
        else if (textWidth(context, short) <= room) context.fillText(short, left, middle);
      }
    }
  }

  drawCursorRow(context, cursor) {
    if (cursor.row === null || cursor.row < this.begin || cursor.row >= this.end) return;
    const top = this.y(cursor.row);
    context.strokeRect(
      this.left - 0.5, Math.round(top) - 0.5, this.right - this.left + 1,
      Math.max(Math.round(this.y(cursor.row + 1) - top), 2));
  }
}

// Groups the rebalances that share a column of pixels into one line with their most frequent cause.
function columnsOf(plot, rebalances) {
  const columns = [];
  let last = null;
  const end = lowerBound(rebalances.at, plot.view.to + TIME_EPSILON);
  for (let index = lowerBound(rebalances.at, plot.view.from); index < end; index++) {
    const x = Math.round(plot.x(rebalances.at[index]));
    if (!last || last.x !== x) columns.push(last = { x, first: index, causes: new Map() });
    last.end = index + 1;
    const cause = rebalances.cause[index];
    last.causes.set(cause, (last.causes.get(cause) || 0) + 1);
  }
  for (const column of columns) {
    [column.cause] = [...column.causes].reduce((most, each) => (each[1] > most[1] ? each : most));
  }
  return columns;
}

// Paints the lines of rebalances pixel by pixel, because many dashed strokes are slow. A line with
// enough space is opaque; a line without is thin and half transparent.
function paintLines(plot, pixels, wide, high, theme, columns) {
  const ground = pixel(theme.ground);
  const styles = new Map(Object.keys(CAUSES).map((cause) => [cause, {
    colour: pixel(theme.causes[cause]), dashes: dashesOf(CAUSES[cause].dash, plot.ratio, high) }]));
  const thinLines = [];
  columns.forEach(({ x, cause }, index) => {
    const room = Math.min(
      index ? x - columns[index - 1].x : Infinity,
      index + 1 < columns.length ? columns[index + 1].x - x : Infinity);
    const thick = Math.round((room < NEAR_PIXELS ? 1 : 1.5) * plot.ratio);
    const edge = room < NEAR_PIXELS ? 0 : Math.ceil(plot.ratio);
    const left = Math.min(Math.max(Math.round((x - plot.left) * plot.ratio) - (thick >> 1), 0), wide - thick);
    const style = styles.get(cause) || styles.get('unknown');
    if (room < CLOSE_PIXELS) {
      for (let at = left; at < left + thick; at++) thinLines.push({ at, ...style });
      return;
    }
    const [from, to] = [Math.max(left - edge, 0), Math.min(left + thick + edge, wide)];
    for (let y = 0, begin = 0; y < high; y++, begin += wide) {
      if (edge) pixels.fill(ground, begin + from, begin + to);
      if (style.dashes[y]) pixels.fill(style.colour, begin + left, begin + left + thick);
    }
  });
  paintThinLines(pixels, wide, high, ground, thinLines);
}

// Paints half-transparent lines, all lines row by row: access to memory by columns is slow.
function paintThinLines(pixels, wide, high, ground, lines) {
  const offsets = Int32Array.from(lines, (line) => line.at);
  const halves = Int32Array.from(lines, (line) => (line.colour >> 1) & HALF);
  const kinds = [...new Set(lines.map((line) => line.dashes))];
  const kind = Uint8Array.from(lines, (line) => kinds.indexOf(line.dashes));
  const drawn = new Uint8Array(kinds.length);
  for (let y = 0, begin = 0; y < high; y++, begin += wide) {
    kinds.forEach((dashes, index) => { drawn[index] = dashes[y]; });
    for (let line = 0; line < offsets.length; line++) {
      if (drawn[kind[line]] === 0) continue;
      const at = begin + offsets[line];
      pixels[at] = OPAQUE | ((((pixels[at] || ground) >> 1) & HALF) + halves[line]);
    }
  }
}

// Returns for each pixel of a vertical line whether it is part of a dash.
function dashesOf(dash, ratio, high) {
  const dashes = new Uint8Array(high);
  const lengths = dash.length ? dash.map((length) => Math.round(length * ratio)) : [high];
  for (let y = 0, part = 0; y < high; y += lengths[part % lengths.length], part++) {
    if (part % 2 === 0) dashes.fill(1, y, y + lengths[part % lengths.length]);
  }
  return dashes;
}

// Draws the letter of the cause above each line, or a number above lines that are close together.
function paintSigns(context, theme, columns) {
  const clusters = [];
  for (const column of columns) {
    const last = clusters[clusters.length - 1];
    if (last && column.x - last.to < NEAR_PIXELS && column.x - last.from < 4 * NEAR_PIXELS) {
      last.to = column.x;
      last.count += column.end - column.first;
    } else {
      clusters.push({ from: column.x, to: column.x, count: column.end - column.first, cause: column.cause });
    }
  }
  context.textAlign = 'center';
  let right = 0;
  for (const { from, to, count, cause } of clusters) {
    const text = count > 1 ? number(count) : causeStyle(cause).letter;
    const middle = (from + to) / 2, half = textWidth(context, text) / 2 + 2;
    if (middle - half < right) continue;
    right = middle + half;
    context.fillStyle = count > 1 ? theme.text : theme.causes[cause] || theme.causes.unknown;
    context.fillText(text, middle, STRIP / 2);
  }
}
