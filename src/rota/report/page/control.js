// Buttons, keys and the mouse on a group's charts.
const ZOOM_IN = 0.5, ZOOM_OUT = 2, PAN_STEP = 0.25;
const MIN_DRAG_PIXELS = 4;
const CURSOR_KEYS = new Set(['ArrowUp', 'ArrowDown', 'Escape']);
const HINT = 'Point at a chart to see the owner of a partition at that time, and the cause of a rebalance.';

function controls({ view, cursor, scheduleRepaint, showTip, actual, replayedChart }) {
  const zoomAtCursor = (factor) => view.zoom(factor, cursor.time === null ? undefined : clampToView(cursor.time));
  const clampToView = (time) => (time >= view.from && time <= view.to ? time : (view.from + view.to) / 2);
  at('zoom-in').onclick = () => zoomAtCursor(ZOOM_IN);
  at('zoom-out').onclick = () => zoomAtCursor(ZOOM_OUT);
  at('earlier').onclick = () => view.move(-PAN_STEP);
  at('later').onclick = () => view.move(PAN_STEP);
  at('zoom-all').onclick = () => view.all();

  const keys = {
    '+': () => zoomAtCursor(ZOOM_IN),
    '=': () => zoomAtCursor(ZOOM_IN),
    '-': () => zoomAtCursor(ZOOM_OUT),
    0: () => view.all(),
    ArrowLeft: () => view.move(-PAN_STEP),
    ArrowRight: () => view.move(PAN_STEP),
    ArrowUp: (plot) => nextRow(plot, -1),
    ArrowDown: (plot) => nextRow(plot, 1),
    Escape: () => clear(),
  };

  function clear() {
    Object.assign(cursor, { time: null, row: null, dragRange: null, selected: null });
    at('tip').textContent = HINT;
    scheduleRepaint(false);
  }

  function nextRow(plot, by) {
    if (cursor.time === null || cursor.time < view.from || cursor.time > view.to) {
      cursor.time = (view.from + view.to) / 2;
    }
    const row = cursor.row === null ? (by > 0 ? actual.begin : actual.end - 1) : cursor.row + by;
    cursor.row = Math.min(Math.max(row, actual.begin), actual.end - 1);
    cursor.selected = null;
    showTip(plot);
    scheduleRepaint(false);
  }

  function nextRebalance(plot, by) {
    const { at: times } = plot === replayedChart ? replayedChart.rebalances : actual.rebalances;
    if (!times.length) return;
    const time = cursor.time === null ? (by > 0 ? view.from - 1 : view.to + 1) : cursor.time;
    const beside = by > 0 ? lowerBound(times, time + 0.5) : lowerBound(times, time - 0.5) - 1;
    const from = cursor.selected && cursor.selected.plot === plot ? cursor.selected.index + by : beside;
    const index = Math.min(Math.max(from, 0), times.length - 1);
    Object.assign(cursor, { time: times[index], row: null, selected: { plot, index } });
    view.include(cursor.time);
    showTip(plot);
    scheduleRepaint(false);
  }

  function onKeyDown(plot, event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const direction = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const isStep = event.shiftKey && direction;
    if (isStep) nextRebalance(plot, direction);
    else if (keys[event.key]) keys[event.key](plot);
    else return;
    event.preventDefault();
    at('told').textContent = at(isStep || CURSOR_KEYS.has(event.key) ? 'tip' : 'shown').textContent;
  }

  function onHover(plot, event) {
    cursor.time = plot.time(event.offsetX);
    cursor.selected = null;
    cursor.row = plot.rowAt ? plot.rowAt(event.offsetY) : null;
    showTip(plot);
    scheduleRepaint(false);
  }

  // Dragging selects a time range to zoom to; with Shift it moves the shown time range.
  function onPointerDown(plot, event) {
    if (event.button !== 0) return;
    const from = { x: event.offsetX, time: plot.time(event.offsetX), begin: view.from, moves: event.shiftKey };
    plot.canvas.setPointerCapture(event.pointerId);
    plot.drag = from;
  }

  function onPointerMove(plot, event) {
    const { drag } = plot;
    if (!drag) return onHover(plot, event);
    if (drag.moves) {
      const share = (event.offsetX - drag.x) / (plot.right - plot.left);
      return view.show(drag.begin - share * view.width, view.width);
    }
    cursor.dragRange = [drag.time, plot.time(event.offsetX)];
    at('tip').textContent = formatTimeRange(Math.min(...cursor.dragRange), Math.max(...cursor.dragRange));
    return scheduleRepaint(false);
  }

  function onPointerUp(plot, event) {
    const { drag } = plot;
    plot.drag = null;
    if (!drag || drag.moves || !cursor.dragRange) return;
    const [from, to] = [...cursor.dragRange].sort((a, b) => a - b);
    cursor.dragRange = null;
    if (event.type === 'pointerup' && Math.abs(event.offsetX - drag.x) > MIN_DRAG_PIXELS) view.show(from, to - from);
    scheduleRepaint(false);
  }

  // Without Ctrl or ⌘ the wheel scrolls the page.
  function onWheel(plot, event) {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    if (event.deltaY !== 0) view.zoom(event.deltaY > 0 ? 1.25 : 0.8, plot.time(event.offsetX));
  }

  return (plot) => {
    const { canvas } = plot;
    canvas.onkeydown = (event) => onKeyDown(plot, event);
    canvas.onpointermove = (event) => onPointerMove(plot, event);
    canvas.onpointerdown = (event) => onPointerDown(plot, event);
    canvas.onpointerup = (event) => onPointerUp(plot, event);
    canvas.onpointercancel = (event) => onPointerUp(plot, event);
    canvas.onpointerleave = () => { if (!plot.drag) clear(); };
    canvas.onwheel = (event) => onWheel(plot, event);
  };
}
