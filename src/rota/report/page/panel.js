// The panel of one rebalance: cause, members, phases, downtime, assignment before and after, the
// broker's words.
const MAX_LISTED_MOVES = 40, MAX_LISTED_MEMBERS = 6;

// Who joined and who left, as elements.
function whoChanged(chart, index) {
  const { joined, left, after, cause } = chart.rebalances;
  const gone = { silent: 'stopped sending heartbeats', 'slow poll': 'polled too slowly' }[CAUSES[cause[index]].name] || 'left';
  const parts = [];
  const add = (members, verb) => {
    if (!members.length) return;
    if (parts.length) parts.push('; ');
    if (members.length > 2) parts.push(`${countNoun(members.length, 'member')} ${verb}`);
    else parts.push(...members.flatMap((member, place) => [place ? ' and ' : '', isolate(shortened(chart.members[member].fullName, 60))]), ` ${verb}`);
  };
  add(left[index], gone);
  add(joined[index], 'joined');
  return parts.length ? parts : [`${countNoun(after[index], 'member')} stayed`];
}

// Time from the start to the end of a rebalance: {text, how}. Without the broker's log only bounds are
// known.
function tookOf(rebalances, index) {
  const { took, most, least, kind } = rebalances;
  const how = kind[index] === 'sampled' ? 'sampled' : 'inferred';
  if (took[index] !== null) return { text: duration(took[index]), how: 'stated' };
  if (least[index] === null && most[index] === null) return { text: UNKNOWN, how };
  if (most[index] === null) return { text: `≥ ${duration(least[index])}`, how };
  if (least[index] === null || least[index] < most[index] / 10) return { text: `≤ ${duration(most[index])}`, how };
  return { text: `${duration(least[index])} to ${duration(most[index])}`, how };
}

// Compares the owners after a rebalance with those after the one before it. A partition whose owner
// left had to move; of the others, as many moves were necessary as the best balance needs, counted
// from moves to members that joined.
function movesOf(chart, index, bands = chart.actualBands) {
  const { at, joined, left, needed } = chart.rebalances;
  const found = { stayed: 0, lost: 0, necessary: 0, unnecessary: 0, listed: [] };
  if (!index) return found;
  const [before, after] = [at[index - 1] + 1, at[index] + 1];
  const [joiners, leavers] = [joined[index], left[index]].map((members) => new Set(members.map((member) => chart.members[member].key)));
  for (let row = 0; row < chart.rowNames.length; row++) {
    const [old, current] = [ownerAt(bands, row, before), ownerAt(bands, row, after)];
    const [oldKey, key] = [old, current].map((member) => (member === null ? null : chart.members[member].key));
    if (oldKey === key) { found.stayed += key !== null; continue; }
    const kind = old === null ? 'new' : current === null ? 'no owner' : leavers.has(oldKey) ? 'owner left' : null;
    found.listed.push({ row, old, current, kind, isToJoiner: joiners.has(key) });
  }
  const free = found.listed.filter((move) => move.kind === null).sort((a, b) => b.isToJoiner - a.isToJoiner);
  free.forEach((move, place) => { move.kind = place < (needed[index] || 0) ? 'necessary' : 'unnecessary'; });
  for (const { kind } of found.listed) {
    if (kind === 'necessary' || kind === 'unnecessary') found[kind]++;
    else found.lost++;
  }
  const order = ['owner left', 'new', 'no owner', 'necessary', 'unnecessary'];
  found.listed.sort((a, b) => order.indexOf(a.kind) - order.indexOf(b.kind) || a.row - b.row);
  return found;
}

// Colours as CSS, so that they follow the colour scheme.
function memberCss(slot) {
  const colour = `var(--member-${slot % 12})`;
  return slot % OWNER_STYLES < 12 ? colour : `color-mix(in srgb, ${colour}, var(--ink) 16%)`;
}

function reasonCss(reason) {
  return `var(--${REASON_COLOURS[reason] || 'revoked'})`;
}

function memberSwatch(chart, member) {
  if (member === null) return element('span', { class: 'minor' }, 'none');
  const { slot, name } = chart.members[member];
  return element('span', { class: 'member' }, element('i', { class: 'swatch', style: { background: memberCss(slot) } }), isolate(shortened(name, 40)));
}

// A stacked bar: [[share, colour]...].
function stackBar(parts, label) {
  const bars = parts.filter(([share]) => share > 0).map(([share, colour]) => element('i', { style: { flex: `${share} 0 0`, background: colour } }));
  return element('div', { class: 'stack', role: 'img', 'aria-label': label }, ...bars);
}

// Shows a rebalance in the panel. `page` has the functions step(by), stepSame(by), showSame(),
// showDeploy() and close().
function fillPanel(chart, index, page) {
  const { rebalances } = chart;
  const cause = rebalances.cause[index];
  const heading = element('div', { class: 'panel-head' },
    element('div', null,
      element('h2', { class: 'with-glyph', tabindex: '-1' }, causeGlyph(cause), causeTitle(rebalances, index)),
      element('div', { class: 'minor' }, `Rebalance ${number(index + 1)} of ${number(rebalances.count)}, ${formatMoment(rebalances.at[index], chart.begin, chart.end)} ${timeZone()}`)),
    panelButton('↑', 'Previous rebalance', index === 0, () => page.step(-1)),
    panelButton('↓', 'Next rebalance', index === rebalances.count - 1, () => page.step(1)),
    panelButton('✕', 'Close', false, page.close));
  at('panel').replaceChildren(
    heading,
    panelFacts(chart, index, page),
    ...panelMoves(chart, index),
    panelMembers(chart, index),
    panelWords(chart, index),
    panelEvidence(chart, index));
  at('panel').scrollTop = 0;
}

function causeTitle(rebalances, index) {
  const likely = rebalances.likely[index];
  const title = CAUSES[rebalances.cause[index]].title;
  return likely ? `${title}, likely ${CAUSES[causeIndex(likely)].title.toLowerCase()}` : title;
}

function panelButton(sign, label, isDisabled, onclick) {
  return element('button', { type: 'button', class: 'button icon', 'aria-label': label, 'data-tip': label, disabled: isDisabled, onclick }, sign);
}

function panelSection(...children) {
  return element('section', { class: 'panel-part' }, ...children);
}

function factRow(how, label, more, ...content) {
  return [element('dt', null, how ? knownLabel(how, label, more) : label), element('dd', null, ...content)];
}

function panelFacts(chart, index, page) {
  const { rebalances, group } = chart;
  const { before, after, strategy, protocol, generation, from_generation: from, delayed, rounds } = rebalances;
  const took = tookOf(rebalances, index);
  const changed = [...whoChanged(chart, index), '. ', element('b', { class: 'short' }, `${number(before[index])} → ${number(after[index])} members`)];
  const rows = [
    ...factRow(took.how, 'Duration', '', known(took.how, took.text), ' ', spanOf(rebalances, index)),
    ...phaseRow(rebalances, index),
    ...downtimeRow(chart, index),
  ];
  if (delayed[index] !== null) rows.push(...factRow('sampled', 'Records delayed', 'Records that arrived while their partition had no consumer.', known('sampled', number(delayed[index]))));
  const used = [strategy[index] ?? 'no strategy', protocol[index] === 'consumer' ? 'KIP-848' : protocol[index]].filter(Boolean).join(', ');
  const generations = from[index] === null ? `generation ${number(generation[index])}` : `generation ${number(from[index])} → ${number(generation[index])}`;
  rows.push(...factRow(null, 'Strategy', '', isolate(used), element('span', { class: 'minor' }, `; ${generations}${rounds[index] > 1 ? ` in ${countNoun(rounds[index], 'round')}` : ''}`)));
  return panelSection(
    element('p', { class: 'changed' }, ...changed),
    element('dl', { class: 'facts-list' }, ...rows),
    ...relatedLinks(chart, index, page));
}

function spanOf({ begin, at, took }, index) {
  if (took[index] === null) return '';
  return element('span', { class: 'minor' }, `${formatClock(begin[index], true)} – ${formatClock(at[index], true)}`);
}

function phaseDuration(milliseconds) {
  return milliseconds < 95 ? `${number(milliseconds)}\u00a0ms` : duration(milliseconds);
}

// The phases: until all members had joined, then until the assignment was written.
function phaseRow({ join, sync, evidence }, index) {
  if (join[index] === null && sync[index] === null) return [];
  const how = evidence[index] === 'sampled' ? 'sampled' : 'inferred';
  const parts = [];
  if (join[index] !== null) parts.push(element('div', null, known('stated', phaseDuration(join[index])), element('span', { class: 'minor' }, ' until all members had joined')));
  if (sync[index] !== null) parts.push(element('div', null, known(how, phaseDuration(sync[index])), element('span', { class: 'minor' }, ' until the assignment was written')));
  const bar = join[index] === null ? [] : [stackBar([[join[index], 'var(--cause-0)'], [sync[index] ?? 0, 'var(--accent)']], 'Join and sync phase')];
  return factRow(null, 'Phases', '', ...bar, ...parts);
}

function downtimeRow(chart, index) {
  const { downtime, at_least: atLeast, at_most: atMost, not_polled: notPolled } = chart.rebalances;
  if (downtime[index] === null) return factRow(null, 'Downtime', '', UNKNOWN);
  const bounds = downtimeBounds(atLeast[index], atMost[index]);
  const parts = downtimeParts(chart.rebalances, index).sort((a, b) => b[1] - a[1]);
  const listed = parts.map(([reason, length]) => element('div', { class: 'minor' },
    element('i', { class: 'swatch', style: { background: reasonCss(reason) } }), known(chart.group.mark, duration(length)), ` ${REASONS[reason] ?? reason}`));
  const content = [known(chart.group.mark, element('b', null, downtime[index] ? duration(downtime[index]) : 'none'), bounds)];
  if (parts.length) content.push(element('span', { class: 'minor' }, ' partition time'), stackBar(parts.map(([reason, length]) => [length, reasonCss(reason)]), 'Downtime by reason'), ...listed);
  if (bounds && downtime[index]) content.push(element('div', { class: 'minor' }, bounds));
  if (notPolled[index]) content.push(element('div', { class: 'minor' }, `Before it, the owner did not poll for ${duration(notPolled[index])}. This is not counted: it may have been processing records.`));
  return factRow(chart.group.mark, 'Downtime', 'Time in which a partition had no consumer, summed over partitions.', ...content);
}

// Links to the rebalances of the same cause, and of the same rolling deploy.
function relatedLinks(chart, index, page) {
  const { cause, rollout, count } = chart.rebalances;
  let [same, place, deployed] = [0, 0, 0];
  for (let other = 0; other < count; other++) {
    if (cause[other] === cause[index]) { same++; if (other <= index) place++; }
    if (rollout[index] !== null && rollout[other] === rollout[index]) deployed++;
  }
  const links = [];
  if (same > 1) {
    links.push(element('div', { class: 'related' },
      element('span', null, `${number(place)} of ${number(same)} with this cause`), element('span', { class: 'spacer' }),
      element('button', { type: 'button', class: 'link', disabled: place === 1, onclick: () => page.stepSame(-1), 'aria-label': 'Previous rebalance with this cause' }, '← previous'),
      element('button', { type: 'button', class: 'link', disabled: place === same, onclick: () => page.stepSame(1), 'aria-label': 'Next rebalance with this cause' }, 'next →'),
      element('button', { type: 'button', class: 'link', onclick: page.showSame }, 'Show only these')));
  }
  if (deployed > 1) {
    links.push(element('div', { class: 'related' },
      element('span', null, `One of ${number(deployed)} rebalances of a rolling deploy`), element('span', { class: 'spacer' }),
      element('button', { type: 'button', class: 'link', onclick: page.showDeploy }, 'Show the deploy')));
  }
  return links;
}

function panelMoves(chart, index) {
  const { rebalances, group } = chart;
  if (!chart.actualBands.member.length || rebalances.moved[index] === null) return [];
  if (!index || rebalances.from_generation[index] === null) {
    return [panelSection(element('h3', null, 'Assignment before and after'), element('p', { class: 'minor' }, 'The evidence does not have the assignment before this rebalance.'))];
  }
  const moves = movesOf(chart, index);
  const parts = [
    [moves.stayed, 'var(--line2)', 'stayed', 'inferred'], [moves.lost, 'var(--cause-1)', 'had lost the owner', 'inferred'],
    [moves.necessary, 'var(--cause-0)', 'moved, necessary', 'inferred'], [moves.unnecessary, 'var(--cause-2)', 'moved, unnecessary', 'inferred']];
  const shown = parts.filter(([count]) => count);
  const summary = shown.map(([count, , text]) => `${number(count)} ${text}`).join(', ');
  const keys = shown.map(([count, colour, text, how]) => element('span', null, element('i', { class: 'swatch', style: { background: colour } }), known(how, number(count)), ` ${text}`));
  const more = moves.listed.length - MAX_LISTED_MOVES;
  return [panelSection(
    element('h3', null, knownLabel('inferred', 'Assignment before and after', 'Necessary moves are the fewest that reach the best balance. Rota chooses which moves count as necessary: first the moves to a member that joined.')),
    stackBar(shown, summary), element('div', { class: 'keys minor' }, ...keys),
    moves.listed.length ? movesTable(chart, moves.listed.slice(0, MAX_LISTED_MOVES)) : element('p', { class: 'minor' }, 'No partition changed its owner.'),
    more > 0 && element('p', { class: 'minor' }, `and ${number(more)} more`),
    replayedNote(chart, index))];
}

function movesTable(chart, listed) {
  const row = ({ row, old, current, kind }) => element('tr', null,
    element('th', { scope: 'row' }, isolate(shortened(chart.rowNames[row], 40))),
    element('td', null, memberSwatch(chart, old)), element('td', null, memberSwatch(chart, current)),
    element('td', { class: 'number' }, element('span', { class: kind === 'unnecessary' ? 'need no' : 'need' }, kind)));
  return element('table', { class: 'moves' },
    element('thead', null, element('tr', null, ...['Partition', 'Before', 'After'].map((title) => element('th', { scope: 'col' }, title)), element('td'))),
    element('tbody', null, ...listed.map(row)));
}

// What the advised policy would have done at the same change of members.
function replayedNote(chart, index) {
  const { replayed, group } = chart;
  if (!replayed) return null;
  const place = replayed.of.indexOf(index);
  if (place < 0) return element('p', { class: 'minor' }, 'With ', isolate(group.policy), ' this rebalance ', known('replayed', '≈ would not have happened'), '.');
  const moved = `≈ ${countNoun(replayed.moved[place], 'partition')}`;
  return element('p', { class: 'minor' }, 'With ', isolate(group.policy), ' ', known('replayed', moved), ' would have moved to another member, with ',
    known('replayed', `≈ ${duration(replayed.downtime[place])}`), ' of downtime.');
}

// Members that joined or left.
function panelMembers(chart, index) {
  const { joined, left } = chart.rebalances;
  const changed = [...joined[index].map((member) => ['joined', member]), ...left[index].map((member) => ['left', member])];
  if (!changed.length) return '';
  const rows = changed.slice(0, MAX_LISTED_MEMBERS).map(([what, member]) => {
    const { id, client, host, staticId, slot } = chart.members[member];
    const details = [['member id', id], ['client id', client], ['group.instance.id', staticId], ['host', host]].filter(([, value]) => value !== null && value !== undefined);
    return element('div', { class: 'changed-member' },
      element('b', null, element('i', { class: 'swatch', style: { background: memberCss(slot) } }), what),
      element('dl', null, ...details.flatMap(([name, value]) => [element('dt', null, name), element('dd', null, isolate(visibleName(value)))])));
  });
  const more = changed.length - MAX_LISTED_MEMBERS;
  return panelSection(element('h3', null, 'Members'), ...rows, more > 0 && element('p', { class: 'minor' }, `and ${number(more)} more`));
}

// The lines of the broker's log, or the facts that show the cause.
function panelWords(chart, index) {
  const lines = chart.lines.get(index);
  const { at, reason } = chart.rebalances;
  if (!lines) {
    return panelSection(element('h3', null, 'Evidence of the cause'), codeBlock(reason[index] ?? 'Nothing in the evidence shows the cause.'));
  }
  const blocks = lines.map(({ before, file, line, text }) => [
    element('div', { class: 'minor' }, isolate(shortened(file, 60)), `, line ${number(line)}, ${formatClock(at[index] - before, true)}`), codeBlock(text)]);
  return panelSection(element('h3', null, knownLabel('stated', 'Broker log')), ...blocks.flat());
}

function codeBlock(text) {
  const button = element('button', { type: 'button', class: 'copy', onclick: () => copyText(text, button) }, 'Copy');
  return element('div', { class: 'code' }, element('pre', { tabindex: '0' }, element('code', null, ...breakable(text))), button);
}

// How each number of the panel is known.
function panelEvidence(chart, index) {
  const { evidence, took, sync, from_generation: from, generation, delayed } = chart.rebalances;
  const inferred = chart.group.mark === 'sampled' ? 'sampled' : 'inferred';
  const rows = [
    ['Cause', evidence[index], { stated: "by the broker's log or a record", inferred: 'from the members before and after', sampled: 'from two samples of the group' }[evidence[index]]],
    ['Start', took[index] === null ? inferred : 'stated', took[index] === null ? "not in the broker's log: only bounds are known" : "by the broker's log"],
    ['Owners', inferred, from[index] === null ? `from generation ${number(generation[index])}` : `from generations ${number(from[index])} and ${number(generation[index])}`],
    ['Downtime', inferred, 'from the last commits of each owner and the rebalance'],
    delayed[index] !== null && ['Records', 'sampled', 'from samples of the log end offsets'],
  ].filter(Boolean);
  return panelSection(element('h3', null, 'Evidence'),
    element('dl', { class: 'facts-list' }, ...rows.flatMap(([label, how, why]) => [element('dt', null, label), element('dd', null, known(how, how), ` ${why ?? ''}`)])));
}
