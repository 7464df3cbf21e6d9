"""What the broker's log and the commits say about the members of a group."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from rota.engine.history.causes import (
    CommitTimes,
    Int64Array,
    find_last_commit,
    is_last_commit_early,
    recent_commit_gaps,
)
from rota.engine.history.facts import (
    MAX_SESSION_TIMEOUT,
    Generation,
    GenerationChange,
    GenerationMember,
    LogLine,
    PartitionsByTopic,
)

CLOCK_SLACK = 10  # most time between a client's action and its record (recorded: 10 ms)
LOG_CLOCK_STEP = 100  # a log's clock that is so much further off than before has jumped
ENOUGH_PARTITIONS = 16
LOG_TIME_SLACK = 1_000

_UUID = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


class PassingMember(NamedTuple):
    """A member that joined and left during a rebalance: it never had an assignment."""

    member_id: str
    joined: int
    gone: int
    is_crash: bool = False  # its session ended; otherwise it left


def client_of(member_id: str) -> str:
    """Returns the client id or static id in front of a member id's UUID, or else the whole id."""
    return _UUID.sub("", member_id)


class GroupLog:
    def __init__(self, lines: Sequence[LogLine]) -> None:
        self.lines = lines
        self._times = [line.at for line in lines]
        self._joins: dict[str, int] = {}
        for line in lines:
            if line.member_id is not None and line.what in {"joining", "joined"}:
                self._joins.setdefault(line.member_id, line.at)
        self._joins_by_client: dict[str, list[tuple[int, str]]] = {}
        for member_id, at in self._joins.items():
            self._joins_by_client.setdefault(client_of(member_id), []).append((at, member_id))
        for joins in self._joins_by_client.values():
            joins.sort()
        self._returns = {
            line.member_id: line.at
            for line in lines
            if line.member_id is not None and line.what == "replaced"
        }

    def joined_at(self, member_id: str) -> int:
        """Returns when a member first called to join, 0 if the log does not have it."""
        return self._joins.get(member_id, 0)

    def list_joins(self, members: Iterable[GenerationMember]) -> dict[str, int]:
        ids = (member.member_id for member in members)
        return {one: self._joins[one] for one in ids if one in self._joins}

    def has_joined_again(self, member: GenerationMember, begin: int, end: int) -> bool:
        """Returns whether another member with the same client id joined in this time."""
        joins = self._joins_by_client.get(member.group_instance_id or member.client_id, [])
        first, last = bisect_left(joins, (begin, "")), bisect_right(joins, (end, chr(0x10FFFF)))
        return any(member_id != member.member_id for _, member_id in joins[first:last])

    def has_expiry(self, begin: int, end: int) -> bool:
        """Returns whether a session ended in a join phase, which so long waited for it."""
        return any(
            line.what in {"failed", "dropped"} and begin + CLOCK_SLACK < line.at <= end
            for line in self.between(begin, end)
        )

    def list_passing(self, begin: int, end: int, known: Container[str]) -> list[PassingMember]:
        """Returns members that came and went in a rebalance; ``known`` ones have an assignment."""
        joined: dict[str, int] = {}
        found = []
        for line in self.between(begin, end):
            member_id = line.member_id
            if member_id is None or member_id in known:
                continue
            if line.what in {"joining", "joined"}:
                joined.setdefault(member_id, line.at)
            elif line.what in {"left", "failed"} and member_id in joined:
                is_crash = line.what == "failed"
                found.append(PassingMember(member_id, joined.pop(member_id), line.at, is_crash))
        return found

    def between(self, begin: int, end: int) -> Sequence[LogLine]:
        first = bisect_left(self._times, begin - LOG_TIME_SLACK)
        return self.lines[first : bisect_right(self._times, end + LOG_TIME_SLACK)]

    def find_start(self, before: Generation, after: Generation) -> LogLine | None:
        """Returns the first call to join a round."""
        for line in self.between(before.at, after.at):
            if (
                line.what == "preparing"
                and line.generation is not None
                and before.generation
                <= line.generation
                < max(after.generation, before.generation + 1)
            ):
                return line
        return None

    def find_last_start(self, number: int, below: int, until: int) -> LogLine | None:
        """Returns the last call to join before a time that names a generation in this range."""
        for line in reversed(self.between(until - MAX_SESSION_TIMEOUT, until)):
            is_call = line.what == "preparing" and line.generation is not None
            if is_call and number <= (line.generation or 0) < max(below, number + 1):
                return line
        return None

    def find_return(self, member_id: str, until: int) -> int | None:
        """Returns when a static member returned under another member id within its session."""
        at = self._returns.get(member_id)
        return at if at is not None and at <= until + LOG_TIME_SLACK else None

    def find_departure(self, member_id: str, begin: int, end: int) -> LogLine | None:
        """Returns the line about a member that left, was removed, or did not join in time."""
        found = None
        for line in self.between(begin, end):
            if line.what == "dropped" and member_id in (line.reason or ""):
                return line
            if line.member_id != member_id:
                continue
            if line.what in {"left", "failed", "fenced", "absent"}:
                return line
            if line.what == "preparing" and line.reason and found is None:
                is_removal = "heartbeat expiration" in line.reason or "LeaveGroup" in line.reason
                found = line if is_removal else None
        return found


def is_expiry(line: LogLine) -> bool:
    reason = line.reason or ""
    return line.what == "failed" or "heartbeat expiration" in reason or "session expired" in reason


def is_removal(line: LogLine) -> bool:
    """Returns whether a call to join names a member that left, was removed, or is new."""
    reason = line.reason or ""
    return not reason.lower().startswith(("updating metadata", "leader "))


def correct_log_clock(
    lines: Sequence[LogLine], generations: Sequence[Generation]
) -> Sequence[LogLine]:
    """Returns the lines with times of the journal's clock. The line that a group has stabilized has
    the time of the state in its entry. If the clock jumps between two such lines, as between the
    logs of two brokers, the lines between them are left out.
    """
    times: dict[int, list[int]] = {}
    for generation in generations:
        if generation.state_at is not None and generation.change is GenerationChange.REBALANCED:
            times.setdefault(generation.generation, []).append(generation.state_at)
    # the numbers of another incarnation begin again
    known = [
        (place, min((line.at - at for at in times[line.generation]), key=abs))
        for place, line in enumerate(lines)
        if line.what == "stabilized" and line.generation in times
    ]
    if all(abs(offset) <= CLOCK_SLACK for _, offset in known):
        return lines
    corrected: list[LogLine] = []
    places = [(-1, known[0][1]), *known, (len(lines), known[-1][1])]
    for (first, before), (last, after) in pairwise(places):
        if abs(after - before) <= LOG_CLOCK_STEP:
            offset = before if abs(before) > CLOCK_SLACK else 0
            corrected += (replace(one, at=one.at - offset) for one in lines[first + 1 : last])
        corrected += (replace(one, at=one.at - after) for one in lines[last : last + 1])
    return sorted(corrected, key=attrgetter("at"))


class MemberCommits:
    """Looks up only some partitions of a member: it commits all of them at the same time."""

    def __init__(self, commits: CommitTimes) -> None:
        self._commits = commits

    def find_last(
        self, member: GenerationMember, until: int, since: int | None = None
    ) -> int | None:
        return find_last_commit(self._commits, _some_partitions(member), until, since=since)

    def list_gaps(self, member: GenerationMember, until: int, since: int) -> Int64Array:
        return recent_commit_gaps(self._commits, _some_partitions(member), until, since)

    def is_last_early(self, member: GenerationMember, until: int, since: int) -> bool:
        return is_last_commit_early(self._commits, _some_partitions(member), until, since)


def _some_partitions(member: GenerationMember) -> PartitionsByTopic:
    size = sum(map(len, member.assigned.values()))
    if size <= ENOUGH_PARTITIONS:
        return member.assigned
    step = -(-size // ENOUGH_PARTITIONS)
    return {topic: numbers[::step] for topic, numbers in member.assigned.items()}
