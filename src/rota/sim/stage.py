"""What all parts of a world share: its clock, its nature, and the record of what happened."""

from __future__ import annotations

from rota.sim.agenda import Agenda
from rota.sim.network import Nature
from rota.sim.trace import Record, What


class Stage:
    """Where a world plays."""

    __slots__ = ("agenda", "longest_period", "nature", "trace")

    def __init__(self, nature: Nature) -> None:
        self.agenda = Agenda()
        self.nature = nature
        self.trace: list[Record] = []
        self.longest_period = 0
        """The longest heartbeat interval, or work between two polls, of any process so far."""

    @property
    def now(self) -> int:
        """The time, in milliseconds."""
        return self.agenda.now

    @property
    def window(self) -> int:
        """Within this time every process that lives has sent a heartbeat, got its answer, and
        polled, if nothing is wrong.
        """
        return self.longest_period + 2 * self.nature.slowest + 1

    def tell(self, what: What, who: str, detail: object = None, *, news: bool = True) -> None:
        """Records what happened; ``news`` is false for what recurs while nothing else happens."""
        if news:
            self.agenda.news_at = self.agenda.now
        self.trace.append(Record(self.agenda.now, what, who, detail))

    def mark_news(self) -> None:
        """Something happened that is not worth a record, but does not recur by itself."""
        self.agenda.news_at = self.agenda.now

    def expect_period(self, period: int) -> None:
        """A process does something every so many milliseconds."""
        self.longest_period = max(self.longest_period, period)
