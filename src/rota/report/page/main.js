// The switch between the overview and a group's page, and what both share: keys, theme, time zone, export.
const TITLE = document.title;
const TITLE_PREFIX = at('demo') ? 'DEMO: ' : '';
let shownName = null, view = null, list = null, listHash = '', listScroll = 0, routed = 0;

// Each group's link in the list, and the index of its packed data, by the group's name.
const groupLinks = new Map([...at('groups').tBodies[0].rows].map((row, index) => {
  return [row.dataset.group, { link: row.querySelector('a'), index }];
}));

// Unpacks the data of a group when the pointer or the focus rests on its link: the user is probably
// about to open it. PREFETCH_DELAY ignores links that the pointer only passes.
const PREFETCH_DELAY = 50;
let loaded = null, prefetchTimer = null;

function prefetchChart(event) {
  clearTimeout(prefetchTimer);
  const row = event.target.closest('tr[data-group]');
  const entry = row && groupLinks.get(row.dataset.group);
  if (entry) prefetchTimer = setTimeout(() => loadChart(entry.index).catch(() => {}), PREFETCH_DELAY);
}

function loadChart(index) {
  if (!loaded || loaded.index !== index) loaded = { index, chart: unpackChart(at(`data-${index}`).textContent) };
  return loaded.chart;
}

async function openGroup(name, state) {
  const entry = groupLinks.get(name);
  const current = ++routed;
  const chart = await loadChart(entry.index).catch(showUnpackError);
  if (!chart || routed !== current) return;
  if (!at('overview').hidden) {
    listScroll = window.scrollY;
    if (list) listHash = hashOf(list.state());
  }
  leaveGroup();
  shownName = name;
  at('overview').hidden = true;
  at('group').hidden = false;
  document.title = `${TITLE_PREFIX}${visibleName(name)}: consumer group`;
  at('path').replaceChildren(
    element('a', { href: `#${listHash}`, id: 'back', 'aria-label': 'All groups' }, '←', element('span', { class: 'wide' }, ' All groups')), element('b', null, isolate(visibleName(name))));
  view = showGroup(chart, state, { ...(list ? list.neighbours(name) : { previous: null, next: null }), backHash: listHash });
  window.scrollTo(0, 0);
  at('group').querySelector('h1, h2')?.focus({ preventScroll: true });
}

function leaveGroup() {
  if (view) view.close();
  view = null;
}

function showOverview(state) {
  const last = shownName;
  routed++;
  leaveGroup();
  shownName = null;
  at('group').hidden = true;
  at('overview').hidden = false;
  at('path').replaceChildren();
  document.title = TITLE;
  if (list) list.readState(state);
  if (last === null) return;
  window.scrollTo(0, listScroll);
  const { link } = groupLinks.get(last);
  (link.isConnected ? link : at('search')).focus({ preventScroll: true });
}

// Shows an error if the data cannot be unpacked, for example without DecompressionStream.
function showUnpackError(error) {
  loaded = null;
  showNotice(`This browser cannot decompress the data of the page: ${error.message}. Use a browser from 2023 or newer.`);
}

function showNotice(...parts) {
  at('trouble').replaceChildren(...parts);
  at('trouble').hidden = !parts.length;
}

function route() {
  cancelHash();
  hideTip();
  const state = readHash();
  showNotice();
  if (state.g !== undefined && groupLinks.has(state.g)) { openGroup(state.g, state); return; }
  if (state.g === undefined && shownName === null) listHash = location.hash.slice(1);
  showOverview(state.g === undefined ? state : {});
  if (state.g === undefined) return;
  showNotice('This page does not have the group of the link: ', isolate(visibleName(state.g)), '. It has these groups.');
  window.scrollTo(0, 0);
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  const other = theme === 'dark' ? 'light' : 'dark';
  at('theme').textContent = theme === 'dark' ? '☀' : '☾';
  at('theme').setAttribute('aria-label', `Switch to ${other} colours`);
  forgetColours();
  redraw();
}

function redraw() {
  if (view) view.redraw();
  else if (list) list.redraw();
}

function setTimeZone(isLocal) {
  clock.isLocal = isLocal;
  at('utc').setAttribute('aria-pressed', String(!isLocal));
  at('local').setAttribute('aria-pressed', String(isLocal));
  if (overview && at('window')) at('window').textContent = formatTimeRange(overview.begin, overview.end);
  if (view) view.redraw();
  else if (list) list.show();
}

function toggleEvidence() {
  const isOn = document.body.classList.toggle('evidence');
  at('evidence-switch').setAttribute('aria-pressed', String(isOn));
}

function showMenu(isOpen) {
  at('export-menu').hidden = !isOpen;
  at('export').setAttribute('aria-expanded', String(isOpen));
}

function exportAs(format) {
  const rows = view ? view.rows() : list.exportRows();
  const name = (view ? shownName : 'groups').replace(/[^\w.-]+/g, '_').slice(0, 80) || 'group';
  if (format === 'csv') download(`${name}.csv`, toCsv(rows), 'text/csv');
  else download(`${name}.json`, `${JSON.stringify(rows, null, 1)}\n`, 'application/json');
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (event.key === 'Escape' && !at('export-menu').hidden) { showMenu(false); at('export').focus(); return; }
  if (event.target.matches('input, textarea, select')) {
    if (event.key === 'Escape') event.target.blur();
    return;
  }
  if (at('keys').open) return;
  if (event.key === '?') { at('keys').showModal(); return; }
  if (event.key === 'e') { toggleEvidence(); return; }
  if (view) {
    if (view.key(event)) { event.preventDefault(); return; }
    const { previous, next } = list.neighbours(shownName);
    const wanted = { '[': previous, ']': next }[event.key];
    if (wanted) location.hash = hashOf({ g: wanted });
    else if (event.key === 'Escape') location.hash = listHash;
    return;
  }
  const move = { j: 1, k: -1 }[event.key];
  if (move) { event.preventDefault(); list.moveFocus(move); }
  if (event.key === '/') { event.preventDefault(); at('search').focus(); }
}

async function start() {
  const data = await unpackJson(at('summary').textContent).catch(showUnpackError);
  if (!data) return;
  overview = decodeSummary(data, [...at('groups').tBodies[0].rows]);
  // HTML changes some characters of names in attributes
  overview.groups.forEach((group, index) => groupLinks.set(group.name, { link: group.row.querySelector('a'), index }));
  list = groupList((group, rebalance) => {
    location.hash = hashOf({ g: group.name, ...(rebalance === null ? {} : { at: timeInHash(group.at[rebalance]), r: rebalance }) });
  });
  route();
  (window.requestIdleCallback || setTimeout)(warmUpFonts);
}

// The first text in a font is slow to measure; the chart of a group should not wait for that.
function warmUpFonts() {
  const context = document.createElement('canvas').getContext('2d');
  const letters = Array.from({ length: 95 }, (_, index) => String.fromCharCode(32 + index)).join('');
  for (const [size, weight] of [[10, 400], [10.5, 600], [11, 400], [11.5, 400], [11.5, 550], [11.5, 600], [12, 600]]) {
    context.font = canvasFont(size, weight);
    context.measureText(letters);
  }
}

for (const sign of ['pointerover', 'focusin']) at('groups').addEventListener(sign, prefetchChart);
at('theme').addEventListener('click', () => setTheme(document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark'));
at('utc').addEventListener('click', () => setTimeZone(false));
at('local').addEventListener('click', () => setTimeZone(true));
at('evidence-switch').addEventListener('click', toggleEvidence);
at('evidence-item').addEventListener('click', () => { showMenu(false); toggleEvidence(); });
at('export').addEventListener('click', () => showMenu(at('export-menu').hidden));
at('export-csv').addEventListener('click', () => { showMenu(false); exportAs('csv'); });
at('export-json').addEventListener('click', () => { showMenu(false); exportAs('json'); });
at('print').addEventListener('click', () => { showMenu(false); window.print(); });
document.addEventListener('click', (event) => { if (!event.target.closest('.menu')) showMenu(false); });
document.addEventListener('keydown', onKey);
window.addEventListener('hashchange', route);
let resizeTimer = null;
window.addEventListener('resize', () => { clearTimeout(resizeTimer); resizeTimer = setTimeout(redraw, 60); });
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', (event) => setTheme(event.matches ? 'dark' : 'light'));
// A page is printed in light colours.
let screenTheme = null;
window.addEventListener('beforeprint', () => { screenTheme = document.documentElement.dataset.theme; setTheme('light'); });
window.addEventListener('afterprint', () => { setTheme(screenTheme); });
setTheme(document.documentElement.dataset.theme || 'light');
start();
