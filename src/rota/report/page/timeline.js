// The data of the overview, and the cluster timeline: rebalances and lag of each group over time.
const LAG_SHOWN_SECONDS = 60, LAG_SHOWN_RECORDS = 1000;
const TIMELINE_ROWS = 12, TIMELINE_ROWS_NARROW = 8, HIT_PIXELS = 7, DRAG_PIXELS = 5;

// Times, causes and lag of all groups; `rows` are the rows of the list, in the same order.
function decodeSummary(data, rows) {
  const groups = data.groups.map((group, index) => {
    let time = data.begin;
    const at = Float64Array.from(group.at, (delta) => { time += delta; return time; });
    const cause = Uint8Array.from(group.cause, (position) => causeIndex(group.causes[position]));
    const absences = group.absences.map(([since, until, length, reason]) => ({ since, until, length, reason }));
    const severity = ['falling behind', 'stuck', 'failing'].indexOf(group.health) + 1;
    const found = { ...group, index, at, cause, absences, severity, row: rows[index], lag: decodeLagBins(group.lag) };
    found.words = searchWords(found);
    return found;
  });
  return { begin: data.begin, end: data.end, demo: data.demo, groups };
}

// Returns the lag of each bin of time; NaN: unknown.
function decodeLagBins(lag) {
  if (!lag) return null;
  const rise = lag.in_seconds ? lag.step / SECOND : 0;
  const bins = [];
  lag.run_lengths.forEach((length, run) => {
    const last = lag.run_ends[run];
    for (let left = length - 1; left >= 0; left--) {
      bins.push(last === null ? NaN : Math.max(last - left * rise, 0));
    }
  });
  const most = bins.reduce((found, value) => (value > found ? value : found), 0);
  const ranked = bins.filter((value) => !Number.isNaN(value)).sort((a, b) => a - b);
  const usual = ranked[Math.floor(ranked.length / 10)] || 0;
  const [low, high] = lag.in_seconds ? [LAG_SHOWN_SECONDS, 10 * LAG_SHOWN_SECONDS] : [LAG_SHOWN_RECORDS, Infinity];
  // a client that commits every five minutes always has a lag of five minutes just before a commit
  const shown = Math.min(Math.max(low, 1.5 * usual), high);
  return { step: lag.step, inSeconds: lag.in_seconds, bins, most, shown, now: bins[bins.length - 1] };
}

// What the search finds: name, topics, causes, patterns, strategies, health, advice.
function searchWords(group) {
  const causes = [...new Set(group.cause)].map((index) => `${CAUSES[index].name} ${CAUSES[index].title}`);
  return [
    group.name, group.kind, ...group.topics, ...causes, ...group.patterns, group.used, group.health,
    group.severity ? group.reason : '', group.recommendation,
  ].join(' ').toLowerCase();
}

function lagAmountText(lag, amount) {
  if (!lag || Number.isNaN(amount) || amount === undefined) return UNKNOWN;
  return lag.inSeconds ? duration(amount * SECOND) : countNoun(Math.round(amount), 'record');
}

// Rebalances, downtime, causes and lag of a group within a range of time; null: the whole time.
function sumInRange(group, range, shownCauses) {
  const [from, to] = range || [-Infinity, Infinity];
  const sum = { rebalances: 0, downtime: 0, reasons: new Map(), causes: new Map(), lag: NaN };
  const add = (reason, length) => sum.reasons.set(reason, (sum.reasons.get(reason) || 0) + length);
  const reasons = Object.entries(group.reasons);
  for (let index = 0; index < group.at.length; index++) {
    const [cause, time] = [group.cause[index], group.at[index]];
    if (shownCauses.size && !shownCauses.has(cause)) continue;
    if (time >= from && time <= to) {
      sum.rebalances++;
      sum.causes.set(cause, (sum.causes.get(cause) || 0) + 1);
    }
    const share = shareInRange(time - group.spans[index], time, from, to);
    if (!share) continue;
    sum.downtime += (group.downtime[index] || 0) * share;
    for (const [reason, lengths] of reasons) if (lengths[index]) add(reason, lengths[index] * share);
  }
  for (const { since, until, length, reason } of shownCauses.size ? [] : group.absences) {
    const share = shareInRange(since, until, from, to);
    sum.downtime += length * share;
    if (share) add(reason, length * share);
  }
  if (group.lag && range) sum.lag = mostLagBetween(group.lag, from - overview.begin, to - overview.begin);
  return sum;
}

// The part of a time that is within a range; downtime counts evenly over its time.
function shareInRange(since, until, from, to) {
  if (since >= from && until <= to) return 1;
  return until > since ? Math.max(Math.min(until, to) - Math.max(since, from), 0) / (until - since) : 0;
}

function mostLagBetween({ bins, step }, from, to) {
  let most = NaN;
  const last = Math.min(Math.floor(to / step), bins.length - 1);
  for (let bin = Math.max(Math.floor(from / step), 0); bin <= last; bin++) {
    if (!(bins[bin] <= most) && !Number.isNaN(bins[bin])) most = bins[bin];
  }
  return most;
}

function clusterTimeline({ filter, orderedGroups, onSelect, onSelecting, openGroup }) {
  const canvas = at('timeline'), box = at('timeline-box');
  const layout = {};
  let isWhole = false, drag = null, tapped = null;

  const timeAt = (x) => {
    const share = (x - layout.left) / (layout.right - layout.left);
    return overview.begin + Math.min(Math.max(share, 0), 1) * (overview.end - overview.begin);
  };
  const xOf = (time) => layout.left + ((time - overview.begin) / (overview.end - overview.begin)) * (layout.right - layout.left);

  function draw() {
    const width = box.clientWidth;
    if (width < 50) return; // the overview is hidden
    const isNarrow = window.innerWidth < 760;
    const groups = drag?.groups || orderedGroups();
    const most = isNarrow ? TIMELINE_ROWS_NARROW : TIMELINE_ROWS;
    const shown = isWhole ? groups : groups.slice(0, most);
    const high = isNarrow ? 34 : 44;
    const row = isWhole && groups.length > 60 ? 12 : 18;
    const top = high + 22;
    const whole = top + Math.max(shown.length, 1) * row + 4;
    // of many rows only those in the box are drawn
    const height = Math.min(whole, Math.max(Math.floor(window.innerHeight * 0.7), 200));
    at('timeline-space').style.height = `${whole - height}px`;
    const offset = Math.min(box.scrollTop, whole - height);
    Object.assign(layout, {
      width, height, left: isNarrow ? 104 : 164, right: width - 8, high, row, top, offset, groups, shown, isNarrow });
    const context = fitCanvas(canvas, width, height);
    const theme = colours();
    drawAxis(context, theme);
    drawHistogram(context, theme);
    context.save();
    context.beginPath();
    context.rect(0, top, width, height - top);
    context.clip();
    const begin = Math.floor(offset / row);
    shown.slice(begin, begin + Math.ceil((height - top) / row) + 1).forEach((group, index) => {
      drawRow(context, theme, group, top + (begin + index) * row - offset);
    });
    context.restore();
    if (!shown.length) {
      context.fillStyle = theme.ink3;
      context.textAlign = 'left';
      context.fillText('No group matches.', 8, top + 9);
    }
    if (filter.range) drawRange(context, theme);
    const button = at('timeline-all');
    button.hidden = groups.length <= most;
    button.textContent = isWhole ? `Show the first ${most}` : `Show all ${countNoun(groups.length, 'group')}`;
  }

  function drawAxis(context, theme) {
    context.font = canvasFont();
    const marks = timeTicks(overview.begin, overview.end, layout.isNarrow ? 4 : 12);
    for (const { time, text } of marks) {
      const x = Math.round(xOf(time));
      context.fillStyle = theme.line;
      context.fillRect(x, 0, 1, layout.height);
      context.fillStyle = theme.ink3;
      const half = textWidth(context, text) / 2;
      context.textAlign = 'center';
      context.fillText(text, Math.min(Math.max(x, layout.left + half), layout.right - half), layout.high + 11);
    }
  }

  function histogramStep() {
    return TICK_STEPS.find((step) => (overview.end - overview.begin) / step <= 120) || DAY;
  }

  function drawHistogram(context, theme) {
    const step = histogramStep();
    const count = Math.ceil((overview.end - overview.begin) / step) || 1;
    const bins = Array.from({ length: count }, () => new Uint32Array(CAUSES.length));
    for (const group of layout.groups) {
      for (let index = 0; index < group.at.length; index++) {
        const cause = group.cause[index];
        if (filter.causes.size && !filter.causes.has(cause)) continue;
        const bin = bins[Math.floor((group.at[index] - overview.begin) / step)];
        if (bin) bin[cause]++;
      }
    }
    const most = bins.reduce((found, bin) => Math.max(found, bin.reduce((sum, value) => sum + value, 0)), 4);
    bins.forEach((bin, index) => {
      let y = layout.high - 1;
      const [from, to] = [xOf(overview.begin + index * step), xOf(Math.min(overview.begin + (index + 1) * step, overview.end))];
      for (const cause of HISTOGRAM_ORDER) {
        if (!bin[cause]) continue;
        const length = (bin[cause] / most) * (layout.high - 4);
        context.fillStyle = theme.causes[cause];
        context.fillRect(from + 0.5, y - length, Math.max(to - from - 1, 1), length);
        y -= length;
      }
    });
    context.fillStyle = theme.line2;
    context.fillRect(layout.left, layout.high - 1, layout.right - layout.left, 1);
    context.textAlign = 'left';
    context.fillStyle = theme.ink2;
    context.font = canvasFont(12, 550);
    context.fillText('All groups', 0, layout.high / 2 - 7);
    context.font = canvasFont();
    context.fillStyle = theme.ink3;
    const per = duration(step).replace(/^1\s/, '');
    context.fillText(layout.isNarrow ? `per ${per}` : `rebalances per ${per}`, 0, layout.high / 2 + 9);
  }

  function drawRow(context, theme, group, y) {
    const { row, left } = layout;
    context.fillStyle = theme.line;
    context.fillRect(0, y + row - 1, layout.width, 1);
    if (group.severity) {
      context.fillStyle = group.severity === 1 ? theme.causes[3] : theme.stuck;
      context.fillRect(0, y + 3, 3, row - 7);
    }
    context.fillStyle = theme.ink;
    context.textAlign = 'left';
    context.font = canvasFont(row < 18 ? 10 : 12);
    context.fillText(fitText(context, visibleName(group.name), left - 16), 8, y + row / 2);
    drawLag(context, theme, group, y + row - 5);
    drawMarks(context, theme, group, y);
  }

  // A band that is stronger where the lag is larger. Neighbours of the same strength are one rectangle.
  function drawLag(context, theme, { lag }, y) {
    if (!lag) return;
    const least = lag.shown;
    context.fillStyle = theme.lag;
    let begin = 0, strength = 0;
    const flush = (end) => {
      if (!strength) return;
      context.globalAlpha = strength / 20;
      const [from, to] = [begin, end].map((bin) => Math.round(xOf(Math.min(overview.begin + bin * lag.step, overview.end))));
      context.fillRect(from, y, Math.max(to - from, 1), 4);
    };
    for (let bin = 0; bin <= lag.bins.length; bin++) {
      const amount = lag.bins[bin];
      const next = amount >= least ? Math.min(Math.round((0.15 + Math.log10(amount / least) * 0.26) * 20), 15) : 0;
      if (next === strength) continue;
      flush(bin);
      [begin, strength] = [bin, next];
    }
    flush(lag.bins.length);
    context.globalAlpha = 1;
  }

  // One mark for all rebalances that share 2.5 pixels: the worst cause, as high as their downtime.
  function drawMarks(context, theme, group, y) {
    const { row } = layout;
    let slot = null, cause = -1, downtime = 0, worst = -1;
    const flush = () => {
      if (slot === null) return;
      const share = Math.min(Math.log10(1 + downtime / SECOND) / 3, 1);
      const high = 4 + share * (row - 10);
      context.globalAlpha = 0.55 + 0.45 * share;
      context.fillStyle = theme.causes[cause];
      context.fillRect(slot * 2.5 - 1.25, y + row - 6 - high, 2.7, high);
    };
    for (let index = 0; index < group.at.length; index++) {
      if (filter.causes.size && !filter.causes.has(group.cause[index])) continue;
      const place = Math.round(xOf(group.at[index]) / 2.5);
      if (place !== slot) {
        flush();
        [slot, cause, downtime, worst] = [place, -1, 0, -1];
      }
      const own = group.downtime[index] || 0;
      downtime += own;
      const weight = own + (CAUSES[group.cause[index]].isFailure ? 1e9 : 0);
      if (weight > worst) [worst, cause] = [weight, group.cause[index]];
    }
    flush();
    context.globalAlpha = 1;
  }

  function drawRange(context, theme) {
    const [from, to] = filter.range.map(xOf);
    const until = Math.max(to, from + 2);
    context.fillStyle = theme.card;
    context.globalAlpha = 0.62;
    context.fillRect(layout.left, 0, from - layout.left, layout.height);
    context.fillRect(until, 0, layout.right - until, layout.height);
    context.globalAlpha = 0.1;
    context.fillStyle = theme.accent;
    context.fillRect(from, 0, until - from, layout.height);
    context.globalAlpha = 1;
    context.fillRect(from - 1, 0, 2, layout.height);
    context.fillRect(until - 1, 0, 2, layout.height);
  }

  // The group and the rebalance at a point.
  function hit(event) {
    const place = canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - place.left, event.clientY - place.top];
    const group = y >= layout.top ? layout.shown[Math.floor((y - layout.top + layout.offset) / layout.row)] : undefined;
    if (!group || x < layout.left) return { x, y, group, rebalance: null };
    const reach = (HIT_PIXELS / (layout.right - layout.left)) * (overview.end - overview.begin);
    const time = timeAt(x);
    let best = null, distance = Infinity;
    for (let index = lowerBound(group.at, time - reach); index < group.at.length && group.at[index] <= time + reach; index++) {
      if (filter.causes.size && !filter.causes.has(group.cause[index])) continue;
      const away = Math.abs(group.at[index] - time);
      if (away < distance) [best, distance] = [index, away];
    }
    return { x, y, group, rebalance: best };
  }

  function hover(event) {
    const found = hit(event);
    const { x, y, group, rebalance } = found;
    canvas.style.cursor = rebalance !== null || (group && x < layout.left) ? 'pointer' : 'crosshair';
    const lines = group ? groupTip(found) : y < layout.high && x > layout.left ? binTip(x) : null;
    if (lines) showTip(lines, event.clientX, event.clientY);
    else hideTip();
    return found;
  }

  function groupTip({ x, group, rebalance }) {
    const name = element('b', null, isolate(visibleName(group.name)));
    if (x < layout.left) return [name, element('p', null, isolateWords(group.happened)), element('p', { class: 'minor' }, isolateWords(group.to_do))];
    const time = timeAt(x);
    if (rebalance === null) {
      const bin = group.lag && group.lag.bins[Math.floor((time - overview.begin) / group.lag.step)];
      return [name, ` ${momentText(time)}`, element('p', null, `Lag ${lagAmountText(group.lag, bin)}`)];
    }
    const near = lowerBound(group.at, group.at[rebalance] + 5 * MINUTE) - lowerBound(group.at, group.at[rebalance] - 5 * MINUTE);
    return [
      name, ` ${momentText(group.at[rebalance])}`,
      element('p', { class: 'with-glyph' }, causeGlyph(group.cause[rebalance]), CAUSES[group.cause[rebalance]].title),
      element('p', null, `Downtime ${duration(group.downtime[rebalance])}`),
      near > 1 && element('p', { class: 'minor' }, `${countNoun(near, 'rebalance')} within 5 minutes`),
    ];
  }

  function binTip(x) {
    const step = histogramStep();
    const from = overview.begin + Math.floor((timeAt(x) - overview.begin) / step) * step;
    const sums = layout.groups.map((group) => [group, sumInRange(group, [from, from + step - 1], filter.causes)]);
    const busy = sums.filter(([, sum]) => sum.rebalances);
    const total = (name) => busy.reduce((all, [, sum]) => all + sum[name], 0);
    const names = busy.slice(0, 4).map(([group]) => shortened(visibleName(group.name), 40)).join(', ');
    return [
      element('b', null, `${momentText(from)} to ${momentText(from + step)}`),
      element('p', null, `${countNoun(total('rebalances'), 'rebalance')}, ${duration(total('downtime'))} downtime`),
      names && element('p', { class: 'minor' }, isolateWords(names + (busy.length > 4 ? ` and ${busy.length - 4} more` : ''))),
    ];
  }

  function open({ x, group, rebalance }) {
    if (!group) return;
    if (rebalance !== null && x >= layout.left) openGroup(group, rebalance);
    else if (x < layout.left) openGroup(group, null);
  }

  canvas.addEventListener('pointerdown', (event) => {
    if (event.button !== 0) return;
    drag = { x: event.clientX, from: timeAt(event.clientX - canvas.getBoundingClientRect().left), moved: false, groups: layout.groups };
    if (event.pointerType !== 'touch') canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener('pointermove', (event) => {
    if (!drag) { hover(event); return; }
    if (Math.abs(event.clientX - drag.x) > DRAG_PIXELS) drag.moved = true;
    if (!drag.moved) return;
    const to = timeAt(event.clientX - canvas.getBoundingClientRect().left);
    filter.range = [Math.min(drag.from, to), Math.max(drag.from, to)];
    hideTip();
    onSelecting();
  });
  canvas.addEventListener('pointerup', (event) => {
    const wasDrag = drag?.moved;
    drag = null;
    if (wasDrag) {
      filter.range = wholeMinutes(filter.range);
      onSelect();
      return;
    }
    const found = event.pointerType === 'touch' ? hover(event) : hit(event);
    const key = found.group && `${found.group.index} ${found.rebalance}`;
    if (event.pointerType !== 'touch' || (tapped === key && found.group)) open(found);
    tapped = key;
  });
  canvas.addEventListener('pointercancel', () => { drag = null; });
  canvas.addEventListener('pointerleave', (event) => { if (event.pointerType !== 'touch' && !drag) hideTip(); });
  canvas.addEventListener('keydown', (event) => {
    const sign = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === 'Escape' && filter.range) {
      filter.range = null;
    } else if (sign) {
      const width = filter.range ? filter.range[1] - filter.range[0] : histogramStep() * 4;
      const start = filter.range ? filter.range[0] + sign * width : sign > 0 ? overview.begin : overview.end - width;
      const from = Math.min(Math.max(start, overview.begin), overview.end - width);
      filter.range = [from, from + width];
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
    onSelect();
  });
  at('timeline-all').addEventListener('click', () => { isWhole = !isWhole; box.scrollTop = 0; draw(); });
  box.addEventListener('scroll', () => { hideTip(); requestAnimationFrame(draw); }, { passive: true });
  return { draw };
}

// A range as its text shows it: from minute to minute, if it is longer than a few of them.
function wholeMinutes([from, to]) {
  if (to - from < 3 * MINUTE) return [from, to];
  return [Math.max(Math.floor(from / MINUTE) * MINUTE, overview.begin), Math.min(Math.ceil(to / MINUTE) * MINUTE, overview.end)];
}

// Failures at the bottom of a bar of the histogram, so that their height can be compared.
const HISTOGRAM_ORDER = [2, 3, 4, 5, 6, 7, 8, 0, 1];

function momentText(time) {
  return formatMoment(time, overview.begin, overview.end);
}
