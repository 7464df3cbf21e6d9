// The view of one group: its texts and tables. charts.js draws its charts.
const ROWS_PER_PAGE = 50, MAX_SUMMARY_LENGTH = 40;

function showGroup(chart) {
  const { group } = chart;
  at('group-name').replaceChildren(isolate(visibleName(group.name)));
  at('group-line').replaceChildren(...isolateWords(group.line));
  fillHealth(group);
  fillKnown(group);
  fillSteps(group);
  at('who').hidden = !chart.members.length;
  const { fit } = showCharts(chart);
  runAfterPaint(() => fillTables(chart));
  return { fit, recolour: () => at('who').open && fillMembers(chart) };
}

// Fills the tables below the charts. Called after the charts are painted.
function fillTables(chart) {
  fillPolicies(chart);
  at('who').ontoggle = () => at('who').open && fillMembers(chart);
  if (at('who').open) fillMembers(chart);
  fillRebalances(chart);
}

let pendingWork = null;

// Calls a function when the next frame is painted and the browser is idle, unless another group is
// opened before.
function runAfterPaint(work) {
  const current = pendingWork = work;
  at('rebalances').setAttribute('aria-busy', 'true');
  for (const table of ['policies', 'members', 'rebalances']) at(table).tBodies[0].replaceChildren();
  requestAnimationFrame(() => whenIdle(() => {
    if (pendingWork !== current) return;
    work();
    at('rebalances').removeAttribute('aria-busy');
  }));
}

// Fills a table with 50 rows at a time, and its buttons for the previous and next rows.
function fillPagedTable({ table, count, noun, mark, row, previous, next, listed }) {
  function show(begin) {
    const first = Math.max(Math.min(begin, count - 1), 0);
    const last = Math.min(first + ROWS_PER_PAGE, count);
    const rows = [];
    for (let index = first; index < last; index++) rows.push(row(index));
    at(table).tBodies[0].replaceChildren(...rows);
    at(listed).replaceChildren(...(count
      ? [`${number(first + 1)} to ${number(last)} of ${countNoun(count, noun)} `, markElement(mark)] : ['none']));
    at(previous).disabled = first === 0;
    at(next).disabled = last >= count;
    at(previous).onclick = () => show(first - ROWS_PER_PAGE);
    at(next).onclick = () => show(first + ROWS_PER_PAGE);
  }

  show(0);
}

// Shows the present health and, if it was worse before, the worst health.
function fillHealth({ severity, health }) {
  const badge = element('span', { class: `health ${health.health.replace(' ', '-').toLowerCase()}` }, health.health);
  const since = health.since === null ? '' : ` since ${formatTime(health.since)}`;
  const parts = ['Health: ', badge, ' ', markElement(health.mark), `${since}: `, ...isolateWords(health.reason), '.'];
  if (!severity && health.worst_since !== null) {
    parts.push(` Worst: ${health.worst} from ${formatTimeRange(health.worst_since, health.worst_until)}: `);
    parts.push(...isolateWords(health.worst_reason), '.');
  }
  at('group-health').replaceChildren(...parts);
}

function fillKnown(group) {
  const content = ['Counts: ', markElement(group.mark), ` ${group.mark}. `];
  group.known_causes.forEach(([how, number], index) => {
    content.push(index ? ', ' : 'Causes: ', `${number} `, markElement(how), ` ${how}`);
  });
  if (group.known_causes.length) content.push('. ');
  if (group.verdict === 'change') content.push('Replay: ', markElement('replayed'), ' replayed. ');
  if (group.most_lag) content.push('Lag: ', markElement('sampled'), ' sampled. ');
  const clients = group.libraries.length ? group.libraries.join(', ') : UNKNOWN;
  content.push(`Clients: ${clients}. `);
  if (group.status) content.push(`Status at the end, by Burrow's rules: ${group.status} `, markElement('sampled'), '. ');
  if (group.complete_from !== null) {
    const whole = group.whole ? 'The journal has the first record of this group' : 'Its first records are missing; the journal is complete';
    content.push(`${whole}${group.whole ? ',' : ' from'} ${formatTime(group.complete_from)}${group.whole ? '' : ' on'} `);
    content.push(markElement(group.whole ? 'stated' : 'inferred'), '.');
  }
  at('group-known').replaceChildren(...content);
}

function fillSteps(group) {
  at('advice').hidden = !group.steps.length;
  at('steps').replaceChildren(...group.steps.map((step) => element('li', null, ...withLineBreaks(isolateWords(step)))));
  at('copied').textContent = '';
}

async function copySteps() {
  const lines = [...at('steps').children].map((step, index) => `${index + 1}. ${step.textContent}`);
  try {
    await navigator.clipboard.writeText(lines.join('\n') + '\n');
    at('copied').textContent = 'Copied.';
  } catch {
    getSelection().selectAllChildren(at('steps'));
    at('copied').textContent = 'The browser does not allow copying. The steps are selected: copy them with the keyboard.';
  }
}

function fillPolicies({ group, policies }) {
  const [usedRow] = policies;
  const rows = policies.map(([policy, used, down, ...counts]) => {
    const advised = group.verdict === 'change' && policy === group.policy;
    const kind = used ? group.mark : 'replayed';
    const tags = [used && 'in use', advised && 'advised'].filter(Boolean);
    const name = element('th', { scope: 'row' }, isolate(used ? group.used : policy));
    for (const tag of tags) name.append(' ', element('span', { class: `tag ${tag.replace(' ', '-')}` }, tag));
    const bounds = used ? { title: downtimeBounds(group.downtime_at_least_ms, group.downtime_at_most_ms) } : null;
    const cells = [
      element('td', { class: 'number', ...bounds }, downtime(down), ' ', markElement(kind)),
      numberCell(delayedUnder(group, down, usedRow), used ? 'sampled' : kind),
      ...counts.map((each) => numberCell(each, kind))];
    return element('tr', tags.length ? { class: 'chosen' } : null, name, ...cells);
  });
  at('not-polled').replaceChildren(...(group.not_polled_ms
    ? [`Not polled: ${downtime(group.not_polled_ms)} `, markElement(group.mark),
      ', in no sum: the members may have worked on their last records.']
    : []));
  at('policies').tBodies[0].replaceChildren(...rows);
  const none = 'The assignments of this group are unknown, so Rota cannot replay it under other policies.';
  showOrExplain(at('policies'), at('no-policies'), rows.length ? null : none);
}

// Estimates the delayed records under a policy: as many for each second of downtime as were measured.
function delayedUnder(group, down, [, , usedDown]) {
  if (group.delayed_records === null) return null;
  return usedDown ? Math.round((group.delayed_records * down) / usedDown) : 0;
}

function fillMembers({ group, members }) {
  const ids = new Map(members.map((member) => [member.id, member]));
  const ranked = [...ids.values()].sort((a, b) => a.rank - b.rank);
  const row = (index) => {
    const member = ranked[index];
    const sign = element('span', { class: 'short' }, swatch(member.rank), ` ${member.rank + 1}`);
    const names = [member.client, member.host, member.staticId || '', member.id];
    return element('tr', null, element('td', null, sign), ...names.map((name) => element('td', null, isolate(name))));
  };
  fillPagedTable({
    table: 'members', count: ranked.length, noun: 'member', mark: group.mark, row,
    previous: 'previous-members', next: 'next-members', listed: 'listed-members' });
}

// Shortens a long reason to one line, which a click or a key expands. A screen reader reads all of it.
function reason(text) {
  const parts = isolateWords(text);
  if (text.length <= MAX_SUMMARY_LENGTH) return parts;
  return [element('details', null, element('summary', { title: text }, ...parts))];
}

function causeOf(rebalances, index) {
  const likely = rebalances.likely && rebalances.likely[index];
  return rebalances.cause[index] + (likely ? `, likely ${likely}` : '');
}

// Time from the request to join until the assignment was saved; only the broker's log states it.
function took(milliseconds) {
  return milliseconds === null ? [UNKNOWN] : [duration(milliseconds), ' ', markElement('stated')];
}

// The downtime that a rebalance ended, with its bounds as a title.
function downtimeCell({ downtime: times, at_least: atLeast, at_most: atMost }, index) {
  const bounds = times[index] ? { title: downtimeBounds(atLeast[index], atMost[index]) } : null;
  return element('td', { class: 'number', ...bounds }, downtime(times[index]));
}

// '8.0 s left, 4.1 s revoked', the longest first.
function reasonsOf({ reasons }, index) {
  const parts = Object.entries(reasons).filter(([, times]) => times[index]).sort(([, a], [, b]) => b[index] - a[index]);
  return parts.map(([name, times]) => `${downtime(times[index])} ${name}`).join(', ');
}

function fillRebalances({ group, rebalances }) {
  function row(index) {
    const cells = [
      element('td', { class: 'time' }, formatTime(rebalances.at[index])),
      element('td', { class: 'cause' }, causeOf(rebalances, index)),
      element('td', { class: 'short' }, markElement(rebalances.evidence[index])),
      element('td', { class: 'number' }, `${number(rebalances.before[index])} → ${number(rebalances.after[index])}`),
      downtimeCell(rebalances, index),
      element('td', { class: 'short' }, reasonsOf(rebalances, index)),
      ...['delayed', 'moved', 'needed', 'revoked'].map((name) => numberCell(rebalances[name][index])),
      element('td', { class: 'took' }, ...took(rebalances.took[index])),
      element('td', null, isolate(rebalances.strategy[index] || '')),
      element('td', { class: 'reason' }, ...reason(rebalances.reason[index])),
    ];
    const rollout = rebalances.rollout[index];
    if (rollout) cells[1].append(' ', element('span', { class: 'tag', title: rollout }, 'rolling deploy'));
    return element('tr', null, ...cells);
  }

  for (const heading of at('rebalances').tHead.rows[0].cells) {
    if (!heading.matches('.number, .short')) continue;
    const [title] = heading.textContent.split(' ');
    heading.replaceChildren(title, ' ', markElement(title === 'Delayed' ? 'sampled' : group.mark));
  }
  fillPagedTable({
    table: 'rebalances', count: rebalances.at.length, noun: 'rebalance', mark: group.mark, row,
    previous: 'previous', next: 'next', listed: 'listed' });
}
