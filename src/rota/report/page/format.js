// Formats numbers and times for readers. All times are UTC.
const UNKNOWN = 'unknown';
const SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR;
const numberFormat = new Intl.NumberFormat('en-US', { maximumFractionDigits: 1 });

function number(value) {
  return value === null || value === undefined ? UNKNOWN : numberFormat.format(value);
}

function countNoun(value, noun) {
  return `${number(value)} ${noun}${value === 1 ? '' : 's'}`;
}

function formatTime(time) {
  return new Date(time).toISOString().slice(0, 19).replace('T', ' ') + 'Z';
}

// '2026-11-15 06:00:00Z to 07:00:00Z'; the second day is shown only if it differs.
function formatTimeRange(from, to) {
  const [first, last] = [formatTime(from), formatTime(to)];
  return `${first} to ${first.slice(0, 10) === last.slice(0, 10) ? last.slice(11) : last}`;
}

function duration(milliseconds) {
  const seconds = milliseconds / SECOND;
  if (seconds < 10) return `${Number(seconds.toFixed(1))} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${number(Math.round(seconds / 86400))} d`;
}

// Formats downtime with two or three digits, like format_rounded_duration in engine/model/duration.py.
function downtime(milliseconds) {
  if (milliseconds === null || milliseconds === undefined) return UNKNOWN;
  if (milliseconds < 9950) return `${(milliseconds / SECOND).toFixed(1)} s`;
  if (milliseconds < 10 * MINUTE) return `${Math.round(milliseconds / SECOND)} s`;
  if (milliseconds < 2 * HOUR) return `${Math.round(milliseconds / MINUTE)} min`;
  const hours = milliseconds / HOUR;
  return hours < 9.95 ? `${hours.toFixed(1)} h` : `${number(Math.round(hours))} h`;
}

function downtimeBounds(atLeast, atMost) {
  return `at least ${downtime(atLeast)}, at most ${downtime(atMost)}`;
}

// Counts each name, the most frequent first: '3 left, 2 joined'.
function tally(names) {
  const counts = new Map();
  for (const name of names) counts.set(name, (counts.get(name) || 0) + 1);
  const ranked = [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
  return ranked.map(([name, count]) => `${number(count)} ${name}`).join(', ');
}

function shortened(text, most) {
  return text.length > most ? `${text.slice(0, most)}…` : text;
}
