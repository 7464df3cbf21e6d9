// Bands of ownership: a row for each partition, a colour, a pattern and a number for each member.
const ROW = 17, LOWEST = 96, HIGHEST = 442;
const LABELLED = 11;
const PATTERNS = 4;
const NEAR = 12, CLOSE = 5;

// The four bytes of a pixel whose colour is a share of the way from one to another.
function pixel(hex, other = hex, share = 0) {
  const part = (place) => {
    const [one, two] = [hex, other].map((colour) => parseInt(colour.slice(place, place + 2), 16));
    return Math.round(one + (two - one) * share);
  };
  return (255 << 24 | part(5) << 16 | part(3) << 8 | part(1)) >>> 0;
}

class BandChart extends Plot {
  constructor(canvas, view, chart, bands, rebalances) {
    super(canvas, view);
    Object.assign(this, { chart, bands, rebalances, begin: 0, end: chart.rowTopic.length });
  }

  get rows() {
    return this.end - this.begin;
  }

  fit() {
    const plot = Math.min(Math.max(this.rows * ROW, LOWEST), HIGHEST);
    this.size(plot + STRIP + AXIS);
  }

  y(row) {
    return this.top + ((row - this.begin) / this.rows) * (this.bottom - this.top);
  }

  rowAt(y) {
    const share = (y - this.top) / (this.bottom - this.top);
    if (share < 0 || share >= 1 || !this.rows) return null;
    return this.begin + Math.floor(share * this.rows);
  }

  // The band of a row at a time; null where nobody owned it.
  bandAt(row, time) {
    const { first, since, until } = this.bands;
    const place = placeOf(since, time + INSTANT, first[row], first[row + 1]) - 1;
    return place >= first[row] && time <= until[place] ? place : null;
  }

  paint(ink) {
    this.draw((context) => {
      const columns = columnsOf(this, this.rebalances);
      this.paintBands(context, ink, columns);
      this.paintNames(context, ink);
      if ((this.bottom - this.top) / this.rows >= LABELLED) this.paintLabels(context, ink);
      this.timeAxis(context, ink);
      paintSigns(context, ink, columns);
    });
  }

  // Bands are set pixel by pixel: however many there are, a chart costs what its pixels cost. Of
  // rows thinner than a pixel the first of each pixel is shown.
  paintBands(context, ink, columns) {
    const wide = Math.round((this.right - this.left) * this.ratio);
    const high = Math.round((this.bottom - this.top) * this.ratio);
    if (wide < 1 || high < 1 || !this.rows) return;
    const image = context.createImageData(wide, high);
    const pixels = new Uint32Array(image.data.buffer);
    const colours = ink.members.map((colour) => [pixel(colour), pixel(colour, ink.ground, 0.6)]);
    const lines = Math.min(this.rows, high);
    for (let line = 0; line < lines; line++) {
      const top = Math.floor((line * high) / lines);
      const next = Math.floor(((line + 1) * high) / lines);
      const bottom = next - top >= 4 * this.ratio ? next - Math.round(this.ratio) : next;
      const row = this.begin + Math.floor((line * this.rows) / lines);
      this.paintRow(pixels, wide, top, bottom, row, colours);
    }
    paintLines(this, pixels, wide, high, ink, columns);
    context.putImageData(image, Math.round(this.left * this.ratio), Math.round(this.top * this.ratio));
  }

  paintRow(pixels, wide, top, bottom, row, colours) {
    const { since, until, member } = this.bands;
    const [place, last] = this.bandsIn(row);
    const scale = wide / this.view.width;
    let painted = 0;
    for (let band = place; band < last; band++) {
      const right = Math.min(Math.ceil((until[band] - this.view.from) * scale), wide);
      const left = Math.max(Math.floor((since[band] - this.view.from) * scale), 0);
      if (right <= painted && band > place) continue;
      painted = right;
      const rank = this.chart.members[member[band]].rank;
      const [colour, stroke] = colours[rank % colours.length];
      const pattern = Math.floor(rank / colours.length) % PATTERNS;
      for (let y = top; y < bottom; y++) {
        pixels.fill(colour, y * wide + left, y * wide + right);
        if (pattern) this.hatch(pixels, y * wide, left, right, y, pattern, stroke);
      }
    }
  }

  hatch(pixels, line, left, right, y, pattern, stroke) {
    const gap = Math.round(7 * this.ratio), thick = Math.round(1.5 * this.ratio);
    const slant = pattern === 1 ? y : pattern === 2 ? gap * 4096 - y : 0;
    for (let x = left - ((left + slant) % gap); x < right; x += gap) {
      pixels.fill(stroke, line + Math.max(x, left), line + Math.max(Math.min(x + thick, right), left));
    }
  }

  // The places of the bands of a row that are in sight.
  bandsIn(row) {
    const { first, since } = this.bands;
    const begin = placeOf(since, this.view.from, first[row], first[row + 1]);
    return [Math.max(begin - 1, first[row]), placeOf(since, this.view.to, begin, first[row + 1])];
  }

  // Every row's name if there is room, else where topics begin.
  paintNames(context, ink) {
    const room = (this.bottom - this.top) / this.rows;
    const every = Math.max(Math.ceil(LABELLED / room), 1);
    context.textAlign = 'right';
    context.fillStyle = ink.dim;
    for (let row = this.begin; row < this.end; row += every) {
      const middle = this.y(row) + Math.min(room / 2, LABELLED);
      const tail = `-${this.chart.rowPartition[row]}`;
      const width = this.left - 8 - context.measureText(tail).width;
      const topic = fitted(context, this.chart.topics[this.chart.rowTopic[row]], width);
      context.fillText(topic + tail, this.left - 6, middle);
    }
  }

  paintLabels(context, ink) {
    context.textAlign = 'left';
    context.fillStyle = ink.label;
    const names = this.chart.members.map((member) => `${member.rank + 1} ${member.client}`);
    for (let row = this.begin; row < this.end; row++) {
      const [place, last] = this.bandsIn(row);
      const middle = (this.y(row) + this.y(row + 1)) / 2;
      for (let band = place; band < last; band++) {
        const left = Math.max(this.x(this.bands.since[band]), this.left) + 4;
        const room = Math.min(this.x(this.bands.until[band]), this.right) - left - 3;
        if (room < 8) continue;
        const text = names[this.bands.member[band]];
        const short = text.slice(0, text.indexOf(' '));
        if (context.measureText(text).width <= room) context.fillText(text, left, middle);
        else if (context.measureText(short).width <= room) context.fillText(short, left, middle);
      }
    }
  }

  // The time and the row that the pointer or the keyboard is at.
  point(cursor, ink) {
    this.over((context) => {
      context.strokeStyle = ink.text;
      context.lineWidth = 1;
      if (cursor.row !== null && cursor.row >= this.begin && cursor.row < this.end) {
        const top = this.y(cursor.row);
        context.strokeRect(
          this.left - 0.5, Math.round(top) - 0.5, this.right - this.left + 1,
          Math.max(Math.round(this.y(cursor.row + 1) - top), 2));
      }
      pointTime(this, context, cursor);
    });
  }
}

function pointTime(plot, context, cursor) {
  const lines = cursor.chosen ? cursor.chosen : cursor.time === null ? [] : [cursor.time];
  context.beginPath();
  for (const time of lines) {
    const x = Math.round(plot.x(time)) + 0.5;
    context.moveTo(x, 0);
    context.lineTo(x, plot.bottom + 4);
  }
  context.stroke();
  if (lines.length === 2) {
    context.globalAlpha = 0.15;
    context.fillStyle = context.strokeStyle;
    const [from, to] = lines.map((time) => plot.x(time));
    context.fillRect(Math.min(from, to), plot.top, Math.abs(to - from), plot.bottom - plot.top);
    context.globalAlpha = 1;
  }
}

// Rebalances that share a column of pixels are one line, with its most frequent cause.
function columnsOf(plot, rebalances) {
  const columns = [];
  let last = null;
  const end = placeOf(rebalances.at, plot.view.to + INSTANT);
  for (let place = placeOf(rebalances.at, plot.view.from); place < end; place++) {
    const x = Math.round(plot.x(rebalances.at[place]));
    if (!last || last.x !== x) columns.push(last = { x, first: place, causes: new Map() });
    last.end = place + 1;
    const cause = rebalances.cause[place];
    last.causes.set(cause, (last.causes.get(cause) || 0) + 1);
  }
  for (const column of columns) {
    [column.cause] = [...column.causes].reduce((most, one) => (one[1] > most[1] ? one : most));
  }
  return columns;
}

// Lines are set pixel by pixel like the bands: strokes with dashes are slow where there are many.
// Those that have room stand out; those that have none are thin, and let the bands show through.
function paintLines(plot, pixels, wide, high, ink, columns) {
  const ground = pixel(ink.ground);
  columns.forEach(({ x, cause }, place) => {
    const room = Math.min(
      place ? x - columns[place - 1].x : Infinity,
      place + 1 < columns.length ? columns[place + 1].x - x : Infinity);
    const thick = Math.round((room < NEAR ? 1 : 1.5) * plot.ratio);
    const edge = room < NEAR ? 0 : Math.ceil(plot.ratio);
    const left = Math.min(Math.max(Math.round((x - plot.left) * plot.ratio) - (thick >> 1), 0), wide - thick);
    const [from, to] = [Math.max(left - edge, 0), Math.min(left + thick + edge, wide)];
    const colour = pixel(ink.causes[cause] || ink.causes.unknown);
    const dash = lookOf(cause).dash.map((length) => Math.round(length * plot.ratio));
    for (let y = 0, part = 0, rest = dash[0] || high; y < high; y++, rest--) {
      if (!rest) rest = dash[++part % dash.length];
      const line = y * wide;
      if (edge) for (let at = line + from; at < line + to; at++) pixels[at] = ground;
      if (part % 2) continue;
      for (let at = line + left; at < line + left + thick; at++) {
        pixels[at] = room < CLOSE ? halfway(pixels[at], colour) : colour;
      }
    }
  });
}

function halfway(one, other) {
  return ((((one >>> 1) & 0x7f7f7f7f) + ((other >>> 1) & 0x7f7f7f7f)) | 0xff000000) >>> 0;
}

// Over each line the letter of its cause; over lines that are too near to each other their number.
function paintSigns(context, ink, columns) {
  const heaps = [];
  for (const column of columns) {
    const last = heaps[heaps.length - 1];
    if (last && column.x - last.to < NEAR && column.x - last.from < 4 * NEAR) {
      last.to = column.x;
      last.many += column.end - column.first;
    } else {
      heaps.push({ from: column.x, to: column.x, many: column.end - column.first, cause: column.cause });
    }
  }
  context.textAlign = 'center';
  let right = 0;
  for (const { from, to, many, cause } of heaps) {
    const text = many > 1 ? number(many) : lookOf(cause).letter;
    const middle = (from + to) / 2, half = context.measureText(text).width / 2 + 2;
    if (middle - half < right) continue;
    right = middle + half;
    context.fillStyle = many > 1 ? ink.text : ink.causes[cause] || ink.causes.unknown;
    context.fillText(text, middle, STRIP / 2);
  }
}
