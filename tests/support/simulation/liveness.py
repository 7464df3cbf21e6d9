"""What must come true once nothing goes wrong any more."""

from __future__ import annotations

import re
from collections import defaultdict

from rota.engine.coordinator.events import GroupTimerKey, GroupTimerKind
from rota.engine.coordinator.notes import GroupNote, JoinTimedOut, SessionExpired, SyncTimedOut
from rota.engine.coordinator.state import GroupState
from rota.engine.member import state
from rota.engine.model.topic import TopicPartition
from rota.engine.simulator.broker import JOIN_TIMEOUT_MARGIN, REQUEST_TIMEOUT
from rota.engine.simulator.process import SimulatedProcess
from rota.engine.simulator.trace import TraceEventType
from tests.support.simulation.ownership import WatchedMachine
from tests.support.simulation.plan import SECOND, UNTROUBLED, Act
from tests.support.simulation.rule import must
from tests.support.simulation.worlds import Arena, Wish

#: The initial delay, some heartbeats, listeners, the rounds that follow a cooperative one.
SLACK = 10 * SECOND
#: So long nothing must happen once a group has settled.
CALM = 20 * SECOND


def settling_time(arena: Arena) -> int:
    """The rebalance timeout and the session timeout, the longest of any process there was.

    Where connections are not reset, a client first has to notice that a message was lost.
    """
    rebalance = max(arena.rebalances, default=0)
    session = max(arena.sessions, default=0)
    known = arena.plan.resets or arena.plan.kind in UNTROUBLED
    patience = 0 if known else max(REQUEST_TIMEOUT, rebalance + JOIN_TIMEOUT_MARGIN)
    return patience + rebalance + session + SLACK + 4 * arena.plan.append


def check_settled(arena: Arena) -> None:
    """Every group is stable or empty, and every partition that somebody wants has one owner.

    But for groups into whose generation a static member came back: it took what its place had, as
    in Kafka, although topics and subscriptions may have changed while it was away, and although it
    may have gone just before the second round of a cooperative rebalance.
    """
    desk = arena.desk
    arena.catch_up()
    before = arena.now - arena.plan.append - SECOND
    late = [one for token, one in desk.waiting.items() if desk.since[token] < before]
    must(not late, "everybody is answered", *late)
    must(not arena.closing & arena.processes.keys(), "who closes ends", *arena.closing)
    _check_timers(arena)
    for group in arena.plan.groups:
        members = [
            one
            for one in arena.processes.values()
            if one.program.config.group == group.name and arena.wishes[one.name] is not None
        ]
        live = desk.live.get(group.name)
        if not members:
            empty = live is None or live.state is GroupState.EMPTY
            must(empty, "a group without members is empty", group.name, live)
            continue
        must(live is not None and live.state is GroupState.STABLE, "groups get stable", live)
        _check_members(arena, group.name, members)
        _check_owners(arena, members, complete=group.name not in desk.returned)


def _check_timers(arena: Arena) -> None:
    """A coordinator waits for its members' next heartbeats, and for nothing else."""
    desk = arena.desk
    stable = [name for name, live in desk.live.items() if live.state is GroupState.STABLE]
    wanted = {
        GroupTimerKey(GroupTimerKind.SESSION, name, member.member_id)
        for name in stable
        for member in desk.stored.groups[name].saved.members
    }
    found = set(arena.timers) - {GroupTimerKey(GroupTimerKind.RETENTION)}
    must(found == wanted, "no timer is left over", *(found ^ wanted))


def nudge(arena: Arena) -> bool:
    """Somebody subscribes to one topic more where a static member came back; is it needed?"""
    arena.catch_up()
    for group in sorted(arena.desk.returned):
        able = [
            one
            for one in arena.processes.values()
            if one.program.config.group == group and arena.wishes[one.name] is not None
        ]
        if able:
            topics = (*sorted(wanted_topics(arena, able[0].name)), "nudge")
            arena.wishes[able[0].name] = Wish(topics)
            able[0].subscribe(topics)
    return bool(arena.desk.returned)


def _check_members(arena: Arena, group: str, members: list[SimulatedProcess]) -> None:
    live, stored = arena.desk.live[group], arena.desk.stored.groups[group]
    for one in members:
        machine = one.machine
        assert isinstance(machine, WatchedMachine)
        told = f"{one.name} is {machine.state.value} in {machine.generation}, the group {live}"
        must(machine.state is state.MemberState.STABLE, "members get stable", told)
        same = machine.generation == live.generation
        same = same and machine.seen.incarnation == live.incarnation
        must(same, "all know the generation", told)
    known = {one.machine.member_id for one in members}
    saved = {one.member_id for one in stored.saved.members}
    must(known == saved, "the group is who lives", known ^ saved)


def _check_owners(arena: Arena, members: list[SimulatedProcess], *, complete: bool) -> None:
    owners: dict[TopicPartition, list[str]] = defaultdict(list)
    wanted: set[TopicPartition] = set()
    for one in members:
        topics = wanted_topics(arena, one.name)
        for tp in one.owned:
            owners[tp].append(one.name)
            must(tp.topic in topics or not complete, "owners subscribe", one.name, tp)
        counts = arena.cluster.partitions
        wanted |= {TopicPartition(topic, n) for topic in topics for n in range(counts[topic])}
    shared = {tp: names for tp, names in owners.items() if len(names) > 1}
    must(not shared, "one owner in the end", shared)
    rest = sorted(owners.keys() ^ wanted)
    must(not (complete and rest), "everything has an owner", members[0].program.config.group, rest)


def wanted_topics(arena: Arena, name: str) -> set[str]:
    """The topics there are that a process wants."""
    wish = arena.wishes[name]
    assert wish is not None
    counts = arena.cluster.partitions
    if wish.pattern is None:
        return {topic for topic in wish.topics if topic in counts}
    return {topic for topic in counts if re.fullmatch(wish.pattern, topic)}


#: What may give a reason to rebalance; so may faults, and these acts:
REASONS = frozenset(
    {
        TraceEventType.STARTED,
        TraceEventType.LEAVING,
        TraceEventType.CRASHED,
        TraceEventType.PAUSED,
        TraceEventType.STALLED,
        TraceEventType.SUBSCRIBED,
        TraceEventType.TOPICS,
        TraceEventType.COORDINATOR,
    }
)
ACTS = (Act.UNSUBSCRIBE, Act.REMOVE_STATIC, Act.STRAY)
FAULTS = ("message slow", "request lost", "request repeated", "connection cut", "append failed")


def most_generations(arena: Arena) -> int:
    """No rebalance without a reason: each gives two generations at most, in each group.

    A cooperative change takes two rounds; so does whoever comes back after it was thrown out. Who
    polls too slowly is thrown out again and again, so slow processes count by the time they had.
    """
    reasons = sum(record.type in REASONS for record in arena.trace)
    reasons += sum(arena.tally[f"act {act.name}"] for act in ACTS)
    reasons += sum(arena.tally[name] for name in FAULTS)
    reasons += arena.slow_time // min(arena.rebalances, default=1)
    return 2 * reasons * len(arena.plan.groups)


def watch_for_outcasts(arena: Arena) -> None:
    """Where network and coordinator do their work, nobody who does its own is thrown out."""
    if arena.plan.kind not in UNTROUBLED:
        return

    def noted(note: GroupNote) -> None:
        if isinstance(note.change, SessionExpired | JoinTimedOut | SyncTimedOut):
            arena.catch_up()
            for name, one in arena.processes.items():
                well = name not in arena.disturbed and name not in arena.closing
                known = one.machine.member_id and one.machine.member_id in str(note.change)
                must(not (well and known), "nobody is thrown out", name, note)

    arena.desk.on_note = noted
