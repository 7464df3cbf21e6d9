"""What the gold tables tell, in the order in which a person wants to know it."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

import pyarrow as pa
from pyarrow import compute

from rota.replay.advice import CHANGE, KEEP
from rota.replay.dialect import LIBRARIES, UNKNOWN
from rota.replay.policy import THEN
from rota.report import between, evidence, lag
from rota.report.evidence import Evidence
from rota.report.gold import Gold, milliseconds
from rota.report.lag import Lag
from rota.report.moment import moment, span

__all__ = ["CHANGE", "KEEP", "Causes", "Evidence", "Group", "Lag", "Mark", "Story", "tell"]

NOTABLE_SECONDS = 10.0
"""A lag that is worth a sentence; clients commit every few seconds, and are so far behind then."""
NOTABLE_RECORDS = 1_000
"""The same where no ages of records are known."""


class Mark(enum.StrEnum):
    """How a number is known."""

    STATED = "stated"
    """The broker's log says so, or an entry of the journal itself."""
    INFERRED = "inferred"
    """It follows from the journal."""
    SAMPLED = "sampled"
    """It was asked for from outside, now and then."""
    REPLAYED = "replayed"
    """It did not happen: the same history under another policy."""


Causes: TypeAlias = tuple[tuple[str, Mark, int], ...]
"""Cause, how it is known, how many rebalances; most first."""
HAPPENED = ("damage", "rebalances", "moved", "moved_min", "stopped")
"""Counts of what happened to a group; and of what would have happened under the best policy."""
WOULD_HAPPEN = ("rebalances_after", "moved_after", "stopped_after")


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
    causes: Causes
    lag: Lag | None
    status: str | None
    """Burrow's verdict on the group at the end of the evidence."""
    complete_from: int | None
    """From when on its records are all there; None: not known."""
    whole: bool
    """Its first record is there."""

    @property
    def policies_used(self) -> tuple[str, ...]:
        """The policies that were in use, one after the other; the last of them is in use now."""
        return tuple(self.policy_used.split(THEN))

    @property
    def used(self) -> str:
        """The same, as people read it: ``range → cooperative-sticky``."""
        return " → ".join(self.policies_used)

    @property
    def known_causes(self) -> dict[Mark, int]:
        """How the causes are known: of how many rebalances in which way."""
        found: dict[Mark, int] = {}
        for _, how, number in self.causes:
            found[how] = found.get(how, 0) + number
        return found

    @property
    def marks(self) -> dict[str, Any]:
        """How each of its numbers is known, by the number's name; None: it is not known.

        Those of causes are in their order, each for how many rebalances had that cause. A group
        that keeps its policy would have had what it had.
        """
        would = Mark.REPLAYED if self.verdict == CHANGE else self.mark
        counts = dict.fromkeys(HAPPENED, self.mark) | dict.fromkeys(WOULD_HAPPEN, would)
        return {
            **{name: None if getattr(self, name) is None else counts[name] for name in counts},
            "causes": [how for _, how, _ in self.causes],
            "lag": None if self.lag is None else Mark.SAMPLED,
            "status": None if self.status is None else Mark.SAMPLED,
        }

    @property
    def first_line(self) -> str:
        """What happened, what was needless, what it cost, what to change, for whom it works."""
        return " ".join(filter(None, (self.headline, self._cost(), self._for_whom())))

    def _cost(self) -> str:
        """How far it fell behind, if that is worth a sentence."""
        lag = self.lag
        if lag is None:
            return ""
        notable, behind = lag.most >= NOTABLE_RECORDS, f"{lag.most:,} records"
        if lag.most_seconds is not None and lag.at_least:
            notable |= lag.most_seconds >= NOTABLE_SECONDS
            behind = f"at least {span(lag.most_seconds)}, {behind}"
        elif lag.most_seconds is not None:
            notable = lag.most_seconds >= NOTABLE_SECONDS
            behind = span(lag.most_seconds)
        when = "before any rebalance"
        if lag.after_rebalance is not None:
            when = f"{span(lag.after_rebalance)} after a rebalance"
        where = f"{lag.most_topic}-{lag.most_partition} at {moment(lag.most_at)}"
        return f"Most lag: {behind}, {where}, {when}." if notable else ""

    def _for_whom(self) -> str:
        """The clients that can have what is advised."""
        if self.verdict != CHANGE:
            return ""
        seen = [name for name in self.libraries if name != UNKNOWN]
        if not seen:
            return "The change works for Java's clients; which library these are could not be told."
        names = ", ".join(LIBRARIES[name].name if name in LIBRARIES else name for name in seen)
        others = ""
        if UNKNOWN in self.libraries:
            untold = "of some members the library could not be told"
            others = f"; {untold}: Java's settings stand for them"
        return f"The change works for the clients seen: {names}{others}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """All of it."""

    out: str
    """The folder of the tables, as it was given."""
    groups: tuple[Group, ...]
    """The worst first: by damage, then by name."""
    every: int
    """How many groups the tables have, those included that nobody asked for."""
    evidence: Evidence
    causes: Causes
    """Of all these groups."""
    lag: pa.Table = field(default_factory=between.STRETCHES.empty_table, repr=False)
    """Of every group, from commit to commit: :data:`rota.report.between.STRETCHES`."""

    @property
    def marks(self) -> dict[str, tuple[Mark, ...]]:
        """How the counts of what was read are known: entries of the journal are there to be
        counted, rebalances follow from them; both may be sampled, or partly so.
        """
        read = self.evidence
        sampled = () if read.polled is None else (Mark.SAMPLED,)
        of_journal = bool(read.records) or not sampled
        entries = (Mark.STATED, *sampled) if of_journal else sampled
        return {
            "records": (Mark.STATED,),
            "commits": entries,
            "generations": entries,
            "rebalances": (Mark.INFERRED, *sampled) if of_journal else sampled,
            "lines": (Mark.STATED,),
            "samples": (Mark.SAMPLED,),
        }


def tell(gold: Gold, wanted: Sequence[str] = ()) -> Story:
    """The story of the groups whose names are like one of those wanted; of all, if none is."""

    def is_wanted(name: str) -> bool:
        return not wanted or any(name == glob or fnmatchcase(name, glob) for glob in wanted)

    read = evidence.read(gold.evidence)
    if wanted:
        read = _limited(read, is_wanted)
    teller = _Teller(gold, read)
    rows = [row for row in gold.advice.to_pylist() if is_wanted(row["group"])]
    rows.sort(key=lambda row: (-row["damage"], row["group"]))
    groups = tuple(map(teller.group, rows))
    return Story(
        out=gold.out,
        groups=groups,
        every=gold.advice.num_rows,
        evidence=read,
        causes=teller.all_causes(is_wanted),
        lag=teller.lag,
    )


def _limited(read: Evidence, is_wanted: Callable[[str], bool]) -> Evidence:
    """The evidence without the names of other groups, which examples of what could not be read
    may have.
    """
    windows = tuple(window for window in read.windows if is_wanted(window[0]))
    polled = read.polled
    if polled is not None:
        polled = polled | {"groups": sorted(filter(is_wanted, polled["groups"]))}
    unread = tuple((what, count, ()) for what, count, _ in read.unread)
    return replace(read, windows=windows, polled=polled, unread=unread)


class _Teller:
    """Puts together what the tables have about a group."""

    def __init__(self, gold: Gold, read: Evidence) -> None:
        self._causes = _causes(gold.rebalances)
        self._status = _status(gold.status)
        self._windows = {group: (at, whole) for group, at, whole in read.windows}
        polled = read.polled or {"groups": ()}
        self._only_polled = set(polled["groups"]) - set(self._windows)
        self.lag = between.stretches(
            gold.lag,
            gold.ends,
            gold.ownership,
            besides=pa.concat_tables([gold.earlier, gold.deletions], promote_options="default"),
            seen=between.Seen(polled=self._only_polled, since=read.since, last=read.commits_until),
        )
        self._lag = lag.worst(self.lag, _times(gold.rebalances))

    def group(self, row: Mapping[str, Any]) -> Group:
        """A row of gold/advice, with what the others add."""
        name = row["group"]
        causes = self._causes.get(name, ())
        sampled = name in self._only_polled or any(how is Mark.SAMPLED for _, how, _ in causes)
        complete_from, whole = self._windows.get(name, (None, False))
        advice = {column: value for column, value in row.items() if column != "group"}
        return Group(
            **advice
            | {
                "name": name,
                "libraries": tuple(row["libraries"]),
                "steps": tuple(row["steps"]),
                "mark": Mark.SAMPLED if sampled else Mark.INFERRED,
                "causes": causes,
                "lag": self._lag.get(name),
                "status": self._status.get(name),
                "complete_from": complete_from,
                "whole": whole,
            }
        )

    def all_causes(self, is_wanted: Callable[[str], bool]) -> Causes:
        """Those of all groups that are wanted, together."""
        total: dict[tuple[str, Mark], int] = {}
        for group, causes in self._causes.items():
            for cause, how, number in causes if is_wanted(group) else ():
                total[cause, how] = total.get((cause, how), 0) + number
        return _ranked((cause, how, number) for (cause, how), number in total.items())


def _causes(rebalances: pa.Table) -> dict[str, Causes]:
    """By group."""
    counted = rebalances.group_by(["group", "cause", "evidence"]).aggregate([([], "count_all")])
    found: dict[str, list[tuple[str, Mark, int]]] = {}
    for row in counted.to_pylist():
        cause = (row["cause"], Mark(row["evidence"]), row["count_all"])
        found.setdefault(row["group"], []).append(cause)
    return {group: _ranked(causes) for group, causes in found.items()}


def _times(rebalances: pa.Table) -> dict[str, list[int]]:
    """When each group had rebalances, rising."""
    times = milliseconds(rebalances["at"]).to_pylist()
    found: dict[str, list[int]] = {}
    for at, group in sorted(zip(times, rebalances["group"].to_pylist(), strict=True)):
        found.setdefault(group, []).append(at)
    return found


def _ranked(causes: Iterable[tuple[str, Mark, int]]) -> Causes:
    return tuple(sorted(causes, key=lambda one: (-one[2], one[0], one[1])))


def _status(status: pa.Table) -> dict[str, str]:
    """The last verdict on each group as a whole."""
    whole = status.filter(compute.is_null(status["topic"])).select(["group", "at", "verdict"])
    whole = whole.set_column(1, "at", milliseconds(whole["at"])).sort_by("at")
    return dict(zip(whole["group"].to_pylist(), whole["verdict"].to_pylist(), strict=True))
