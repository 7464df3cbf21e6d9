// A group's view: its words and tables here, its charts under one time.
const PAGE = 50, SHORT = 40;

function showGroup(chart) {
  const { group } = chart;
  at('group-name').replaceChildren(isolated(visible(group.name)));
  at('group-line').replaceChildren(...sentence(group.line));
  fillKnown(group);
  fillSteps(group);
  at('who').hidden = !chart.members.length;
  const { fit } = showCharts(chart);
  afterwards(() => fillTables(chart));
  return { fit, recolour: () => at('who').open && fillMembers(chart) };
}

// The tables are below the charts, and are made when the charts are there to be seen.
function fillTables(chart) {
  fillPolicies(chart);
  at('who').ontoggle = () => at('who').open && fillMembers(chart);
  if (at('who').open) fillMembers(chart);
  fillRebalances(chart);
}

let later = null;

// Does something when the next frame is drawn and there is time, unless another group is opened
// before.
function afterwards(work) {
  const wanted = later = work;
  at('rebalances').setAttribute('aria-busy', 'true');
  for (const table of ['policies', 'members', 'rebalances']) at(table).tBodies[0].replaceChildren();
  requestAnimationFrame(() => whenIdle(() => {
    if (later !== wanted) return;
    work();
    at('rebalances').removeAttribute('aria-busy');
  }));
}

// A table of which fifty rows are shown at a time.
function paged({ table, many, noun, mark, row, previous, next, listed }) {
  function show(begin) {
    const first = Math.max(Math.min(begin, many - 1), 0);
    const last = Math.min(first + PAGE, many);
    const rows = [];
    for (let place = first; place < last; place++) rows.push(row(place));
    at(table).tBodies[0].replaceChildren(...rows);
    at(listed).replaceChildren(...(many
      ? [`${number(first + 1)} to ${number(last)} of ${counted(many, noun)} `, marked(mark)] : ['none']));
    at(previous).disabled = first === 0;
    at(next).disabled = last >= many;
    at(previous).onclick = () => show(first - PAGE);
    at(next).onclick = () => show(first + PAGE);
  }

  show(0);
}

function fillKnown(group) {
  const told = ['Counts: ', marked(group.mark), ` ${group.mark}. `];
  group.known_causes.forEach(([how, number], place) => {
    told.push(place ? ', ' : 'Causes: ', `${number} `, marked(how), ` ${how}`);
  });
  if (group.known_causes.length) told.push('. ');
  if (group.verdict === 'change') told.push('Replay: ', marked('replayed'), ' replayed. ');
  if (group.most_lag) told.push('Lag: ', marked('sampled'), ' sampled. ');
  const clients = group.libraries.length ? group.libraries.join(', ') : UNKNOWN;
  told.push(`Clients: ${clients}. `);
  if (group.status) told.push(`Status at the end, by Burrow's rules: ${group.status} `, marked('sampled'), '. ');
  if (group.complete_from !== null) {
    const whole = group.whole ? 'The journal has its first record' : 'Its beginning is missing; the journal is complete';
    told.push(`${whole}${group.whole ? ',' : ' from'} ${moment(group.complete_from)}${group.whole ? '' : ' on'} `);
    told.push(marked(group.whole ? 'stated' : 'inferred'), '.');
  }
  at('group-known').replaceChildren(...told);
}

function fillSteps(group) {
  at('advice').hidden = !group.steps.length;
  at('steps').replaceChildren(...group.steps.map((step) => element('li', null, ...breakable(sentence(step)))));
  at('copied').textContent = '';
}

async function copySteps() {
  const lines = [...at('steps').children].map((step, place) => `${place + 1}. ${step.textContent}`);
  try {
    await navigator.clipboard.writeText(lines.join('\n') + '\n');
    at('copied').textContent = 'Copied.';
  } catch {
    getSelection().selectAllChildren(at('steps'));
    at('copied').textContent = 'The browser does not let a page copy; the steps are selected.';
  }
}

function fillPolicies({ group, policies }) {
  const rows = policies.map(([policy, used, rebalances, stopped, moved, needed, , idle, spread]) => {
    const advised = group.verdict === 'change' && policy === group.policy;
    const kind = used ? group.mark : 'replayed';
    const tags = [used && 'in use', advised && 'advised'].filter(Boolean);
    const name = element('th', { scope: 'row' }, isolated(used ? group.used : policy));
    for (const tag of tags) name.append(' ', element('span', { class: `tag ${tag.replace(' ', '-')}` }, tag));
    const numbers = [rebalances, stopped, moved, needed, idle, spread];
    return element('tr', tags.length ? { class: 'chosen' } : null, name, ...numbers.map((one) => numberCell(one, kind)));
  });
  at('policies').tBodies[0].replaceChildren(...rows);
  const none = 'The assignments of this group are unknown, so Rota cannot replay it under other policies.';
  instead(at('policies'), at('no-policies'), rows.length ? null : none);
}

function fillMembers({ group, members }) {
  const ids = new Map(members.map((member) => [member.id, member]));
  const ranked = [...ids.values()].sort((one, other) => one.rank - other.rank);
  const row = (place) => {
    const member = ranked[place];
    const sign = element('span', { class: 'short' }, swatch(member.rank), ` ${member.rank + 1}`);
    const names = [member.client, member.host, member.fixed || '', member.id];
    return element('tr', null, element('td', null, sign), ...names.map((name) => element('td', null, isolated(name))));
  };
  paged({
    table: 'members', many: ranked.length, noun: 'member', mark: group.mark, row,
    previous: 'previous-members', next: 'next-members', listed: 'listed-members' });
}

// Of a long reason one line, of which a click or a key shows all. A screen reader has all of it in
// any case.
function reason(text) {
  const parts = sentence(text);
  if (text.length <= SHORT) return parts;
  return [element('details', null, element('summary', { title: text }, ...parts))];
}

function causeOf(rebalances, place) {
  const likely = rebalances.likely && rebalances.likely[place];
  return rebalances.cause[place] + (likely ? `, likely ${likely}` : '');
}

// From the call to join until the assignment was saved: only the broker's log tells.
function took(milliseconds) {
  return milliseconds === null ? [UNKNOWN] : [duration(milliseconds), ' ', marked('stated')];
}

function fillRebalances({ group, rebalances }) {
  function row(place) {
    const cells = [
      element('td', { class: 'time' }, moment(rebalances.at[place])),
      element('td', { class: 'cause' }, causeOf(rebalances, place)),
      element('td', { class: 'short' }, marked(rebalances.evidence[place])),
      element('td', { class: 'number' }, `${number(rebalances.before[place])} → ${number(rebalances.after[place])}`),
      ...['moved', 'needed', 'stopped'].map((name) => numberCell(rebalances[name][place])),
      element('td', { class: 'took' }, ...took(rebalances.took[place])),
      element('td', null, isolated(rebalances.strategy[place] || '')),
      element('td', { class: 'reason' }, ...reason(rebalances.reason[place])),
    ];
    const rollout = rebalances.rollout[place];
    if (rollout) cells[1].append(' ', element('span', { class: 'tag', title: rollout }, 'rolling deploy'));
    return element('tr', null, ...cells);
  }

  for (const heading of at('rebalances').tHead.rows[0].cells) {
    if (!heading.classList.contains('number')) continue;
    heading.replaceChildren(heading.textContent.split(' ')[0], ' ', marked(group.mark));
  }
  paged({
    table: 'rebalances', many: rebalances.at.length, noun: 'rebalance', mark: group.mark, row,
    previous: 'previous', next: 'next', listed: 'listed' });
}
