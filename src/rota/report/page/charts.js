// A group's four charts: one time, one cursor, one set of rows.
const REHEARSED = 560, TIMES = 3;

function showCharts(chart) {
  const { group, rebalances, replayed } = chart;
  const cursor = { time: null, row: null, chosen: null, exact: null };
  const view = new View(chart.begin, chart.end, () => { again(true); });
  let plots = [], waiting = null, isSeen = false;

  const was = new BandChart(at('was'), view, chart, chart.was, rebalances);
  const would = chart.would && new BandChart(at('would'), view, chart, chart.would, replayed);
  const moves = rebalances.moved.some((one) => one !== null) && new MovesChart(at('moves'), view, rebalances);
  const lag = lagChart(chart, view);
  instead(at('was'), at('no-was'), chart.rowTopic.length ? null : noBands());
  instead(at('would'), at('no-would'), would ? null : noAdvice(group));
  instead(at('moves'), at('no-moves'), moves ? null : 'The number of moved partitions is unknown.');
  instead(at('lag'), at('no-lag'), lag ? null : 'The lag of this group is unknown: its partitions have no samples of log ends. rota run --bootstrap-servers asks a cluster for them, --ends FILE gives samples.');
  plots = [chart.rowTopic.length && was, would, moves, lag].filter(Boolean);
  describe(chart, { was, would, moves, lag });

  function noBands() {
    return 'The owners of the partitions are unknown.';
  }

  function again(whole) {
    at('shown').textContent = stretch(view.from, view.to);
    if (!isSeen) { first(); return; }
    if (waiting) { waiting.whole = waiting.whole || whole; return; }
    waiting = { whole };
    requestAnimationFrame(() => {
      const { whole: all } = waiting;
      waiting = null;
      paint(plots, all);
    });
  }

  // The first time bands are drawn at once, for the next frame, and the charts below after it.
  function first() {
    isSeen = true;
    paint(plots.filter((plot) => plot.rowAt), true);
    whenIdle(() => paint(plots.filter((plot) => !plot.rowAt), true));
  }

  function paint(some, whole) {
    const ink = inks();
    for (const plot of some) {
      if (whole) plot.paint(ink);
      plot.point(cursor, ink);
    }
  }

  function fit() {
    for (const plot of plots) plot.stand();
    for (const plot of plots) plot.measure();
    for (const plot of plots) plot.size();
    again(true);
  }

  function chooseTopic(topic) {
    const first = topic === '' ? 0 : chart.rowTopic.indexOf(Number(topic));
    const last = topic === '' ? chart.rowTopic.length : chart.rowTopic.lastIndexOf(Number(topic)) + 1;
    for (const plot of [was, would].filter(Boolean)) Object.assign(plot, { begin: first, end: last });
    cursor.row = null;
    fit();
    const merged = last - first > was.bottom - was.top;
    at('merged').textContent = merged
      ? `${number(last - first)} partitions (${group.mark}) are more than there are lines: each line shows one of about ${number(Math.round((last - first) / (was.bottom - was.top)))}.${chart.topics.length > 1 ? ' Choose a topic to see more of it.' : ''}`
      : '';
  }

  fillTopics(chart, chooseTopic);
  const say = (plot) => { at('tip').replaceChildren(...sentence(tip({ chart, was, would, lag, cursor, plot }))); };
  const control = controls({ view, cursor, again, say, was, would });
  for (const plot of plots) control(plot);
  at('tip').textContent = HINT;
  chooseTopic('');
  return { fit };
}

// Scripts are slow when they run for the first time: a chart that nobody sees, drawn while the list
// is read, makes the first one that somebody opens as fast as the next.
async function rehearse() {
  const data = at('data-0');
  const chart = data && await unpacked(data.textContent).catch(() => null);
  if (!chart || !chart.rowTopic.length) return;
  const view = new View(chart.begin, chart.end, () => {});
  const plot = new BandChart(document.createElement('canvas'), view, chart, chart.was, chart.rebalances);
  plot.stand();
  plot.width = REHEARSED;
  plot.size();
  for (let left = TIMES; left > 0; left--) whenIdle(() => plot.paint(inks()));
}

function noAdvice(group) {
  if (group.verdict === 'keep') return `Keep ${group.now}: no other policy would be much better for this group.`;
  return 'Rota cannot recommend a policy for this group.';
}

function lagChart({ lag }, view) {
  if (!lag) return null;
  at('lag-title').replaceChildren(
    lag.inSeconds
      ? 'Lag in seconds: age of the oldest uncommitted record of all partitions '
      : 'Lag in records (ages are unknown): largest of all partitions ',
    marked('sampled'));
  return new LagChart(
    at('lag'), view, lag,
    lag.inSeconds ? (amount) => duration(amount * SECOND) : number,
    lag.inSeconds ? STEPS.map((step) => step / SECOND) : []);
}

function fillTopics(chart, choose) {
  const list = at('topic');
  const options = [['', `all ${counted(chart.rowTopic.length, 'partition')} (${chart.group.mark})`]];
  chart.topics.forEach((topic, place) => options.push([String(place), shortened(topic, 60)]));
  list.replaceChildren(...options.map(([value, text]) => element('option', { value }, text)));
  list.hidden = at('topic-label').hidden = chart.topics.length < 2;
  list.onchange = () => choose(list.value);
}

// What a screen reader says of the charts, and what the titles and the legend say to all.
function describe(chart, { would, moves, lag }) {
  const { group, rebalances, replayed, members } = chart;
  const time = stretch(chart.begin, chart.end);
  const rows = counted(chart.rowTopic.length, 'partition');
  const hint = 'The table below lists all rebalances.';
  at('was').setAttribute('aria-label',
    `Who owned ${rows} as it was, ${time}: ${counted(members.length, 'member')}, ` +
    `${counted(rebalances.at.length, 'rebalance')} (${tally(rebalances.cause)}), ${group.mark}; ` +
    `causes: ${tally(rebalances.evidence)}. ${hint}`);
  at('was-title').replaceChildren(
    'Actual owners, ', isolated(group.used), `: ${counted(rebalances.at.length, 'rebalance')} `, marked(group.mark));
  at('would-title').replaceChildren('Under the recommended policy');
  if (would) {
    at('would').setAttribute('aria-label',
      `Who would have owned ${rows} under ${group.policy}, ${time}: ` +
      `${counted(replayed.at.length, 'rebalance')} (${tally(replayed.cause)}), replayed.`);
    at('would-title').append(
      ', ', isolated(group.policy), `: ${counted(replayed.at.length, 'rebalance')} `, marked('replayed'));
  }
  at('moves-title').replaceChildren(
    'Moved partitions (bar) and necessary moves (tick) of each rebalance ', marked(group.mark));
  at('moves').setAttribute('aria-label',
    `Partitions moved at each rebalance: ${number(group.moved)} in all, ${number(group.needed)} needed, ${group.mark}. ${hint}`);
  if (lag) {
    const [seconds, records, when, atLeast] = group.most_lag;
    const most = seconds === null ? counted(records, 'record') : `${atLeast ? 'at least ' : ''}${duration(seconds * SECOND)}`;
    at('lag').setAttribute('aria-label', `Lag over time: the largest was ${most}, ${moment(when)}, sampled.`);
  }
  const causes = [...new Set([...rebalances.cause, ...(replayed ? replayed.cause : [])])];
  at('causes').replaceChildren(...causes.map((cause) => {
    const place = Object.keys(CAUSES).indexOf(cause);
    const look = element('span', { class: `sign cause-${place < 0 ? 8 : place}` }, lookOf(cause).letter);
    return element('li', null, look, ` ${cause}`);
  }));
}

// What is under the cursor, in words.
function tip({ chart, was, would, lag, cursor, plot }) {
  const { time, row } = cursor;
  if (time === null) return '';
  const lines = [];
  const nearby = plot === would ? chart.replayed : chart.rebalances;
  const near = (4 / (plot.right - plot.left)) * plot.view.width;
  const first = cursor.exact ? cursor.exact.place : placeOf(nearby.at, time - near);
  const end = cursor.exact ? first + 1 : placeOf(nearby.at, time + near);
  if (end > first) lines.push(rebalancesTip(nearby, first, end, plot === would ? 'replayed' : chart.group.mark));
  if (row !== null) {
    const name = `${chart.topics[chart.rowTopic[row]]}-${chart.rowPartition[row]}`;
    lines.push(`${name}, ${moment(time)}: ${ownerTip(chart, was, row, time)} (${chart.group.mark})`);
    if (would) lines.push(`under ${chart.group.policy}: ${ownerTip(chart, would, row, time)} (replayed)`);
  }
  if (plot === lag) {
    const said = lag.saidAt(time);
    lines.push(`lag, ${moment(time)}: ${said === null ? UNKNOWN : said} (sampled)`);
  }
  if (!lines.length) lines.push(moment(time));
  return lines.join('\n');
}

function ownerTip(chart, plot, row, time) {
  const place = plot.bandAt(row, time);
  if (place === null) return 'owned by nobody';
  const member = chart.members[plot.bands.member[place]];
  const until = plot.bands.open[place] ? 'the end of the evidence' : moment(plot.bands.until[place]);
  const fixed = member.fixed ? `, static id ${member.fixed}` : '';
  return `member ${member.rank + 1}, ${member.client} at ${member.host}${fixed}, from ${moment(plot.bands.since[place])} to ${until}`;
}

// Counts have the mark of their group, or are replayed; causes have each its own.
function rebalancesTip(rebalances, first, end, mark) {
  const sum = (name) => {
    let total = 0;
    for (let place = first; place < end; place++) {
      if (rebalances[name][place] === null) return UNKNOWN;
      total += rebalances[name][place];
    }
    return number(total);
  };
  const cost = `moved ${sum('moved')}, needed ${sum('needed')}, stopped ${sum('stopped')}`;
  if (end - first > 1) {
    const causes = tally(rebalances.cause.slice(first, end));
    const known = rebalances.evidence ? tally(rebalances.evidence.slice(first, end)) : mark;
    const time = stretch(rebalances.at[first], rebalances.at[end - 1]);
    return `${number(end - first)} rebalances (${mark}), ${time}, ${causes} (${known}): ${cost} (${mark})`;
  }
  const time = moment(rebalances.at[first]);
  if (!rebalances.evidence) return `Rebalance ${time} (${mark}), ${rebalances.cause[first]}: ${cost} (${mark})`;
  const took = rebalances.took[first];
  const members = `members ${number(rebalances.before[first])} to ${number(rebalances.after[first])}`;
  const length = took === null ? '' : `; took ${duration(took)} (stated)`;
  return `Rebalance ${time}, ${causeOf(rebalances, first)} (${rebalances.evidence[first]}): ${cost}; ${members} (${mark})${length}. ${shortened(rebalances.reason[first], 240)}`;
}
