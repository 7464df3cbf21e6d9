// The list of groups, and the switch between the list and the view of a group. The URL contains the
// group's name, so that a link can open a group and the browser can go back.
const TITLE = document.title;
const [TITLE_PREFIX, PAGE_TITLE] = at('demo') ? ['DEMO: ', TITLE.replace('DEMO: ', '')] : ['', TITLE];
const HASH_PREFIX = '#g=';
let shown = null, opened = null, listScroll = 0;

// Returns the group's name in a URL's hash; null if it has none.
function groupNameIn(hash) {
  if (!hash.startsWith(HASH_PREFIX)) return null;
  const name = hash.slice(HASH_PREFIX.length);
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

// Each group's link in the list, and the index of its packed data, by the group's name.
const groupLinks = new Map([...at('groups').tBodies[0].rows].map((row, index) => {
  const link = row.querySelector('a');
  return [groupNameIn(link.getAttribute('href')), { link, index }];
}));

// Unpacks the data of a group when the pointer or the focus rests on its link: the user is probably
// about to open it. PREFETCH_DELAY ignores links that the pointer only passes.
const PREFETCH_DELAY = 50;
let loaded = null, prefetchTimer = null;

function prefetchChart(event) {
  clearTimeout(prefetchTimer);
  const link = event.target.closest('a[href]');
  const entry = link && groupLinks.get(groupNameIn(link.getAttribute('href')));
  if (entry) prefetchTimer = setTimeout(() => loadChart(entry.index).catch(() => {}), PREFETCH_DELAY);
}

function loadChart(index) {
  if (!loaded || loaded.index !== index) {
    loaded = { index, chart: unpackChart(at(`data-${index}`).textContent) };
  }
  return loaded.chart;
}

async function open(entry) {
  const current = shown = { link: entry.link };
  const chart = await loadChart(entry.index).catch(showUnpackError);
  if (!chart || shown !== current) return;
  if (!at('list').hidden) listScroll = window.scrollY;
  at('list').hidden = true;
  at('group').hidden = false;
  document.title = `${TITLE_PREFIX}${visibleName(chart.group.name)} - ${PAGE_TITLE}`;
  opened = showGroup(chart);
  window.scrollTo(0, 0);
  at('group-name').focus({ preventScroll: true });
}

// Shows an error if the data cannot be unpacked, for example without DecompressionStream.
function showUnpackError(error) {
  loaded = null;
  close();
  showNotice(`This browser cannot decompress the data of the group: ${error.message}. Use a browser from 2023 or newer.`);
}

function showNotice(...parts) {
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
  window.scrollTo(0, listScroll);
  (last.link.isConnected ? last.link : at('search')).focus({ preventScroll: true });
}

function route() {
  const name = groupNameIn(location.hash);
  const entry = groupLinks.get(name);
  showNotice();
  if (entry) { open(entry); return; }
  close();
  if (name === null) return;
  showNotice('This page does not have the group of the link: ', isolate(visibleName(name)), '. It has these groups.');
  window.scrollTo(0, 0);
}

function refit() {
  if (opened) opened.fit();
}

// The list of groups. Shows only the first groups of a long list, and more on demand, because the
// layout of a table with a thousand rows is slow.
const ROWS_PER_STEP = 50;

function groupList() {
  const body = at('groups').tBodies[0];
  const headings = [...at('groups').tHead.rows[0].cells];
  const keys = headings.map((heading) => heading.dataset.column);
  const rows = [...body.rows].map((row, index) => (
    { row, index, name: row.dataset.group.toLowerCase(), values: keys.map((_, column) => valueIn(row.cells[column])) }));
  let sorted = { column: keys.indexOf('health'), falling: true };
  let query = '', most = ROWS_PER_STEP;

  function valueIn(cell) {
    const data = cell.querySelector('data');
    return data ? Number(data.value) : cell.textContent.toLowerCase();
  }

  function show() {
    const matching = rows.filter((each) => each.name.includes(query));
    const shown = matching.slice(0, most).map((each) => each.row);
    for (const row of shown) row.classList.remove('later');
    body.replaceChildren(...shown);
    at('found').textContent = `${number(matching.length)} of ${countNoun(rows.length, 'group')}`;
    at('more').hidden = matching.length <= most;
    at('more').textContent = `Show ${number(Math.min(matching.length - most, ROWS_PER_STEP))} more of ${number(matching.length)}`;
  }

  function search(text) {
    query = text.trim().toLowerCase();
    most = ROWS_PER_STEP;
    show();
  }

  function sort(column) {
    const numeric = headings[column].classList.contains('number');
    const falling = sorted.column === column ? !sorted.falling : numeric;
    sorted = { column, falling };
    const sign = falling ? -1 : 1;
    rows.sort((x, y) => {
      const [a, b] = [x.values[column], y.values[column]];
      return a < b ? -sign : a > b ? sign : x.index - y.index;
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
  at('more').addEventListener('click', () => more(ROWS_PER_STEP));
  window.addEventListener('beforeprint', () => { most = Infinity; show(); });
  headings.forEach((heading, column) => {
    heading.querySelector('button').addEventListener('click', () => sort(column));
  });
  search(at('search').value);
}

groupList();
for (const sign of ['pointerover', 'focusin']) at('groups').addEventListener(sign, prefetchChart);
at('copy').addEventListener('click', copySteps);
window.addEventListener('hashchange', route);
window.addEventListener('resize', refit);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
  refit();
  if (opened) opened.recolour();
});
route();
whenIdle(prepareCharts);
whenIdle(warmUpCharts);
