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
