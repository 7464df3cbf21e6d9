// Which view is shown: the address says it, so that a group can be linked to and gone back from.
const TITLE = document.title;
const [SIGN, NAME] = at('demo') ? ['DEMO: ', TITLE.replace('DEMO: ', '')] : ['', TITLE];
let shown = null, opened = null, left = 0;

// Who points at a group's link, or comes to it by keys, is about to open it: meanwhile its data is
// unpacked. Links that are only passed by are not.
const DWELL = 50;
let ready = null, dwelling = null;

function foresee(event) {
  clearTimeout(dwelling);
  const link = event.target.closest('a[href^="#g="]');
  if (link) dwelling = setTimeout(() => chartOf(Number(link.hash.slice(3))).catch(() => {}), DWELL);
}

function chartOf(place) {
  if (!ready || ready.place !== place) {
    ready = { place, chart: unpacked(at(`data-${place}`).textContent) };
  }
  return ready.chart;
}

async function open(place) {
  if (!at(`data-${place}`)) return close();
  const wanted = shown = { place };
  const chart = await chartOf(place).catch(refused);
  if (!chart || shown !== wanted) return undefined;
  if (!at('list').hidden) left = window.scrollY;
  at('trouble').hidden = true;
  at('list').hidden = true;
  at('group').hidden = false;
  document.title = `${SIGN}${visible(chart.group.name)} - ${NAME}`;
  opened = showGroup(chart);
  window.scrollTo(0, 0);
  at('group-name').focus({ preventScroll: true });
  return undefined;
}

// A browser without DecompressionStream cannot unpack a group, and the reader must know why.
function refused(error) {
  ready = null;
  instead(at('group'), at('trouble'), `This browser could not unpack the group: ${error.message}. Browsers of 2023 and newer can.`);
  close();
}

function close() {
  const last = shown;
  shown = opened = null;
  at('group').hidden = true;
  at('list').hidden = false;
  document.title = TITLE;
  if (!last) return;
  window.scrollTo(0, left);
  const link = document.querySelector(`#groups a[href="#g=${last.place}"]`);
  (link || at('search')).focus({ preventScroll: true });
}

function route() {
  const found = /^#g=(\d+)$/.exec(location.hash);
  if (found) open(Number(found[1]));
  else close();
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
