// What all charts share: the time range that they show, colours, axes, and drawing on canvas.
const LEFT = 92, RIGHT = 8, STRIP = 16, AXIS = 20;
const FONT = '11px system-ui, sans-serif';

// Each cause has a letter, a colour and a dash: none is told by colour alone.
const CAUSES = {
  joined: { letter: 'J', dash: [] },
  left: { letter: 'L', dash: [6, 3] },
  silent: { letter: 'S', dash: [2, 2] },
  'slow poll': { letter: 'P', dash: [8, 2, 2, 2] },
  'subscription changed': { letter: 'T', dash: [10, 4] },
  'partitions added': { letter: 'N', dash: [4, 4] },
  'strategy changed': { letter: 'A', dash: [12, 2, 2, 2, 2, 2] },
  'leader rejoined': { letter: 'R', dash: [3, 6] },
  unknown: { letter: '?', dash: [1, 4] },
};

function lookOf(cause) {
  return CAUSES[cause] || CAUSES.unknown;
}

// The page's colours, as its style has them for the scheme in use.
let inked = null;

function inks() {
  const scheme = matchMedia('(prefers-color-scheme: dark)').matches;
  if (!inked || inked.scheme !== scheme) inked = { ...inksInUse(), scheme };
  return inked;
}

function inksInUse() {
  const style = getComputedStyle(document.documentElement);
  const ink = (name) => style.getPropertyValue(`--${name}`).trim();
  const causes = {};
  Object.keys(CAUSES).forEach((cause, place) => { causes[cause] = ink(`cause-${place}`); });
  return {
    text: ink('text'), dim: ink('dim'), line: ink('line'), ground: ink('ground'),
    accent: ink('accent'), bar: ink('bar'), need: ink('need'), label: ink('label'), causes,
    members: Array.from({ length: 8 }, (_, place) => ink(`member-${place}`)),
  };
}

// Colours and letters take a while to be had for the first time: better before a chart is wanted.
function prepareCharts() {
  const context = document.createElement('canvas').getContext('2d');
  context.font = FONT;
  context.fillStyle = inks().text;
  context.fillText(Array.from({ length: 95 }, (_, place) => String.fromCharCode(32 + place)).join(''), 0, 20);
}

class Plot {
  constructor(canvas, view) {
    Object.assign(this, { canvas, view, top: STRIP, left: LEFT });
    this.context = canvas.getContext('2d');
    this.kept = document.createElement('canvas');
    this.isKept = this.isBare = false;
  }

  // Heights are set before any width is asked for: so the page is laid out once for all charts.
  stand() {
    this.height = this.tall;
    this.canvas.style.height = `${this.height}px`;
  }

  // Asks the page for the width that it gives.
  measure() {
    this.width = this.canvas.clientWidth;
  }

  // Sets the size, in the page's pixels.
  size() {
    const { height } = this;
    const ratio = window.devicePixelRatio || 1;
    this.left = this.width < 480 ? 64 : LEFT;
    this.right = this.width - RIGHT;
    this.bottom = height - AXIS;
    this.ratio = ratio;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(height * ratio);
  }

  x(time) {
    return this.left + ((time - this.view.from) / this.view.width) * (this.right - this.left);
  }

  time(x) {
    const share = (x - this.left) / (this.right - this.left);
    return this.view.from + Math.min(Math.max(share, 0), 1) * this.view.width;
  }

  // Draws what stays while the cursor moves.
  draw(paint) {
    const { context } = this;
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    context.font = FONT;
    context.textBaseline = 'middle';
    paint(context);
    this.isBare = true;
    this.isKept = false;
  }

  // Draws something over what stays, or takes it away again.
  over(paint) {
    if (!this.canvas.width || !this.canvas.height) return;
    if (!this.isBare) this.restore();
    this.isBare = !paint;
    if (!paint) return;
    if (!this.isKept) this.keep();
    this.context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    paint(this.context);
  }

  keep() {
    this.kept.width = this.canvas.width;
    this.kept.height = this.canvas.height;
    this.kept.getContext('2d').drawImage(this.canvas, 0, 0);
    this.isKept = true;
  }

  restore() {
    this.context.setTransform(1, 0, 0, 1, 0, 0);
    this.context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    this.context.drawImage(this.kept, 0, 0);
  }

  timeAxis(context, ink) {
    context.strokeStyle = ink.line;
    context.fillStyle = ink.dim;
    context.textAlign = 'center';
    context.lineWidth = 1;
    context.beginPath();
    for (const { time, text } of ticks(this.view, (this.right - this.left) / 64)) {
      const x = Math.round(this.x(time)) + 0.5;
      context.moveTo(x, this.bottom);
      context.lineTo(x, this.bottom + 4);
      const half = widthOf(context, text) / 2;
      context.fillText(text, Math.min(Math.max(x, this.left + half), this.width - half), this.bottom + 12);
    }
    context.rect(this.left - 0.5, this.top - 0.5, this.right - this.left + 1, this.bottom - this.top + 1);
    context.stroke();
  }

  // A scale of amounts from 0 to the most; returns where an amount is.
  amountAxis(context, ink, most, say, steps = []) {
    const top = this.top + 4;
    const y = (amount) => this.bottom - (amount / (most || 1)) * (this.bottom - top);
    context.textAlign = 'right';
    context.fillStyle = ink.dim;
    context.strokeStyle = ink.line;
    context.beginPath();
    for (const amount of roundAmounts(most, 3, steps)) {
      const line = Math.round(y(amount)) + 0.5;
      context.moveTo(this.left, line);
      context.lineTo(this.right, line);
      context.fillText(say(amount), this.left - 6, line);
    }
    context.stroke();
    return y;
  }
}

function isNowhere(cursor) {
  return cursor.time === null && cursor.row === null && cursor.chosen === null;
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

// Round amounts up to the most, about so many, by one of these steps or a decimal one.
function roundAmounts(most, about, steps) {
  if (!(most > 0)) return [0];
  const raw = most / about;
  const scale = 10 ** Math.floor(Math.log10(raw));
  const step = steps.find((one) => one >= raw && raw >= steps[0])
    || [1, 2, 5, 10].map((one) => one * scale).find((one) => one >= raw);
  const found = [];
  for (let amount = 0; amount <= most * 1.0001; amount += step) found.push(Number(amount.toPrecision(6)));
  return found;
}

// How wide a text is. All charts write in one font, and most of their texts many times.
const widths = new Map();
const MEASURED = 20000;

function widthOf(context, text) {
  let width = widths.get(text);
  if (width === undefined) {
    if (widths.size >= MEASURED) widths.clear();
    widths.set(text, width = context.measureText(text).width);
  }
  return width;
}

// A text cut to a width.
function fitted(context, text, width) {
  if (widthOf(context, text) <= width) return text;
  let [low, high] = [0, Math.min(text.length, 64)];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (widthOf(context, text.slice(0, middle) + '…') <= width) low = middle;
    else high = middle - 1;
  }
  return low ? text.slice(0, low) + '…' : '';
}

// Less than any two times are apart, and more than the numbers of this age can tell apart.
const INSTANT = 1e-2;

// The first place in a rising column that is not below a value.
function placeOf(column, value, low = 0, high = column.length) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (column[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

// The time that all charts of a group show.
const SHORTEST = SECOND;

class View {
  constructor(begin, end, changed) {
    Object.assign(this, { begin, end, changed, from: begin, to: end });
  }

  get width() {
    return this.to - this.from;
  }

  // Shows a time of a width, as near as the evidence allows.
  show(from, width) {
    const shown = Math.min(Math.max(width, SHORTEST), this.end - this.begin);
    const begin = Math.min(Math.max(from, this.begin), this.end - shown);
    if (begin === this.from && begin + shown === this.to) return;
    this.from = begin;
    this.to = begin + shown;
    this.changed();
  }

  zoom(factor, around = (this.from + this.to) / 2) {
    const width = Math.min(Math.max(this.width * factor, SHORTEST), this.end - this.begin);
    const share = (around - this.from) / this.width;
    this.show(around - share * width, width);
  }

  move(share) {
    this.show(this.from + share * this.width, this.width);
  }

  all() {
    this.show(this.begin, this.end - this.begin);
  }

  // Brings a time into sight.
  include(time) {
    if (time < this.from || time > this.to) this.show(time - this.width / 2, this.width);
  }
}

const STEPS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400,
  172800, 604800, 1209600, 2592000, 7776000, 31536000].map((seconds) => seconds * SECOND);

// Round times for an axis, at most so many.
function ticks(view, most) {
  const step = STEPS.find((one) => view.width / one <= most) || view.width;
  const found = [];
  for (let time = Math.ceil(view.from / step) * step; time <= view.to; time += step) {
    found.push({ time, text: tickText(time, step, view) });
  }
  return found;
}

// A day has its year where the view has several.
function tickText(time, step, view) {
  const text = new Date(time).toISOString();
  const years = [view.from, view.to].map((one) => new Date(one).getUTCFullYear());
  if (step >= DAY || time % DAY === 0) return text.slice(years[0] === years[1] ? 5 : 0, 10);
  return step >= MINUTE ? text.slice(11, 16) : text.slice(11, 19);
}
