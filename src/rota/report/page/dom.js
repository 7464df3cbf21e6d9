// Elements, made of names that are only ever text.
const MEANINGS = {
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

// A name that cannot change the direction of the text around it.
function isolated(name) {
  return element('bdi', null, name);
}

// A name of nothing but blanks and signs that are not seen by themselves.
const UNSEEN = /^[\p{Z}\p{C}\p{Mn}\u115f\u1160\u2800\u3164\uffa0]+$/u;

// A name, or its signs by their numbers where nothing of it can be seen.
function visible(name) {
  if (name === '') return '(no name)';
  if (!UNSEEN.test(name)) return name;
  return Array.from(name, (one) => `\\u{${one.codePointAt(0).toString(16)}}`).join('');
}

// A word that is read from right to left, or has signs that turn what comes after it.
const TURNED = /(\S*[\u0590-\u08ff\u200e\u200f\u202a-\u202e\u2066-\u2069\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]\S*)/u;

// A text with names in it, of which those that run the other way are kept to themselves.
function sentence(text) {
  return text.split(TURNED).map((part, place) => (place % 2 ? isolated(part) : part));
}

// Where a setting's value may be broken: after a comma, before a dot, never inside a name.
const JOINT = /(?<=,)(?=\S)|(?<=\S)(?=\.\S)/;

// Texts and elements, of which the texts may be broken at their joints.
function breakable(parts) {
  return parts.flatMap((part) => (typeof part !== 'string' ? [part] : part.split(JOINT).flatMap(
    (piece, place) => (place ? [element('wbr'), piece] : [piece]))));
}

function marked(kind) {
  return element(
    'abbr', { class: `mark ${kind}`, title: `${kind}: ${MEANINGS[kind]}` }, kind.slice(0, 2));
}

function numberCell(value, kind) {
  return element('td', { class: 'number' }, number(value), ...(kind ? [' ', marked(kind)] : []));
}

// Does something when the page has nothing else to do, but soon.
function whenIdle(work) {
  if (window.requestIdleCallback) window.requestIdleCallback(work, { timeout: 200 });
  else setTimeout(work);
}

// Shows a text in the place of something that there is not.
function instead(thing, notice, text) {
  thing.hidden = text !== null;
  notice.hidden = text === null;
  notice.textContent = text || '';
}
