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
