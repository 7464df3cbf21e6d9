// The list of groups: searching hides rows, sorting puts the same rows in another order at once.
function groupList() {
  const body = at('groups').tBodies[0];
  const headings = [...at('groups').tHead.rows[0].cells];
  const keys = headings.map((heading) => heading.dataset.column);
  const rows = [...body.rows].map((row, place) => (
    { row, place, name: row.dataset.group.toLowerCase(), values: keys.map((_, column) => valueIn(row.cells[column])) }));
  let sorted = { column: keys.indexOf('damage'), falling: true };

  function valueIn(cell) {
    const data = cell.querySelector('data');
    return data ? Number(data.value) : cell.textContent.toLowerCase();
  }

  function search(text) {
    const wanted = text.trim().toLowerCase();
    let found = 0;
    for (const one of rows) {
      const shown = one.name.includes(wanted);
      found += shown;
      if (one.row.hidden === shown) one.row.hidden = !shown;
    }
    at('found').textContent = `${number(found)} of ${counted(rows.length, 'group')}`;
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
    const ordered = document.createDocumentFragment();
    for (const one of rows) ordered.append(one.row);
    body.append(ordered);
    headings.forEach((heading) => heading.removeAttribute('aria-sort'));
    headings[column].setAttribute('aria-sort', falling ? 'descending' : 'ascending');
  }

  at('search').addEventListener('input', (event) => search(event.target.value));
  headings.forEach((heading, column) => {
    heading.querySelector('button').addEventListener('click', () => sort(column));
  });
  if (at('search').value) search(at('search').value);
}
