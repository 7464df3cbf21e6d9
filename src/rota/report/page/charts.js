// A group's four charts, which share the time range, the cursor and the rows.
const WARM_UP_WIDTH = 560, WARM_UP_PAINTS = 3;

function showCharts(chart) {
  const { group, rebalances, replayed } = chart;
  const cursor = { time: null, row: null, dragRange: null, selected: null };
  const view = new View(chart.begin, chart.end, () => { scheduleRepaint(true); });
  let plots = [], pendingRepaint = null, isPainted = false;

  const actual = new BandChart(at('was'), view, chart, chart.actualBands, rebalances);
  const replayedChart = chart.replayedBands && new BandChart(at('would'), view, chart, chart.replayedBands, replayed);
  const moves = rebalances.moved.some((each) => each !== null) && new MovesChart(at('moves'), view, rebalances);
  const lag = lagChart(chart, view);
  showOrExplain(at('was'), at('no-was'), chart.rowTopic.length ? null : 'The owners of the partitions are unknown.');
  showOrExplain(at('would'), at('no-would'), replayedChart ? null : noAdvice(group));
  showOrExplain(at('moves'), at('no-moves'), moves ? null : 'The number of moved partitions is unknown.');
  showOrExplain(at('lag'), at('no-lag'), lag ? null : 'The lag of this group is unknown: its partitions have no samples of log ends. Run rota run with --bootstrap-servers to look them up, or with --ends FILE to read samples.');
  plots = [chart.rowTopic.length && actual, replayedChart, moves, lag].filter(Boolean);
  describe(chart, { actual, replayedChart, moves, lag });

  function scheduleRepaint(whole) {
    at('shown').textContent = formatTimeRange(view.from, view.to);
    if (!isPainted) { paintFirst(); return; }
    if (pendingRepaint) { pendingRepaint.whole = pendingRepaint.whole || whole; return; }
    pendingRepaint = { whole };
    requestAnimationFrame(() => {
      const { whole: all } = pendingRepaint;
      pendingRepaint = null;
      paint(plots, all);
    });
  }

  // Paints the bands at once, and the charts below them when the browser is idle.
  function paintFirst() {
    isPainted = true;
    paint(plots.filter((plot) => plot.rowAt), true);
    whenIdle(() => paint(plots.filter((plot) => !plot.rowAt), true));
  }

  function paint(shownPlots, whole) {
    const theme = currentTheme();
    for (const plot of shownPlots) {
      if (whole) plot.paint(theme);
      plot.drawCursor(cursor, theme);
    }
  }

  function fit() {
    for (const plot of plots) plot.setHeight();
    for (const plot of plots) plot.measure();
    for (const plot of plots) plot.size();
    scheduleRepaint(true);
  }

  function chooseTopic(topic) {
    const first = topic === '' ? 0 : chart.rowTopic.indexOf(Number(topic));
    const last = topic === '' ? chart.rowTopic.length : chart.rowTopic.lastIndexOf(Number(topic)) + 1;
    for (const plot of [actual, replayedChart].filter(Boolean)) Object.assign(plot, { begin: first, end: last });
    cursor.row = null;
    fit();
    const merged = last - first > actual.bottom - actual.top;
    at('merged').textContent = merged
      ? `${number(last - first)} partitions (${group.mark}) do not fit: each line shows one of about ${number(Math.round((last - first) / (actual.bottom - actual.top)))}.${chart.topics.length > 1 ? ' Choose a topic to see more of its partitions.' : ''}`
      : '';
  }

  fillTopics(chart, chooseTopic);
  const showTip = (plot) => { at('tip').replaceChildren(...isolateWords(tip({ chart, actual, replayedChart, lag, cursor, plot }))); };
  const control = controls({ view, cursor, scheduleRepaint, showTip, actual, replayedChart });
  for (const plot of plots) control(plot);
  at('tip').textContent = HINT;
  chooseTopic('');
  return { fit };
}

// JavaScript is slow when it runs for the first time. An invisible chart is painted while the user
// reads the list, so that the first group opens as fast as later ones.
async function warmUpCharts() {
  const data = at('data-0');
  const chart = data && await unpackChart(data.textContent).catch(() => null);
  if (!chart || !chart.rowTopic.length) return;
  const view = new View(chart.begin, chart.end, () => {});
  const plot = new BandChart(document.createElement('canvas'), view, chart, chart.actualBands, chart.rebalances);
  plot.setHeight();
  plot.width = WARM_UP_WIDTH;
  plot.size();
  for (let left = WARM_UP_PAINTS; left > 0; left--) whenIdle(() => plot.paint(currentTheme()));
}

function noAdvice(group) {
  if (group.verdict === 'fix first') return `The group is ${group.health.health}: repair that first. A change of the policy does not.`;
  if (group.verdict === 'keep') return `Keep ${group.now}: no other policy would be much better for this group.`;
  return 'Rota cannot recommend a policy for this group.';
}

function lagChart({ lag }, view) {
  if (!lag) return null;
  at('lag-title').replaceChildren(
    lag.inSeconds
      ? 'Lag in seconds: age of the oldest uncommitted record of all partitions '
      : 'Lag in records (ages are unknown): largest of all partitions ',
    markElement('sampled'));
  return new LagChart(
    at('lag'), view, lag,
    lag.inSeconds ? (amount) => duration(amount * SECOND) : number,
    lag.inSeconds ? STEPS.map((step) => step / SECOND) : []);
}

function fillTopics(chart, choose) {
  const list = at('topic');
  const options = [['', `all ${countNoun(chart.rowTopic.length, 'partition')} (${chart.group.mark})`]];
  chart.topics.forEach((topic, index) => options.push([String(index), shortened(topic, 60)]));
  list.replaceChildren(...options.map(([value, text]) => element('option', { value }, text)));
  list.hidden = at('topic-label').hidden = chart.topics.length < 2;
  list.onchange = () => choose(list.value);
}

// Fills in the labels for screen readers, the titles of the charts, and the legend of causes.
function describe(chart, { replayedChart, moves, lag }) {
  const { group, rebalances, replayed, members } = chart;
  const time = formatTimeRange(chart.begin, chart.end);
  const rows = countNoun(chart.rowTopic.length, 'partition');
  const hint = 'The table below lists all rebalances.';
  at('was').setAttribute('aria-label',
    `Who owned ${rows} as it was, ${time}: ${countNoun(members.length, 'member')}, ` +
    `${countNoun(rebalances.at.length, 'rebalance')} (${tally(rebalances.cause)}), ${group.mark}; ` +
    `causes: ${tally(rebalances.evidence)}. ${hint}`);
  at('was-title').replaceChildren(
    'Actual owners, ', isolate(group.used), `: ${countNoun(rebalances.at.length, 'rebalance')} `, markElement(group.mark));
  at('would-title').replaceChildren('Under the recommended policy');
  if (replayedChart) {
    at('would').setAttribute('aria-label',
      `Who would have owned ${rows} under ${group.policy}, ${time}: ` +
      `${countNoun(replayed.at.length, 'rebalance')} (${tally(replayed.cause)}), replayed.`);
    at('would-title').append(
      ', ', isolate(group.policy), `: ${countNoun(replayed.at.length, 'rebalance')} `, markElement('replayed'));
  }
  at('moves-title').replaceChildren(
    'Moved partitions (bar) and necessary moves (tick) of each rebalance ', markElement(group.mark));
  at('moves').setAttribute('aria-label',
    `Partitions moved at each rebalance: ${number(group.moved)} in all, ${number(group.needed)} needed, ${group.mark}. ${hint}`);
  if (lag) {
    const [seconds, records, when, atLeast] = group.most_lag;
    const most = seconds === null ? countNoun(records, 'record') : `${atLeast ? 'at least ' : ''}${duration(seconds * SECOND)}`;
    at('lag').setAttribute('aria-label', `Lag over time: the largest was ${most}, ${formatTime(when)}, sampled.`);
  }
  const causes = [...new Set([...rebalances.cause, ...(replayed ? replayed.cause : [])])];
  at('causes').replaceChildren(...causes.map((cause) => {
    const index = Object.keys(CAUSES).indexOf(cause);
    const style = element('span', { class: `sign cause-${index < 0 ? 8 : index}` }, causeStyle(cause).letter);
    return element('li', null, style, ` ${cause}`);
  }));
}

// Returns text about the position of the cursor.
function tip({ chart, actual, replayedChart, lag, cursor, plot }) {
  const { time, row } = cursor;
  if (time === null) return '';
  const lines = [];
  const nearby = plot === replayedChart ? chart.replayed : chart.rebalances;
  const near = (4 / (plot.right - plot.left)) * plot.view.width;
  const first = cursor.selected ? cursor.selected.index : lowerBound(nearby.at, time - near);
  const end = cursor.selected ? first + 1 : lowerBound(nearby.at, time + near);
  if (end > first) lines.push(rebalancesTip(nearby, first, end, plot === replayedChart ? 'replayed' : chart.group.mark));
  if (row !== null) {
    const name = `${chart.topics[chart.rowTopic[row]]}-${chart.rowPartition[row]}`;
    lines.push(`${name}, ${formatTime(time)}: ${ownerTip(chart, actual, row, time)} (${chart.group.mark})`);
    if (replayedChart) lines.push(`under ${chart.group.policy}: ${ownerTip(chart, replayedChart, row, time)} (replayed)`);
  }
  if (plot === lag) {
    const amount = lag.textAt(time);
    lines.push(`lag, ${formatTime(time)}: ${amount === null ? UNKNOWN : amount} (sampled)`);
  }
  if (!lines.length) lines.push(formatTime(time));
  return lines.join('\n');
}

function ownerTip(chart, plot, row, time) {
  const index = plot.bandAt(row, time);
  if (index === null) return 'owned by nobody';
  const member = chart.members[plot.bands.member[index]];
  const until = plot.bands.open[index] ? 'the end of the evidence' : formatTime(plot.bands.until[index]);
  const staticId = member.staticId ? `, static id ${member.staticId}` : '';
  return `member ${member.rank + 1}, ${member.client} at ${member.host}${staticId}, from ${formatTime(plot.bands.since[index])} to ${until}`;
}

// Describes the rebalances from first to end. Counts have the mark of the group or `replayed`; each
// cause has its own mark.
function rebalancesTip(rebalances, first, end, mark) {
  const sum = (name, format = number) => {
    let total = 0;
    for (let index = first; index < end; index++) {
      if (rebalances[name][index] === null) return UNKNOWN;
      total += rebalances[name][index];
    }
    return format(total);
  };
  const down = sum('downtime', downtime);
  const cost = `downtime ${down}, moved ${sum('moved')}, needed ${sum('needed')}, revoked ${sum('revoked')}`;
  if (end - first > 1) {
    const causes = tally(rebalances.cause.slice(first, end));
    const known = rebalances.evidence ? tally(rebalances.evidence.slice(first, end)) : mark;
    const time = formatTimeRange(rebalances.at[first], rebalances.at[end - 1]);
    return `${number(end - first)} rebalances (${mark}), ${time}, ${causes} (${known}): ${cost} (${mark})`;
  }
  const time = formatTime(rebalances.at[first]);
  if (!rebalances.evidence) return `Rebalance ${time} (${mark}), ${rebalances.cause[first]}: ${cost} (${mark})`;
  const took = rebalances.took[first];
  const members = `members ${number(rebalances.before[first])} to ${number(rebalances.after[first])}`;
  const length = took === null ? '' : `; took ${duration(took)} (stated)`;
  return `Rebalance ${time}, ${causeOf(rebalances, first)} (${rebalances.evidence[first]}): ${cost}; ${members} (${mark})${length}. ${shortened(rebalances.reason[first], 240)}`;
}
