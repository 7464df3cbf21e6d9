// The list of groups, and the view that is shown. The address has the group's name, so that a link
// can open a group, and the browser can go back.
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

// The list of groups. Of many only the first are in the page, and more on demand: a table of a
// thousand rows takes a browser longer to lay out than a person is willing to wait for.
const SOME = 50;

function groupList() {
  const body = at('groups').tBodies[0];
  const headings = [...at('groups').tHead.rows[0].cells];
  const keys = headings.map((heading) => heading.dataset.column);
  const rows = [...body.rows].map((row, place) => (
    { row, place, name: row.dataset.group.toLowerCase(), values: keys.map((_, column) => valueIn(row.cells[column])) }));
  let sorted = { column: keys.indexOf('damage'), falling: true };
  let wanted = '', most = SOME;

  function valueIn(cell) {
    const data = cell.querySelector('data');
    return data ? Number(data.value) : cell.textContent.toLowerCase();
  }

  function show() {
    const found = rows.filter((one) => one.name.includes(wanted));
    const shown = found.slice(0, most).map((one) => one.row);
    for (const row of shown) row.classList.remove('later');
    body.replaceChildren(...shown);
    at('found').textContent = `${number(found.length)} of ${counted(rows.length, 'group')}`;
    at('more').hidden = found.length <= most;
    at('more').textContent = `Show ${number(Math.min(found.length - most, SOME))} more of ${number(found.length)}`;
  }

  function search(text) {
    wanted = text.trim().toLowerCase();
    most = SOME;
    show();
  }

  function sort(column) {
    const numeric = headings[column].classList.contains('number');
    const falling = sorted.column === column ? !sorted.falling : numeric;
    sorted = { column, falling };
    const sign = falling ? -1 : 1;
    rows.sort((one, other) => {
      const [a, b] = [one.values[column], other.values[column]];
      return a < b ? -sign : a > b ? sign : one.place - other.place;
    });
    headings.forEach((heading) => heading.removeAttribute('aria-sort'));
    headings[column].setAttribute('aria-sort', falling ? 'descending' : 'ascending');
    show();
  }

  function more(number) {
    const last = body.lastElementChild;
    most += number;
    show();
    if (last.nextElementSibling) last.nextElementSibling.querySelector('a').focus();
  }

  at('search').addEventListener('input', (event) => search(event.target.value));
  at('more').addEventListener('click', () => more(SOME));
  window.addEventListener('beforeprint', () => { most = Infinity; show(); });
  headings.forEach((heading, column) => {
    heading.querySelector('button').addEventListener('click', () => sort(column));
  });
  search(at('search').value);
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
