// Charts over time: the partitions that each rebalance moved, beside the fewest moves; and lag.
const HEIGHT = 170;

class MovesChart extends Plot {
  constructor(canvas, view, rebalances) {
    super(canvas, view);
    this.rebalances = rebalances;
  }

  get tall() {
    return HEIGHT;
  }

  // A bar for each rebalance, and a tick at the fewest; of those that share a bar the largest.
  paint(ink) {
    const { moved, needed } = this.rebalances;
    const bars = columnsOf(this, this.rebalances).map(({ x, first, end }) => {
      let most = first;
      for (let place = first; place < end; place++) if ((moved[place] || 0) > (moved[most] || 0)) most = place;
      return { x, moved: moved[most] || 0, needed: needed[most] || 0 };
    });
    this.draw((context) => {
      const most = Math.max(1, ...bars.map((bar) => Math.max(bar.moved, bar.needed)));
      const y = this.amountAxis(context, ink, most, number);
      const width = Math.max(Math.min(...bars.slice(1).map((bar, place) => bar.x - bars[place].x - 1), 7), 1);
      for (const bar of bars) {
        const left = Math.min(Math.max(bar.x - width / 2, this.left), this.right - width);
        context.fillStyle = ink.bar;
        context.fillRect(left, y(bar.moved), width, this.bottom - y(bar.moved));
        context.fillStyle = ink.need;
        context.fillRect(left - 1, y(bar.needed) - 1.5, width + 2, 3);
      }
      this.timeAxis(context, ink);
    });
  }

  point(cursor, ink) {
    pointOver(this, cursor, ink);
  }
}

class LagChart extends Plot {
  constructor(canvas, view, lag, say, steps) {
    super(canvas, view);
    Object.assign(this, { lag, say, steps });
  }

  get tall() {
    return HEIGHT;
  }

  paint(ink) {
    const { at: times, step, amounts } = this.lag;
    const first = Math.max(placeOf(times, this.view.from) - 1, 0);
    const end = Math.min(placeOf(times, this.view.to) + 1, times.length);
    const most = Math.max(0, ...amounts.slice(first, end));
    this.draw((context) => {
      const y = this.amountAxis(context, ink, most || 1, this.say, this.steps);
      context.save();
      context.beginPath();
      context.rect(this.left, this.top, this.right - this.left, this.bottom - this.top);
      context.clip();
      context.fillStyle = ink.accent;
      for (let place = first; place < end; place++) {
        const left = this.x(times[place]);
        const width = Math.max(this.x(times[place] + step) - left, 1.5);
        context.fillRect(left, y(amounts[place]) - 1, width, this.bottom - y(amounts[place]) + 1);
      }
      context.restore();
      this.timeAxis(context, ink);
    });
  }

  point(cursor, ink) {
    pointOver(this, cursor, ink);
  }

  // The amount at a time, in words; null where none is known.
  saidAt(time) {
    const { at: times, step, amounts, atLeast } = this.lag;
    const place = placeOf(times, time + INSTANT) - 1;
    if (place < 0 || time >= times[place] + step) return null;
    return `${atLeast[place] ? 'at least' : 'up to'} ${this.say(amounts[place])}`;
  }
}

function pointOver(plot, cursor, ink) {
  plot.over(isNowhere(cursor) ? null : (context) => {
    context.strokeStyle = ink.text;
    context.lineWidth = 1;
    pointTime(plot, context, cursor);
  });
}
