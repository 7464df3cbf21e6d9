"""The rebalances in a trace: when, why, what moved, and what had to.

A rebalance begins when the coordinator calls the members to join, and is over when the group is
stable and every member has been handed its part. The rounds of a cooperative one, and attempts
that were overtaken, are one rebalance.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from rota.assignors.claims import previous_owners
from rota.assignors.move import Fewest, moved
from rota.assignors.problem import Problem
from rota.errors import FormatError
from rota.formats import assignment, subscription
from rota.group.event import Happened
from rota.member.event import Call
from rota.model.entry import GroupSaved, SavedMember
from rota.model.membership import UNASSIGNED, GroupSubscription, Subscription
from rota.model.reply import JoinReply
from rota.model.request import Join
from rota.model.topic import NO_PARTITIONS, Cluster, Partitions
from rota.sim.trace import Record, What
from rota.sim.wait import Wait, Watch

LEAVE = "members leave: "
SILENT = " is silent"
"""How the coordinator words it."""
NOT_POLLED = "the application has not polled"
"""How a member notes that its poll interval is over."""
POLLED_LATE = "it has not polled in time"

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""What a coordinator ends every member's id with."""
UUID_LENGTH = 36


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalance:
    """One rebalance. Times are in milliseconds."""

    start: int
    end: int
    finished: bool
    """False where it was under way when the world ended."""
    reason: str
    """Why it began, in the coordinator's words; members by the names of their processes."""
    generations: tuple[int, ...]
    """Those that became stable; none where the group became empty."""
    attempts: int
    """How often the members were called to join."""
    members: int
    moved: int
    moved_min: int
    orphaned: int
    loads: Mapping[str, int]
    """How many partitions each member ended with."""
    waits: tuple[Wait, ...]
    """Whom it waited for, where that took long."""

    @property
    def idle(self) -> tuple[str, ...]:
        """Members that ended with nothing to do."""
        return tuple(sorted(name for name, load in self.loads.items() if not load))

    @property
    def rounds(self) -> int:
        """How many generations it took."""
        return len(self.generations)

    @property
    def time(self) -> int:
        """How long it took."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class _Settled:
    """A generation as the journal has it: by static id, or member id where there is none."""

    topics: Mapping[str, tuple[str, ...]]
    owned: Mapping[str, Partitions]
    names: Mapping[str, str]

    @classmethod
    def of(cls, saved: GroupSaved, names: Mapping[str, str]) -> _Settled:
        members = saved.members
        keys = [member.static_id or member.member_id for member in members]
        told = subscription.decode_all([(member.subscription, None) for member in members])
        return cls(
            {
                key: () if isinstance(one, FormatError) else one.topics
                for key, one in zip(keys, told, strict=True)
            },
            {key: _owned(member) for key, member in zip(keys, members, strict=True)},
            {key: names.get(m.member_id, key) for key, m in zip(keys, members, strict=True)},
        )


def _owned(member: SavedMember) -> Partitions:
    return assignment.decode(member.assignment).partitions if member.assignment else NO_PARTITIONS


NOBODY = _Settled({}, {}, {})


class _Open:
    """A rebalance under way."""

    def __init__(self, start: int, reason: str, before: _Settled) -> None:
        self.start = start
        self.reason = reason
        self.before = before
        self.attempts = 0
        self.generations: list[int] = []
        self.watch = Watch()


class _Reader:
    def __init__(self, topics: Mapping[str, int]) -> None:
        self.found: list[Rebalance] = []
        self._counts = dict(topics)
        self._names: dict[str, str] = {}
        """The process of each member id."""
        self._ids: dict[str, str] = {}
        """Member ids by the UUIDs that they end in."""
        self._running: set[str] = set()
        self._saved = NOBODY
        self._open: _Open | None = None
        self._stable = True
        self._awaited: set[str] = set()
        """Processes that have not been handed their part of the stable generation."""
        self._owing: set[str] = set()
        """Processes that gave partitions up in a cooperative round, and have to join again."""
        self._late: set[str] = set()
        """Processes that did not poll in time, and have not joined again."""

    def see(self, record: Record) -> None:  # noqa: C901, PLR0912 (a case for each)
        """Something happened."""
        match record.what:
            case What.STARTED:
                self._running.add(record.who)
            case What.IDENTITY:
                member_id = str(record.detail)
                self._names[member_id] = record.who
                self._ids[member_id[-UUID_LENGTH:]] = member_id
            case What.TOPICS:
                assert isinstance(record.detail, tuple)
                self._counts = dict(record.detail)
            case What.JOURNAL if isinstance(record.detail, GroupSaved):
                self._saved = _Settled.of(record.detail, self._names)
            case What.NOTE:
                self._noted(record)
            case What.LISTENER:
                self._listened(record)
            case What.SAID if str(record.detail).startswith(NOT_POLLED):
                self._late.add(record.who)
            case What.ASKED if isinstance(record.detail, Join):
                self._late.discard(record.who)
                if self._open is not None:
                    self._open.watch.came(record.at, record.who)
            case What.ANSWERED if isinstance(record.detail, JoinReply) and not record.detail.code:
                # what it joined for was no news: nothing follows
                if self._stable:
                    self._owing.discard(record.who)
            case What.CRASHED | What.GONE:
                self._running.discard(record.who)
                self._awaited.discard(record.who)
                self._owing.discard(record.who)
            case _:
                return
        self._close_if_over(record.at)

    def _noted(self, record: Record) -> None:
        assert isinstance(record.detail, tuple)
        what, generation, text = record.detail
        now = record.at
        match Happened(what):
            case Happened.PREPARING:
                self._called(now, text)
            case Happened.JOINED:
                if self._open is not None:
                    self._open.watch.joined(now)
            case Happened.STABLE:
                if self._open is not None:
                    self._open.generations.append(generation)
                    self._open.watch.assigned(now)
                self._stable = True
                # a static member that is down is in the group, but not there to take its part
                self._awaited = self._running.intersection(self._saved.names.values())
                self._owing.clear()
            case Happened.EMPTIED:
                self._stable = True
                self._saved = NOBODY
                self._awaited.clear()
                self._owing.clear()
            case Happened.LEFT | Happened.SILENT | Happened.ABSENT as how:
                self._went(now, how, text)
            case _:
                pass

    def _called(self, now: int, reason: str) -> None:
        """The members are called to join."""
        if self._open is None:
            self._open = _Open(now, self._explained(reason), self._saved)
        self._open.attempts += 1
        self._open.watch.called(now, self._saved.names.values())
        self._stable = False
        self._owing.clear()

    def _explained(self, reason: str) -> str:
        """A member that polled too late leaves like one that closes, or falls silent like one that
        has crashed, if it is static: the coordinator does not see the difference.
        """
        text, mark, state = reason.rpartition(" (group was ")
        for said in (text.removeprefix(LEAVE), text.removeprefix("member ").removesuffix(SILENT)):
            if self._names.get(said) in self._late:
                return f"{text}; its reason: {POLLED_LATE}{mark}{state}"
        return reason

    def _went(self, now: int, how: Happened, text: str) -> None:
        """Members were taken out of the group."""
        why = "was silent"
        if how is Happened.LEFT:
            text, why = text.partition("; its reason: ")[0], "left"
        elif how is Happened.SILENT:
            text = text.partition(" for ")[0]
        else:
            why, _, text = text.partition(": ")
        names = tuple(self._names.get(one, one) for one in text.split(", "))
        if self._late.issuperset(names):
            why = "polled too late"
        if self._open is not None:
            self._open.watch.went(now, names, why)

    def _listened(self, record: Record) -> None:
        assert isinstance(record.detail, tuple)
        call, _ = record.detail
        if not self._stable:
            return
        if call == Call.ASSIGNED.value:
            if self._open is not None and self._awaited == {record.who}:
                self._open.watch.handed(record.at, record.who)
            self._awaited.discard(record.who)
        elif record.who in self._awaited:
            self._owing.add(record.who)

    def _named(self, text: str) -> str:
        """Member ids are long; people know processes."""
        for end in _UUID.findall(text):
            member_id = self._ids.get(end, end)
            text = text.replace(member_id, self._names.get(member_id, member_id))
        return text

    def _close_if_over(self, now: int) -> None:
        if self._stable and self._open is not None and not self._awaited and not self._owing:
            self.close(now, finished=True)

    def close(self, now: int, *, finished: bool) -> None:
        """The rebalance is over, or the world is."""
        under_way, self._open = self._open, None
        if under_way is None:
            return
        after = self._saved
        moves, fewest = _moves(under_way.before, after, Cluster(self._counts))
        self.found.append(
            Rebalance(
                start=under_way.start,
                end=now,
                finished=finished,
                reason=self._named(under_way.reason),
                generations=tuple(under_way.generations),
                attempts=under_way.attempts,
                members=len(after.owned),
                moved=moves,
                moved_min=fewest,
                orphaned=sum(
                    len(owned)
                    for key, owned in under_way.before.owned.items()
                    if key not in after.owned
                ),
                loads=dict(
                    sorted((after.names[key], len(owned)) for key, owned in after.owned.items())
                ),
                waits=tuple(under_way.watch.waits),
            )
        )


def _moves(before: _Settled, after: _Settled, cluster: Cluster) -> tuple[int, int]:
    """Partitions that got another owner though theirs still wants them; and the fewest that any
    assignment with the best balance moves.
    """
    group = GroupSubscription(
        {
            key: Subscription(
                topics=topics, owned=before.owned.get(key, NO_PARTITIONS), generation=0
            )
            for key, topics in after.topics.items()
        }
    )
    problem = Problem.of(cluster, group)
    previous = previous_owners(problem)
    owners = np.full(problem.layout.size, UNASSIGNED, dtype=np.int32)
    for position, key in enumerate(problem.members):
        owners[problem.layout.numbers(after.owned[key])] = position
    fewest, _ = Fewest(problem).moves(previous, lambda: False)
    return moved(previous, owners), fewest


def rebalances(
    trace: Iterable[Record], topics: Mapping[str, int], end: int
) -> tuple[Rebalance, ...]:
    """Every rebalance, in order; ``topics`` are the partition counts at the start."""
    reader = _Reader(topics)
    for record in trace:
        reader.see(record)
    reader.close(end, finished=False)
    return tuple(reader.found)
