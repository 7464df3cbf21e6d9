"""Simulated histories, the events that made them, their journals, commits and broker logs."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import rota
from rota.engine.coordinator.notes import (
    GroupNote,
    MemberAdded,
    MemberLeft,
    MemberRejoined,
    MembersLeft,
    RebalanceReason,
    RebalanceStarted,
    SessionExpired,
    StaticMemberReplaced,
    SyncTimedOut,
)
from rota.engine.history.causes import CommitTimes
from rota.engine.history.facts import JournalRecord, LogLine, Rebalance, RebalanceCause
from rota.engine.history.generations import read_history
from rota.engine.history.rebalances import find_rebalances
from rota.engine.history.server_log import parse_coordinator_message as understood
from rota.engine.model.journal_entry import GroupMetadataEntry, OffsetCommitEntry
from rota.engine.model.request import JoinGroup
from rota.engine.simulator.trace import TraceEventType, TraceRecord, list_log_lines

STRATEGIES = ("range", "roundrobin", "sticky", "cooperative-sticky")
SECOND = 1_000
#: Reasons that members send with JoinGroup and LeaveGroup.
REFUSED = "encountered "
LATE = "consumer poll timeout has expired."
METADATA_CHANGED = "cached metadata has changed"
SUBSCRIPTION_CHANGED = (
    "subscription has changed",
    "received assignment does not match the current subscription",
)
TAKEN = "need to revoke partitions and re-join"


@dataclass(frozen=True)
class History:
    """What a simulated group left behind, and why it rebalanced each time."""

    seed: int
    steps: Sequence[Rebalance]
    #: None: a second round that stands for itself, which has no cause of its own.
    causes: Sequence[RebalanceCause | None]
    #: The coordinator was started anew since the step before: a rebalance may have begun twice.
    restarted: Sequence[bool]
    commits: CommitTimes
    lines: Sequence[LogLine]


def scenario(seed: int) -> dict[str, Any]:
    """A group at random, and what happens to it, much of it close to its timeouts."""
    rng = random.Random(seed)
    session = rng.choice((6, 8, 12, 45))
    member = {
        "name": "m",
        "count": rng.randint(1, 5),
        "static": rng.random() < 0.25,
        "session": f"{session}s",
        "heartbeat": f"{rng.choice((500, 1_000, session * 300))}ms",
        "max_poll": f"{rng.choice((7, 9, 20, 60, 300))}s",
        "processing": rng.choice(("0s", "200ms", "3s")),
        "auto_commit": rng.random() < 0.8,
    }
    if rng.random() < 0.3:
        member["pattern"] = "t.*"
    else:
        member["topics"] = ["t"]
    return {
        "duration": "20m",
        "strategy": rng.choice(STRATEGIES),
        "metadata_max_age": rng.choice(("10s", "1m")),
        "topics": {"t": rng.randint(1, 8), "u": 3},
        "members": [member],
        "events": _events(rng, member, session),
    }


def _events(rng: random.Random, member: Mapping[str, Any], session: int) -> list[dict[str, Any]]:
    names = [f"m-{number}" for number in range(member["count"])]
    poll = int(member["max_poll"][:-1])
    events: list[dict[str, Any]] = []
    at, partitions = 20.0, 8
    for number in range(26):
        at += rng.choice((0.2, 1, 3, session * 0.9, session * 1.1, 30, poll * 1.1))
        at = min(at + rng.random(), 19.5 * 60)
        who, partitions = rng.choice(names), partitions + rng.randint(1, 3)
        what: dict[str, Any] = rng.choice(
            (
                *[{"leave": who}] * 3,
                {"crash": who},
                *[{"join": f"x-{number}", "like": "m"}] * 2,
                {"stall": who, "for": f"{int(poll * rng.uniform(0.5, 1.8))}s"},
                {"pause": who, "for": f"{max(1, int(session * rng.uniform(0.5, 2)))}s"},
                {"subscribe": who, "topics": rng.choice((["t"], ["t", "u"], ["u"]))},
                {"partitions": {"t": partitions}},
                {"restart": who, "down": f"{rng.choice((1, 5, 20))}s"},
                {"deploy": "m", "down": "2s", "between": f"{rng.choice((1, 8))}s"},
                {"coordinator_down": f"{rng.choice((1, 9))}s"},
            )
        )
        names += [what["join"]] if "join" in what else []
        events.append({"at": f"{int(at * SECOND)}ms", **what})
    return events


@cache
def simulate_history(seed: int) -> History:
    """One scenario, played."""
    trace = rota.simulate(scenario(seed), seed=seed, skip_commits=False).trace
    saved, commits = _journal(trace)
    found = find_rebalances(read_history("group", saved, {}).generations)
    lines = [understood(line.at, line.text) for line in list_log_lines(trace)]
    return History(
        seed=seed,
        steps=found,
        causes=_causes(trace, found),
        restarted=[_loaded(trace, step) > since for step, since in _with_start(found)],
        commits=commits,
        lines=[line for line in lines if isinstance(line, LogLine)],
    )


def _journal(trace: Sequence[TraceRecord]) -> tuple[list[JournalRecord], CommitTimes]:
    saved: list[JournalRecord] = []
    commits: dict[tuple[str, int], list[int]] = {}
    for offset, record in enumerate(one for one in trace if one.type is TraceEventType.JOURNAL):
        entry = record.detail
        if isinstance(entry, OffsetCommitEntry):
            commits.setdefault((entry.topic, entry.partition), []).append(record.at)
        elif isinstance(entry, GroupMetadataEntry):
            saved.append(JournalRecord(offset, record.at, entry))
    return saved, {key: np.array(times, dtype=np.int64) for key, times in commits.items()}


def _causes(
    trace: Sequence[TraceRecord], found: Sequence[Rebalance]
) -> list[RebalanceCause | None]:
    """By the first call to join of each step, in the coordinator's own notes."""
    return [
        _cause(trace, step, max(_loaded(trace, step), since - SECOND))
        for step, since in _with_start(found)
    ]


def _client_reasons(member_id: str, last: str, at: int, trace: Sequence[TraceRecord]) -> list[str]:
    """A member whose request is refused for the moment gives that as its reason to ask again: here
    with the reason that it had before.
    """
    earlier = [
        str(record.detail.reason)
        for record in trace
        if record.at <= at
        and isinstance(record.detail, JoinGroup)
        and record.detail.member_id == member_id
        and not str(record.detail.reason).startswith(REFUSED)
    ]
    return [last, *earlier[-1:]] if last.startswith(REFUSED) else [last]


def _loaded(trace: Sequence[TraceRecord], step: Rebalance) -> int:
    """When a coordinator took the group over last."""
    loads = (
        one.at for one in trace if one.type is TraceEventType.COORDINATOR and one.detail == "loaded"
    )
    return max((at for at in loads if at <= step.after.at), default=0)


def _with_start(found: Sequence[Rebalance]) -> Iterator[tuple[Rebalance, int]]:
    """Each step, and since when the group was at rest before it."""
    since = 0
    for step in found:
        yield step, max(since, 0 if step.before is None else step.before.at)
        since = step.after.at


def _cause(trace: Sequence[TraceRecord], step: Rebalance, since: int) -> RebalanceCause | None:
    leaving: str | None = None
    numbers = range(step.from_generation or 0, step.after.generation)
    for record in trace:
        note = record.detail
        if not isinstance(note, GroupNote):
            continue
        if isinstance(note.change, MemberLeft):
            leaving = note.change.client_reason
        if not isinstance(note.change, RebalanceStarted) or note.generation not in numbers:
            continue
        if record.at < since:
            continue  # of a step before, or forgotten by a coordinator that stopped
        return _cause_of(note.change.reason, record.at, leaving, step, trace)
    raise AssertionError(f"nobody was called to join generation {step.after.generation}")


def _cause_of(  # noqa: PLR0911 (a case for each)
    reason: RebalanceReason,
    at: int,
    leaving: str | None,
    step: Rebalance,
    trace: Sequence[TraceRecord],
) -> RebalanceCause | None:
    match reason:
        case MembersLeft():
            return RebalanceCause.SLOW_POLL if leaving == LATE else RebalanceCause.LEFT
        case SessionExpired() | SyncTimedOut():
            return RebalanceCause.SESSION_TIMEOUT
        case MemberAdded():
            return RebalanceCause.JOINED
        case StaticMemberReplaced():
            return RebalanceCause.STRATEGY
        case MemberRejoined():
            reasons = _client_reasons(reason.member_id, reason.client_reason or "", at, trace)
            if METADATA_CHANGED in reasons:
                return _cause_from_change(step)
            if any(one in SUBSCRIPTION_CHANGED for one in reasons):
                return RebalanceCause.SUBSCRIPTION
            if TAKEN in reasons:
                return None
            return RebalanceCause.UNKNOWN if reason.metadata_changed else RebalanceCause.LEADER
        case _:  # of a member that had lost its generation
            return RebalanceCause.UNKNOWN


def _cause_from_change(step: Rebalance) -> RebalanceCause:
    """What a leader saw that found the topics changed: counts and topics only ever grow here."""
    before = {
        (topic, number)
        for member in (step.before.members if step.before is not None else ())
        for topic, numbers in member.assigned.items()
        for number in numbers
    }
    topics = {topic for topic, _ in before}
    more = {
        topic
        for member in step.after.members
        for topic, numbers in member.assigned.items()
        for number in numbers
        if (topic, number) not in before
    }
    if not more:
        return RebalanceCause.LEADER
    return RebalanceCause.PARTITIONS if more <= topics else RebalanceCause.SUBSCRIPTION
