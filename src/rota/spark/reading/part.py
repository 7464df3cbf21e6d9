"""A range on its way: how far it was read, and what is in its way."""

from __future__ import annotations

from dataclasses import dataclass

from rota.model.topic import TopicPartition


@dataclass(slots=True, eq=False)
class Part:
    """A range of which not all is read. Times are by the clock that counts waiting only."""

    partition: TopicPartition
    position: int
    until: int
    node: int | None = None
    """Whom to ask: the leader, or the follower that it has named (KIP-392)."""
    replica: int | None = None
    """That follower."""
    leader_only: bool = False
    """A follower did not do: nobody is to name one again."""
    alone: bool = False
    """To be asked for alone: in an answer with others there was no room for it."""
    empty: int = 0
    """Answers in a row that had nothing, though nothing else was asked for."""
    readable: int = 0
    """What all of these answers have said to be readable: offsets before this."""
    stale: bool = False
    """Not to be asked for before it is known who leads now."""
    unknown: float | None = None
    """Since when brokers say that there is no such partition."""
    waiting: float | None = None
    """Since when it is asked for without progress."""
    failures: int = 0
    """In a row."""
    ready: float = 0.0
    """When it may be asked for again."""
    trouble: str = ""
    """What came of the last try."""

    @property
    def left(self) -> int:
        """How many offsets."""
        return self.until - self.position

    def move(self, position: int) -> None:
        """It was read up to here."""
        self.position = position
        self.empty, self.failures, self.alone = 0, 0, False
        self.waiting = self.unknown = None
        self.trouble = ""
