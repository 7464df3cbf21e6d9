// Functions that make elements; names are always set as text, never as markup.
const MARK_MEANINGS = {
  stated: "the broker's log or a record of the journal states it",
  inferred: 'computed from the journal',
  sampled: 'measured at intervals',
  replayed: 'replayed: the same history under another policy',
};

function at(id) {
  return document.getElementById(id);
}

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
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

// Positions where the browser may break a setting: after a comma and before a dot.
const BREAK_POINT = /(?<=,)(?=\S)|(?<=\S)(?=\.\S)/;

// Inserts the positions where the browser may break a line.
function withLineBreaks(parts) {
  return parts.flatMap((part) => (typeof part !== 'string' ? [part] : part.split(BREAK_POINT).flatMap(
    (piece, index) => (index ? [element('wbr'), piece] : [piece]))));
}

function markElement(kind) {
  return element(
    'abbr', { class: `mark ${kind}`, title: `${kind}: ${MARK_MEANINGS[kind]}` }, kind.slice(0, 2));
}

function numberCell(value, kind) {
  return element('td', { class: 'number' }, number(value), ...(kind ? [' ', markElement(kind)] : []));
}

// Calls a function when the browser is idle, after 200 ms at the latest.
function whenIdle(work) {
  if (window.requestIdleCallback) window.requestIdleCallback(work, { timeout: 200 });
  else setTimeout(work);
}

// Shows the target; or hides it and shows a notice if there is a text that explains why.
function showOrExplain(target, notice, text) {
  target.hidden = text !== null;
  notice.hidden = text === null;
  notice.textContent = text || '';
}
