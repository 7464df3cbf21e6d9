"""Simulated histories with their truth: scenarios at random, journal, commits and broker log."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import rota
from rota.engine.coordinator.events import Happened
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
#: What the coordinator's reasons hold; any other is of a member that had lost its generation.
WORDS = {
    "members leave: ": RebalanceCause.LEFT,
    " is silent": RebalanceCause.SILENT,
    "did not sync in time": RebalanceCause.SILENT,
    " joins; ": RebalanceCause.JOINED,
    "the subscription changed": RebalanceCause.SUBSCRIPTION,
    "is back as": RebalanceCause.STRATEGY,
    "partitions were taken away": None,
    "leads and joins again": RebalanceCause.LEADER,
}


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
def history(seed: int) -> History:
    """One scenario, played."""
    trace = rota.simulate(scenario(seed), seed=seed).trace
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
    notes = [_completed(record, trace) for record in trace if record.type is TraceEventType.NOTE]
    return [
        _cause(notes, step, max(_loaded(trace, step), since - SECOND))
        for step, since in _with_start(found)
    ]


def _completed(note: TraceRecord, trace: Sequence[TraceRecord]) -> tuple[int, str, int, str]:
    """A member whose request is refused for the moment gives that as its reason to ask again: here
    with the reason that it had before.
    """
    assert isinstance(note.detail, tuple)
    what, generation, text = note.detail
    if "join refused with " in text:
        for record in trace:
            if record.at > note.at:
                break
            if record.type is TraceEventType.ASKED and isinstance(record.detail, JoinGroup):
                asked = record.detail
                is_retry = str(asked.reason).startswith("join refused")
                if asked.member_id and asked.member_id in text and not is_retry:
                    text = f"{note.detail[2]} after: {asked.reason}"
    return note.at, what, generation, text


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


def _cause(
    notes: Sequence[tuple[int, str, int, str]], step: Rebalance, since: int
) -> RebalanceCause | None:
    leaving = ""
    for note in notes:
        at, what, generation, text = note
        if Happened(what) is Happened.LEFT:
            leaving = text
        numbers = range(step.from_generation or 0, step.after.generation)
        if Happened(what) is not Happened.PREPARING or generation not in numbers:
            continue
        if at < since:
            continue  # of a step before, or forgotten by a coordinator that stopped
        if text.startswith("members leave: ") and "not polled in time" in leaving:
            return RebalanceCause.SLOW_POLL
        if "metadata changed" in text:
            return _seen(step)
        return next(
            (cause for words, cause in WORDS.items() if words in text), RebalanceCause.UNKNOWN
        )
    raise AssertionError(f"nobody was called to join generation {step.after.generation}")


def _seen(step: Rebalance) -> RebalanceCause:
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
