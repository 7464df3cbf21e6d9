"""What the gold tables tell, in the order in which a person wants to know it."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Mark(enum.StrEnum):
    """How a number is known."""

    STATED = "stated"
    """The broker's log says so."""
    INFERRED = "inferred"
    """It follows from the journal."""
    SAMPLED = "sampled"
    """It was asked for from outside, now and then."""
    REPLAYED = "replayed"
    """It did not happen: the same history under another policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How far behind a group was; always sampled."""

    most: int
    """The most records that a partition was behind."""
    most_seconds: float | None
    """The oldest that a record was that was still to be read."""
    most_at: int
    """When that was, in milliseconds since 1970; and where."""
    most_topic: str
    most_partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group: the columns of gold/advice, and what else is told of it in one place."""

    name: str
    verdict: str
    policy: str
    policy_used: str
    damage: float
    rebalances: int
    rebalances_after: int
    moved: int | None
    moved_after: int | None
    moved_min: int | None
    stopped: int | None
    stopped_after: int | None
    libraries: tuple[str, ...]
    headline: str
    steps: tuple[str, ...]
    mark: Mark
    """Of the counts of what happened: inferred from the journal, or sampled."""
    causes: tuple[tuple[str, Mark, int], ...]
    """Cause, how it is known, how many rebalances; most first."""
    lag: Lag | None
    status: str | None
    """Burrow's verdict on the group at the end of the evidence."""
    complete_from: int | None
    """From when on its records are all there; None: not known."""
    whole: bool
    """Its first record is there."""

    @property
    def first_line(self) -> str:
        """What happened, what was needless, what it cost, what to change, for whom it works."""
        raise NotImplementedError
