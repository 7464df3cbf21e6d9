// What all parts of the page use: numbers and times in words, elements, evidence, the state in the URL.
const SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR;
const UNKNOWN = 'unknown';
const numberFormat = new Intl.NumberFormat('en-US', { maximumFractionDigits: 1 });

function number(value) {
  return value === null || value === undefined ? UNKNOWN : numberFormat.format(value);
}

function countNoun(value, noun) {
  return `${number(value)} ${noun}${value === 1 ? '' : 's'}`;
}

// Formats milliseconds like format_rounded_duration in engine/model/duration.py: '0.4 s', '23 s',
// '3 min 47 s', '19 min', '2 h 38 min', '3 d 4 h'. The spaces do not break.
function duration(milliseconds) {
  if (milliseconds === null || milliseconds === undefined) return UNKNOWN;
  return durationParts(milliseconds).join(' ').replaceAll(' ', '\u00a0');
}

function durationParts(milliseconds) {
  if (milliseconds < 9950) return [`${(milliseconds / SECOND).toFixed(1)} s`.replace(/^0\.0 /, '0 ')];
  const seconds = Math.round(milliseconds / SECOND);
  if (seconds < 60) return [`${seconds} s`];
  if (seconds < 600) return twoUnits(seconds, 60, 'min', 's');
  const minutes = Math.round(milliseconds / MINUTE);
  if (minutes < 60) return [`${minutes} min`];
  if (minutes < 48 * 60) return twoUnits(minutes, 60, 'h', 'min');
  return twoUnits(Math.round(milliseconds / HOUR), 24, 'd', 'h');
}

function twoUnits(amount, size, large, small) {
  const [whole, rest] = [Math.floor(amount / size), amount % size];
  return rest ? [`${number(whole)} ${large}`, `${rest} ${small}`] : [`${number(whole)} ${large}`];
}

function downtimeBounds(atLeast, atMost) {
  if (atLeast === null || atLeast === undefined || atLeast === atMost) return '';
  return `At least ${duration(atLeast)}, at most ${duration(atMost)}.`;
}

// Lag: {seconds, records, atLeast}; records only if no age is known.
function lagText(lag) {
  if (!lag) return UNKNOWN;
  if (lag.seconds === null) return countNoun(lag.records, 'record');
  return `${lag.atLeast ? '≥ ' : ''}${duration(lag.seconds * SECOND)}`;
}

// Times are shown in UTC, or in the reader's time zone.
const clock = { isLocal: false };

// 'UTC', or the reader's time zone as 'UTC+05:30'.
function timeZone(time = Date.now()) {
  const minutes = clock.isLocal ? -new Date(time).getTimezoneOffset() : 0;
  if (!minutes) return 'UTC';
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
  return `UTC${minutes < 0 ? '−' : '+'}${String(hours).padStart(2, '0')}:${String(rest).padStart(2, '0')}`;
}

// Returns the time as an ISO text without zone: '2026-01-05T09:00:00.000'.
function wallClock(time) {
  const offset = clock.isLocal ? new Date(time).getTimezoneOffset() * MINUTE : 0;
  return new Date(time - offset).toISOString().slice(0, -1);
}

function formatClock(time, withSeconds = false) {
  return wallClock(time).slice(11, withSeconds ? 19 : 16);
}

function formatDay(time) {
  return new Date(`${wallClock(time)}Z`).toLocaleDateString('en-GB', {
    timeZone: 'UTC', weekday: 'short', day: 'numeric', month: 'short', year: 'numeric' });
}

function formatDateTime(time) {
  return `${wallClock(time).slice(0, 10)} ${formatClock(time, true)}`;
}

// 'Mon, 5 Jan 2026, 09:00 to 17:30 UTC'; the last day is named only if it differs.
function formatTimeRange(from, to) {
  const isOneDay = wallClock(from).slice(0, 10) === wallClock(to - 1).slice(0, 10);
  const withSeconds = to - from < 10 * MINUTE;
  const endClock = isOneDay && wallClock(to).slice(11, 19) === '00:00:00' ? '24:00' : formatClock(to, withSeconds);
  const end = isOneDay ? endClock : `${formatDay(to)}, ${endClock}`;
  return `${formatDay(from)}, ${formatClock(from, withSeconds)} to ${end} ${timeZone()}`;
}

// A time in a short sentence: '09:00', or with the day if the evidence has several days.
// Replaces the times in a sentence of the tables ('2026-01-05 14:00Z') by short ones.
const TIME_IN_TEXT = /(\d{4}-\d\d-\d\d) (\d\d:\d\d(:\d\d)?)Z/g;

function withShortTimes(text, begin, end) {
  return text.replace(TIME_IN_TEXT, (_, day, time, seconds) => (
    formatMoment(Date.parse(`${day}T${time}Z`), begin, end, Boolean(seconds))));
}

function formatMoment(time, begin, end, withSeconds = true) {
  const isOneDay = end - begin <= DAY;
  return isOneDay ? formatClock(time, withSeconds) : `${wallClock(time).slice(5, 10)} ${formatClock(time, withSeconds)}`;
}

function at(id) {
  return document.getElementById(id);
}

// Makes an element. Names are always set as text, never as markup; the policy of the page forbids
// style attributes, so that `style` is an object.
function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === 'style') for (const [property, css] of Object.entries(value)) made.style.setProperty(property, css);
    else if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? '' : value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

const SVG = 'http://www.w3.org/2000/svg';

function svgElement(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// Returns an element whose text cannot change the direction of the text around it.
function isolate(name) {
  return element('bdi', null, name);
}

// Matches a name that has only blanks and invisible characters.
const INVISIBLE = /^[\p{Z}\p{C}\p{Mn}\u115f\u1160\u2800\u3164\uffa0]+$/u;

// Returns a name, or the code points of its characters if all of them are invisible.
function visibleName(name) {
  if (name === '') return '(no name)';
  if (!INVISIBLE.test(name)) return name;
  return Array.from(name, (each) => `\\u{${each.codePointAt(0).toString(16)}}`).join('');
}

// Matches a word that is read from right to left, or that changes the direction of the text after it.
const RIGHT_TO_LEFT_WORD = /(\S*[\u0590-\u08ff\u200e\u200f\u202a-\u202e\u2066-\u2069\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]\S*)/u;

// Splits a text, and isolates its words that run from right to left.
function isolateWords(text) {
  return text.split(RIGHT_TO_LEFT_WORD).map((part, index) => (index % 2 ? isolate(part) : part));
}

// A setting whose lines break after a comma and before a dot, not in the middle of a name.
function breakable(text) {
  return isolateWords(text).flatMap((part) => (typeof part !== 'string' ? [part]
    : part.split(/(?<=,)(?=\S)|(?<=\w)(?=\.[A-Za-z])/).flatMap((piece, index) => (index ? [element('wbr'), piece] : [piece]))));
}

function shortened(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

// How each number is known. A label or a number with `data-how` says it on hover, tap and focus; the
// evidence view underlines all of them.
const EVIDENCE = {
  stated: "Stated: the broker's log or a record of the journal says so.",
  inferred: 'Inferred: computed from consecutive records of the journal.',
  sampled: 'Sampled: measured at intervals.',
  replayed: "Replayed: not measured, but the same history replayed under another policy.",
  bounded: 'Bounded: only commits show it; the true value lies between two bounds.',
};

// A number with its evidence. `more` is a sentence in front of it, for example the bounds.
function known(how, content, more = '') {
  return element('span', { 'data-how': how, 'data-tip': more || null }, content);
}

// The label of a number: can have the focus, so that a keyboard and a tap show the evidence.
function knownLabel(how, label, more = '') {
  return element('button', { type: 'button', class: 'term', 'data-how': how, 'data-tip': more || null }, label);
}

// Causes of rebalances, in the order of their share of attention: planned ones are cool, failures warm.
const CAUSES = [
  { name: 'joined', title: 'Member joined', path: 'M5.5 1 10 9.5H1Z' },
  { name: 'left', title: 'Member left', path: 'M5.5 10 1 1.5h9Z' },
  { name: 'silent', title: 'Session timeout', path: 'M1.5 3.2 3.2 1.5 5.5 3.8 7.8 1.5 9.5 3.2 7.2 5.5 9.5 7.8 7.8 9.5 5.5 7.2 3.2 9.5 1.5 7.8 3.8 5.5Z', isFailure: true },
  { name: 'slow poll', title: 'max.poll.interval exceeded', path: 'M5.5 .6 10.4 5.5 5.5 10.4 .6 5.5Z', isFailure: true },
  { name: 'partitions added', title: 'Partitions added', path: 'M4.2 1h2.6v3.2H10v2.6H6.8V10H4.2V6.8H1V4.2h3.2Z' },
  { name: 'subscription changed', title: 'Subscription changed', path: 'M1.5 1.5h8v8h-8Z' },
  { name: 'strategy changed', title: 'Strategy changed', path: 'M5.5 .8 10.2 4.2 8.4 9.8H2.6L.8 4.2Z' },
  { name: 'leader rejoined', title: 'Leader rejoined', path: 'M1 4.5h9v2.4H1Z' },
  { name: 'unknown', title: 'Cause unknown', path: 'M5.5 1.2a4.3 4.3 0 1 0 .01 0Zm0 2a2.3 2.3 0 1 1-.01 0Z' },
];
const CAUSE_INDEX = new Map(CAUSES.map((cause, index) => [cause.name, index]));

function causeIndex(name) {
  return CAUSE_INDEX.get(name) ?? CAUSES.length - 1;
}

function causeGlyph(index) {
  return svgElement('svg', { class: `glyph cause-${index}`, viewBox: '0 0 11 11', 'aria-hidden': 'true' },
    svgElement('path', { d: CAUSES[index].path, 'fill-rule': 'evenodd' }));
}

// Colours of the reasons of downtime, as names in the style sheet.
const REASON_COLOURS = {
  silent: 'cause-2', revoked: 'revoked', left: 'cause-1', moved: 'cause-0', restarted: 'cause-7', empty: 'cause-5' };

const HEALTHS = ['failing', 'stuck', 'falling behind', 'unknown', 'OK'];
const HEALTH_PATHS = {
  OK: 'M5.5 2.3a3.2 3.2 0 1 0 .01 0Z', 'falling behind': 'M1.5 9 8.5 2.6M4 2h5v5',
  stuck: 'M3.3 1.5v8M7.7 1.5v8', failing: 'M2 2l7 7M9 2 2 9', unknown: 'M2.5 5.5h6',
};

function healthTitle(health) {
  return health[0].toUpperCase() + health.slice(1);
}

function healthBadge(health) {
  return element('span', { class: `health ${health.replace(' ', '-').toLowerCase()}` },
    svgElement('svg', { viewBox: '0 0 11 11', 'aria-hidden': 'true' }, svgElement('path', { d: HEALTH_PATHS[health] })),
    healthTitle(health));
}

// The tooltip: on hover and focus of anything with `data-tip`, on a tap of it, and from the charts.
const tip = { owner: null };

function showTip(content, x, y, owner = null) {
  const box = at('tip');
  box.replaceChildren(...[content].flat(Infinity).filter(Boolean));
  box.hidden = false;
  tip.owner = owner;
  const [width, height] = [box.offsetWidth, box.offsetHeight];
  const [wide, high] = [document.documentElement.clientWidth, window.innerHeight];
  let left = x + 14;
  if (left + width > wide - 8) left = Math.max(x - width - 14, 6);
  let top = y + 16;
  if (top + height > high - 8) top = Math.max(y - height - 12, 4);
  box.style.left = `${Math.min(left, Math.max(wide - width - 6, 0))}px`;
  box.style.top = `${top}px`;
}

function hideTip() {
  at('tip').hidden = true;
  tip.owner = null;
}

function tipOwner(event) {
  return event.target.closest?.('[data-tip], [data-how]');
}

function showOwnTip(owner) {
  if (!owner || owner === tip.owner) return;
  const box = owner.getBoundingClientRect();
  const { tip: more, how } = owner.dataset;
  const lines = [more && element('p', null, isolateWords(more)), how && element('p', { class: more ? 'minor' : null }, EVIDENCE[how])];
  showTip(lines, box.left - 14, box.bottom - 10, owner);
}

document.addEventListener('pointerover', (event) => { if (event.pointerType !== 'touch') showOwnTip(tipOwner(event)); });
document.addEventListener('pointerout', (event) => {
  if (event.pointerType !== 'touch' && tip.owner && tipOwner(event) === tip.owner) hideTip();
});
document.addEventListener('focusin', (event) => { if (event.target.matches(':focus-visible')) showOwnTip(tipOwner(event)); });
document.addEventListener('focusout', (event) => { if (event.target === tip.owner) hideTip(); });
document.addEventListener('click', (event) => {
  const owner = tipOwner(event);
  if (owner) showOwnTip(owner);
  else if (tip.owner) hideTip();
});
window.addEventListener('scroll', () => { if (tip.owner) hideTip(); }, { passive: true });

// The state in the URL after '#', so that a link opens what the sender sees.
function readHash() {
  const state = {};
  for (const part of location.hash.slice(1).split('&').filter(Boolean)) {
    const [name, value = ''] = part.split('=');
    state[name] = decodeHashValue(value);
  }
  return state;
}

function decodeHashValue(value) {
  try {
    return decodeURIComponent(value);
  } catch {
    return value;
  }
}

function hashOf(state) {
  const parts = Object.entries(state).filter(([, value]) => value !== null && value !== undefined && value !== '');
  return parts.map(([name, value]) => `${name}=${encodeURIComponent(value).replaceAll('%3A', ':').replaceAll('%2C', ',')}`).join('&');
}

// Times in the URL are UTC to the second.
function timeInHash(time) {
  return new Date(Math.round(time / SECOND) * SECOND).toISOString().slice(0, 19) + 'Z';
}

function parseHashTime(text) {
  const time = Date.parse(text);
  return Number.isNaN(time) ? null : time;
}

// Writes the state without an entry in the browser's history, at most every 150 ms: browsers limit it.
let hashTimer = null;

function replaceHash(state) {
  clearTimeout(hashTimer);
  hashTimer = setTimeout(() => history.replaceState(null, '', `#${hashOf(state)}`), 150);
}

function cancelHash() {
  clearTimeout(hashTimer);
}

// Colours of the style sheet, for the canvases; read again when the colour scheme changes.
let cachedColours = null;

function colours() {
  if (cachedColours) return cachedColours;
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(`--${name}`).trim();
  const names = ['ground', 'card', 'ink', 'ink2', 'ink3', 'line', 'line2', 'hover', 'accent', 'lag', 'lag-fill', 'revoked', 'stuck', 'behind'];
  cachedColours = Object.fromEntries(names.map((name) => [name, read(name)]));
  cachedColours.causes = CAUSES.map((_, index) => read(`cause-${index}`));
  cachedColours.members = Array.from({ length: 12 }, (_, index) => read(`member-${index}`));
  return cachedColours;
}

function forgetColours() {
  cachedColours = null;
}

// Prepares a canvas for drawing in CSS pixels; sets its height.
const CANVAS_FONT = getComputedStyle(document.documentElement).getPropertyValue('--sans').trim();

function fitCanvas(canvas, width, height) {
  const ratio = Math.min(window.devicePixelRatio || 1, 2);
  const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext('2d');
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.textBaseline = 'middle';
  return context;
}

function canvasFont(size = 11.5, weight = 400) {
  return `${weight} ${size}px ${CANVAS_FONT}`;
}

// Returns the width of a text, from a cache: measuring is slow.
const widths = new Map();
const MAX_CACHED_WIDTHS = 20000;

function textWidth(context, text) {
  const key = `${context.font}|${text}`;
  let width = widths.get(key);
  if (width === undefined) {
    if (widths.size >= MAX_CACHED_WIDTHS) widths.clear();
    widths.set(key, width = context.measureText(text).width);
  }
  return width;
}

// Shortens a text to a width in pixels.
function fitText(context, text, width) {
  if (text.length <= 200 && textWidth(context, text) <= width) return text;
  let [low, high] = [0, Math.min(text.length, 100)];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (textWidth(context, `${text.slice(0, middle)}…`) <= width) low = middle;
    else high = middle - 1;
  }
  return low ? `${text.slice(0, low)}…` : '';
}

const glyphPaths = CAUSES.map((cause) => new Path2D(cause.path));

function drawGlyph(context, cause, x, y, size, colour, halo) {
  context.save();
  context.translate(x - size / 2, y - size / 2);
  context.scale(size / 11, size / 11);
  if (halo) {
    context.strokeStyle = halo;
    context.lineWidth = 2.4;
    context.stroke(glyphPaths[cause]);
  }
  context.fillStyle = colour;
  context.fill(glyphPaths[cause], 'evenodd');
  context.restore();
}

const TICK_STEPS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400,
  172800, 604800, 1209600, 2592000, 7776000, 31536000].map((seconds) => seconds * SECOND);

// Returns round times of a time axis, at most `most` of them, with their texts.
function timeTicks(from, to, most) {
  const step = TICK_STEPS.find((each) => (to - from) / each <= most) || to - from;
  const offset = clock.isLocal ? -new Date(from).getTimezoneOffset() * MINUTE : 0;
  const marks = [];
  for (let time = Math.ceil((from + offset) / step) * step - offset; time <= to; time += step) {
    marks.push({ time, text: tickText(time, step, from, to) });
  }
  return marks;
}

function tickText(time, step, from, to) {
  const text = wallClock(time);
  if (step >= DAY) return text.slice(wallClock(from).slice(0, 4) === wallClock(to).slice(0, 4) ? 5 : 0, 10);
  if (text.slice(11) === '00:00:00.000') {
    if (to - from > 36 * HOUR) return text.slice(5, 10);
    return time >= to - step / 2 && time > from ? '24:00' : '00:00';
  }
  return text.slice(11, step < MINUTE ? 19 : 16);
}

// Returns the first index in an ascending column whose value is not below this value.
function lowerBound(column, value, low = 0, high = column.length) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (column[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

// Saves a text as a file.
function download(name, text, type) {
  const link = element('a', { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// Rows as CSV. A cell that a spreadsheet would run as a formula begins with an apostrophe.
function toCsv(rows) {
  const names = Object.keys(rows[0] || {});
  const cell = (value) => {
    let text = value === null || value === undefined ? '' : String(value);
    if (typeof value === 'string' && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [names, ...rows.map((row) => names.map((name) => row[name]))].map((row) => row.map(cell).join(',')).join('\r\n') + '\r\n';
}

// Copies a text; says so on the button.
async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // no permission, or a page from a file in an old browser
    const area = element('textarea', { class: 'unseen' });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
  }
  const before = button.textContent;
  button.textContent = 'Copied';
  setTimeout(() => { button.textContent = before; }, 1200);
}

function say(text) {
  at('spoken').textContent = text;
}

// Unpacks data that rota.report.page.chart_data packed: JSON, deflated, in base64.
async function unpackJson(base64) {
  const { readable, writable } = new DecompressionStream('deflate');
  const writer = writable.getWriter();
  const written = Promise.all([writer.write(decodeBase64(base64)), writer.close()]);
  const [text] = await Promise.all([new Response(readable).text(), written]);
  return JSON.parse(text);
}

function decodeBase64(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let index = 0; index < text.length; index++) bytes[index] = text.charCodeAt(index);
  return bytes;
}
