// Two charts over time: moved partitions and necessary moves of each rebalance; and lag.
class MovesChart extends Plot {
  constructor(canvas, view, rebalances) {
    super(canvas, view);
    this.rebalances = rebalances;
  }

  // Draws a bar for each rebalance and a tick for its necessary moves. If several rebalances share a
  // bar, it shows the one with the most moves.
  paint(theme) {
    const { moved, needed } = this.rebalances;
    const bars = columnsOf(this, this.rebalances).map(({ x, first, end }) => {
      let most = first;
      for (let index = first; index < end; index++) if ((moved[index] || 0) > (moved[most] || 0)) most = index;
      return { x, moved: moved[most] || 0, needed: needed[most] || 0 };
    });
    this.draw((context) => {
      const most = Math.max(1, ...bars.map((bar) => Math.max(bar.moved, bar.needed)));
      const y = this.amountAxis(context, theme, most, number);
      const width = Math.max(Math.min(...bars.slice(1).map((bar, index) => bar.x - bars[index].x - 1), 7), 1);
      for (const bar of bars) {
        const left = Math.min(Math.max(bar.x - width / 2, this.left), this.right - width);
        context.fillStyle = theme.bar;
        context.fillRect(left, y(bar.moved), width, this.bottom - y(bar.moved));
        context.fillStyle = theme.need;
        context.fillRect(left - 1, y(bar.needed) - 1.5, width + 2, 3);
      }
      this.timeAxis(context, theme);
    });
  }
}

class LagChart extends Plot {
  constructor(canvas, view, lag, formatAmount, steps) {
    super(canvas, view);
    Object.assign(this, { lag, formatAmount, steps });
  }

  paint(theme) {
    const { at: times, step, amounts } = this.lag;
    const first = Math.max(lowerBound(times, this.view.from) - 1, 0);
    const end = Math.min(lowerBound(times, this.view.to) + 1, times.length);
    const most = Math.max(0, ...amounts.slice(first, end));
    this.draw((context) => {
      const y = this.amountAxis(context, theme, most || 1, this.formatAmount, this.steps);
      context.save();
      context.beginPath();
      context.rect(this.left, this.top, this.right - this.left, this.bottom - this.top);
      context.clip();
      context.fillStyle = theme.accent;
      for (let index = first; index < end; index++) {
        const left = this.x(times[index]);
        const width = Math.max(this.x(times[index] + step) - left, 1.5);
        context.fillRect(left, y(amounts[index]) - 1, width, this.bottom - y(amounts[index]) + 1);
      }
      context.restore();
      this.timeAxis(context, theme);
    });
  }

  // Returns the lag at a time as text; null if it is unknown.
  textAt(time) {
    const { at: times, step, amounts, atLeast } = this.lag;
    const index = lowerBound(times, time + TIME_EPSILON) - 1;
    if (index < 0 || time >= times[index] + step) return null;
    return `${atLeast[index] ? 'at least' : 'up to'} ${this.formatAmount(amounts[index])}`;
  }
}
