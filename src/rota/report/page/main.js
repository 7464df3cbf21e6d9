// Which view is shown: the address says it by the group's name, so that a group can be linked to and
// gone back from.
const TITLE = document.title;
const [SIGN, NAME] = at('demo') ? ['DEMO: ', TITLE.replace('DEMO: ', '')] : ['', TITLE];
const LINK = '#g=';
let shown = null, opened = null, left = 0;

// The name in an address; null: it names no group.
function nameIn(hash) {
  if (!hash.startsWith(LINK)) return null;
  const name = hash.slice(LINK.length);
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

// Each group's link in the list, and its place among the packed data, by its name.
const places = new Map([...at('groups').tBodies[0].rows].map((row, place) => {
  const link = row.querySelector('a');
  return [nameIn(link.getAttribute('href')), { link, place }];
}));

// Who points at a group's link, or comes to it by keys, is about to open it: meanwhile its data is
// unpacked. Links that are only passed by are not.
const DWELL = 50;
let ready = null, dwelling = null;

function foresee(event) {
  clearTimeout(dwelling);
  const link = event.target.closest('a[href]');
  const found = link && places.get(nameIn(link.getAttribute('href')));
  if (found) dwelling = setTimeout(() => chartOf(found.place).catch(() => {}), DWELL);
}

function chartOf(place) {
  if (!ready || ready.place !== place) {
    ready = { place, chart: unpacked(at(`data-${place}`).textContent) };
  }
  return ready.chart;
}

async function open(found) {
  const wanted = shown = { link: found.link };
  const chart = await chartOf(found.place).catch(refused);
  if (!chart || shown !== wanted) return;
  if (!at('list').hidden) left = window.scrollY;
  at('list').hidden = true;
  at('group').hidden = false;
  document.title = `${SIGN}${visible(chart.group.name)} - ${NAME}`;
  opened = showGroup(chart);
  window.scrollTo(0, 0);
  at('group-name').focus({ preventScroll: true });
}

// A browser without DecompressionStream cannot unpack a group, and the reader must know why.
function refused(error) {
  ready = null;
  close();
  complain(`This browser cannot decompress the data of the group: ${error.message}. Use a browser from 2023 or newer.`);
}

function complain(...parts) {
  at('trouble').replaceChildren(...parts);
  at('trouble').hidden = !parts.length;
}

function close() {
  const last = shown;
  shown = opened = null;
  at('group').hidden = true;
  at('list').hidden = false;
  document.title = TITLE;
  if (!last) return;
  window.scrollTo(0, left);
  (last.link.isConnected ? last.link : at('search')).focus({ preventScroll: true });
}

function route() {
  const name = nameIn(location.hash);
  const found = places.get(name);
  complain();
  if (found) { open(found); return; }
  close();
  if (name === null) return;
  complain('This page does not have the group of the link: ', isolated(visible(name)), '. It has these groups.');
  window.scrollTo(0, 0);
}

function refit() {
  if (opened) opened.fit();
}

groupList();
for (const sign of ['pointerover', 'focusin']) at('groups').addEventListener(sign, foresee);
at('copy').addEventListener('click', copySteps);
window.addEventListener('hashchange', route);
window.addEventListener('resize', refit);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
  refit();
  if (opened) opened.recolour();
});
route();
whenIdle(prepareCharts);
whenIdle(rehearse);
