"""What truly happened in a simulated history, told by the world and not by its journal.

The coordinator's notes say when it called the members to join and why, and when a generation was
handed out; members' own notes say who polled too late, and what each was handed.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from rota.formats import assignment, subscription
from rota.group.event import Happened
from rota.member.event import Call
from rota.model.entry import GroupForgotten, GroupSaved, OffsetCommitted
from rota.model.topic import TopicPartition
from rota.replay import serverlog
from rota.replay.cause import Commits
from rota.replay.fact import Cause, LogLine, Written
from rota.sim.brokerlog import lines
from rota.sim.policy import Policy
from rota.sim.scenario import Scenario
from rota.sim.script import Script
from rota.sim.trace import Record, What

LATE = "the application has not polled in time"
TAKEN = "partitions were taken away"
COOPERATIVE = "cooperative-sticky"
_MEMBER = re.compile(
    r"member (.*) (joins|has other metadata|leads and joins again); its reason: (.*)"
)


@dataclass(frozen=True, slots=True)
class Owners:
    """Who has what; a static member is known by its static id."""

    given: Mapping[str, frozenset[TopicPartition]] = field(default_factory=dict)
    topics: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, saved: GroupSaved) -> Owners:
        keys = {one.member_id: one.static_id or one.member_id for one in saved.members}
        return cls(
            {keys[one.member_id]: _partitions(one.assignment) for one in saved.members},
            {
                keys[one.member_id]: subscription.decode(one.subscription).topics
                for one in saved.members
            },
        )

    def moved_from(self, before: Owners) -> int:
        return sum(
            partition not in self.given[key]
            for key, partitions in before.given.items()
            if key in self.given
            for partition in partitions
            if partition.topic in self.topics[key]
        )


@dataclass(slots=True)
class Rebalance:
    """A rebalance that took place."""

    start: int
    from_generation: int
    causes: set[Cause]
    """Usually one: a coordinator that is restarted forgets its rebalance, and has another reason
    for the one that follows.
    """
    before: Owners
    generations: list[int] = field(default_factory=list)
    emptied: bool = False
    moved: int = 0
    """Partitions that have another owner though theirs is there and wants them."""

    @property
    def shape(self) -> tuple[int, tuple[int, ...]]:
        return self.from_generation, tuple(self.generations)


@dataclass(frozen=True, slots=True)
class Truth:
    """A history's evidence, and what truly happened."""

    group: str
    records: list[Written]
    lines: list[LogLine]
    commits: Commits
    rebalances: list[Rebalance]
    handed: Mapping[tuple[str, int], frozenset[TopicPartition]]
    """What each member was handed in each generation."""


def played(scenario: Scenario, seed: int) -> Truth:
    """Plays a scenario, members as Java's consumers."""
    trace = Script(scenario, Policy(solver="kafka"), seed, skip=True).run().trace
    entries = [record for record in trace if record.what is What.JOURNAL]
    records = [
        Written(offset, record.at, record.detail)  # type: ignore[arg-type]
        for offset, record in enumerate(entries)
    ]
    return Truth(
        scenario.group,
        records,
        _lines(trace),
        commits_of(records),
        _Reader(dict(scenario.topics)).read(trace),
        _handed(trace),
    )


def commits_of(records: Iterable[Written]) -> Commits:
    found: dict[tuple[str, int], list[int]] = defaultdict(list)
    for written in records:
        if isinstance(written.entry, OffsetCommitted):
            found[written.entry.topic, written.entry.partition].append(written.at)
    return {key: np.array(times, dtype=np.int64) for key, times in found.items()}


def _lines(trace: Iterable[Record]) -> list[LogLine]:
    found = []
    for line in lines(trace):
        read = serverlog.read(line.at, line.text)
        assert read is not serverlog.Passed.STRANGE, line
        if isinstance(read, LogLine):
            found.append(read)
    return found


def _handed(trace: Iterable[Record]) -> dict[tuple[str, int], frozenset[TopicPartition]]:
    found: dict[tuple[str, int], frozenset[TopicPartition]] = {}
    ids: dict[str, str] = {}
    owned: dict[str, tuple[int, frozenset[TopicPartition]]] = {}
    for record in trace:
        match record.what, record.detail:
            case What.IDENTITY, str(member_id):
                ids[record.who] = member_id
            case What.ASSIGNMENT, (int(generation), tuple(partitions)):
                owned[record.who] = generation, frozenset(partitions)
            case What.LISTENER, (Call.ASSIGNED.value, _):
                generation, given = owned[record.who]
                found[ids[record.who], generation] = given
            case _:
                pass
    return found


class _Reader:
    def __init__(self, topics: dict[str, int]) -> None:
        self.found: list[Rebalance] = []
        self._topics = topics
        self._given: Counter[str] = Counter()
        """How many partitions of each topic the last generation has."""
        self._open: Rebalance | None = None
        self._own: Rebalance | None = None
        """What the open one is, should it turn out to be no further round of the last."""
        self._last: Rebalance | None = None
        """The one before, which may have another round."""
        self._number = 0
        self._stable = True
        self._late: set[str] = set()
        """Members whose reason to leave was that they polled too late."""
        self._owing: set[str] = set()
        """Members that must give partitions up and join again."""
        self._owners = Owners()
        self._owned: dict[str, set[TopicPartition]] = {}
        self._ids: dict[str, str] = {}
        """The member that each process is."""
        self._leader: str | None = None

    def read(self, trace: Iterable[Record]) -> list[Rebalance]:  # noqa: C901 (a case for each)
        for record in trace:
            match record.what:
                case What.NOTE:
                    self._noted(record)
                case What.TOPICS:
                    assert isinstance(record.detail, tuple)
                    self._topics = dict(record.detail)
                case What.IDENTITY:
                    self._ids[record.who] = str(record.detail)
                case What.ASSIGNMENT:
                    assert isinstance(record.detail, tuple)
                    if record.who in self._ids:
                        self._owned[self._ids[record.who]] = set(record.detail[1])
                case What.JOURNAL if isinstance(record.detail, GroupSaved):
                    self._saved(record.detail)
                case What.JOURNAL if isinstance(record.detail, GroupForgotten):
                    self._number = 0
                case What.COORDINATOR if record.detail in ("stopped", "unloaded"):
                    self._stable = True
                case What.GONE | What.CRASHED:
                    self._owing.discard(self._ids.get(record.who, ""))
                case _:
                    pass
        return self.found

    def _saved(self, saved: GroupSaved) -> None:
        """Who has what it is not given any more, and nobody is given, has to give it up and join
        again, whatever else comes first.
        """
        self._owners = Owners.of(saved)
        given = {member.member_id: _partitions(member.assignment) for member in saved.members}
        everything = frozenset[TopicPartition]().union(*given.values())
        self._leader = saved.leader
        self._given = Counter(partition.topic for partition in everything)
        self._owing = {
            member_id
            for member_id in given
            if saved.protocol == COOPERATIVE and self._owned.get(member_id, set()) - everything
        }

    def _noted(self, record: Record) -> None:
        assert isinstance(record.detail, tuple)
        what, generation, text = record.detail
        match Happened(what):
            case Happened.LEFT if text.endswith(LATE):
                self._late.add(text.partition("; its reason: ")[0])
            case Happened.PREPARING:
                self._called(record.at, text.rpartition(" (group was ")[0])
            case Happened.STABLE | Happened.EMPTIED as how:
                self._ended(generation, emptied=how is Happened.EMPTIED)
            case _:
                pass

    def _called(self, now: int, reason: str) -> None:
        if self._stable:
            self._begin(now, reason)
        self._stable = False

    def _begin(self, now: int, reason: str) -> None:
        if self._open is not None:  # forgotten by a coordinator that was restarted
            self._open.causes |= self._causes(reason)
            if self._own is not None:
                self._own.causes |= self._causes(reason)
            return
        own = Rebalance(now, self._number, self._causes(reason), self._owners)
        if self._last is not None and (reason.endswith(TAKEN) or self._owing):
            self._open, self._own = self._last, own
        else:
            self._open, self._own = own, None
            self.found.append(own)

    def _ended(self, generation: int, *, emptied: bool) -> None:
        self._stable = True
        self._number = generation
        if self._open is None:  # an empty group was loaded
            return
        if emptied:
            self._owners = Owners()
            if self._own is not None:  # nobody is left whom a round could give something
                self._open = self._own
                self.found.append(self._open)
        self._open.moved = self._owners.moved_from(self._open.before)
        self._open.generations.append(generation)
        self._open.emptied = emptied
        self._last, self._open = self._open, None

    def _causes(self, reason: str) -> set[Cause]:
        told = _MEMBER.fullmatch(reason)
        if told is not None:
            return self._of_member(*told.groups())
        what, _, who = reason.partition(": ")
        if what == "members leave":
            return {Cause.SLOW_POLL if who in self._late else Cause.LEFT}
        if reason.endswith(" is silent") or what == "did not sync in time":
            return {Cause.SILENT}
        if reason.startswith("static member "):
            return {Cause.STRATEGY}
        return {Cause.UNKNOWN}

    def _of_member(self, member: str, what: str, why: str) -> set[Cause]:
        if what == "joins":
            return {Cause.JOINED}
        if why.startswith("the subscription changed"):
            return {Cause.SUBSCRIPTION}
        grown = any(self._topics[topic] > count for topic, count in self._given.items())
        if why == "the topics' metadata changed" and grown:
            # a topic that was made at the same moment may be found in the same rebalance
            made = not self._given.keys() >= self._topics.keys()
            return {Cause.PARTITIONS, Cause.SUBSCRIPTION} if made else {Cause.PARTITIONS}
        # one that missed a generation while it was frozen: there is no word for that
        return {Cause.LEADER if member == self._leader else Cause.UNKNOWN}


def _partitions(given: bytes) -> frozenset[TopicPartition]:
    return frozenset(assignment.decode(given).partitions) if given else frozenset()
