// Bands of ownership: a row for each partition, a colour, a pattern and a number for each member.
const ROW = 17, LOWEST = 96, HIGHEST = 442;
const LABELLED = 11, SWATCH = 28;
const COLOURS = 8, PATTERNS = 4, LOOKS = COLOURS * PATTERNS;
const NOBODY = -1;
const OPAQUE = 255 << 24, HALF = 0x7f7f7f;
const NEAR = 12, CLOSE = 5;

// The four bytes of a pixel whose colour is a share of the way from one to another. Pixels are
// signed: an opaque one is then a small number, with which scripts are fast from the first time on.
function pixel(hex, other = hex, share = 0) {
  const part = (place) => {
    const [one, two] = [hex, other].map((colour) => parseInt(colour.slice(place, place + 2), 16));
    return Math.round(one + (two - one) * share);
  };
  return OPAQUE | part(5) << 16 | part(3) << 8 | part(1);
}

// Colour, hatching's colour and pattern of each look: members take colours first, then patterns.
function looksOf(ink, ratio) {
  const colours = ink.members.map((colour) => pixel(colour));
  const strokes = ink.members.map((colour) => pixel(colour, ink.ground, 0.6));
  const looks = Array.from({ length: LOOKS }, (_, place) => place);
  return {
    colour: Int32Array.from(looks, (one) => colours[one % COLOURS]),
    stroke: Int32Array.from(looks, (one) => strokes[one % COLOURS]),
    pattern: Uint8Array.from(looks, (one) => Math.floor(one / COLOURS)),
    gap: Math.round(7 * ratio),
    thick: Math.round(1.5 * ratio),
  };
}

// One line of pixels: plain, hatched up, hatched down or striped.
function paintLine(pixels, begin, y, owners, { colour, stroke, pattern, gap, thick }) {
  const slants = [0, y % gap, gap - (y % gap), 0];
  for (let x = 0; x < owners.length; x++) {
    const look = owners[x];
    if (look === NOBODY) continue;
    const hatching = pattern[look];
    const isStroke = hatching && (x + slants[hatching]) % gap < thick;
    pixels[begin + x] = isStroke ? stroke[look] : colour[look];
  }
}

// A piece of a member's band, as it stands in the charts.
function swatch(rank) {
  const canvas = element('canvas', { class: 'swatch', 'aria-hidden': 'true' });
  const ratio = window.devicePixelRatio || 1;
  const [wide, high] = [SWATCH, LABELLED].map((length) => Math.round(length * ratio));
  Object.assign(canvas, { width: wide, height: high });
  const context = canvas.getContext('2d');
  const image = context.createImageData(wide, high);
  const owners = new Int8Array(wide).fill(rank % LOOKS);
  const looks = looksOf(inks(), ratio);
  for (let y = 0; y < high; y++) paintLine(new Int32Array(image.data.buffer), y * wide, y, owners, looks);
  context.putImageData(image, 0, 0);
  return canvas;
}

class BandChart extends Plot {
  constructor(canvas, view, chart, bands, rebalances) {
    super(canvas, view);
    Object.assign(this, { chart, bands, rebalances, begin: 0, end: chart.rowTopic.length });
    this.looks = Int8Array.from(chart.members, (one) => one.rank % LOOKS);
  }

  get rows() {
    return this.end - this.begin;
  }

  get tall() {
    return Math.min(Math.max(this.rows * ROW, LOWEST), HIGHEST) + STRIP + AXIS;
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
    const pixels = new Int32Array(image.data.buffer);
    const looks = looksOf(ink, this.ratio);
    const owners = new Int8Array(wide);
    const lines = Math.min(this.rows, high);
    for (let line = 0; line < lines; line++) {
      const top = Math.floor((line * high) / lines);
      const next = Math.floor(((line + 1) * high) / lines);
      const bottom = next - top >= 4 * this.ratio ? next - Math.round(this.ratio) : next;
      this.findOwners(owners, this.begin + Math.floor((line * this.rows) / lines));
      for (let y = top; y < bottom; y++) paintLine(pixels, y * wide, y, owners, looks);
    }
    paintLines(this, pixels, wide, high, ink, columns);
    context.putImageData(image, Math.round(this.left * this.ratio), Math.round(this.top * this.ratio));
  }

  // Which look each pixel of a row's line has; of bands that share a pixel the last that goes on
  // beyond it.
  findOwners(owners, row) {
    const { since, until, member } = this.bands;
    const [place, last] = this.bandsIn(row);
    const { from, width } = this.view;
    const scale = owners.length / width;
    owners.fill(NOBODY);
    let painted = -Infinity;
    for (let band = place; band < last; band++) {
      if (until[band] <= painted) continue;
      const left = Math.max(Math.floor((since[band] - from) * scale), 0);
      const right = Math.min(Math.ceil((until[band] - from) * scale), owners.length);
      const look = this.looks[member[band]];
      for (let x = left; x < right; x++) owners[x] = look;
      painted = from + right / scale;
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
      const width = this.left - 8 - widthOf(context, tail);
      const topic = fitted(context, this.chart.topics[this.chart.rowTopic[row]], width);
      context.fillText(topic + tail, this.left - 6, middle);
    }
  }

  paintLabels(context, ink) {
    context.textAlign = 'left';
    context.fillStyle = ink.label;
    const names = this.chart.members.map((member) => `${member.rank + 1} ${member.client}`);
    const least = this.time(this.left + 15) - this.view.from;
    for (let row = this.begin; row < this.end; row++) {
      const [place, last] = this.bandsIn(row);
      const middle = (this.y(row) + this.y(row + 1)) / 2;
      for (let band = place; band < last; band++) {
        if (this.bands.until[band] - this.bands.since[band] < least) continue;
        const left = Math.max(this.x(this.bands.since[band]), this.left) + 4;
        const room = Math.min(this.x(this.bands.until[band]), this.right) - left - 3;
        if (room < 8) continue;
        const text = names[this.bands.member[band]];
        const short = text.slice(0, text.indexOf(' '));
        if (widthOf(context, text) <= room) context.fillText(text, left, middle);
        else if (widthOf(context, short) <= room) context.fillText(short, left, middle);
      }
    }
  }

  // The time and the row that the pointer or the keyboard is at.
  point(cursor, ink) {
    this.over(isNowhere(cursor) ? null : (context) => {
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
  const looks = new Map(Object.keys(CAUSES).map((cause) => [cause, {
    colour: pixel(ink.causes[cause]), dashes: dashesOf(CAUSES[cause].dash, plot.ratio, high) }]));
  const faint = [];
  columns.forEach(({ x, cause }, place) => {
    const room = Math.min(
      place ? x - columns[place - 1].x : Infinity,
      place + 1 < columns.length ? columns[place + 1].x - x : Infinity);
    const thick = Math.round((room < NEAR ? 1 : 1.5) * plot.ratio);
    const edge = room < NEAR ? 0 : Math.ceil(plot.ratio);
    const left = Math.min(Math.max(Math.round((x - plot.left) * plot.ratio) - (thick >> 1), 0), wide - thick);
    const look = looks.get(cause) || looks.get('unknown');
    if (room < CLOSE) {
      for (let at = left; at < left + thick; at++) faint.push({ at, ...look });
      return;
    }
    const [from, to] = [Math.max(left - edge, 0), Math.min(left + thick + edge, wide)];
    for (let y = 0, begin = 0; y < high; y++, begin += wide) {
      if (edge) pixels.fill(ground, begin + from, begin + to);
      if (look.dashes[y]) pixels.fill(look.colour, begin + left, begin + left + thick);
    }
  });
  paintFaint(pixels, wide, high, ground, faint);
}

// Lines that are half colour and half what is under them, all at once from the top down: memory is
// slow to go through by columns.
function paintFaint(pixels, wide, high, ground, lines) {
  const places = Int32Array.from(lines, (line) => line.at);
  const halves = Int32Array.from(lines, (line) => (line.colour >> 1) & HALF);
  const kinds = [...new Set(lines.map((line) => line.dashes))];
  const kind = Uint8Array.from(lines, (line) => kinds.indexOf(line.dashes));
  const drawn = new Uint8Array(kinds.length);
  for (let y = 0, begin = 0; y < high; y++, begin += wide) {
    kinds.forEach((dashes, place) => { drawn[place] = dashes[y]; });
    for (let line = 0; line < places.length; line++) {
      if (drawn[kind[line]] === 0) continue;
      const at = begin + places[line];
      pixels[at] = OPAQUE | ((((pixels[at] || ground) >> 1) & HALF) + halves[line]);
    }
  }
}

// Of each pixel down a line whether it is part of a dash.
function dashesOf(dash, ratio, high) {
  const dashes = new Uint8Array(high);
  const lengths = dash.length ? dash.map((length) => Math.round(length * ratio)) : [high];
  for (let y = 0, part = 0; y < high; y += lengths[part % lengths.length], part++) {
    if (part % 2 === 0) dashes.fill(1, y, y + lengths[part % lengths.length]);
  }
  return dashes;
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
    const middle = (from + to) / 2, half = widthOf(context, text) / 2 + 2;
    if (middle - half < right) continue;
    right = middle + half;
    context.fillStyle = many > 1 ? ink.text : ink.causes[cause] || ink.causes.unknown;
    context.fillText(text, middle, STRIP / 2);
  }
}
