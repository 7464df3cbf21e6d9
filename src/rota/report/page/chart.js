// The chart of a group: minimap, patterns, rebalances, downtime, partition owners and lag on one time
// axis, drawn on one canvas. A second canvas above it has the cursor, the selection and the marked row.
const MIN_RANGE = SECOND, MARK_SIZE = 13, MARK_GAP = 10.5, MARK_SPAN = 30, REACH = 9;
const MINIMAP = { top: 6, height: 28 }, AXIS_HEIGHT = 20, EDGE = 6;
const LANE_HEIGHT = 17, MARKS_HEIGHT = 32, DOWNTIME_HEIGHT = 46, BAR = 3, LAG_HEIGHT = 132, TITLE_HEIGHT = 26;
const MAX_LANES = 3, STRONG_LINES = 3, MAX_OWNER_HEIGHT = 340;

// Reasons of downtime in words, in the order in which bars are stacked. list.js has their colours.
const REASONS = {
  revoked: 'revoked for a rebalance',
  moved: 'moving from one member to another',
  left: 'the owner had left',
  silent: 'owner silent until its session timed out',
  restarted: 'the static owner restarted',
  empty: 'the group had no members',
  'not polled': 'owner did not poll (not counted)',
  'shut down': 'all members shut down (not counted)',
};
const UNCOUNTED = ['not polled', 'shut down'];

function reasonColour(reason) {
  const name = REASON_COLOURS[reason] || 'revoked';
  return name.startsWith('cause-') ? colours().causes[Number(name.slice(6))] : colours()[name];
}

// Downtime of one rebalance by reason, without the reasons that no sum has.
function downtimeParts(rebalances, index) {
  return Object.entries(rebalances.reasons)
    .filter(([reason, times]) => times[index] && !UNCOUNTED.includes(reason))
    .map(([reason, times]) => [reason, times[index]]);
}

// Returns the time range that the chart opens with: that of the main pattern, or the whole time.
function homeRange(chart) {
  const whole = [chart.begin, chart.end];
  const [pattern] = chart.group.patterns;
  if (!pattern || pattern.since === null) return whole;
  const until = pattern.until ?? chart.end;
  const width = Math.max(until - pattern.since, 5 * MINUTE);
  const margin = Math.max(width * 0.1, MINUTE);
  return [Math.max(pattern.since - margin, chart.begin), Math.min(pattern.since + width + margin, chart.end)];
}

class GroupChart {
  // `page` has the functions rangeChanged(), selectRebalance(index), hoverRebalance(index or null) and
  // describe(index), which returns the content of a tooltip.
  constructor(chart, page) {
    Object.assign(this, { chart, page, mode: 'actual', selected: null, shown: null, hover: null });
    this.rows = Array.from(chart.rowNames, (_, row) => row);
    this.canvas = element('canvas', {
      id: 'chart', tabindex: '0', role: 'application', 'aria-roledescription': 'chart',
      'aria-label': `${countNoun(chart.rebalances.count, 'rebalance')}, downtime, owners of ${countNoun(chart.rowNames.length, 'partition')} and lag on one time axis. Plus and minus zoom, the arrow keys move, 0 shows the whole time, n and p select the next and previous rebalance. The table of rebalances below has the same rebalances.`,
    });
    this.overlay = element('canvas', { class: 'overlay', 'aria-hidden': 'true' });
    this.box = element('div', { class: 'chart-box' }, this.canvas, this.overlay);
    this.lanes = patternLanes(chart.group.patterns, chart.end);
    [this.from, this.to] = homeRange(chart);
    this.pointers = new Map();
    this.frame = null;
    this.listen();
  }

  // The time range.

  show(from, to) {
    const whole = this.chart.end - this.chart.begin;
    const width = Math.min(Math.max(to - from, MIN_RANGE), whole);
    this.from = Math.min(Math.max(from, this.chart.begin), this.chart.end - width);
    this.to = this.from + width;
    this.invalidate();
    this.page.rangeChanged();
  }

  showAll() {
    this.show(this.chart.begin, this.chart.end);
  }

  zoom(factor, around = (this.from + this.to) / 2) {
    const width = Math.max((this.to - this.from) * factor, MIN_RANGE);
    const share = (around - this.from) / (this.to - this.from);
    this.show(around - share * width, around + (1 - share) * width);
  }

  move(share) {
    const step = share * (this.to - this.from);
    this.show(this.from + step, this.to + step);
  }

  // Moves the range so that it includes a time.
  include(time) {
    if (time >= this.from && time <= this.to) return;
    const half = (this.to - this.from) / 2;
    this.show(time - half, time + half);
  }

  select(index) {
    this.selected = index;
    if (index !== null) this.include(this.chart.rebalances.at[index]);
    this.drawOverlay();
  }

  // Shows only rebalances whose entry is 1 in full strength; null: all.
  filter(shown) {
    this.shown = shown;
    this.invalidate();
  }

  filterRows(rows) {
    this.rows = rows;
    this.invalidate();
  }

  setMode(mode) {
    this.mode = mode;
    this.invalidate();
  }

  get rebalances() {
    return this.mode === 'with' ? this.chart.replayed : this.chart.rebalances;
  }

  isShown(index) {
    return !this.shown || this.shown[this.rebalances.of ? this.rebalances.of[index] : index] === 1;
  }

  // Redraws in the next frame.
  invalidate() {
    this.frame ??= requestAnimationFrame(() => { this.frame = null; this.draw(); });
  }

  close() {
    cancelAnimationFrame(this.frame);
    this.frame = -1;
  }

  x(time) {
    return this.left + ((time - this.from) / (this.to - this.from)) * (this.right - this.left);
  }

  time(x) {
    return this.from + ((x - this.left) / (this.right - this.left)) * (this.to - this.from);
  }

  // Sets the place of each block, from the top down.
  layOut() {
    const { chart } = this;
    this.width = this.box.clientWidth;
    this.isNarrow = this.width < 620;
    this.left = this.isNarrow ? 88 : 132;
    this.right = this.width - (this.isNarrow ? 10 : 16);
    let y = MINIMAP.top + MINIMAP.height + AXIS_HEIGHT + 2;
    const block = (height, margin = 0) => {
      const placed = { top: y, height, bottom: y + height };
      y += height + margin;
      return placed;
    };
    this.patterns = block(Math.min(this.lanes.count, MAX_LANES) * LANE_HEIGHT, 2);
    this.marks = block(chart.rebalances.count ? MARKS_HEIGHT : 0, 4);
    this.downtime = chart.group.downtime_ms === null ? null : block(DOWNTIME_HEIGHT, 6);
    this.owners = this.ownerBlocks().map((each) => {
      y += TITLE_HEIGHT;
      return { ...each, ...block(each.height) };
    });
    this.lagBlock = null;
    if (chart.lag) {
      y += TITLE_HEIGHT + 6;
      this.lagBlock = block(this.isNarrow ? 120 : LAG_HEIGHT);
    }
    this.bottom = y + 4;
    this.hasLowerAxis = this.owners.length > 0 || this.lagBlock !== null;
    this.height = this.bottom + (this.hasLowerAxis ? AXIS_HEIGHT : 2);
  }

  ownerBlocks() {
    const { chart } = this;
    if (!chart.actualBands.member.length) return [];
    const count = this.rows.length;
    const isBoth = this.mode === 'both';
    const rowHeight = isBoth ? Math.min(Math.max(Math.round(176 / count), 5), 11) : Math.min(Math.max(Math.round(224 / count), 9), 15);
    const height = Math.min(count * rowHeight, isBoth ? MAX_OWNER_HEIGHT * 0.6 : MAX_OWNER_HEIGHT);
    const actual = { bands: chart.actualBands, height, title: `actual: ${chart.group.used.at(-1)}` };
    const replayed = { bands: chart.replayedBands, height, title: `with ${chart.group.policy} (≈ replayed)`, isReplayed: true };
    return { actual: [actual], with: [replayed], both: [actual, replayed] }[this.mode];
  }

  draw() {
    if (!this.box.isConnected) return;
    this.layOut();
    this.theme = colours();
    this.ratio = Math.min(window.devicePixelRatio || 1, 2);
    const context = this.context = fitCanvas(this.canvas, this.width, this.height);
    context.font = canvasFont();
    this.clusters = this.clusterMarks();
    this.drawMinimap(context);
    this.drawAxis(context);
    this.drawPatterns(context);
    if (this.marks.height) this.drawMarks(context);
    if (this.downtime) this.drawDowntime(context);
    this.owners.forEach((block, index) => this.drawOwners(context, block, index));
    if (this.lagBlock) this.drawLag(context);
    this.drawOverlay();
  }

  clip(context, block, paint, above = 2, beside = 0) {
    context.save();
    context.beginPath();
    context.rect(this.left - beside, block.top - above, this.right - this.left + 2 * beside, block.height + 2 * above);
    context.clip();
    paint();
    context.restore();
  }

  heading(context, title, detail, y) {
    const x = this.isNarrow ? 8 : 16;
    context.textAlign = 'left';
    context.font = canvasFont(this.isNarrow ? 11.5 : 12, 600);
    context.fillStyle = this.theme.ink;
    context.fillText(title, x, y);
    context.font = canvasFont();
    context.fillStyle = this.theme.ink3;
    if (detail) context.fillText(detail, x, y + 14);
  }

  // The minimap: lag, rebalances and the range in the whole time.

  minimapX(time) {
    const { begin, end } = this.chart;
    return this.left + ((time - begin) / (end - begin)) * (this.right - this.left);
  }

  minimapTime(x) {
    const { begin, end } = this.chart;
    return begin + ((x - this.left) / (this.right - this.left)) * (end - begin);
  }

  drawMinimap(context) {
    const { chart, theme } = this;
    const { top, height } = MINIMAP;
    this.heading(context, 'Whole time', null, top + height / 2);
    context.fillStyle = theme.ground;
    context.fillRect(this.left, top, this.right - this.left, height);
    if (chart.lag) {
      const most = chart.lag.amounts.reduce((a, b) => Math.max(a, b), 1);
      const wide = Math.max(this.minimapX(chart.begin + chart.lag.step) - this.left, 1) + 0.3;
      context.fillStyle = theme['lag-fill'];
      chart.lag.amounts.forEach((amount, index) => {
        const high = (amount / most) * (height - 2);
        context.fillRect(this.minimapX(chart.lag.at[index]), top + height - high, Math.min(wide, this.right - this.minimapX(chart.lag.at[index])), high);
      });
    }
    const { rebalances } = this;
    for (const [x, index] of firstInColumns(rebalances, (time) => Math.round(this.minimapX(time)))) {
      context.globalAlpha = this.isShown(index) ? 0.9 : 0.2;
      context.fillStyle = theme.causes[rebalances.cause[index]];
      context.fillRect(x - 0.75, top + 3, 1.8, 9);
    }
    const [from, to] = this.minimapWindow();
    context.fillStyle = context.strokeStyle = theme.accent;
    context.globalAlpha = 0.1;
    context.fillRect(from, top, to - from, height);
    context.globalAlpha = 1;
    context.lineWidth = 1.5;
    context.strokeRect(from + 0.5, top + 0.5, to - from - 1, height - 1);
  }

  minimapWindow() {
    const [from, to] = [this.minimapX(this.from), this.minimapX(this.to)];
    const missing = Math.max(4 - (to - from), 0) / 2;
    return [from - missing, to + missing];
  }

  drawAxis(context) {
    const { theme } = this;
    const top = MINIMAP.top + MINIMAP.height;
    context.font = canvasFont();
    for (const { time, text } of timeTicks(this.from, this.to, (this.right - this.left) / (this.isNarrow ? 72 : 90))) {
      const x = Math.round(this.x(time));
      context.fillStyle = theme.line;
      context.fillRect(x, top + AXIS_HEIGHT, 1, this.bottom - top - AXIS_HEIGHT);
      context.fillStyle = theme.ink3;
      const half = textWidth(context, text) / 2;
      const middle = Math.min(Math.max(x, this.left + half), this.right - half + 6);
      context.textAlign = 'center';
      context.fillText(text, middle, top + 11);
      if (this.hasLowerAxis) context.fillText(text, middle, this.bottom + 10);
    }
  }

  drawPatterns(context) {
    const { theme } = this;
    const used = [];
    for (const { lane, since, until, text } of this.lanes.patterns) {
      if (lane >= MAX_LANES || until < this.from || since > this.to) continue;
      const [from, to] = [Math.max(this.x(since), this.left), Math.min(Math.max(this.x(until), this.x(since) + 3), this.right)];
      const y = this.patterns.top + lane * LANE_HEIGHT + LANE_HEIGHT - 3;
      context.fillStyle = theme.ink2;
      context.fillRect(from, y, to - from, 1.5);
      if (since >= this.from) context.fillRect(from, y, 1.5, 5);
      if (until <= this.to) context.fillRect(to - 1.5, y, 1.5, 5);
      context.font = canvasFont(11.5, 550);
      context.textAlign = 'left';
      const label = fitText(context, text, this.right - this.left);
      const wide = textWidth(context, label);
      const left = Math.min(Math.max(to - from > wide ? from : (from + to - wide) / 2, this.left), this.right - wide);
      if (used[lane] !== undefined && left < used[lane]) continue;
      used[lane] = left + wide + 8;
      context.fillText(label, left, y - 7);
    }
  }

  // Groups rebalances whose marks would overlap. The groups depend on the scale and not on the begin of
  // the range, so that they do not change while the range moves.
  clusterMarks() {
    const { at, count, cause } = this.rebalances;
    const scale = (this.right - this.left) / (this.to - this.from);
    const margin = (2 * MARK_SPAN) / scale;
    const begin = clusterBegin(at, lowerBound(at, this.from - margin), MARK_GAP / scale);
    const end = Math.min(lowerBound(at, this.to + margin) + 1, count);
    const clusters = [];
    let last = null;
    for (let index = begin; index < end; index++) {
      const near = last && (at[index] - at[last.end - 1]) * scale < MARK_GAP && (at[index] - at[last.begin]) * scale < MARK_SPAN;
      if (!near) clusters.push(last = { begin: index, end: index, causes: new Map() });
      last.end = index + 1;
      last.causes.set(cause[index], (last.causes.get(cause[index]) || 0) + 1);
    }
    for (const each of clusters) each.x = this.x((at[each.begin] + at[each.end - 1]) / 2);
    return clusters;
  }

  drawMarks(context) {
    const { theme, marks, rebalances } = this;
    const inView = lowerBound(rebalances.at, this.to + TIME_EPSILON) - lowerBound(rebalances.at, this.from);
    this.heading(context, 'Rebalances', this.isNarrow ? null : `${this.mode === 'with' ? '≈ ' : ''}${number(inView)} in view`, marks.top + 9);
    const middle = marks.top + 9;
    context.fillStyle = theme.line2;
    context.fillRect(this.left, middle, this.right - this.left, 1);
    this.clip(context, marks, () => {
      this.countsEnd = -Infinity;
      for (const cluster of this.clusters) {
        if (cluster.x < this.left - MARK_SPAN || cluster.x > this.right + MARK_SPAN) continue;
        this.drawCluster(context, cluster, middle);
      }
    }, 2, MARK_SIZE / 2);
    context.globalAlpha = 1;
  }

  drawCluster(context, cluster, middle) {
    const { theme } = this;
    const count = cluster.end - cluster.begin;
    let shown = 0;
    for (let index = cluster.begin; index < cluster.end; index++) shown += this.isShown(index);
    context.globalAlpha = shown ? 1 : 0.2;
    // failures first, then the most frequent
    const causes = [...cluster.causes].sort(([a, x], [b, y]) => (CAUSES[b].isFailure || 0) - (CAUSES[a].isFailure || 0) || y - x).slice(0, 2);
    causes.forEach(([cause], place) => {
      const x = cluster.x + (place - (causes.length - 1) / 2) * 11;
      drawGlyph(context, cause, x, middle, MARK_SIZE, theme.causes[cause], theme.card);
    });
    if (count === 1) return;
    context.font = canvasFont(10.5, 600);
    context.textAlign = 'center';
    context.fillStyle = theme.ink2;
    const text = number(shown || count);
    const half = textWidth(context, text) / 2;
    if (cluster.x - half < this.countsEnd) return;
    this.countsEnd = cluster.x + half + 3;
    context.fillText(text, cluster.x, middle + 15);
  }

  // Downtime: a bar for each rebalance, and for each time without a consumer that no rebalance ended.
  // Bars that would overlap are added up.

  downtimeBars() {
    const bars = new Map();
    const add = (begin, at, reason, length, index) => {
      const [from, to] = [this.x(begin), this.x(at)];
      if (to < this.left - BAR || from > this.right + BAR || !length) return;
      const key = Math.round(to / BAR);
      const bar = bars.get(key) || { x: to, wide: BAR, parts: {}, sum: 0, index };
      bar.parts[reason] = (bar.parts[reason] || 0) + length;
      bar.sum += length;
      bar.wide = Math.max(bar.wide, Math.min(to - from, 60));
      bars.set(key, bar);
    };
    const { chart } = this;
    if (this.mode === 'with') {
      const { at, downtime } = chart.replayed;
      at.forEach((time, index) => add(time, time, 'replayed', downtime[index], index));
      return bars;
    }
    const { at, begin } = chart.rebalances;
    const first = Math.max(lowerBound(at, this.from) - 1, 0);
    const last = Math.min(lowerBound(at, this.to) + 2, at.length);
    for (const [reason, times] of Object.entries(chart.rebalances.reasons)) {
      if (UNCOUNTED.includes(reason)) continue;
      for (let index = first; index < last; index++) add(begin[index], at[index], reason, this.isShown(index) ? times[index] : 0, index);
    }
    const { stops } = chart;
    for (const stop of stops.withoutRebalance) {
      if (this.shown || UNCOUNTED.includes(stops.reason[stop])) continue;
      const length = (stops.until[stop] - stops.since[stop]) * stops.partitions[stop];
      add(stops.since[stop], stops.until[stop], stops.reason[stop], length, null);
    }
    return bars;
  }

  drawDowntime(context) {
    const { theme, downtime } = this;
    this.bars = this.downtimeBars();
    const most = [...this.bars.values()].reduce((a, bar) => Math.max(a, bar.sum), 0);
    const sign = this.mode === 'with' ? '≈ ' : '';
    this.heading(context, 'Downtime', most ? `${this.isNarrow ? '' : 'up to '}${sign}${duration(most)}` : null, downtime.top + 12);
    context.fillStyle = theme.line2;
    context.fillRect(this.left, downtime.bottom, this.right - this.left, 1);
    if (!most) {
      context.fillStyle = theme.ink3;
      context.fillText('No downtime in this range', this.left + 8, downtime.top + downtime.height / 2);
      return;
    }
    const order = Object.keys(REASONS);
    this.clip(context, downtime, () => {
      for (const bar of this.bars.values()) {
        let y = downtime.bottom;
        for (const reason of this.mode === 'with' ? ['replayed'] : order) {
          if (!bar.parts[reason]) continue;
          const high = Math.max((bar.parts[reason] / most) * (downtime.height - 2), 1.5);
          context.fillStyle = reason === 'replayed' ? theme.accent : reasonColour(reason);
          context.fillRect(bar.x - Math.max(bar.wide, BAR) + (bar.wide <= BAR ? BAR / 2 : 0), y - high, bar.wide, high);
          y -= high;
        }
      }
    });
  }

  // Partition owners.

  drawOwners(context, block, index) {
    const { theme } = this;
    if (index === 0) this.heading(context, 'Partition owners', null, block.top - 12);
    context.textAlign = 'left';
    context.fillStyle = theme.ink3;
    const x = this.isNarrow ? (index ? 8 : 118) : this.left + 6;
    context.fillText(fitText(context, block.title, this.right - x), x, block.top - 12);
    if (!this.rows.length) {
      context.fillText('No partition matches the filter', this.left + 8, block.top + 8);
      return;
    }
    block.rowHeight = block.height / this.rows.length;
    paintBands(this, context, block);
    this.drawRowNames(context, block);
    if (block.rowHeight >= 10) this.drawOwnerNames(context, block);
  }

  drawRowNames(context, block) {
    const { chart, theme } = this;
    const every = Math.max(Math.ceil(12 / block.rowHeight), 1);
    context.font = canvasFont(block.rowHeight < 12 ? 10 : 11.5);
    context.textAlign = 'right';
    context.fillStyle = theme.ink2;
    for (let place = 0; place < this.rows.length; place += every) {
      const row = this.rows[place];
      const middle = block.top + (place + Math.min(0.5, 6 / block.rowHeight)) * block.rowHeight;
      const tail = `-${chart.rowPartition[row]}`;
      const topic = fitText(context, visibleName(chart.topics[chart.rowTopic[row]]), this.left - 12 - textWidth(context, tail));
      context.fillText(topic + tail, this.left - 6, middle);
    }
  }

  drawOwnerNames(context, block) {
    const { theme, chart } = this;
    const { since, until, member } = block.bands;
    context.font = canvasFont(11);
    context.textAlign = 'left';
    context.fillStyle = theme.ink;
    context.globalAlpha = 0.78;
    const least = this.time(this.left + 24) - this.from;
    this.rows.forEach((row, place) => {
      const [begin, end] = visibleBands(block.bands, row, this.from, this.to);
      for (let band = begin; band < end; band++) {
        if (until[band] - since[band] < least) continue;
        const left = Math.max(this.x(since[band]), this.left) + 5;
        const room = Math.min(this.x(until[band]), this.right) - left - 4;
        const name = room < 20 ? '' : fitText(context, chart.members[member[band]].name, room);
        if (name.length > 4 || name === chart.members[member[band]].name) context.fillText(name, left, block.top + (place + 0.5) * block.rowHeight + 0.5);
      }
    });
    context.globalAlpha = 1;
  }

  // Lag: the largest lag of the group as an area, and lines of the partitions with the most.

  lagY(amount) {
    return this.lagBlock.bottom - (amount / this.lagMost) * (this.lagBlock.height - 4);
  }

  visibleLags() {
    const { chart } = this;
    const visible = new Set(this.rows);
    const series = chart.partitionLags.filter(({ row, inSeconds }) => inSeconds === chart.lag.inSeconds && (row === null || visible.has(row)));
    return series.map((each) => {
      const begin = Math.max(lowerBound(each.at, this.from - each.step) - 1, 0);
      const end = Math.min(lowerBound(each.at, this.to) + 1, each.at.length);
      let most = begin;
      for (let index = begin; index < end; index++) if (each.amounts[index] > each.amounts[most]) most = index;
      const peak = end > begin ? each.amounts[most] : 0;
      for (let index = most; index < end; index++) if (each.amounts[index] > peak * 0.97) most = index;
      return { ...each, begin, end, most, peak };
    }).sort((a, b) => a.peak - b.peak);
  }

  drawLag(context) {
    const { chart, theme, lagBlock } = this;
    const { lag } = chart;
    this.heading(context, 'Lag', null, lagBlock.top - 14);
    context.textAlign = 'left';
    context.fillStyle = theme.ink3;
    const what = lag.inSeconds ? 'age of the oldest uncommitted record' : 'records behind; their age is unknown';
    const x = this.isNarrow ? 40 : this.left;
    context.fillText(fitText(context, what, this.right - x), x, lagBlock.top - 14);
    this.lags = this.visibleLags();
    const begin = Math.max(lowerBound(lag.at, this.from - lag.step) - 1, 0);
    const end = Math.min(lowerBound(lag.at, this.to) + 1, lag.at.length);
    let most = this.lags.length ? this.lags.at(-1).peak : 0;
    for (let index = begin; index < end; index++) most = Math.max(most, lag.amounts[index]);
    const least = lag.inSeconds ? 10 : 10;
    const step = lagStep(Math.max(most, least), lag.inSeconds);
    this.lagMost = Math.max(most * 1.06, step, least);
    for (let amount = 0; amount <= this.lagMost; amount += step) {
      const y = Math.round(this.lagY(amount));
      context.fillStyle = amount ? theme.line : theme.line2;
      context.fillRect(this.left, y, this.right - this.left, 1);
      context.textAlign = 'right';
      context.fillStyle = theme.ink3;
      const text = !amount ? '0' : lag.inSeconds ? duration(amount * SECOND).replace('.0', '') : number(amount);
      context.fillText(text, this.left - 6, y - (amount ? 0 : 3));
    }
    this.clip(context, lagBlock, () => {
      this.fillLag(context, lag, begin, end);
      this.drawRebalanceLines(context);
      this.lags.forEach((series, place) => {
        const rank = this.lags.length - 1 - place;
        const isStrong = rank < STRONG_LINES && series.peak >= Math.max(this.lagMost * 0.1, least);
        context.strokeStyle = isStrong ? theme.ink : theme.lag;
        context.globalAlpha = isStrong ? 1 - rank * 0.2 : 0.45;
        context.lineWidth = isStrong ? 1.6 : 1;
        this.strokeLag(context, series);
        context.globalAlpha = 1;
      });
    }, 4);
    this.drawLagNames(context, least);
  }

  fillLag(context, lag, begin, end) {
    context.fillStyle = this.theme['lag-fill'];
    context.globalAlpha = 0.6;
    context.beginPath();
    let before = null;
    for (let index = begin; index < end; index++) {
      const x = this.x(lag.at[index] + lag.step / 2);
      if (before === null || lag.at[index] - before > 1.5 * lag.step) context.lineTo(x, this.lagBlock.bottom);
      context.lineTo(x, this.lagY(lag.amounts[index]));
      const isLast = index + 1 === end || lag.at[index + 1] - lag.at[index] > 1.5 * lag.step;
      if (isLast) context.lineTo(x, this.lagBlock.bottom);
      before = lag.at[index];
    }
    context.fill();
    context.globalAlpha = 1;
  }

  strokeLag(context, { at, amounts, step, begin, end }) {
    context.beginPath();
    let before = null;
    for (let index = begin; index < end; index++) {
      const [x, y] = [this.x(at[index] + step / 2), this.lagY(amounts[index])];
      if (before === null || at[index] - before > 1.5 * step) {
        context.moveTo(x - 0.5, y);
      }
      context.lineTo(x, y);
      before = at[index];
    }
    context.stroke();
  }

  drawRebalanceLines(context) {
    const { theme, rebalances, lagBlock } = this;
    const columns = [...firstInColumns(rebalances, (time) => Math.round(this.x(time)), this.from, this.to)];
    const alpha = Math.max(Math.min(0.4, 40 / columns.length), 0.12);
    for (const [x, index] of columns) {
      context.globalAlpha = this.isShown(index) ? alpha : alpha / 4;
      context.fillStyle = theme.causes[rebalances.cause[index]];
      context.fillRect(x - 0.5, lagBlock.top, 1, lagBlock.height);
    }
    context.globalAlpha = 1;
  }

  // Names the lines with the largest lag. A name that would cover another one is only counted there.
  drawLagNames(context, least) {
    const { theme, lagBlock } = this;
    const names = [];
    context.font = canvasFont(11.5, 600);
    for (const { name, at, step, most, peak } of this.lags.slice(-STRONG_LINES).reverse()) {
      if (peak < Math.max(this.lagMost * 0.1, least)) continue;
      const text = fitText(context, name, 160);
      const wide = textWidth(context, text) + 24;
      const x = Math.min(Math.max(this.x(at[most] + step / 2), this.left + wide / 2 + 4), this.right - wide / 2 - 2);
      const y = Math.max(this.lagY(peak) - 8, lagBlock.top + 8);
      const other = names.find((each) => Math.abs(each.y - y) < 14 && Math.abs(each.x - x) < (each.wide + wide) / 2);
      if (other) other.more++;
      else names.push({ text, x, y, wide, more: 0 });
    }
    context.textAlign = 'center';
    context.lineWidth = 3.5;
    context.lineJoin = 'round';
    context.strokeStyle = theme.card;
    context.fillStyle = theme.ink;
    for (const { text, x, y, more } of names) {
      const words = more ? `${text} +${more}` : text;
      context.strokeText(words, x, y);
      context.fillText(words, x, y);
    }
  }

  // The overlay.

  drawOverlay() {
    if (!this.height) return;
    const context = fitCanvas(this.overlay, this.width, this.height);
    const theme = colours();
    const [top, bottom] = [this.marks.top - 2, this.lagBlock?.bottom ?? this.bottom - 4];
    if (this.selected !== null) this.drawSelection(context, theme, top, bottom);
    if (this.drag) {
      const [from, to] = [Math.min(...this.drag), Math.max(...this.drag)];
      context.fillStyle = theme.accent;
      context.globalAlpha = 0.14;
      context.fillRect(from, top - 4, to - from, bottom - top + 4);
      context.globalAlpha = 1;
    }
    if (!this.hover) return;
    const { x, row, series } = this.hover;
    if (x !== null && x >= this.left && x <= this.right) {
      context.fillStyle = theme.ink;
      context.globalAlpha = 0.5;
      context.fillRect(Math.round(x), top, 1, bottom - top);
      context.globalAlpha = 1;
    }
    if (row !== null) this.drawMarkedRow(context, theme, row);
    if (series) this.drawMarkedLag(context, theme, series);
  }

  drawSelection(context, theme, top, bottom) {
    const { begin, at } = this.chart.rebalances;
    const [from, to] = [this.x(begin[this.selected]), this.x(at[this.selected])];
    if (to < this.left || from > this.right) return;
    const middle = (from + to) / 2;
    const [left, right] = [Math.max(Math.min(from, middle - 4), this.left), Math.min(Math.max(to, middle + 4), this.right)];
    context.fillStyle = theme.accent;
    context.globalAlpha = 0.16;
    context.fillRect(left, top, right - left, bottom - top);
    context.globalAlpha = 1;
    context.fillRect(Math.round(Math.min(Math.max(to, this.left), this.right)) - 0.75, top, 1.5, bottom - top);
  }

  drawMarkedRow(context, theme, row) {
    const place = this.rows.indexOf(row);
    if (place < 0) return;
    context.strokeStyle = theme.ink;
    context.lineWidth = 1.5;
    for (const { top, rowHeight } of this.owners) {
      context.strokeRect(this.left + 0.5, top + place * rowHeight - 0.5, this.right - this.left - 1, Math.max(rowHeight, 2));
    }
  }

  drawMarkedLag(context, theme, series) {
    context.strokeStyle = theme.accent;
    context.lineWidth = 2.4;
    this.clip(context, this.lagBlock, () => this.strokeLag(context, series));
  }

  // What is under a point.

  // Returns the index of the nearest rebalance within reach, in the chart's rebalances; null: none.
  nearestRebalance(x) {
    const { at, begin, count } = this.rebalances;
    const scale = (this.right - this.left) / (this.to - this.from);
    const time = this.time(x);
    const first = lowerBound(at, time);
    let [nearest, least] = [null, REACH];
    for (let index = Math.max(first - 1, 0); index < Math.min(first + 2, count); index++) {
      const distance = (time < begin[index] ? begin[index] - time : Math.max(time - at[index], 0)) * scale;
      if (distance < least) [nearest, least] = [index, distance];
    }
    return nearest;
  }

  clusterNear(x) {
    let [nearest, least] = [null, REACH];
    for (const cluster of this.clusters) {
      const half = cluster.end - cluster.begin > 1 ? 10 : 0;
      const distance = Math.max(Math.abs(cluster.x - x) - half, 0);
      if (distance < least) [nearest, least] = [cluster, distance];
    }
    return nearest;
  }

  barNear(x) {
    return [...this.bars.values()].find((bar) => x > bar.x - Math.max(bar.wide, BAR) - 3 && x < bar.x + 4) ?? null;
  }

  // Returns what is at a point: {x, time, cluster, rebalance, bar, row, block, series}; null outside of
  // the plot.
  pick(x, y) {
    if (!this.height || x < this.left - 60 || x > this.right + 8 || y < MINIMAP.top + MINIMAP.height) return null;
    const found = { x: Math.min(Math.max(x, this.left), this.right), cluster: null, rebalance: null, row: null, block: null, series: null, bar: null };
    found.time = this.time(found.x);
    if (y < this.marks.bottom + 2) {
      const cluster = this.clusterNear(x);
      if (cluster && cluster.end - cluster.begin > 1) found.cluster = cluster;
      else if (cluster) found.rebalance = cluster.begin;
    } else {
      found.rebalance = this.nearestRebalance(x);
    }
    if (this.downtime && found.rebalance === null && y >= this.downtime.top && y < this.downtime.bottom + 2) found.bar = this.barNear(x);
    const block = this.owners.find(({ top, bottom }) => y >= top && y < bottom);
    if (block?.rowHeight) {
      found.block = block;
      found.row = this.rows[Math.min(Math.floor((y - block.top) / block.rowHeight), this.rows.length - 1)];
      found.series = this.lags?.find((series) => series.row === found.row) ?? null;
    }
    if (this.lagBlock && y >= this.lagBlock.top && y < this.lagBlock.bottom + 4) {
      found.series = this.nearestLag(found.time, y);
      found.row = found.series?.row ?? null;
    }
    return found;
  }

  nearestLag(time, y) {
    let [nearest, least] = [null, 14];
    for (const series of this.lags) {
      const amount = lagAt(series, time);
      const distance = amount === null ? Infinity : Math.abs(this.lagY(amount.amount) - y);
      if (distance < least) [nearest, least] = [series, distance];
    }
    return nearest;
  }

  // Pointers, wheel and keys.

  listen() {
    const { canvas } = this;
    canvas.addEventListener('pointerdown', (event) => this.pointerDown(event));
    canvas.addEventListener('pointermove', (event) => this.pointerMove(event));
    canvas.addEventListener('pointerup', (event) => this.pointerUp(event));
    canvas.addEventListener('pointercancel', () => this.endGestures());
    canvas.addEventListener('pointerleave', (event) => { if (event.pointerType !== 'touch') this.leave(); });
    canvas.addEventListener('dblclick', (event) => { if (this.point(event)[1] > MINIMAP.top + MINIMAP.height) this.showAll(); });
    canvas.addEventListener('wheel', (event) => this.wheel(event), { passive: false });
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  pointerDown(event) {
    const [x, y] = this.point(event);
    if (event.button > 0 || !this.height) return;
    this.pointers.set(event.pointerId, x);
    const isInMinimap = y < MINIMAP.top + MINIMAP.height + 4 && x > this.left - EDGE;
    if (event.pointerType === 'touch' && this.pointers.size === 2) {
      this.gesture = { kind: 'pinch', begin: [...this.pointers.values()], from: this.from, to: this.to };
      hideTip();
    } else if (isInMinimap) {
      this.capture(event);
      this.startMinimap(x);
    } else if (event.pointerType === 'touch') {
      this.gesture = { kind: 'touch', x, y, tapped: this.hover };
    } else if (x >= this.left - 4) {
      this.capture(event);
      this.gesture = { kind: event.shiftKey ? 'pan' : 'range', x, y, from: this.from, to: this.to };
    }
  }

  capture(event) {
    try { this.canvas.setPointerCapture(event.pointerId); } catch { /* the pointer is gone */ }
  }

  startMinimap(x) {
    const [from, to] = this.minimapWindow();
    const isWide = to - from > 4 * EDGE;
    let edge = null;
    if (isWide && Math.abs(x - from) < EDGE) edge = 'from';
    else if (isWide && Math.abs(x - to) < EDGE) edge = 'to';
    if (!edge && (x < from || x > to)) {
      const half = (this.to - this.from) / 2;
      this.show(this.minimapTime(x) - half, this.minimapTime(x) + half);
    }
    this.gesture = { kind: 'minimap', edge, x, from: this.from, to: this.to };
  }

  moveMinimap({ edge, x: begin, from, to }, x) {
    const step = this.minimapTime(x) - this.minimapTime(begin);
    if (!edge) this.show(from + step, to + step);
    else if (edge === 'from') this.show(Math.min(from + step, to - MIN_RANGE), to);
    else this.show(from, Math.max(to + step, from + MIN_RANGE));
  }

  pointerMove(event) {
    const [x, y] = this.point(event);
    if (this.pointers.has(event.pointerId)) this.pointers.set(event.pointerId, x);
    const { gesture } = this;
    if (!gesture) { if (event.pointerType !== 'touch') this.setHover(x, y, event); return; }
    if (gesture.kind === 'minimap') this.moveMinimap(gesture, x);
    else if (gesture.kind === 'pinch' && this.pointers.size === 2) this.pinch(gesture);
    else if (gesture.kind === 'pan') {
      const step = ((gesture.x - x) / (this.right - this.left)) * (gesture.to - gesture.from);
      gesture.hasMoved ||= Math.abs(x - gesture.x) > 4;
      this.show(gesture.from + step, gesture.to + step);
    } else if (gesture.kind === 'range' && (this.drag || Math.abs(x - gesture.x) > 5)) {
      const clamp = (value) => Math.min(Math.max(value, this.left), this.right);
      this.drag = [clamp(gesture.x), clamp(x)];
      hideTip();
      this.drawOverlay();
    } else if (gesture.kind === 'touch' && Math.abs(x - gesture.x) > 8) {
      gesture.hasMoved = true;
      this.setHover(x, y, event);
    }
  }

  // Two fingers zoom by their distance and pan by their middle.
  pinch({ begin, from, to }) {
    const [a, b] = this.pointers.values();
    const width = this.right - this.left;
    const factor = Math.max(Math.abs(begin[0] - begin[1]), 20) / Math.max(Math.abs(a - b), 20);
    const middle = from + (((begin[0] + begin[1]) / 2 - this.left) / width) * (to - from);
    const range = Math.max((to - from) * factor, MIN_RANGE);
    const share = ((a + b) / 2 - this.left) / width;
    this.show(middle - share * range, middle + (1 - share) * range);
  }

  pointerUp(event) {
    const [x, y] = this.point(event);
    const { gesture } = this;
    this.pointers.delete(event.pointerId);
    if (gesture?.kind === 'pinch') {
      if (!this.pointers.size) this.gesture = null;
      return;
    }
    this.gesture = null;
    if (!gesture || gesture.kind === 'minimap') return;
    if (this.drag) {
      const [from, to] = [Math.min(...this.drag), Math.max(...this.drag)].map((each) => this.time(each));
      this.drag = null;
      this.show(from, to);
    } else if (gesture.kind === 'range') {
      this.click(this.pick(x, y));
    } else if (gesture.kind === 'touch' && !gesture.hasMoved) {
      this.tap(gesture, event);
    }
  }

  // The first tap shows the tooltip, the second one on the same mark opens it.
  tap({ x, y, tapped }, event) {
    this.setHover(x, y, event);
    const same = tapped && this.hover && tapped.rebalance === this.hover.rebalance && tapped.cluster?.begin === this.hover.cluster?.begin;
    if (same && y < (this.downtime?.bottom ?? this.marks.bottom)) this.click(this.hover);
  }

  click(found) {
    if (found?.cluster) {
      const { at } = this.rebalances;
      const [begin, end] = [at[found.cluster.begin], at[found.cluster.end - 1]];
      const margin = Math.max((end - begin) * 0.3, 5 * SECOND);
      hideTip();
      this.show(begin - margin, end + margin);
    } else if (found && found.rebalance !== null) {
      hideTip();
      const { of } = this.rebalances;
      const index = of ? of[found.rebalance] : found.rebalance;
      if (index >= 0) this.page.selectRebalance(index);
    }
  }

  endGestures() {
    this.pointers.clear();
    this.gesture = this.drag = null;
    this.drawOverlay();
  }

  leave() {
    this.hover = null;
    this.canvas.style.removeProperty('cursor');
    this.drawOverlay();
    hideTip();
    this.page.hoverRebalance(null);
  }

  setHover(x, y, event) {
    const isInMinimap = y < MINIMAP.top + MINIMAP.height + 4 && x >= this.left - EDGE;
    const found = this.hover = isInMinimap ? null : this.pick(x, y);
    if (!found) {
      this.canvas.style.cursor = isInMinimap ? 'grab' : 'default';
      this.drawOverlay();
      hideTip();
      this.page.hoverRebalance(null);
      return;
    }
    if (found.rebalance !== null && !found.block && !found.series) found.x = Math.min(Math.max(this.x(this.rebalances.at[found.rebalance]), this.left), this.right);
    this.canvas.style.cursor = found.rebalance !== null || found.cluster ? 'pointer' : 'crosshair';
    this.drawOverlay();
    showTip(this.describe(found, event.pointerType === 'touch'), event.clientX, event.clientY);
    const { of } = this.rebalances;
    this.page.hoverRebalance(found.rebalance === null ? null : of ? of[found.rebalance] : found.rebalance);
  }

  // Marks a rebalance from outside, for example from the table.
  pointAt(index) {
    this.hover = index === null ? null : { x: this.x(this.chart.rebalances.at[index]), row: null, series: null };
    this.drawOverlay();
  }

  wheel(event) {
    const [x] = this.point(event);
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      this.zoom(Math.exp(Math.max(Math.min(event.deltaY, 120), -120) / 200), this.time(Math.min(Math.max(x, this.left), this.right)));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      this.move((event.deltaX || event.deltaY) / 800);
    }
  }

  // The tooltip of a point.
  describe(found, isTouch) {
    const { chart } = this;
    const parts = [];
    if (found.cluster) parts.push(...this.describeCluster(found.cluster, isTouch));
    else if (found.rebalance !== null) parts.push(...this.page.describe(found.rebalance, this.mode === 'with', isTouch));
    else parts.push(element('p', null, element('b', null, formatMoment(found.time, chart.begin, chart.end)), ` ${timeZone()}`));
    if (found.bar) parts.push(...Object.entries(found.bar.parts).map(([reason, length]) => element('p', null, element('b', null, duration(length)), ` of downtime: ${REASONS[reason] ?? reason}`)));
    const name = found.series?.name ?? (found.row === null ? null : chart.rowNames[found.row]);
    if (name !== null) {
      if (found.rebalance !== null) parts.push(element('hr'));
      parts.push(element('p', null, element('b', null, isolate(name))));
    }
    if (found.row !== null) parts.push(...this.describeOwner(found));
    if (found.series) {
      const lag = lagAt(found.series, found.time);
      if (lag) parts.push(element('p', null, 'lag ', known('sampled', lagWords(lag, found.series.inSeconds))));
    } else if (found.row !== null && chart.lag && this.chart.partitionLags.length) {
      parts.push(element('p', { class: 'minor' }, 'its lag was smaller than that of the partitions in the chart'));
    }
    return parts;
  }

  describeOwner({ row, time, block }) {
    const { chart } = this;
    const { bands, isReplayed } = block ?? this.owners[0] ?? {};
    if (!bands) return [];
    const stop = isReplayed ? null : stopAt(chart.stops, row, time);
    const owner = ownerAt(bands, row, time);
    const parts = [element('p', null, owner === null ? 'no owner' : isolate(chart.members[owner].fullName), isReplayed ? ' (≈ replayed)' : '')];
    if (stop !== null) {
      const length = chart.stops.until[stop] - chart.stops.since[stop];
      parts.push(element('p', { class: 'bad-text' }, `not consumed for ${duration(length)}: ${REASONS[chart.stops.reason[stop]] ?? chart.stops.reason[stop]}`));
    }
    return parts;
  }

  describeCluster({ begin, end, causes }, isTouch) {
    const { at } = this.rebalances;
    const listed = [...causes].sort((a, b) => b[1] - a[1]).map(([cause, count]) => element('p', { class: 'with-glyph' }, causeGlyph(cause), `${number(count)} × ${CAUSES[cause].title}`));
    return [
      element('p', null, element('b', null, countNoun(end - begin, 'rebalance')), ` ${formatClock(at[begin], true)} – ${formatClock(at[end - 1], true)}`),
      ...listed.map((each) => element('div', null, each)),
      element('p', { class: 'minor' }, isTouch ? 'Tap again to zoom in' : 'Click to zoom in')];
  }

  // What the colours mean, for what is in the data.
  legend() {
    const { chart } = this;
    const causes = [...new Set(chart.rebalances.cause)].sort().map((cause) => ({ cause, text: CAUSES[cause].title }));
    if (this.mode === 'with') return [...causes, { colour: 'accent', text: 'downtime, replayed' }];
    const counted = new Set(Object.keys(chart.rebalances.reasons));
    for (const stop of chart.stops.withoutRebalance) counted.add(chart.stops.reason[stop]);
    const reasons = Object.keys(REASONS).filter((reason) => counted.has(reason) && !UNCOUNTED.includes(reason));
    return [...causes, ...reasons.map((reason) => ({ reason, text: REASONS[reason] }))];
  }
}

// Assigns lanes to patterns, so that those of the same time are below each other.
function patternLanes(patterns, end) {
  const ends = [];
  const placed = [];
  for (const { pattern, since, until } of patterns) {
    if (since === null) continue;
    let lane = ends.findIndex((each) => each < since);
    if (lane < 0) lane = ends.length;
    ends[lane] = until ?? end;
    placed.push({ lane, since, until: until ?? end, text: pattern[0].toUpperCase() + pattern.slice(1) });
  }
  return { count: ends.length, patterns: placed };
}

// Yields the first rebalance in each column of pixels: [x, index].
function* firstInColumns(rebalances, column, from = -Infinity, to = Infinity) {
  let last = null;
  const end = lowerBound(rebalances.at, to + TIME_EPSILON);
  for (let index = lowerBound(rebalances.at, from); index < end; index++) {
    const x = column(rebalances.at[index]);
    if (x === last) continue;
    last = x;
    yield [x, index];
  }
}

// Returns the first index of the run of close times that an index is in, looking back a limited way.
function clusterBegin(at, index, gap) {
  let begin = Math.min(index, Math.max(at.length - 1, 0));
  for (let steps = 0; begin > 0 && steps < 5000 && at[begin] - at[begin - 1] < gap; steps++) begin--;
  return begin;
}

const LAG_STEPS = [
  5, 10, 15, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600, 7200, 10800, 14400, 21600, 43200, 86400, 172800, 604800, 2592000];

// Returns the distance of the lines of the lag axis, for three or four lines.
function lagStep(most, inSeconds) {
  const step = inSeconds && LAG_STEPS.find((each) => most / each <= 4);
  if (step) return step;
  const scale = 10 ** Math.floor(Math.log10(most / 4));
  return [1, 2, 5, 10].map((each) => each * scale).find((each) => most / each <= 4);
}

// Returns the lag at a time: {amount, atLeast}, or null if it is unknown.
function lagAt({ at, amounts, atLeast, step }, time) {
  const index = lowerBound(at, time + TIME_EPSILON) - 1;
  return index >= 0 && time < at[index] + step ? { amount: amounts[index], atLeast: atLeast[index] } : null;
}

function lagWords({ amount, atLeast }, inSeconds) {
  if (!inSeconds) return countNoun(amount, 'record');
  return `${atLeast ? 'at least ' : ''}${duration(amount * SECOND)}`;
}

// Returns the first and the end index of the bands of a row in a time range.
function visibleBands({ first, since }, row, from, to) {
  const begin = lowerBound(since, from, first[row], first[row + 1]);
  return [Math.max(begin - 1, first[row]), lowerBound(since, to, begin, first[row + 1])];
}

// Painting owners pixel by pixel: the time depends on the number of pixels and not of bands.
const NO_OWNER = -1, STOPPED = -2, BORDER = -3;
const OPAQUE = 255 << 24;

// Returns a pixel as four bytes. Pixels are signed integers, which engines handle fast.
function pixel(hex, other = hex, share = 0) {
  const part = (begin) => {
    const [from, to] = [hex, other].map((colour) => parseInt(colour.slice(begin, begin + 2), 16));
    return Math.round(from + (to - from) * share);
  };
  return OPAQUE | part(5) << 16 | part(3) << 8 | part(1);
}

// The colour of a member; a second dozen of members has darker colours.
function memberColour(slot) {
  const theme = colours();
  const colour = theme.members[slot % theme.members.length];
  if (slot < theme.members.length) return colour;
  const mixed = pixel(colour, theme.ink, 0.16);
  return `#${[mixed, mixed >> 8, mixed >> 16].map((each) => (each & 255).toString(16).padStart(2, '0')).join('')}`;
}

const OWNER_STYLES = 24;

function paintBands(plot, context, block) {
  const { theme, ratio, rows } = plot;
  const wide = Math.round((plot.right - plot.left) * ratio);
  const high = Math.round(block.height * ratio);
  if (wide < 1 || high < 1) return;
  const image = context.createImageData(wide, high);
  const pixels = new Int32Array(image.data.buffer);
  const styles = Int32Array.from({ length: OWNER_STYLES }, (_, slot) => pixel(memberColour(slot)));
  const ground = pixel(theme.hover), card = pixel(theme.card);
  const stroke = pixel(theme.stuck, theme.card, 0.35), faint = pixel(theme.card, theme.hover, 0.5);
  const gap = Math.round(6 * ratio), thick = Math.max(Math.round(ratio), 1);
  const owners = new Int8Array(wide);
  const lines = Math.min(rows.length, high);
  const slots = plot.slots ??= Int8Array.from(plot.chart.members, (member) => member.slot % OWNER_STYLES);
  for (let line = 0; line < lines; line++) {
    const top = Math.floor((line * high) / lines);
    const next = Math.floor(((line + 1) * high) / lines);
    const margin = next - top >= 4 * ratio ? Math.max(Math.round(ratio * 0.8), 1) : 0;
    const row = rows[Math.floor((line * rows.length) / lines)];
    findOwners(plot, block, owners, row, slots);
    for (let y = top; y < next; y++) {
      const begin = y * wide;
      if (y >= next - margin) { pixels.fill(card, begin, begin + wide); continue; }
      for (let x = 0; x < wide; x++) {
        const owner = owners[x];
        if (owner >= 0) pixels[begin + x] = styles[owner];
        else if (owner === STOPPED) pixels[begin + x] = (x + y) % gap < thick ? stroke : faint;
        else pixels[begin + x] = owner === BORDER ? card : ground;
      }
    }
  }
  context.putImageData(image, Math.round(plot.left * ratio), Math.round(block.top * ratio));
}

// Finds the colour slot of each pixel of a row. If several bands share a pixel, the last one that
// continues after it is shown.
function findOwners(plot, block, owners, row, slots) {
  const { since, until, member } = block.bands;
  const { from, to } = plot;
  const scale = owners.length / (to - from);
  const [begin, end] = visibleBands(block.bands, row, from, to);
  const border = Math.max(Math.round(plot.ratio), 1);
  owners.fill(NO_OWNER);
  let painted = -Infinity;
  for (let band = begin; band < end; band++) {
    if (until[band] <= painted) continue;
    const left = Math.max(Math.floor((since[band] - from) * scale), 0);
    const right = Math.min(Math.ceil((until[band] - from) * scale), owners.length);
    const slot = slots[member[band]];
    for (let x = left; x < right; x++) owners[x] = slot;
    if (right - left > 5 * border && left > 0) for (let x = left; x < left + border; x++) owners[x] = BORDER;
    painted = from + right / scale;
  }
  if (!block.isReplayed) paintStops(plot, owners, row, scale);
}

function paintStops(plot, owners, row, scale) {
  const { since, until, reason, first, byRow } = plot.chart.stops;
  for (let place = first[row]; place < first[row + 1]; place++) {
    const stop = byRow[place];
    if (until[stop] <= plot.from) continue;
    // too short for a pixel
    if (since[stop] >= plot.to || (until[stop] - since[stop]) * scale < 1 || UNCOUNTED.includes(reason[stop])) continue;
    const left = Math.max(Math.round((since[stop] - plot.from) * scale), 0);
    const right = Math.min(Math.round((until[stop] - plot.from) * scale), owners.length);
    for (let x = left; x < right; x++) owners[x] = STOPPED;
  }
}
