// The base of all charts: the shown time range, colours, axes, and drawing on canvas.
const LEFT = 92, RIGHT = 8, STRIP = 16, AXIS = 20;
const FONT = '11px system-ui, sans-serif';
const CHART_HEIGHT = 170;

// Each cause has a letter, a colour and a dash pattern, so that colour alone is never needed.
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

function causeStyle(cause) {
  return CAUSES[cause] || CAUSES.unknown;
}

// The colours that the style sheet defines for the current colour scheme.
let cachedTheme = null;

function currentTheme() {
  const scheme = matchMedia('(prefers-color-scheme: dark)').matches;
  if (!cachedTheme || cachedTheme.scheme !== scheme) cachedTheme = { ...readTheme(), scheme };
  return cachedTheme;
}

function readTheme() {
  const style = getComputedStyle(document.documentElement);
  const cssColour = (name) => style.getPropertyValue(`--${name}`).trim();
  const causes = {};
  Object.keys(CAUSES).forEach((cause, index) => { causes[cause] = cssColour(`cause-${index}`); });
  return {
    text: cssColour('text'), dim: cssColour('dim'), line: cssColour('line'), ground: cssColour('ground'),
    accent: cssColour('accent'), bar: cssColour('bar'), need: cssColour('need'), label: cssColour('label'), causes,
    members: Array.from({ length: 8 }, (_, index) => cssColour(`member-${index}`)),
  };
}

// Loads colours and the font before the first chart is opened, because that is slow the first time.
function prepareCharts() {
  const context = document.createElement('canvas').getContext('2d');
  context.font = FONT;
  context.fillStyle = currentTheme().text;
  context.fillText(Array.from({ length: 95 }, (_, index) => String.fromCharCode(32 + index)).join(''), 0, 20);
}

class Plot {
  constructor(canvas, view) {
    Object.assign(this, { canvas, view, top: STRIP, left: LEFT });
    this.context = canvas.getContext('2d');
    this.saved = document.createElement('canvas');
    this.isSaved = this.isWithoutOverlay = false;
  }

  get preferredHeight() {
    return CHART_HEIGHT;
  }

  // Sets the height. Called for all charts before any width is read, so that the browser computes
  // the layout once.
  setHeight() {
    this.height = this.preferredHeight;
    this.canvas.style.height = `${this.height}px`;
  }

  // Reads the width from the layout.
  measure() {
    this.width = this.canvas.clientWidth;
  }

  // Sets the size of the canvas and of the plot area, from the width and height in CSS pixels.
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

  // Draws the chart without the cursor.
  draw(paint) {
    const { context } = this;
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    context.font = FONT;
    context.textBaseline = 'middle';
    paint(context);
    this.isWithoutOverlay = true;
    this.isSaved = false;
  }

  // Draws the time of the cursor, and its row in a chart that has rows.
  drawCursor(cursor, theme) {
    this.drawOverlay(isCursorEmpty(cursor) ? null : (context) => {
      context.strokeStyle = theme.text;
      context.lineWidth = 1;
      this.drawCursorRow(context, cursor);
      drawCursorTime(this, context, cursor);
    });
  }

  drawCursorRow() {}

  // Draws the cursor over the saved chart, or removes it if paint is null.
  drawOverlay(paint) {
    if (!this.canvas.width || !this.canvas.height) return;
    if (!this.isWithoutOverlay) this.restore();
    this.isWithoutOverlay = !paint;
    if (!paint) return;
    if (!this.isSaved) this.keep();
    this.context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    paint(this.context);
  }

  keep() {
    this.saved.width = this.canvas.width;
    this.saved.height = this.canvas.height;
    this.saved.getContext('2d').drawImage(this.canvas, 0, 0);
    this.isSaved = true;
  }

  restore() {
    this.context.setTransform(1, 0, 0, 1, 0, 0);
    this.context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    this.context.drawImage(this.saved, 0, 0);
  }

  timeAxis(context, theme) {
    context.strokeStyle = theme.line;
    context.fillStyle = theme.dim;
    context.textAlign = 'center';
    context.lineWidth = 1;
    context.beginPath();
    for (const { time, text } of ticks(this.view, (this.right - this.left) / 64)) {
      const x = Math.round(this.x(time)) + 0.5;
      context.moveTo(x, this.bottom);
      context.lineTo(x, this.bottom + 4);
      const half = textWidth(context, text) / 2;
      context.fillText(text, Math.min(Math.max(x, this.left + half), this.width - half), this.bottom + 12);
    }
    context.rect(this.left - 0.5, this.top - 0.5, this.right - this.left + 1, this.bottom - this.top + 1);
    context.stroke();
  }

  // Draws an axis of amounts from 0 to most; returns a function from an amount to its y.
  amountAxis(context, theme, most, formatAmount, steps = []) {
    const top = this.top + 4;
    const y = (amount) => this.bottom - (amount / (most || 1)) * (this.bottom - top);
    context.textAlign = 'right';
    context.fillStyle = theme.dim;
    context.strokeStyle = theme.line;
    context.beginPath();
    for (const amount of axisAmounts(most, 3, steps)) {
      const line = Math.round(y(amount)) + 0.5;
      context.moveTo(this.left, line);
      context.lineTo(this.right, line);
      context.fillText(formatAmount(amount), this.left - 6, line);
    }
    context.stroke();
    return y;
  }
}

function isCursorEmpty(cursor) {
  return cursor.time === null && cursor.row === null && cursor.dragRange === null;
}

function drawCursorTime(plot, context, cursor) {
  const lines = cursor.dragRange ? cursor.dragRange : cursor.time === null ? [] : [cursor.time];
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

// Returns about `about` round amounts up to most, in one of these steps or in a decimal step.
function axisAmounts(most, about, steps) {
  if (!(most > 0)) return [0];
  const raw = most / about;
  const scale = 10 ** Math.floor(Math.log10(raw));
  const step = steps.find((each) => each >= raw && raw >= steps[0])
    || [1, 2, 5, 10].map((each) => each * scale).find((each) => each >= raw);
  const amounts = [];
  for (let amount = 0; amount <= most * 1.0001; amount += step) amounts.push(Number(amount.toPrecision(6)));
  return amounts;
}

// Returns the width of a text, from a cache: all charts use one font and repeat most texts.
const widths = new Map();
const MAX_CACHED_WIDTHS = 20000;

function textWidth(context, text) {
  let width = widths.get(text);
  if (width === undefined) {
    if (widths.size >= MAX_CACHED_WIDTHS) widths.clear();
    widths.set(text, width = context.measureText(text).width);
  }
  return width;
}

// Shortens a text to a width.
function truncateToWidth(context, text, width) {
  if (textWidth(context, text) <= width) return text;
  let [low, high] = [0, Math.min(text.length, 64)];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (textWidth(context, text.slice(0, middle) + '…') <= width) low = middle;
    else high = middle - 1;
  }
  return low ? text.slice(0, low) + '…' : '';
}

// Milliseconds: less than the distance of two times, more than the rounding error of a time.
const TIME_EPSILON = 1e-2;

// Returns the first index in an ascending column whose value is not below this value.
function lowerBound(column, value, low = 0, high = column.length) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (column[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

// The time range that all charts of a group show.
const MIN_VIEW_WIDTH = SECOND;

class View {
  constructor(begin, end, onChange) {
    Object.assign(this, { begin, end, onChange, from: begin, to: end });
  }

  get width() {
    return this.to - this.from;
  }

  // Shows the range from a time on, within the bounds of the data.
  show(from, width) {
    const shown = Math.min(Math.max(width, MIN_VIEW_WIDTH), this.end - this.begin);
    const begin = Math.min(Math.max(from, this.begin), this.end - shown);
    if (begin === this.from && begin + shown === this.to) return;
    this.from = begin;
    this.to = begin + shown;
    this.onChange();
  }

  zoom(factor, around = (this.from + this.to) / 2) {
    const width = Math.min(Math.max(this.width * factor, MIN_VIEW_WIDTH), this.end - this.begin);
    const share = (around - this.from) / this.width;
    this.show(around - share * width, width);
  }

  move(share) {
    this.show(this.from + share * this.width, this.width);
  }

  all() {
    this.show(this.begin, this.end - this.begin);
  }

  // Moves the range so that it includes a time.
  include(time) {
    if (time < this.from || time > this.to) this.show(time - this.width / 2, this.width);
  }
}

const STEPS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400,
  172800, 604800, 1209600, 2592000, 7776000, 31536000].map((seconds) => seconds * SECOND);

// Returns round times for an axis, at most `most` of them.
function ticks(view, most) {
  const step = STEPS.find((each) => view.width / each <= most) || view.width;
  const marks = [];
  for (let time = Math.ceil(view.from / step) * step; time <= view.to; time += step) {
    marks.push({ time, text: tickText(time, step, view) });
  }
  return marks;
}

// Formats a time for the axis; a date has its year if the range spans several years.
function tickText(time, step, view) {
  const text = new Date(time).toISOString();
  const years = [view.from, view.to].map((each) => new Date(each).getUTCFullYear());
  if (step >= DAY || time % DAY === 0) return text.slice(years[0] === years[1] ? 5 : 0, 10);
  return step >= MINUTE ? text.slice(11, 16) : text.slice(11, 19);
}
