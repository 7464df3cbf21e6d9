"""What is known of a partition that is read."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from rota.client.offset import LATEST
from rota.model.offset import NO_EPOCH
from rota.model.topic import TopicPartition

NO_TICKET = 0


class Stage(enum.Enum):
    """How far a partition is on the way to its records."""

    COMMITTED = "committed"
    """It asks for the group's committed offset."""
    RESET = "reset"
    """It asks its leader for the first, the last or a time's offset."""
    VALIDATION = "validation"
    """It asks whether the leader's log still is what was read so far (KIP-320)."""
    READING = "reading"
    FAILED = "failed"
    """Nobody says where to read on."""


MOVES: Mapping[Stage, frozenset[Stage]] = {
    Stage.COMMITTED: frozenset(Stage) - {Stage.COMMITTED},
    Stage.RESET: frozenset(Stage) - {Stage.COMMITTED, Stage.FAILED},
    Stage.VALIDATION: frozenset(Stage) - {Stage.COMMITTED},
    Stage.READING: frozenset(Stage) - {Stage.COMMITTED},
    Stage.FAILED: frozenset({Stage.READING, Stage.VALIDATION, Stage.RESET}),
}
"""A seek leads from everywhere to all but COMMITTED and FAILED."""


class Position(NamedTuple):
    """The offset to read next, and the leader's epoch of the record before it, if known."""

    offset: int
    epoch: int | None = None


class Leader(NamedTuple):
    """Who leads a partition."""

    node: int
    epoch: int = NO_EPOCH


class Ticket(NamedTuple):
    """A question about a partition; its answer is only good with it."""

    partition: TopicPartition
    number: int


class Want(NamedTuple):
    """A partition to fetch."""

    ticket: Ticket
    offset: int
    leader_epoch: int


class Reach(NamedTuple):
    """How far the whole batches of an answer go."""

    position: Position
    sound: bool = True
    """Nothing behind them is damaged: it makes sense to fetch on from there."""


@dataclass(slots=True)
class Entry:
    """What is known of one partition."""

    partition: TopicPartition
    stamp: int
    """Of what waits: all that has another one is of the past."""
    turn: int
    """They are asked for in this order: who got something goes to the end."""
    stage: Stage = Stage.COMMITTED
    handed: Position | None = None
    ahead: Position | None = None
    target: int = LATEST
    """In RESET, what to look for."""
    asks_end: bool = False
    """In RESET by time: no record is as young, so look for the log's end."""
    end: int | None = None
    """That end: to be read from if a second look for the time finds nothing either."""
    ticket: int = NO_TICKET
    """Of the question under way."""
    leader: Leader | None = None
    replica: int | None = None
    """Where the leader wants this client to read instead (KIP-392)."""
    lease: float = 0.0
    """Until when."""
    paused: bool = False
    withheld: bool = False
    stumbled: bool = False
    """Its next record cannot be read; it waits for the application."""
    buffered: int = 0
    """Bytes that wait to be handed out."""
    resting: int = 0
    """Those of them that are not to be handed out now, as they were last counted."""
    drains_first: bool = False
    """What comes next is trouble: the records before it are to be handed out first."""
    failures: int = 0
    retry_at: float = 0.0
    high_watermark: int | None = None
    last_stable: int | None = None
    log_start: int | None = None

    @property
    def gives(self) -> bool:
        """Its records may be handed out."""
        return self.stage is Stage.READING and not self.paused and not self.withheld

    def has_room(self, limit: int) -> bool:
        """More may be fetched of it: not more bytes than that wait already."""
        return self.buffered <= limit and not (self.drains_first and self.buffered)

    @property
    def checkable(self) -> bool:
        """Both epochs are known that a validation needs."""
        leader, position = self.leader, self.ahead
        if leader is None or position is None:
            return False
        return position.epoch is not None and leader.epoch != NO_EPOCH
