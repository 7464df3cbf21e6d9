// Buttons, keys and the mouse on a group's charts.
const CLOSER = 0.5, FARTHER = 2, ASIDE = 0.25;
const DRAGGED = 4;
const CHOOSING = new Set(['ArrowUp', 'ArrowDown', 'Escape']);
const HINT = 'Point at a chart to see the owner of a partition at that time, and the cause of a rebalance.';

function controls({ view, cursor, again, say, was, would }) {
  const zoomed = (factor) => view.zoom(factor, cursor.time === null ? undefined : within(cursor.time));
  const within = (time) => (time >= view.from && time <= view.to ? time : (view.from + view.to) / 2);
  at('zoom-in').onclick = () => zoomed(CLOSER);
  at('zoom-out').onclick = () => zoomed(FARTHER);
  at('earlier').onclick = () => view.move(-ASIDE);
  at('later').onclick = () => view.move(ASIDE);
  at('zoom-all').onclick = () => view.all();

  const keys = {
    '+': () => zoomed(CLOSER),
    '=': () => zoomed(CLOSER),
    '-': () => zoomed(FARTHER),
    0: () => view.all(),
    ArrowLeft: () => view.move(-ASIDE),
    ArrowRight: () => view.move(ASIDE),
    ArrowUp: (plot) => nextRow(plot, -1),
    ArrowDown: (plot) => nextRow(plot, 1),
    Escape: () => clear(),
  };

  function clear() {
    Object.assign(cursor, { time: null, row: null, chosen: null, exact: null });
    at('tip').textContent = HINT;
    again(false);
  }

  function nextRow(plot, by) {
    if (cursor.time === null || cursor.time < view.from || cursor.time > view.to) {
      cursor.time = (view.from + view.to) / 2;
    }
    const row = cursor.row === null ? (by > 0 ? was.begin : was.end - 1) : cursor.row + by;
    cursor.row = Math.min(Math.max(row, was.begin), was.end - 1);
    cursor.exact = null;
    say(plot);
    again(false);
  }

  function nextRebalance(plot, by) {
    const { at: times } = plot === would ? would.rebalances : was.rebalances;
    if (!times.length) return;
    const time = cursor.time === null ? (by > 0 ? view.from - 1 : view.to + 1) : cursor.time;
    const beside = by > 0 ? placeOf(times, time + 0.5) : placeOf(times, time - 0.5) - 1;
    const from = cursor.exact && cursor.exact.plot === plot ? cursor.exact.place + by : beside;
    const place = Math.min(Math.max(from, 0), times.length - 1);
    Object.assign(cursor, { time: times[place], row: null, exact: { plot, place } });
    view.include(cursor.time);
    say(plot);
    again(false);
  }

  function pressed(plot, event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const turn = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const isStep = event.shiftKey && turn;
    if (isStep) nextRebalance(plot, turn);
    else if (keys[event.key]) keys[event.key](plot);
    else return;
    event.preventDefault();
    at('told').textContent = at(isStep || CHOOSING.has(event.key) ? 'tip' : 'shown').textContent;
  }

  function follow(plot, event) {
    cursor.time = plot.time(event.offsetX);
    cursor.exact = null;
    cursor.row = plot.rowAt ? plot.rowAt(event.offsetY) : null;
    say(plot);
    again(false);
  }

  // A drag chooses a time to zoom to; with Shift it moves the time.
  function dragged(plot, event) {
    if (event.button !== 0) return;
    const from = { x: event.offsetX, time: plot.time(event.offsetX), begin: view.from, moves: event.shiftKey };
    plot.canvas.setPointerCapture(event.pointerId);
    plot.drag = from;
  }

  function moved(plot, event) {
    const { drag } = plot;
    if (!drag) return follow(plot, event);
    if (drag.moves) {
      const share = (event.offsetX - drag.x) / (plot.right - plot.left);
      return view.show(drag.begin - share * view.width, view.width);
    }
    cursor.chosen = [drag.time, plot.time(event.offsetX)];
    at('tip').textContent = stretch(Math.min(...cursor.chosen), Math.max(...cursor.chosen));
    return again(false);
  }

  function dropped(plot, event) {
    const { drag } = plot;
    plot.drag = null;
    if (!drag || drag.moves || !cursor.chosen) return;
    const [from, to] = [...cursor.chosen].sort((one, other) => one - other);
    cursor.chosen = null;
    if (event.type === 'pointerup' && Math.abs(event.offsetX - drag.x) > DRAGGED) view.show(from, to - from);
    again(false);
  }

  // The wheel alone is the page's, and scrolls it.
  function wheeled(plot, event) {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    if (event.deltaY !== 0) view.zoom(event.deltaY > 0 ? 1.25 : 0.8, plot.time(event.offsetX));
  }

  return (plot) => {
    const { canvas } = plot;
    canvas.onkeydown = (event) => pressed(plot, event);
    canvas.onpointermove = (event) => moved(plot, event);
    canvas.onpointerdown = (event) => dragged(plot, event);
    canvas.onpointerup = (event) => dropped(plot, event);
    canvas.onpointercancel = (event) => dropped(plot, event);
    canvas.onpointerleave = () => { if (!plot.drag) clear(); };
    canvas.onwheel = (event) => wheeled(plot, event);
  };
}
