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
from tests.support.simulation.ownership_checker import CheckedMember
from tests.support.simulation.plan import SECOND, UNTROUBLED, Action
from tests.support.simulation.rule import must
from tests.support.simulation.worlds import CheckedWorld, SubscriptionChoice

#: The initial delay, some heartbeats, listeners, the rounds that follow a cooperative one.
SLACK = 10 * SECOND
#: So long nothing must happen once a group has settled.
CALM = 20 * SECOND


def settling_time(world: CheckedWorld) -> int:
    """The rebalance timeout and the session timeout, the longest of any process there was.

    Where connections are not reset, a client first has to notice that a message was lost.
    """
    rebalance = max(world.rebalances, default=0)
    session = max(world.sessions, default=0)
    known = world.plan.resets or world.plan.kind in UNTROUBLED
    patience = 0 if known else max(REQUEST_TIMEOUT, rebalance + JOIN_TIMEOUT_MARGIN)
    return patience + rebalance + session + SLACK + 4 * world.plan.append


def check_settled(world: CheckedWorld) -> None:
    """Every group is stable or empty, and every partition that somebody wants has one owner.

    But for groups into whose generation a static member came back: it took what its place had, as
    in Kafka, although topics and subscriptions may have changed while it was away, and although it
    may have gone just before the second round of a cooperative rebalance.
    """
    driver = world.driver
    world.update_from_trace()
    before = world.now - world.plan.append - SECOND
    late = [one for token, one in driver.waiting.items() if driver.since[token] < before]
    must(not late, "everybody is answered", *late)
    must(not world.closing & world.processes.keys(), "who closes ends", *world.closing)
    _check_timers(world)
    for group in world.plan.groups:
        members = [
            one
            for one in world.processes.values()
            if one.program.config.group == group.name and world.wishes[one.name] is not None
        ]
        live = driver.live.get(group.name)
        if not members:
            empty = live is None or live.state is GroupState.EMPTY
            must(empty, "a group without members is empty", group.name, live)
            continue
        must(live is not None and live.state is GroupState.STABLE, "groups get stable", live)
        _check_members(world, group.name, members)
        _check_owners(world, members, complete=group.name not in driver.returned)


def _check_timers(world: CheckedWorld) -> None:
    """A coordinator waits for its members' next heartbeats, and for nothing else."""
    driver = world.driver
    stable = [name for name, live in driver.live.items() if live.state is GroupState.STABLE]
    wanted = {
        GroupTimerKey(GroupTimerKind.SESSION, name, member.member_id)
        for name in stable
        for member in driver.stored.groups[name].saved.members
    }
    found = set(world.timers) - {GroupTimerKey(GroupTimerKind.RETENTION)}
    must(found == wanted, "no timer is left over", *(found ^ wanted))


def resubscribe_if_needed(world: CheckedWorld) -> bool:
    """Somebody subscribes to one topic more where a static member came back; is it needed?"""
    world.update_from_trace()
    for group in sorted(world.driver.returned):
        able = [
            one
            for one in world.processes.values()
            if one.program.config.group == group and world.wishes[one.name] is not None
        ]
        if able:
            topics = (*sorted(wanted_topics(world, able[0].name)), "resubscribe_if_needed")
            world.wishes[able[0].name] = SubscriptionChoice(topics)
            able[0].subscribe(topics)
    return bool(world.driver.returned)


def _check_members(world: CheckedWorld, group: str, members: list[SimulatedProcess]) -> None:
    live, stored = world.driver.live[group], world.driver.stored.groups[group]
    for one in members:
        machine = one.machine
        assert isinstance(machine, CheckedMember)
        told = f"{one.name} is {machine.state.value} in {machine.generation}, the group {live}"
        must(machine.state is state.MemberState.STABLE, "members get stable", told)
        same = machine.generation == live.generation
        same = same and machine.seen.incarnation == live.incarnation
        must(same, "all know the generation", told)
    known = {one.machine.member_id for one in members}
    saved = {one.member_id for one in stored.saved.members}
    must(known == saved, "the group is who lives", known ^ saved)


def _check_owners(world: CheckedWorld, members: list[SimulatedProcess], *, complete: bool) -> None:
    owners: dict[TopicPartition, list[str]] = defaultdict(list)
    wanted: set[TopicPartition] = set()
    for one in members:
        topics = wanted_topics(world, one.name)
        for tp in one.owned:
            owners[tp].append(one.name)
            must(tp.topic in topics or not complete, "owners subscribe", one.name, tp)
        counts = world.cluster.partitions
        wanted |= {TopicPartition(topic, n) for topic in topics for n in range(counts[topic])}
    shared = {tp: names for tp, names in owners.items() if len(names) > 1}
    must(not shared, "one owner in the end", shared)
    rest = sorted(owners.keys() ^ wanted)
    must(not (complete and rest), "everything has an owner", members[0].program.config.group, rest)


def wanted_topics(world: CheckedWorld, name: str) -> set[str]:
    """The topics there are that a process wants."""
    wish = world.wishes[name]
    assert wish is not None
    counts = world.cluster.partitions
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
ACTS = (Action.UNSUBSCRIBE, Action.REMOVE_STATIC, Action.STRAY)
FAULTS = ("message slow", "request lost", "request repeated", "connection cut", "append failed")


def max_generations(world: CheckedWorld) -> int:
    """No rebalance without a reason: each gives two generations at most, in each group.

    A cooperative change takes two rounds; so does whoever comes back after it was thrown out. Who
    polls too slowly is thrown out again and again, so slow processes count by the time they had.
    """
    reasons = sum(record.type in REASONS for record in world.trace)
    reasons += sum(world.tally[f"act {act.name}"] for act in ACTS)
    reasons += sum(world.tally[name] for name in FAULTS)
    reasons += world.slow_time // min(world.rebalances, default=1)
    return 2 * reasons * len(world.plan.groups)


def check_no_removals(world: CheckedWorld) -> None:
    """Where network and coordinator do their work, nobody who does its own is thrown out."""
    if world.plan.kind not in UNTROUBLED:
        return

    def noted(note: GroupNote) -> None:
        if isinstance(note.change, SessionExpired | JoinTimedOut | SyncTimedOut):
            world.update_from_trace()
            for name, one in world.processes.items():
                well = name not in world.disturbed and name not in world.closing
                known = one.machine.member_id and one.machine.member_id in str(note.change)
                must(not (well and known), "nobody is thrown out", name, note)

    world.driver.on_note = noted
