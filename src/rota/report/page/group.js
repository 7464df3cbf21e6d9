// The page of one group: what happened and what to do, the chart, the policies, the rebalances.
const ROW_HEIGHT = 34, MAX_TABLE_HEIGHT = 392, EXTRA_ROWS = 6, MANY_PARTITIONS = 24;
const MAX_LISTED_TOPICS = 2, MAX_PRINTED_ROWS = 500;
const MODES = ['actual', 'with', 'both'];

// Fills #group with the page of a group, and returns the view for the shell. `around` has the names of
// the previous and next group and the hash of the overview.
function showGroup(chart, state, around) {
  return new GroupPage(chart, state, around);
}

class GroupPage {
  constructor(chart, state, around) {
    this.data = chart;
    this.selected = null;
    this.only = null;
    this.libraries = chart.group.setting_libraries;
    this.library = this.libraries.includes(state.library) ? state.library : this.libraries[0] ?? null;
    this.checked = new Set();
    this.around = around;
    this.chart = new GroupChart(chart, {
      rangeChanged: () => this.rangeChanged(),
      selectRebalance: (index) => this.select(index),
      hoverRebalance: (index) => this.table.mark(index),
      describe: (index, isReplayed, isTouch) => this.describe(index, isReplayed, isTouch),
    });
    this.build();
    this.readState(state);
    this.printing = { before: () => this.table.renderAll(), after: () => this.table.render() };
    window.addEventListener('beforeprint', this.printing.before);
    window.addEventListener('afterprint', this.printing.after);
  }

  readState(state) {
    const { data, chart } = this;
    if (data.replayedBands && MODES.includes(state.mode)) chart.mode = state.mode;
    const only = /^(cause|deploy):(.*)$/s.exec(state.only ?? '');
    if (only) this.setOnly({ kind: only[1], value: only[2] }, false);
    const [from, to, at] = ['from', 'to', 'at'].map((name) => (state[name] === undefined ? null : parseHashTime(state[name])));
    if (from !== null && to !== null && to > from) chart.show(from, to);
    else if (at !== null) this.showAround(at);
    const index = Number(state.r);
    const has = state.r !== undefined && Number.isInteger(index) && index >= 0 && index < data.rebalances.count;
    this.updateToolbar();
    if (has) this.select(index, false);
    else chart.invalidate();
  }

  // Shows a time with ten minutes around it, or more if the whole time is long.
  showAround(time) {
    const half = Math.max((this.data.end - this.data.begin) / 48, 5 * MINUTE);
    this.chart.show(time - half, time + half);
  }

  state() {
    const { chart } = this;
    const [from, to] = homeRange(this.data);
    const isHome = Math.abs(chart.from - from) < SECOND && Math.abs(chart.to - to) < SECOND;
    return {
      g: this.data.group.name,
      from: isHome ? null : timeInHash(chart.from),
      to: isHome ? null : timeInHash(chart.to),
      r: this.selected,
      mode: chart.mode === 'actual' ? null : chart.mode,
      only: this.only ? `${this.only.kind}:${this.only.value}` : null,
      library: this.library === (this.libraries[0] ?? null) ? null : this.library,
    };
  }

  save() {
    replaceHash(this.state());
  }

  redraw() {
    this.chart.slots = null;
    this.chart.draw();
    this.fillHead();
    this.fillRail();
    this.fillChips();
    this.updateToolbar();
    this.table.render();
    if (this.selected !== null) fillPanel(this.data, this.selected, this.panelPage);
  }

  close() {
    this.chart.close();
    this.hidePanel();
    hideTip();
    window.removeEventListener('beforeprint', this.printing.before);
    window.removeEventListener('afterprint', this.printing.after);
  }

  // Building the page.

  build() {
    const { data } = this;
    this.head = element('div', { class: 'group-head' });
    this.fillHead();
    this.toolbar = this.buildToolbar();
    this.legend = element('div', { class: 'legend' });
    const left = element('div', { class: 'group-main' },
      element('section', { class: 'card', 'aria-label': 'Chart of the group' }, this.toolbar, this.chart.box, this.legend, ...this.missingParts()));
    this.rail = element('aside', { class: 'rail', 'aria-label': 'What happened and what to do' });
    this.fillRail();
    const columns = element('div', { class: 'columns' }, left, this.rail);
    at('group').replaceChildren(this.head, columns);
    if (data.policies.length) left.append(policiesCard(data));
    left.append(this.rebalancesCard());
    if (NO_OWNERS[data.group.overview.kind] && data.group.overview.last_members.length) left.append(assignmentCard(data));
    if (data.members.length) left.append(membersCard(data));
    this.panelPage = {
      step: (by) => this.step(by), stepSame: (by) => this.stepSame(by), close: () => this.closePanel(),
      showSame: () => this.showSame(), showDeploy: () => this.showDeploy(),
    };
    this.chart.draw();
  }

  fillHead() {
    const { group } = this.data;
    this.head.replaceChildren(
      element('div', { class: 'group-title' },
        element('h1', { id: 'group-name', tabindex: '-1' }, isolate(visibleName(group.name))),
        healthBadge(group.health.health),
        ...headFacts(this.data).map((fact) => element('span', { class: 'minor' }, fact)),
        element('span', { class: 'spacer' }),
        element('nav', { class: 'group-nav wide', 'aria-label': 'Other groups' },
          this.groupLink(this.around.previous, '← Previous'), this.groupLink(this.around.next, 'Next →'))),
      leadParagraph(this.data),
      keyFigures(this.data));
  }

  groupLink(name, text) {
    const label = `${text.replace(/[←→ ]/g, '')} group`;
    if (name === null || name === undefined) return element('button', { type: 'button', class: 'button', disabled: true, 'aria-label': label }, text);
    return element('a', { class: 'button', href: `#${hashOf({ g: name })}`, 'aria-label': `${label}: ${visibleName(name)}` }, text);
  }

  buildToolbar() {
    const { data, chart } = this;
    const zoom = (text, label, run, extra = '') => element('button', { type: 'button', class: extra || null, 'aria-label': label, onclick: run }, text);
    this.range = element('span', { class: 'range', 'aria-live': 'polite' });
    const buttons = element('div', { class: 'choice', role: 'group', 'aria-label': 'Time range' },
      zoom('+', 'Zoom in', () => chart.zoom(1 / 1.8)), zoom('−', 'Zoom out', () => chart.zoom(1.8)),
      zoom('←', 'Earlier', () => chart.move(-0.4), 'wide'), zoom('→', 'Later', () => chart.move(0.4), 'wide'),
      element('button', { type: 'button', onclick: () => chart.showAll() }, 'Whole time'));
    const parts = [this.range, buttons, element('span', { class: 'spacer' })];
    if (data.rowNames.length > MANY_PARTITIONS) parts.push(this.partitionFilter());
    if (data.replayedBands) {
      const titles = ['Actual', `With ${data.group.policy.replace('cooperative-sticky', 'coop-sticky')}`, 'Both'];
      this.modes = MODES.map((mode, place) => element('button', { type: 'button', 'aria-pressed': String(chart.mode === mode), onclick: () => this.setMode(mode) }, titles[place]));
      parts.push(element('div', { class: 'choice', role: 'group', 'aria-label': 'Partition owners shown' }, ...this.modes));
    }
    return element('div', { class: 'toolbar' }, ...parts);
  }

  partitionFilter() {
    const { rowNames, topics } = this.data;
    const options = topics.map((topic) => element('option', { value: `${topic}-*` }));
    const input = element('input', {
      type: 'search', list: 'topic-names', placeholder: 'Partitions, e.g. orders-1*', autocomplete: 'off', spellcheck: 'false',
      'aria-label': 'Show only partitions whose name contains this text; * and ? are wildcards' });
    input.addEventListener('input', () => {
      const matches = nameMatcher(input.value);
      const rows = rowNames.flatMap((name, row) => (matches(name) ? [row] : []));
      this.chart.filterRows(rows);
    });
    return element('div', { class: 'partition-filter' }, input, element('datalist', { id: 'topic-names' }, ...options));
  }

  // One sentence for each part of the chart that has no data.
  missingParts() {
    const { data } = this;
    const missing = [];
    if (!data.actualBands.member.length) {
      missing.push(data.rebalances.count
        ? NO_OWNERS[data.group.overview.kind] || 'Partition owners are not shown: the evidence has no assignment of this group that Rota can decode.'
        : 'Partition owners are not shown: the group has commits, but no members in the evidence.');
    }
    if (data.group.downtime_ms === null && data.group.overview.kind !== 'share') missing.push('Downtime is unknown because the owners of the partitions are unknown.');
    if (!data.lag) missing.push('Lag is unknown: the evidence has no commits of this group with a sample of the log end offset (rota run --poll or --bootstrap-servers samples it).');
    if (data.stops.leftOut) missing.push(`The chart leaves out ${number(data.stops.leftOut)} short times without a consumer. All numbers include them.`);
    return missing.map((text) => element('p', { class: 'missing minor' }, text));
  }

  rangeChanged() {
    this.updateToolbar();
    this.save();
    this.tableFrame ??= requestAnimationFrame(() => {
      this.tableFrame = null;
      this.followRange();
    });
  }

  // Scrolls the table to the range of the chart, unless a rebalance is selected.
  followRange() {
    const { at: times } = this.data.rebalances;
    const place = this.listed.findIndex((index) => times[index] >= this.chart.from);
    if (this.selected === null && place >= 0) this.table.box.scrollTop = Math.max((place - 1) * ROW_HEIGHT, 0);
    this.table.render();
  }

  updateToolbar() {
    const { chart } = this;
    this.range.textContent = rangeText(chart.from, chart.to, this.data);
    this.modes?.forEach((button, place) => button.setAttribute('aria-pressed', String(MODES[place] === chart.mode)));
    const keys = chart.legend().map(({ cause, reason, colour, text }) => element('span', null,
      cause === undefined ? element('i', { class: 'swatch', style: { background: reason ? reasonCss(reason) : `var(--${colour})` } }) : causeGlyph(cause), text));
    if (this.data.stops.until.length) keys.push(element('span', null, element('i', { class: 'swatch hatch' }), 'no consumer'));
    keys.push(element('span', { class: 'minor wide hint' }, 'Drag to zoom, shift-drag to pan, double-click for the whole time'));
    keys.push(element('span', { class: 'minor narrow hint' }, 'Tap a mark twice to open it, pinch to zoom'));
    this.legend.replaceChildren(...keys);
  }

  setMode(mode) {
    this.chart.setMode(mode);
    this.updateToolbar();
    this.save();
  }

  // The rail.

  fillRail() {
    const { group } = this.data;
    const happened = group.patterns.map((pattern) => this.patternPart(pattern));
    this.rail.replaceChildren(
      element('section', { class: 'card' }, element('h2', null, 'What happened'), ...(happened.length ? happened : [this.noPattern()])),
      element('section', { class: 'card', id: 'to-do' }, ...this.actionParts()));
  }

  patternPart(pattern) {
    const { data } = this;
    const parts = [
      element('span', { class: 'pattern-sign', 'aria-hidden': 'true' }, PATTERN_SIGNS[pattern.pattern] ?? '•'),
      element('h3', null, ...isolateWords(sentence(pattern.text)))];
    if (pattern.fix) parts.push(element('p', null, ...richText(sentence(pattern.fix), data)));
    const times = [];
    if (pattern.since !== null) {
      const until = pattern.until ?? data.end;
      const downtime = downtimeBetween(data, pattern.since, until);
      times.push(element('span', null, `${formatMoment(pattern.since, data.begin, data.end, false)} – ${formatMoment(until, data.begin, data.end, false)}`));
      if (downtime) times.push(element('span', null, known(data.group.mark, duration(downtime), 'All downtime between the first and the last of these events.'), ' downtime'));
      times.push(element('button', { type: 'button', class: 'link', onclick: () => this.showPattern(pattern) }, 'Show in chart'));
    }
    parts.push(element('div', { class: 'pattern-foot minor' }, ...times));
    return element('div', { class: 'pattern' }, ...parts);
  }

  noPattern() {
    const { rebalances } = this.data;
    if (!rebalances.count) return element('p', { class: 'minor' }, 'The evidence has no rebalance of this group.');
    const counts = new Map();
    for (const cause of rebalances.cause) counts.set(cause, (counts.get(cause) || 0) + 1);
    const listed = [...counts].sort((a, b) => b[1] - a[1]).map(([cause, count]) => element('div', { class: 'with-glyph' },
      causeGlyph(cause), element('button', { type: 'button', class: 'link', onclick: () => this.setOnly({ kind: 'cause', value: CAUSES[cause].name }) }, `${number(count)} × ${CAUSES[cause].title}`)));
    return element('div', { class: 'cause-counts' }, element('p', { class: 'minor' }, 'No repeated problem was found.'), ...listed);
  }

  showPattern({ since, until }) {
    const end = until ?? this.data.end;
    const margin = Math.max((end - since) * 0.12, 30 * SECOND);
    this.chart.show(since - margin, end + margin);
    this.chart.box.scrollIntoView({ block: 'nearest' });
  }

  actionParts() {
    const { group } = this.data;
    const hasSettings = group.actions.some(({ steps }) => steps.some((step) => Object.keys(step.settings).length || step.libraries.length));
    const parts = [element('h2', null, 'What to do')];
    if (hasSettings && this.libraries.length > 1) parts.push(this.libraryTabs());
    if (!group.actions.length) {
      parts.push(element('p', { class: 'minor' }, group.to_do ? [...richText(group.to_do, this.data)] : 'No change is recommended.'));
    }
    let place = 0;
    group.actions.forEach((action, index) => {
      if (action.kind !== 'note') place++;
      parts.push(this.actionPart(action, index, place));
    });
    if (hasSettings) parts.push(element('p', { class: 'minor' }, this.libraryNote()));
    return parts;
  }

  libraryTabs() {
    const tabs = this.libraries.map((library) => element('button', {
      type: 'button', role: 'tab', 'aria-selected': String(library === this.library), 'aria-controls': 'to-do', tabindex: library === this.library ? '0' : '-1',
      onclick: () => this.setLibrary(library) }, library));
    const move = (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      event.stopPropagation();
      const next = (this.libraries.indexOf(this.library) + step + this.libraries.length) % this.libraries.length;
      this.setLibrary(this.libraries[next]);
      at('to-do').querySelector('[role=tab][aria-selected=true]').focus();
    };
    return element('div', { class: 'choice libraries', role: 'tablist', 'aria-label': 'Client library', onkeydown: move }, ...tabs);
  }

  setLibrary(library) {
    this.library = library;
    at('to-do').replaceChildren(...this.actionParts());
    this.save();
  }

  libraryNote() {
    const known = this.data.group.libraries.filter((name) => name !== 'unknown');
    if (!known.length) return 'The evidence does not show which client library the members use. Choose yours.';
    return `The members use ${known.join(', ')}.`;
  }

  actionPart(action, index, place) {
    const steps = action.steps.filter((step) => !step.libraries.length || step.libraries.includes(this.library));
    const isNote = action.kind === 'note';
    const title = isNote ? action.title : `${place}. ${action.title}`;
    const saving = !action.saving_ms ? null : element('span', { class: 'saving' },
      known('replayed', `saves ${action.saving_is_bound ? 'at most ' : ''}≈ ${duration(action.saving_ms)}`, action.saving_is_bound ? 'The downtime of the events that this action prevents.' : ''));
    const single = steps.length === 1 && sameText(steps[0].text, action.title) && !settingOf(steps[0], this.library);
    return element('div', { class: isNote ? 'action note' : 'action' },
      !single && element('div', { class: 'action-title' }, element('h3', null, ...richText(title, this.data)), saving),
      ...steps.map((step, number) => this.stepPart(step, `${index}-${number}`, single ? `${place}. ` : '', isNote)));
  }

  stepPart(step, key, prefix, isNote) {
    const setting = settingOf(step, this.library);
    const id = `step-${key}`;
    const text = richText(prefix + step.text, this.data);
    const parts = [isNote ? element('p', null, ...text) : element('label', { for: id }, ...text)];
    if (setting) parts.push(codeBlock(setting));
    if (isNote) return element('div', { class: 'step plain' }, element('div', null, ...parts));
    const box = element('input', { type: 'checkbox', id, checked: this.checked.has(key), onchange: () => (box.checked ? this.checked.add(key) : this.checked.delete(key)) });
    return element('div', { class: 'step' }, box, element('div', null, ...parts));
  }

  // The table of rebalances.

  rebalancesCard() {
    const { rebalances } = this.data;
    this.chips = element('div', { class: 'chips scroll', role: 'group', 'aria-label': 'Filter by cause' });
    this.tableNote = element('span', { class: 'minor', role: 'status' });
    const columns = [['Time', 'time'], ['Cause', 'cause'], ['Members', 'number members'], ['Duration', 'number took'], ['Downtime', 'number down'], ['Moved', 'number moved'], ['Reason', 'reason']];
    this.table = new VirtualTable({
      id: 'rebalances', label: 'Rebalances', columns,
      row: (place) => this.rebalanceRow(this.listed[place], place),
      keyOf: (place) => this.listed[place],
      onHover: (index) => this.chart.pointAt(index),
      onOpen: (index) => this.select(index),
    });
    this.listed = Array.from({ length: rebalances.count }, (_, index) => index);
    this.table.setCount(this.listed.length);
    this.fillChips();
    return element('section', { class: 'card block', 'aria-labelledby': 'rebalances-title' },
      element('div', { class: 'block-head' }, element('h2', { id: 'rebalances-title' }, 'Rebalances'), this.tableNote),
      rebalances.count ? [this.chips, this.table.box] : element('p', { class: 'missing minor' }, 'The evidence has no rebalance of this group.'));
  }

  fillChips() {
    const { cause, rollout, count, at: times } = this.data.rebalances;
    const causes = new Map(), deploys = new Map();
    for (let index = 0; index < count; index++) {
      causes.set(cause[index], (causes.get(cause[index]) || 0) + 1);
      const name = rollout[index];
      if (name !== null) deploys.set(name, { count: (deploys.get(name)?.count || 0) + 1, at: deploys.get(name)?.at ?? times[index] });
    }
    const chip = (only, ...content) => {
      const isOn = this.only === only || (this.only && only && this.only.kind === only.kind && this.only.value === only.value);
      return element('button', { type: 'button', class: 'chip', 'aria-pressed': String(Boolean(isOn)), onclick: () => this.setOnly(isOn ? null : only) }, ...content);
    };
    const causeChips = [...causes].sort((a, b) => b[1] - a[1]).map(([index, many]) => chip({ kind: 'cause', value: CAUSES[index].name }, causeGlyph(index), CAUSES[index].title, element('em', null, number(many))));
    const deployChips = [...deploys].slice(0, 12).map(([name, deploy]) => chip({ kind: 'deploy', value: name }, `Deploy ${formatMoment(deploy.at, this.data.begin, this.data.end, false)}`, element('em', null, number(deploy.count))));
    const isUseful = causes.size + deploys.size > 1;
    this.chips.hidden = !isUseful;
    this.chips.replaceChildren(chip(null, 'All', element('em', null, number(count))), ...causeChips, ...deployChips);
    const shown = this.listed.length;
    this.tableNote.textContent = this.only ? `${number(shown)} of ${number(count)} shown, also in the chart` : `${number(count)} in all. Rows outside of the chart's range are pale.`;
  }

  rebalanceRow(index, place) {
    const { data } = this;
    const { at: times, begin, cause, before, after, moved, needed, downtime, reason, rollout, at_least: atLeast, at_most: atMost } = data.rebalances;
    const took = tookOf(data.rebalances, index);
    const isOutside = times[index] < this.chart.from || begin[index] > this.chart.to;
    const classes = [isOutside && 'outside', index === this.selected && 'selected'].filter(Boolean).join(' ');
    const open = element('button', { type: 'button', class: 'open', 'aria-label': `Rebalance ${number(index + 1)}, ${formatMoment(times[index], data.begin, data.end)}, ${CAUSES[cause[index]].title}` }, formatMoment(times[index], data.begin, data.end));
    const cells = [
      element('td', { class: 'time' }, open),
      element('td', { class: 'cause' }, element('span', { class: 'with-glyph' }, causeGlyph(cause[index]), listedCause(data.rebalances, index), rollout[index] !== null && element('span', { class: 'minor' }, '(deploy)'))),
      element('td', { class: 'number members' }, `${number(before[index])} → ${number(after[index])}`),
      element('td', { class: 'number took' }, known(took.how, took.text)),
      element('td', { class: 'number down' }, downtime[index] === null ? UNKNOWN : known(data.group.mark, downtime[index] ? duration(downtime[index]) : 'none', downtime[index] ? downtimeBounds(atLeast[index], atMost[index]) : '')),
      element('td', { class: 'number moved' }, moved[index] === null ? UNKNOWN : [known(data.group.mark, number(moved[index])), element('span', { class: 'minor' }, ` (${number(needed[index])} necessary)`)]),
      element('td', { class: 'reason minor', title: reason[index] && reason[index].length > 40 ? reason[index] : null }, ...isolateWords(reason[index] ?? ''))];
    return element('tr', { class: classes || null, 'data-key': index, 'aria-rowindex': place + 2 }, ...cells);
  }

  // Shows only the rebalances of a cause or of a rolling deploy: {kind, value}, or null for all.
  setOnly(only, isSaved = true) {
    this.only = only;
    const { cause, rollout, count } = this.data.rebalances;
    const matches = !only ? () => true
      : only.kind === 'cause' ? (index) => CAUSES[cause[index]].name === only.value : (index) => rollout[index] === only.value;
    this.listed = [];
    const shown = new Uint8Array(count);
    for (let index = 0; index < count; index++) if (matches(index)) { this.listed.push(index); shown[index] = 1; }
    this.chart.filter(only ? shown : null);
    this.table.setCount(this.listed.length);
    this.fillChips();
    if (isSaved) this.save();
  }

  // The tooltip of a rebalance in the chart.
  describe(index, isReplayed, isTouch) {
    const { data } = this;
    const { replayed } = data;
    const own = isReplayed ? replayed.of[index] : index;
    if (own < 0) return [element('p', null, '≈ This rebalance happens only in the replay')];
    const { at: times, cause, downtime, moved, needed } = data.rebalances;
    const shownAt = isReplayed ? replayed.at[index] : times[own];
    const parts = [
      element('p', { class: 'with-glyph' }, causeGlyph(cause[own]), element('b', null, CAUSES[cause[own]].title), element('span', { class: 'minor' }, formatClock(shownAt, true))),
      element('p', null, ...whoChanged(data, own))];
    if (isReplayed) {
      parts.push(element('p', null, 'downtime ', element('b', null, `≈ ${duration(replayed.downtime[index])}`), `, ≈ ${number(replayed.moved[index])} moved (replayed)`));
    } else {
      const took = tookOf(data.rebalances, own);
      const lost = downtime[own] === null ? UNKNOWN : downtime[own] ? duration(downtime[own]) : 'none';
      parts.push(element('p', null, `took ${took.text}, downtime `, element('b', null, lost)));
      if (moved[own]) parts.push(element('p', null, `${number(moved[own])} moved, ${number(needed[own])} necessary`));
    }
    parts.push(element('p', { class: 'minor' }, isTouch ? 'Tap the mark again for details' : 'Click for details'));
    return parts;
  }

  // The panel of a rebalance.

  select(index, hasFocus = true) {
    const panel = at('panel');
    const isNew = panel.hidden;
    this.selected = index;
    fillPanel(this.data, index, this.panelPage);
    panel.hidden = false;
    document.body.classList.add('has-panel');
    if (isNew) { panel.classList.add('appear'); this.chart.draw(); }
    this.chart.select(index);
    this.table.select(index, this.listed.indexOf(index));
    if (hasFocus) panel.querySelector('h2').focus({ preventScroll: true });
    this.save();
  }

  hidePanel() {
    at('panel').hidden = true;
    at('panel').replaceChildren();
    document.body.classList.remove('has-panel');
  }

  closePanel() {
    const last = this.selected;
    this.selected = null;
    this.hidePanel();
    this.chart.draw();
    this.chart.select(null);
    this.table.select(null, -1);
    const row = this.table.box.querySelector(`[data-key="${last}"] .open`);
    (row && document.activeElement === document.body ? this.chart.canvas : this.chart.canvas).focus({ preventScroll: true });
    this.save();
  }

  // Selects the next or previous rebalance of those that are listed.
  step(by) {
    const { listed } = this;
    if (!listed.length) return;
    const { at: times } = this.data.rebalances;
    let place = this.selected === null ? -1 : listed.indexOf(this.selected);
    if (this.selected === null) {
      place = listed.findIndex((index) => times[index] >= this.chart.from);
      if (place < 0) place = listed.length - 1;
    } else if (place < 0) {
      const after = listed.findIndex((index) => index > this.selected);
      place = by > 0 ? after : (after < 0 ? listed.length : after) - 1;
    } else {
      place += by;
    }
    if (listed[place] !== undefined) this.select(listed[place]);
  }

  stepSame(by) {
    const { cause, count } = this.data.rebalances;
    for (let index = this.selected + by; index >= 0 && index < count; index += by) {
      if (cause[index] === cause[this.selected]) { this.select(index); return; }
    }
  }

  showSame() {
    this.setOnly({ kind: 'cause', value: CAUSES[this.data.rebalances.cause[this.selected]].name });
    this.table.select(this.selected, this.listed.indexOf(this.selected));
    this.rangeOfListed();
  }

  showDeploy() {
    this.setOnly({ kind: 'deploy', value: this.data.rebalances.rollout[this.selected] });
    this.table.select(this.selected, this.listed.indexOf(this.selected));
    this.rangeOfListed();
  }

  rangeOfListed() {
    const { at: times, begin } = this.data.rebalances;
    const [from, to] = [begin[this.listed[0]], times[this.listed.at(-1)]];
    const margin = Math.max((to - from) * 0.08, 30 * SECOND);
    this.chart.show(from - margin, to + margin);
  }

  // Handles a key; returns whether it was one of this page.
  key(event) {
    const { chart } = this;
    const isFree = event.target === document.body || event.target === chart.canvas || event.target.closest('#group-name') || at('panel').contains(event.target);
    const keys = {
      '+': () => chart.zoom(1 / 1.8), '=': () => chart.zoom(1 / 1.8), '-': () => chart.zoom(1.8), 0: () => chart.showAll(),
      n: () => this.step(1), p: () => this.step(-1),
    };
    if (isFree) Object.assign(keys, { ArrowLeft: () => chart.move(-0.2), ArrowRight: () => chart.move(0.2) });
    if (event.key === 'Escape' && this.selected !== null) keys.Escape = () => this.closePanel();
    else if (event.key === 'Escape' && this.only) keys.Escape = () => this.setOnly(null);
    if (!keys[event.key]) return false;
    keys[event.key]();
    return true;
  }

  // The rebalances that are listed, for the export.
  rows() {
    const { rebalances, group, members } = this.data;
    const ids = (list) => list.map((member) => members[member].id).join(' ');
    return this.listed.map((index) => ({
      group: group.name,
      at: new Date(rebalances.at[index]).toISOString(),
      started_at: rebalances.took[index] === null ? null : new Date(rebalances.begin[index]).toISOString(),
      cause: CAUSES[rebalances.cause[index]].name,
      cause_evidence: rebalances.evidence[index],
      likely_cause: rebalances.likely[index],
      generation: rebalances.generation[index],
      members_before: rebalances.before[index],
      members_after: rebalances.after[index],
      joined: ids(rebalances.joined[index]),
      left: ids(rebalances.left[index]),
      took_ms: rebalances.took[index],
      join_ms: rebalances.join[index],
      sync_ms: rebalances.sync[index],
      downtime_ms: rebalances.downtime[index],
      downtime_at_least_ms: rebalances.at_least[index],
      downtime_at_most_ms: rebalances.at_most[index],
      delayed_records: rebalances.delayed[index],
      moved: rebalances.moved[index],
      moves_needed: rebalances.needed[index],
      revoked: rebalances.revoked[index],
      strategy: rebalances.strategy[index],
      protocol: rebalances.protocol[index],
      rolling_deploy: rebalances.rollout[index],
      reason: rebalances.reason[index],
    }));
  }
}

const PATTERN_SIGNS = {
  autoscaler: '⇅', 'rejoining member': '↺', 'slow polls': '◆', 'late join': '⧗', crashes: '✕', 'rolling deploy': '↻',
  'stuck partition': '‖', 'growing lag': '↗',
};

// Returns a text as a sentence; a name at its begin stays as it is.
function sentence(text) {
  const begun = /^[a-z]+[\s,]/.test(text) ? text.charAt(0).toUpperCase() + text.slice(1) : text;
  return /[.!?]$/.test(begun) ? begun : `${begun}.`;
}

function listedCause({ cause, likely }, index) {
  return likely[index] ? `Likely: ${CAUSES[causeIndex(likely[index])].title.replace(/^M(?=ember)/, 'm')}` : CAUSES[cause[index]].title;
}

function sameText(a, b) {
  const plain = (text) => text.replace(/[.…\s]+$/, '');
  return plain(a).startsWith(plain(b)) || plain(b).startsWith(plain(a));
}

function settingOf(step, library) {
  return step.setting ?? step.settings[library] ?? null;
}

// Returns a function that tells whether a name matches: it contains the text, or matches it whole if it
// has wildcards.
function nameMatcher(text) {
  const wanted = text.trim().toLowerCase();
  if (!/[*?]/.test(wanted)) return (name) => name.toLowerCase().includes(wanted);
  const pattern = wanted.replace(/[.+^${}()|[\]\\]/g, '\\$&').replace(/\*/g, '.*').replace(/\?/g, '.');
  const expression = new RegExp(`^${pattern}$`, 'su');
  return (name) => expression.test(name.toLowerCase());
}

function rangeText(from, to, { begin, end }) {
  const withSeconds = to - from < 30 * MINUTE;
  const hasDays = wallClock(begin).slice(0, 10) !== wallClock(end - 1).slice(0, 10);
  const day = (time) => (hasDays ? `${wallClock(time).slice(5, 10)} ` : '');
  const last = hasDays && day(from) === day(to) ? '' : day(to);
  return `${day(from)}${formatClock(from, withSeconds)} – ${last}${formatClock(to, withSeconds)} ${timeZone()}`;
}

// Downtime that began or ended in a time range, in partition-milliseconds.
function downtimeBetween({ rebalances, stops }, from, to) {
  let sum = 0;
  for (let index = 0; index < rebalances.count; index++) {
    if (rebalances.at[index] >= from && rebalances.begin[index] <= to) sum += rebalances.downtime[index] || 0;
  }
  for (const stop of stops.withoutRebalance) {
    if (UNCOUNTED.includes(stops.reason[stop]) || stops.until[stop] < from || stops.since[stop] > to) continue;
    sum += (stops.until[stop] - stops.since[stop]) * stops.partitions[stop];
  }
  return sum;
}

// Why the chart of a group has no owners of partitions.
const NO_OWNERS = {
  share: 'Partition owners are not shown: several members of a share group may read the same partition.',
  streams: 'Partition owners are not shown: Kafka Streams assigns tasks, each with partitions of several topics.',
  connect: 'Partition owners are not shown: workers of Kafka Connect run connectors and tasks.',
};

// The members of the last generation, with what was assigned to them, of a group without owners.
function assignmentCard({ group }) {
  const { last_members: members } = group.overview;
  const row = (member) => element('tr', null,
    element('td', null, isolate(member.client_id)), element('td', null, isolate(member.client_host)),
    element('td', null, ...member.assigned.flatMap((word, place) => [place ? ', ' : '', isolate(word)])));
  return element('section', { class: 'card block' },
    element('div', { class: 'block-head' }, element('h2', null, 'Last assignment'), element('span', { class: 'minor' }, known(group.mark, countNoun(members.length, 'member')))),
    element('div', { class: 'table-scroll', tabindex: 0, role: 'region', 'aria-label': 'Last assignment' }, element('table', { class: 'members' },
      element('thead', null, element('tr', null, ...['Client id', 'Host', 'Assigned'].map((title) => element('th', { scope: 'col' }, title)))),
      element('tbody', null, ...members.slice(0, MAX_ASSIGNED_MEMBERS).map(row)))));
}

const MAX_ASSIGNED_MEMBERS = 200;

// Facts beside the name: since when and where the health is bad, members, partitions, strategy.
function headFacts({ group, rebalances, rowNames, topics, begin, end }) {
  const { health } = group;
  const facts = [];
  if (health.health !== 'OK') {
    const since = health.since === null ? '' : `since ${formatMoment(health.since, begin, end, false)}`;
    const where = health.topic === null ? '' : `${visibleName(health.topic)}-${health.partition}`;
    const words = [since, where].filter(Boolean).join(', ');
    if (words) facts.push(known(health.mark ?? group.mark, words, sentence(health.reason)));
    else facts.push([...isolateWords(health.reason)]);
  }
  const last = rebalances.count - 1;
  const { members } = group.overview;
  if (members !== null) facts.push(known(group.mark, countNoun(members, 'member'), 'At the end of the evidence.'));
  if (rowNames.length) {
    const named = topics.slice(0, MAX_LISTED_TOPICS).flatMap((topic, place) => [place ? ', ' : '', isolate(shortened(visibleName(topic), 40))]);
    const more = topics.length - MAX_LISTED_TOPICS;
    facts.push(element('span', null, `${countNoun(rowNames.length, 'partition')} of `, ...named, more > 0 ? ` and ${countNoun(more, 'other topic')}` : ''));
  }
  const protocol = last >= 0 ? rebalances.protocol[last] : null;
  const used = group.used.at(-1);
  // the names of KIP-848's policies have the protocol
  if (used && used !== 'none') facts.push(element('span', null, isolate(used), protocol && protocol !== 'consumer' ? `, ${protocol}` : ''));
  if (group.complete_from !== null && !group.whole) {
    facts.push(known('inferred', `complete from ${formatMoment(group.complete_from, begin, end)}`, 'The first records of this group are missing from the journal.'));
  }
  return facts;
}

function leadParagraph(data) {
  const { group } = data;
  return element('p', { class: 'lead' }, ...richText(group.happened, data), group.to_do ? ' ' : '',
    group.to_do && element('span', { class: 'to-do' }, ...richText(group.to_do, data)));
}

const SETTING = /\b(?:partition\.assignment\.strategy|group\.instance\.id|session\.timeout\.ms|heartbeat\.interval\.ms|max\.poll\.interval\.ms|max\.poll\.records|group\.protocol|group\.remote\.assignor|group\.initial\.rebalance\.delay\.ms|offsets\.retention\.minutes|behavior(?:\.\w+)+)(?:=[^\s;:]*[^\s;:.,)])?/;
const STRATEGY = /cooperative-sticky(?:, static \w+)?|\broundrobin\b|\b(?:Use|keep|Keep|made|and in each) (?:range|sticky)\b|\b(?:range|sticky)(?= revoked)/;
const REPLAYED = /≈\s?[\d.,]+\s(?:ms|s|min|h|d)\b(?:\s\d+\s(?:s|min|h)\b)?/;
const MOMENT = /\d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)?Z/;
const RICH = new RegExp(`(${[SETTING, STRATEGY, REPLAYED, MOMENT].map((each) => each.source).join('|')})`, 'u');

// Splits a text into parts: settings and strategies in a fixed font, replayed numbers marked, times in
// the time zone of the page.
function richText(text, data) {
  return text.split(RICH).flatMap((part, index) => {
    if (index % 2 === 0) return isolateWords(part);
    if (part.startsWith('≈')) return [element('b', null, known('replayed', part.replaceAll(' ', '\u00a0')))];
    if (MOMENT.test(part)) return [momentInText(part, data)];
    const verb = /^(?:Use|keep|Keep|made|and in each) /.exec(part)?.[0] ?? '';
    return [verb, element('code', { class: 'setting' }, part.slice(verb.length))];
  });
}

function momentInText(text, { begin, end }) {
  const time = Date.parse(text.replace(' ', 'T'));
  if (Number.isNaN(time)) return text; // a client id may look like a time
  return element('time', { datetime: new Date(time).toISOString() }, formatMoment(time, begin, end, text.length > 17));
}

// Key figures.
function keyFigures({ group, rebalances, rowNames, begin, end }) {
  const figure = (label, value, detail) => element('div', null, element('div', { class: 'label' }, label), element('b', null, value), detail && element('small', null, ' ', detail));
  const causes = group.known_causes.map(([how, count]) => `${number(count)} ${how}`).join(', ');
  const parts = [figure(knownLabel(group.mark, 'Rebalances', causes && `Causes: ${causes}.`), known(group.mark, number(rebalances.count)))];
  if (group.downtime_ms !== null) {
    const notPolled = group.not_polled_ms ? ` Time without polls, not counted: ${duration(group.not_polled_ms)}.` : '';
    const bounds = downtimeBounds(group.downtime_at_least_ms, group.downtime_at_most_ms) + notPolled;
    const each = group.downtime_ms && rowNames.length ? `${duration(group.downtime_ms / rowNames.length)} per partition` : '';
    parts.push(figure(knownLabel(group.mark, 'Downtime', `Time in which a partition had no consumer, summed over partitions. ${bounds}`.trim()),
      known(group.mark, group.downtime_ms ? duration(group.downtime_ms) : 'none', bounds), each));
  }
  if (group.delayed_records !== null) {
    parts.push(figure(knownLabel('sampled', 'Records delayed', 'Records that arrived while their partition had no consumer.'), known('sampled', number(group.delayed_records))));
  }
  if (group.moved !== null) {
    parts.push(figure(knownLabel(group.mark, 'Moves', 'Partitions that changed their owner while the old owner stayed.'), known(group.mark, number(group.moved)), group.needed === null ? '' : `${number(group.needed)} necessary`));
  }
  if (group.lag) {
    const { most, most_seconds: seconds, most_at: when, most_topic: topic, most_partition: partition, at_least: atLeast } = group.lag;
    const where = element('span', null, isolate(shortened(`${visibleName(topic)}-${partition}`, 40)), ` at ${formatMoment(when, begin, end, false)}`);
    parts.push(figure(knownLabel('sampled', 'Max lag', seconds === null ? 'Records after the committed offset.' : `Age of the oldest uncommitted record; ${countNoun(most, 'record')} behind.`),
      known('sampled', lagText({ seconds, records: most, atLeast })), where));
  }
  return element('div', { class: 'group-figures' }, ...parts);
}

// The policies: a plot of downtime and moves, and a table.
const POLICY_COLUMNS = ['policy', 'isUsed', 'downtime', 'rebalances', 'moved', 'needed', 'revoked', 'idle', 'spread'];

function policyRows({ policies, group }) {
  return policies.map((row) => {
    const policy = Object.fromEntries(POLICY_COLUMNS.map((name, place) => [name, row[place]]));
    return { ...policy, isAdvised: group.verdict === 'change' && policy.policy === group.policy };
  });
}

function policiesCard(data) {
  const rows = policyRows(data).sort((a, b) => a.downtime - b.downtime || a.moved - b.moved);
  const most = Math.max(...rows.map((row) => row.downtime), 1);
  const plot = policyPlot(rows);
  const listed = rows.map((row, index) => {
    const how = row.isUsed ? data.group.mark : 'replayed';
    const value = (text) => known(how, row.isUsed ? text : `≈ ${text}`);
    const tags = [row.isUsed && element('span', { class: 'tag' }, 'in use'), row.isAdvised && element('span', { class: 'tag advised-tag' }, 'recommended')];
    const bar = element('span', { class: 'bar' }, element('i', { style: { width: `${(row.downtime / most) * 100}%` } }));
    const line = element('tr', { class: row.isAdvised ? 'best' : null },
      element('th', { scope: 'row' }, isolate(row.policy), ' ', ...tags.filter(Boolean)),
      element('td', { class: 'number' }, value(row.downtime ? duration(row.downtime) : 'none'), bar),
      ...['moved', 'revoked', 'rebalances', 'idle', 'spread'].map((name, place) => element('td', { class: place > 1 ? 'number extra' : 'number' }, value(number(row[name])))));
    const light = (isOn) => plot.querySelector(`[data-policy="${index}"]`).classList.toggle('lit', isOn);
    line.addEventListener('pointerenter', () => light(true));
    line.addEventListener('pointerleave', () => light(false));
    return line;
  });
  const heads = [
    ['Policy', ''], ['Downtime', 'number'], ['Moves', 'number'], ['Revoked', 'number'], ['Rebalances', 'number extra'],
    [knownLabel('replayed', 'Idle', 'Members without a partition, summed over the rebalances.'), 'number extra'],
    [knownLabel('replayed', 'Spread', 'Largest minus smallest number of partitions of a member, summed over the rebalances.'), 'number extra']];
  return element('section', { class: 'card block', 'aria-labelledby': 'policies-title' },
    element('div', { class: 'block-head' }, element('h2', { id: 'policies-title' }, 'Policies compared'),
      element('span', { class: 'minor' }, knownLabel('replayed', 'Replayed'), ' over the same membership changes. In the chart, the lower left is better.')),
    element('div', { class: 'policies' }, plot,
      element('div', { class: 'sideways', tabindex: '0', role: 'region', 'aria-label': 'Table of policies' }, element('table', { id: 'policies' },
        element('thead', null, element('tr', null, ...heads.map(([title, name]) => element('th', { scope: 'col', class: name || null }, title)))),
        element('tbody', null, ...listed)))));
}

function policyPlot(rows) {
  const [width, height, left, right, top, bottom] = [340, 236, 46, 14, 16, 34];
  const [mostDown, mostMoved] = [Math.max(...rows.map((row) => row.downtime), 10 * SECOND) * 1.08, Math.max(...rows.map((row) => row.moved), 4) * 1.1];
  const x = (value) => left + (value / mostDown) * (width - left - right);
  const y = (value) => height - bottom - (value / mostMoved) * (height - top - bottom);
  const plot = svgElement('svg', { viewBox: `0 0 ${width} ${height}`, class: 'policy-plot', role: 'img', 'aria-label': 'Policies by downtime and moves; the table has the numbers.' });
  const text = (string, attributes) => svgElement('text', attributes, string);
  const downStep = lagStep(mostDown / SECOND, true) * SECOND;
  for (let value = 0; value <= mostDown; value += downStep) {
    plot.append(svgElement('path', { class: 'grid', d: `M${x(value)} ${top}V${height - bottom}` }),
      text(value ? duration(value).replace('.0', '') : '0', { x: x(value), y: height - bottom + 15, 'text-anchor': value ? (x(value) > width - 34 ? 'end' : 'middle') : 'start' }));
  }
  const movedStep = Math.max(lagStep(mostMoved, false), 1);
  for (let value = 0; value <= mostMoved; value += movedStep) {
    plot.append(svgElement('path', { class: 'grid', d: `M${left} ${y(value)}H${width - right}` }), text(number(value), { x: left - 6, y: y(value) + 4, 'text-anchor': 'end' }));
  }
  const used = [];
  const order = rows.map((row, index) => [row, index]).sort(([a], [b]) => a.isAdvised - b.isAdvised || a.isUsed - b.isUsed);
  for (const [row, index] of order) {
    const kind = row.isAdvised ? 'best' : row.isUsed ? 'used' : 'other';
    const dot = /KIP-848/.test(row.policy)
      ? svgElement('rect', { x: x(row.downtime) - 4, y: y(row.moved) - 4, width: 8, height: 8 })
      : svgElement('circle', { cx: x(row.downtime), cy: y(row.moved), r: kind === 'other' ? 4.5 : 6 });
    dot.setAttribute('class', `dot ${kind}`);
    dot.dataset.policy = index;
    dot.dataset.tip = `${row.policy}: ${row.isUsed ? '' : '≈ '}${duration(row.downtime)} of downtime, ${number(row.moved)} moves`;
    plot.append(dot);
    if (kind !== 'other') plot.append(plotLabel(row, x(row.downtime), y(row.moved), { width, top, used, kind }));
  }
  plot.append(text('Downtime →', { x: width - right, y: height - 3, 'text-anchor': 'end', class: 'axis' }), text('↑ Moves', { x: 2, y: 9, class: 'axis' }));
  return plot;
}

function plotLabel(row, x, y, { width, top, used, kind }) {
  const isRight = x > width * 0.55;
  let line = y - 11 < top + 10 ? y + 20 : y - 11;
  while (used.some((other) => Math.abs(other - line) < 13)) line -= 14;
  used.push(line);
  return svgElement('text', { x: isRight ? x + 6 : x - 6, y: line, 'text-anchor': isRight ? 'end' : 'start', class: `name ${kind}` },
    `${shortened(row.policy, 34)}${row.isUsed ? ' (now)' : ''}`);
}

// The members.
function membersCard(data) {
  const seen = new Set();
  const members = [...data.members].sort((a, b) => a.first - b.first).filter((member) => !seen.has(member.id) && seen.add(member.id));
  const columns = [['Client id', 'client'], ['Host', 'host'], ['group.instance.id', 'static'], ['First seen', 'time'], ['Member id', 'id']];
  const table = new VirtualTable({
    id: 'members', label: 'Members', columns,
    row: (place) => {
      const { client, host, staticId, id, slot, first } = members[place];
      const cell = (value, name) => element('td', { class: name }, value === null || value === undefined ? element('span', { class: 'minor' }, '–') : isolate(visibleName(value)));
      return element('tr', { 'data-key': place, 'aria-rowindex': place + 2 },
        element('td', { class: 'client' }, element('i', { class: 'swatch', style: { background: memberCss(slot) } }), isolate(visibleName(client ?? '–'))),
        cell(host, 'host'), cell(staticId, 'static'),
        element('td', { class: 'time' }, Number.isFinite(first) ? formatMoment(first, data.begin, data.end) : '–'), cell(id, 'id'));
    },
    keyOf: (place) => place,
  });
  table.setCount(members.length);
  return element('details', { class: 'card block', ontoggle: () => table.render() },
    element('summary', null, element('h2', null, 'Members'), element('span', { class: 'minor' }, known(data.group.mark, number(members.length)), ' in the evidence')), table.box);
}

// A table that has only the rows in view, so that ten thousand rows scroll smoothly.
class VirtualTable {
  constructor({ id, label, columns, row, keyOf, onHover, onOpen }) {
    Object.assign(this, { row, keyOf, onHover, onOpen, count: 0, first: -1, marked: null });
    this.body = element('tbody');
    this.table = element('table', { id, class: 'virtual', 'aria-label': label },
      element('thead', null, element('tr', { 'aria-rowindex': 1 }, ...columns.map(([title, name]) => element('th', { scope: 'col', class: name }, title)))), this.body);
    this.box = element('div', { class: 'virtual-box', tabindex: '0', role: 'region', 'aria-label': `Table of ${label.toLowerCase()}` }, this.table);
    this.box.addEventListener('scroll', () => this.renderIfMoved(), { passive: true });
    if (!onOpen) return;
    const keyAt = (event) => { const line = event.target.closest('tr[data-key]'); return line ? Number(line.dataset.key) : null; };
    this.body.addEventListener('click', (event) => { if (keyAt(event) !== null && !getSelection().toString()) onOpen(keyAt(event)); });
    this.body.addEventListener('pointerover', (event) => { if (event.pointerType !== 'touch') onHover(keyAt(event)); });
    this.body.addEventListener('pointerleave', () => onHover(null));
  }

  setCount(count) {
    this.count = count;
    this.table.setAttribute('aria-rowcount', count + 1);
    this.box.style.height = `${Math.min(MAX_TABLE_HEIGHT, count * ROW_HEIGHT + ROW_HEIGHT)}px`;
    this.box.scrollTop = 0;
    this.render();
  }

  firstInView() {
    return Math.max(Math.floor(this.box.scrollTop / ROW_HEIGHT) - EXTRA_ROWS, 0);
  }

  renderIfMoved() {
    if (Math.abs(this.firstInView() - this.first) >= EXTRA_ROWS / 2) this.render();
  }

  render() {
    const inView = Math.ceil(MAX_TABLE_HEIGHT / ROW_HEIGHT) + 2 * EXTRA_ROWS;
    this.first = Math.max(Math.min(this.firstInView(), this.count - inView), 0);
    this.renderRows(this.first, Math.min(this.first + inView, this.count));
  }

  renderAll() {
    this.renderRows(0, Math.min(this.count, MAX_PRINTED_ROWS));
  }

  renderRows(begin, end) {
    const focused = document.activeElement?.closest?.('tr[data-key]')?.dataset.key;
    const space = (rows) => (rows > 0 ? [element('tr', { class: 'space', 'aria-hidden': 'true', style: { height: `${rows * ROW_HEIGHT}px` } })] : []);
    const rows = [];
    for (let place = begin; place < end; place++) rows.push(this.row(place));
    const hadFocus = this.body.contains(document.activeElement);
    this.body.replaceChildren(...space(begin), ...rows, ...space(this.count - end));
    this.mark(this.marked);
    if (hadFocus) this.body.querySelector(`[data-key="${focused}"] button`)?.focus({ preventScroll: true });
  }

  // Marks the row of a key, that the pointer is at in the chart.
  mark(key) {
    this.marked = key;
    this.body.querySelector('.marked')?.classList.remove('marked');
    if (key !== null) this.body.querySelector(`[data-key="${key}"]`)?.classList.add('marked');
  }

  // Scrolls to the row at a place, and shows which key is selected.
  select(key, place) {
    if (place >= 0) {
      const [top, bottom] = [place * ROW_HEIGHT, (place + 2) * ROW_HEIGHT];
      if (top < this.box.scrollTop || bottom > this.box.scrollTop + this.box.clientHeight) this.box.scrollTop = Math.max(top - 3 * ROW_HEIGHT, 0);
    }
    this.render();
  }
}
