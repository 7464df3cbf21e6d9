// The overview: filters, key figures and the list of groups. The rows are in the document; the script
// orders them, shows those that match, and writes the numbers of a selected time range into them.
const ROWS_AT_FIRST = 24, ROWS_PER_STEP = 60;
const SPARK_WIDTH = 176, SPARK_HEIGHT = 30, SPARK_BASE = 21;
const SHORT_REASONS = { silent: 'session timeout', empty: 'no members' };
let overview = null;

// Whether a name matches a pattern with * and ?, in steps that do not multiply.
function matchesGlob(name, pattern) {
  let at = 0, place = 0, star = -1, mark = 0;
  while (place < name.length) {
    if (pattern[at] === '*') {
      star = at++;
      mark = place;
    } else if (at < pattern.length && (pattern[at] === '?' || pattern[at] === name[place])) {
      at++;
      place++;
    } else if (star >= 0) {
      at = star + 1;
      place = ++mark;
    } else {
      return false;
    }
  }
  while (pattern[at] === '*') at++;
  return at === pattern.length;
}

function groupList(openGroup) {
  const body = at('groups').tBodies[0];
  const headings = [...at('groups').tHead.rows[0].cells];
  const filter = { range: null, query: '', healths: new Set(), causes: new Set(), strategies: new Set(), sort: 'health', falling: true };
  const original = new Map(); // the cells that a selected time range replaces
  let most = ROWS_AT_FIRST, ordered = [], pending = null;

  const timeline = clusterTimeline({
    filter, orderedGroups: () => ordered, openGroup,
    onSelecting: () => schedule(showSelection),
    onSelect: () => { show(); writeHash(); },
  });

  function strategyOf(group) {
    return group.strategy.split(',')[0];
  }

  // Whether a group matches the search and the filters; with a range also whether something happened in it.
  function matches(group) {
    if (filter.healths.size && !filter.healths.has(group.health)) return false;
    if (filter.strategies.size && !filter.strategies.has(strategyOf(group))) return false;
    if (filter.causes.size && !group.cause.some((cause) => filter.causes.has(cause))) return false;
    return filter.query.toLowerCase().split(/\s+/).filter(Boolean).every((word) => matchesWord(group, word));
  }

  function matchesWord(group, word) {
    if (!/[*?]/.test(word)) return group.words.includes(word);
    return [group.name, ...group.topics].some((name) => matchesGlob(name.toLowerCase(), word));
  }

  function isActive(group) {
    if (!filter.range) return true;
    const { rebalances, downtime, lag } = group.sum;
    const isSick = group.severity > 0 && group.since !== null && group.since <= filter.range[1];
    return rebalances > 0 || downtime > 0 || (isSick && !filter.causes.size) || (!filter.causes.size && group.lag && lag >= group.lag.shown);
  }

  const ORDERS = {
    // in a selected time the cost in this time comes first: the health is that of the end
    health: (group) => (filter.range
      ? [group.sum.downtime, group.severity, group.sum.rebalances] : [group.severity, group.sum.downtime, group.sum.rebalances]),
    rebalances: (group) => [group.sum.rebalances, group.sum.downtime],
    downtime: (group) => [group.downtime_ms === null ? null : group.sum.downtime],
    lag: (group) => [lagOrder(group, filter.range ? group.sum.lag : group.lag?.now), lagOrder(group, group.lag?.most)],
    saving: (group) => [group.saving_ms, group.severity],
    name: (group) => [group.name.toLowerCase()],
    strategy: (group) => [group.strategy],
  };

  // Seconds; records come after all seconds, because they cannot be compared; unknown is last.
  function lagOrder(group, amount) {
    if (!group.lag || amount === undefined || Number.isNaN(amount)) return null;
    return group.lag.inSeconds ? amount : -1 / (amount + 2);
  }

  function compare(a, b) {
    const [x, y] = [ORDERS[filter.sort](a), ORDERS[filter.sort](b)];
    const sign = filter.falling ? -1 : 1;
    if (x[0] === null || y[0] === null) return (x[0] === null) - (y[0] === null) || a.index - b.index; // unknown is last
    for (let index = 0; index < x.length; index++) {
      if (x[index] < y[index]) return -sign;
      if (x[index] > y[index]) return sign;
    }
    return a.index - b.index;
  }

  function arrange() {
    for (const group of overview.groups) group.sum = sumInRange(group, filter.range, filter.causes);
    const matching = overview.groups.filter(matches);
    const active = matching.filter(isActive).sort(compare);
    ordered = active;
  }

  // Orders and shows the rows, and draws the timeline, the figures and the selected range.
  function show() {
    arrange();
    showRows();
    timeline.draw();
    showFigures();
    showSelectionBar();
    for (const heading of headings) heading.removeAttribute('aria-sort');
    const sorted = headings.find((heading) => heading.querySelector(`[data-sort="${filter.sort}"]`));
    sorted?.setAttribute('aria-sort', filter.falling ? 'descending' : 'ascending');
  }

  function showRows() {
    const shown = ordered.slice(0, most);
    const largest = Math.max(...shown.map((group) => group.sum.downtime), 1);
    for (const group of shown) fillRow(group, largest);
    const rows = shown.map((group) => group.row);
    if (rows.length !== body.rows.length || rows.some((row, index) => row !== body.rows[index])) body.replaceChildren(...rows);
    at('found').textContent = ordered.length === overview.groups.length
      ? countNoun(ordered.length, 'group') : `${number(ordered.length)} of ${countNoun(overview.groups.length, 'group')}`;
    at('more').hidden = ordered.length <= most;
    at('more').textContent = `Show ${number(Math.min(ordered.length - most, ROWS_PER_STEP))} more of ${number(ordered.length)}`;
  }

  // While the pointer selects a range: the numbers, but not the order of the rows.
  function showSelection() {
    arrange();
    timeline.draw();
    showFigures();
    showSelectionBar();
  }

  function schedule(work) {
    if (pending) return;
    pending = requestAnimationFrame(() => { pending = null; work(); });
  }

  function fillRow(group, largest) {
    const { row } = group;
    row.classList.remove('later');
    const cell = (name) => row.querySelector(`.cell-${name}`);
    if (!original.has(row)) {
      original.set(row, ['rebalances', 'downtime', 'cause', 'lag'].map((name) => [name, [...cell(name).childNodes]]));
    }
    const isWhole = !filter.range && !filter.causes.size;
    if (isWhole) {
      for (const [name, nodes] of original.get(row)) cell(name).replaceChildren(...nodes);
    } else {
      cell('rebalances').replaceChildren(known(group.mark, number(group.sum.rebalances)));
      const isKnown = group.downtime_ms !== null;
      cell('downtime').replaceChildren(isKnown ? known(group.mark, duration(group.sum.downtime)) : UNKNOWN);
      cell('cause').replaceChildren(element('span', { class: 'cut2' }, causeTally(group.sum.causes) || 'No rebalance'));
      if (filter.range) {
        cell('lag').replaceChildren(
          known('sampled', lagAmountText(group.lag, group.sum.lag)), element('span', { class: 'minor' }, 'max in the time range'));
      }
    }
    fillTimes(row);
    cell('lag-chart').replaceChildren(sparkline(group));
    cell('downtime').append(downtimeShare(group.sum, largest));
  }

  function fillTimes(row) {
    const since = row.querySelector('[data-since]');
    if (since) since.textContent = `since ${momentText(Number(since.dataset.since)).slice(0, -3)}`;
    for (const time of row.querySelectorAll('time')) {
      const value = Date.parse(time.dateTime);
      // a client id may look like a time
      if (!Number.isNaN(value)) time.textContent = formatMoment(value, overview.begin, overview.end, time.dateTime.length > 17);
    }
  }

  function causeTally(causes) {
    const ranked = [...causes].sort((a, b) => b[1] - a[1]);
    return ranked.map(([cause, count]) => `${CAUSES[cause].title.replace(/^[A-Z]/, (letter) => letter.toLowerCase())}: ${number(count)}`).join(', ');
  }

  // A line under the downtime: as long as its share of the largest downtime, coloured by reason.
  function downtimeShare(sum, largest) {
    const bar = element('span', { class: 'share', 'aria-hidden': 'true' });
    for (const [reason, length] of [...sum.reasons].sort((a, b) => b[1] - a[1])) {
      bar.append(reasonPart(reason, length / largest));
    }
    return bar;
  }

  function reasonPart(reason, share) {
    return element('i', { style: { width: `${Math.min(share, 1) * 100}%`, background: `var(--${REASON_COLOURS[reason] || 'revoked'})` } });
  }

  const sparklines = new Map();

  // Lag and rebalances of a group; made once, only the selected range changes.
  function sparkline(group) {
    if (!sparklines.has(group)) sparklines.set(group, newSparkline(group));
    const chart = sparklines.get(group);
    const range = chart.querySelector('.spark-range');
    const span = overview.end - overview.begin;
    const [from, to] = (filter.range || [overview.begin, overview.begin]).map((time) => ((time - overview.begin) / span) * SPARK_WIDTH);
    range.setAttribute('x', from);
    range.setAttribute('width', filter.range ? Math.max(to - from, 1.5) : 0);
    return chart;
  }

  function newSparkline(group) {
    const chart = svgElement('svg', {
      class: 'spark', viewBox: `0 0 ${SPARK_WIDTH} ${SPARK_HEIGHT}`, preserveAspectRatio: 'none', role: 'img',
      'aria-label': group.lag ? `Lag over time, at most ${lagAmountText(group.lag, group.lag.most)}` : 'Lag unknown' });
    const span = overview.end - overview.begin;
    const add = (tag, attributes) => chart.append(svgElement(tag, attributes));
    if (group.lag) {
      const line = lagLine(group.lag, span);
      add('path', { d: line.area, class: 'spark-area' });
      add('path', { d: line.path, class: `spark-line severity-${group.severity}` });
    }
    add('path', { d: `M0 ${SPARK_BASE + 0.5}H${SPARK_WIDTH}`, class: 'spark-axis' });
    const marks = new Map();
    group.at.forEach((time, index) => {
      const x = Math.round((((time - overview.begin) / span) * SPARK_WIDTH) / 2) * 2;
      if (!marks.has(x) || CAUSES[group.cause[index]].isFailure) marks.set(x, group.cause[index]);
    });
    // one path for all marks of a cause
    for (const [cause] of CAUSES.entries()) {
      const places = [...marks].filter(([, own]) => own === cause);
      if (places.length) add('path', { d: places.map(([x]) => `M${x} ${SPARK_BASE + 2.5}h1.8v6h-1.8z`).join(''), class: `cause-${cause}` });
    }
    add('rect', { x: 0, y: 0, width: 0, height: SPARK_HEIGHT, class: 'spark-range' });
    return chart;
  }

  // The lag as a path; unknown bins are gaps.
  function lagLine({ bins, step, most, shown }, span) {
    const scale = (SPARK_BASE - 2) / Math.max(most, 2 * shown, 1);
    let path = '', area = '', isOpen = false, x = 0;
    bins.forEach((amount, bin) => {
      if (Number.isNaN(amount)) {
        if (isOpen) area += `L${x} ${SPARK_BASE}Z`;
        isOpen = false;
        return;
      }
      x = (((bin * step) / span) * SPARK_WIDTH).toFixed(1);
      const y = (SPARK_BASE - amount * scale).toFixed(1);
      path += `${isOpen ? 'L' : 'M'}${x} ${y}`;
      area += isOpen ? `L${x} ${y}` : `M${x} ${SPARK_BASE}L${x} ${y}`;
      isOpen = true;
    });
    if (isOpen) area += `L${x} ${SPARK_BASE}Z`;
    return { path, area };
  }

  function showFigures() {
    const groups = filter.range || filter.causes.size ? ordered : overview.groups;
    const total = (name) => groups.reduce((all, group) => all + group.sum[name], 0);
    const downtime = total('downtime');
    const reasons = new Map();
    for (const { sum } of groups) {
      for (const [reason, length] of sum.reasons) reasons.set(reason, (reasons.get(reason) || 0) + length);
    }
    const ranked = [...reasons].sort((a, b) => b[1] - a[1]);
    at('figure-rebalances').textContent = number(total('rebalances'));
    const restless = groups.filter((group) => group.sum.rebalances >= 5).length;
    at('figure-rebalances-note').textContent = `${countNoun(restless, 'group')} with 5 or more`;
    at('figure-downtime').textContent = duration(downtime);
    at('downtime-bar').replaceChildren(...ranked.map(([reason, length]) => reasonPart(reason, length / (downtime || 1))));
    at('downtime-parts').replaceChildren(...ranked.slice(0, 3).map(([reason, length]) => element(
      'span', null, element('i', { class: 'swatch', style: { background: `var(--${REASON_COLOURS[reason] || 'revoked'})` } }),
      `${SHORT_REASONS[reason] || reason} `, known('inferred', duration(length)))));
    const saving = overview.groups.reduce((all, group) => all + (group.saving_ms || 0), 0);
    const whole = overview.groups.reduce((all, group) => all + (group.downtime_ms || 0), 0);
    const bar = element('i', { style: { width: `${Math.min(saving / (whole || 1), 1) * 100}%`, background: 'var(--good)' } });
    at('saving-bar').replaceChildren(bar);
  }

  function showSelectionBar() {
    const bar = at('selected');
    bar.hidden = !filter.range;
    if (!filter.range) return;
    const causes = new Map();
    for (const { sum } of ordered) for (const [cause, count] of sum.causes) causes.set(cause, (causes.get(cause) || 0) + count);
    const total = (name) => ordered.reduce((all, group) => all + group.sum[name], 0);
    const clear = element('button', { type: 'button', class: 'button', onclick: () => { filter.range = null; show(); writeHash(); at('timeline').focus(); } }, 'Clear time range');
    bar.replaceChildren(
      element('b', null, formatTimeRange(...filter.range)), clear,
      element('span', null, `${countNoun(total('rebalances'), 'rebalance')} in ${countNoun(ordered.filter((group) => group.sum.rebalances).length, 'group')}`),
      element('span', null, `${duration(total('downtime'))} downtime`),
      ...[...causes].sort((a, b) => b[1] - a[1]).map(([cause, count]) => element(
        'span', { class: 'with-glyph' }, causeGlyph(cause), `${number(count)} ${CAUSES[cause].name}`)),
    );
  }

  // Buttons that filter by one of several values.
  function chips(box, label, chosen, choices, className = 'chip') {
    box.replaceChildren(label && element('span', { class: 'minor wide' }, label) || '', ...choices.map(([value, count, ...content]) => element('button', {
      type: 'button', class: className, 'aria-pressed': String(chosen.has(value)),
      onclick: (event) => {
        if (!chosen.delete(value)) chosen.add(value);
        event.currentTarget.setAttribute('aria-pressed', String(chosen.has(value)));
        most = ROWS_AT_FIRST;
        show();
        writeHash();
      } }, ...content, count === null ? null : element('em', null, ` ${number(count)}`))));
  }

  function countBy(key) {
    const counts = new Map();
    for (const group of overview.groups) counts.set(key(group), (counts.get(key(group)) || 0) + 1);
    return counts;
  }

  function showChips() {
    const healths = countBy((group) => group.health);
    chips(at('health-filter'), 'Health', filter.healths, HEALTHS.filter((each) => healths.has(each)).map((each) => [each, healths.get(each), healthTitle(each)]));
    const strategies = [...countBy(strategyOf)].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).slice(0, 4);
    chips(at('strategy-filter'), 'Strategy', filter.strategies, strategies.map(([name, count]) => [name, count, isolate(shortened(name, 30))]));
    const causes = new Set(overview.groups.flatMap((group) => [...group.cause]));
    chips(at('cause-filter'), '', filter.causes, CAUSES.map((cause, index) => [index, null, causeGlyph(index), cause.title]).filter(([index]) => causes.has(index)), 'chip plain');
  }

  function state() {
    const { range, query, sort, falling } = filter;
    return {
      from: range && timeInHash(range[0]), to: range && timeInHash(range[1]), q: query,
      health: [...filter.healths].join(','), cause: [...filter.causes].map((cause) => CAUSES[cause].name).join(','),
      strategy: [...filter.strategies].join(','), sort: sort === 'health' && falling ? null : `${falling ? '-' : ''}${sort}`,
    };
  }

  function writeHash() {
    replaceHash(state());
  }

  function readState(hash) {
    const [from, to] = [hash.from, hash.to].map((text) => (text ? parseHashTime(text) : null));
    const [begin, end] = [Math.max(from ?? NaN, overview.begin), Math.min(to ?? NaN, overview.end)];
    filter.range = begin < end ? [begin, end] : null;
    filter.query = hash.q || '';
    at('search').value = filter.query;
    const values = (text) => (text || '').split(',').filter(Boolean);
    filter.healths = new Set(values(hash.health));
    filter.causes = new Set(values(hash.cause).filter((name) => CAUSE_INDEX.has(name)).map(causeIndex));
    filter.strategies = new Set(values(hash.strategy));
    const sort = (hash.sort || '').replace(/^-/, '');
    filter.sort = Object.hasOwn(ORDERS, sort) ? sort : 'health';
    filter.falling = Object.hasOwn(ORDERS, sort) ? hash.sort.startsWith('-') : true;
    showChips();
    show();
  }

  function search(text) {
    filter.query = text.trim();
    most = ROWS_AT_FIRST;
    show();
    writeHash();
  }

  function sortBy(key) {
    const isText = key === 'name' || key === 'strategy';
    filter.falling = filter.sort === key ? !filter.falling : !isText;
    filter.sort = key;
    show();
    writeHash();
  }

  function showMore(count) {
    const last = body.lastElementChild;
    most += count;
    showRows();
    last?.nextElementSibling?.querySelector('a').focus();
  }

  // The rows that match, for the export; how each number is known is in `known`.
  function exportRows() {
    return ordered.map((group) => ({
      group: group.name, health: group.health, health_since: group.since && new Date(group.since).toISOString(), health_reason: group.reason,
      rebalances: group.sum.rebalances, downtime_ms: group.downtime_ms === null ? null : group.sum.downtime,
      delayed_records: filter.range ? null : group.delayed_records,
      lag_now: lagNumber(group.lag?.now), lag_most: lagNumber(filter.range ? group.sum.lag : group.lag?.most),
      lag_unit: group.lag ? (group.lag.inSeconds ? 'seconds' : 'records') : null,
      causes: causeTally(group.sum.causes), what_happened: group.happened, what_to_do: group.to_do, strategy: group.used,
      recommendation: group.recommendation, saving_ms: group.saving_ms,
      known: `rebalances and downtime ${group.mark}; lag sampled; saving replayed`,
    }));
  }

  function lagNumber(amount) {
    return amount === undefined || Number.isNaN(amount) ? null : Math.round(amount * 10) / 10;
  }

  // The names around a group in the present order.
  function neighbours(name) {
    const index = ordered.findIndex((group) => group.name === name);
    return { previous: ordered[index - 1]?.name ?? null, next: index < 0 ? null : ordered[index + 1]?.name ?? null };
  }

  // Opens the group of a row, at the selected time.
  function openRow(row) {
    const [from, to] = filter.range || [null, null];
    const group = overview.groups.find((each) => each.row === row);
    location.hash = hashOf({ g: group.name, from: from && timeInHash(from), to: to && timeInHash(to) });
  }

  function moveFocus(step) {
    const rows = [...body.rows];
    const index = rows.findIndex((row) => row.contains(document.activeElement));
    const next = rows[index + step] || (index < 0 ? rows[0] : null);
    next?.querySelector('a').focus();
  }

  at('search').addEventListener('input', (event) => search(event.target.value));
  at('search').addEventListener('keydown', (event) => { if (event.key === 'Enter' && ordered.length) openRow(ordered[0].row); });
  at('more').addEventListener('click', () => showMore(ROWS_PER_STEP));
  let screenRows = null;
  window.addEventListener('beforeprint', () => {
    if (at('overview').hidden) return;
    [screenRows, most] = [most, Infinity];
    showRows();
  });
  window.addEventListener('afterprint', () => {
    if (screenRows === null) return;
    [most, screenRows] = [screenRows, null];
    showRows();
  });
  for (const heading of headings) {
    heading.querySelector('button')?.addEventListener('click', (event) => sortBy(event.currentTarget.dataset.sort));
  }
  // A click on a row opens its group; a tap on a number says how the number is known.
  body.addEventListener('click', (event) => {
    const row = event.target.closest('tr');
    if (!row || event.ctrlKey || event.metaKey || event.shiftKey || window.getSelection().toString()) return;
    const isLink = event.target.closest('a');
    if (!isLink && event.pointerType === 'touch' && tipOwner(event)) return;
    event.preventDefault();
    openRow(row);
  });
  arrange(); // a link may open a group before the list is shown
  return { readState, state, show, exportRows, neighbours, moveFocus, redraw: () => timeline.draw() };
}
