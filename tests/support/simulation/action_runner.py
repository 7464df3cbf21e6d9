"""Acts in a random world, as its plan says."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

from rota.engine.assignors.registry import resolve_strategies
from rota.engine.member.events import ListenerMethod, Unsubscribed
from rota.engine.model.request import (
    DeleteGroups,
    DescribeGroups,
    GroupRequest,
    LeaveGroup,
    LeavingMember,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
)
from rota.engine.model.topic import OffsetAndMetadata, TopicPartition
from rota.engine.simulator.broker import CrashPoint
from rota.engine.simulator.process import ProcessConfig, SimulatedProcess
from rota.engine.simulator.trace import TraceEventType
from rota.errors import RotaError
from tests.support.simulation.plan import DUSK, SECOND, UNTROUBLED, Action, GroupPlan
from tests.support.simulation.worlds import CheckedWorld, SubscriptionChoice

BOUNDARIES = {
    Action.CRASH_BEFORE_APPEND: CrashPoint.BEFORE_APPEND,
    Action.CRASH_BEFORE_REPLAY: CrashPoint.BEFORE_REPLAY,
    Action.CRASH_BEFORE_REPLY: CrashPoint.BEFORE_RESPONSE,
}


class ListenerError(RotaError):
    """What a listener raises."""


class ActionRunner:
    """Acts in a world."""

    def __init__(self, checked_world: CheckedWorld) -> None:
        self.checked_world = checked_world
        self.chance = checked_world.chance
        self.plan = checked_world.plan
        self._acts: dict[Action, Callable[[], bool]] = {
            Action.JOIN: self._join,
            Action.LEAVE: self._leave,
            Action.ALL_LEAVE: self._all_leave,
            Action.RESUBSCRIBE: self._resubscribe,
            Action.UNSUBSCRIBE: self._unsubscribe,
            Action.MORE_PARTITIONS: self._more_partitions,
            Action.TOPIC_ADDED: self._topic_added,
            Action.TOPIC_DELETED: self._topic_deleted,
            Action.COMMIT_SYNC: lambda: self._commit(self.chance.between(0, 5_000)),
            Action.COMMIT_ASYNC: lambda: self._commit(None),
            Action.LOOK: self._look,
            Action.ADMIN_COMMIT: self._admin_commit,
            Action.DELETE_OFFSETS: self._delete_offsets,
            Action.DELETE_GROUP: self._delete_group,
            Action.REMOVE_STATIC: self._remove_static,
            Action.CRASH: self._crash,
            Action.PAUSE: self._pause,
            Action.STALL: self._stall,
            Action.SLOW: self._slow,
            Action.RESTART_SOON: lambda: self._restart(within=True),
            Action.RESTART_LATE: lambda: self._restart(within=False),
            Action.TWIN: self._twin,
            Action.LISTENER_RAISES: self._listener_raises,
            Action.STRANGER: self._stranger,
            Action.STOP: self._stop,
            Action.MOVE: self._move,
            Action.CRASH_BEFORE_APPEND: lambda: self._crash_at(Action.CRASH_BEFORE_APPEND),
            Action.CRASH_BEFORE_REPLAY: lambda: self._crash_at(Action.CRASH_BEFORE_REPLAY),
            Action.CRASH_BEFORE_REPLY: lambda: self._crash_at(Action.CRASH_BEFORE_REPLY),
            Action.STRAY: self._stray,
        }

    def plan_actions(self) -> None:
        """Plans everything, up to the last repair."""
        checked_world, plan = self.checked_world, self.plan
        together = self.chance.happens(0.5)
        for group in plan.groups:
            for _ in range(group.size):
                at = 0 if together else self.chance.between(0, 5 * SECOND)
                checked_world.schedule(at, functools.partial(self._start, group))
        for time, act in plan.script:
            checked_world.schedule(time, functools.partial(self.act, act))
        dusk = plan.horizon - DUSK
        checked_world.schedule(dusk, self._mend)
        for after in range(1, 5):
            checked_world.schedule(dusk + after * SECOND, self._use_up)
        checked_world.schedule(plan.horizon, self._end)

    def _start(self, group: GroupPlan) -> None:
        self.checked_world.start(self.checked_world.new_program(group))

    def act(self, act: Action) -> None:
        """Does it, if there is somebody to do it to."""
        if self._acts[act]():
            self.checked_world.tally[f"act {act.name}"] += 1

    def _mend(self) -> None:
        unreliable_network = self.checked_world.unreliable_network
        unreliable_network.rates = replace(unreliable_network.rates, append_failed=0.0)

    def _use_up(self) -> None:
        """A crash that still waits for an append gets one."""
        if self.checked_world.armed:
            self.checked_world.probe()

    def _end(self) -> None:
        """From now on nothing goes wrong."""
        checked_world = self.checked_world
        checked_world.unreliable_network.stop_faults()
        if checked_world.broker.coordinator is None:
            checked_world.broker.start()
        for one in list(checked_world.processes.values()):
            if one.processing != one.program.processing:
                one.slow_down(one.program.processing)
        if self.plan.resets and self.plan.kind not in UNTROUBLED:
            checked_world.reset_connections()

    def _left(self, wanted: int) -> int:
        """So long, but not beyond the end of the script."""
        return max(1, min(wanted, self.plan.horizon - SECOND - self.checked_world.now))

    # life

    def _join(self) -> bool:
        if len(self.checked_world.processes) >= 20:
            return False
        self.checked_world.start(self.checked_world.new_program(self.chance.pick(self.plan.groups)))
        return True

    def _leave(self) -> bool:
        one = self.checked_world.pick()
        if one is not None:
            one.leave()
        return one is not None

    def _all_leave(self) -> bool:
        group = self.chance.pick(self.plan.groups).name
        checked_world = self.checked_world
        checked_world.update_from_trace()
        for one in list(checked_world.processes.values()):
            able = one.name not in checked_world.closing and one.frozen_until <= checked_world.now
            if one.program.config.group == group and able:
                one.leave()
        return True

    def _resubscribe(self) -> bool:
        one = self.checked_world.pick(lambda one: self.checked_world.wishes[one.name] is not None)
        if one is None:
            return False
        self._wish(one.name, self.checked_world.choose_subscription())
        return True

    def _unsubscribe(self) -> bool:
        checked_world = self.checked_world

        def waits_inside(one: SimulatedProcess) -> bool:
            return (
                not (one.processing or one.processing_timer)
                and checked_world.wishes[one.name] is not None
            )

        one = checked_world.pick(waits_inside)
        if one is None:
            return False
        checked_world.wishes[one.name] = None
        checked_world.quitters.add(one.name)
        checked_world.disturbed.add(one.name)
        one.handle_event(Unsubscribed())
        again = checked_world.choose_subscription()
        name = one.name
        checked_world.schedule(
            checked_world.now + self._left(self.chance.between(0, 10) * SECOND),
            lambda: self._wish(name, again),
        )
        return True

    def _wish(self, name: str, wish: SubscriptionChoice) -> None:
        checked_world = self.checked_world
        checked_world.update_from_trace()
        if name in checked_world.processes and name not in checked_world.closing:
            checked_world.wishes[name] = wish
            checked_world[name].subscribe(wish.topics, wish.pattern)

    def _more_partitions(self) -> bool:
        topic = self.chance.pick(sorted(self.checked_world.cluster.partitions))
        count = self.checked_world.cluster.partitions[topic] + self.chance.between(1, 3)
        self.checked_world.set_partitions({topic: count})
        return True

    def _topic_added(self) -> bool:
        counts = self.checked_world.cluster.partitions
        missing = [name for name in (f"t{n}" for n in range(8)) if name not in counts]
        if not missing:
            return False
        self.checked_world.set_partitions({self.chance.pick(missing): self.chance.between(1, 6)})
        return True

    def _topic_deleted(self) -> bool:
        counts = self.checked_world.cluster.partitions
        if len(counts) < 2:
            return False
        self.checked_world.delete_topic(self.chance.pick(sorted(counts)))
        return True

    def _commit(self, wait: int | None) -> bool:
        one = self.checked_world.pick()
        if one is not None:
            one.commit(wait=wait)
        return one is not None

    # admins

    def _group(self) -> str:
        return self.chance.pick(self.plan.groups).name

    def _look(self) -> bool:
        group = self._group()
        self.checked_world.ask(ListGroups())
        self.checked_world.ask(DescribeGroups(groups=(group, "nobody's")))
        self.checked_world.ask(OffsetFetch(group=group))
        return True

    def _some_partition(self) -> TopicPartition:
        topic = self.chance.pick(sorted(self.checked_world.cluster.partitions))
        return TopicPartition(
            topic, self.chance.below(self.checked_world.cluster.partitions[topic])
        )

    def _admin_commit(self) -> bool:
        at = OffsetAndMetadata(self.chance.below(1_000_000))
        self.checked_world.ask(
            OffsetCommit(group=self._group(), offsets={self._some_partition(): at})
        )
        return True

    def _delete_offsets(self) -> bool:
        partitions = tuple(sorted({self._some_partition() for _ in range(3)}))
        self.checked_world.ask(OffsetDelete(group=self._group(), partitions=partitions))
        return True

    def _delete_group(self) -> bool:
        self.checked_world.ask(DeleteGroups(groups=(self._group(),)))
        return True

    def _remove_static(self) -> bool:
        one = self._static()
        if one is None:
            return False
        leaver = LeavingMember(group_instance_id=one.program.config.group_instance_id)
        self.checked_world.disturbed.add(one.name)
        self.checked_world.ask(LeaveGroup(group=one.program.config.group, members=(leaver,)))
        return True

    # processes fail

    def _static(self) -> SimulatedProcess | None:
        return self.checked_world.pick(
            lambda one: one.program.config.group_instance_id is not None, frozen=True
        )

    def _crash(self) -> bool:
        one = self.checked_world.pick(frozen=True)
        if one is not None:
            one.crash()
        return one is not None

    def _pause(self) -> bool:
        one = self.checked_world.pick()
        if one is None:
            return False
        self.checked_world.disturbed.add(one.name)
        session = one.program.config.session_timeout
        one.pause(self._left(session + self.chance.between(-2, 8) * SECOND))
        return True

    def _polls(self, one: SimulatedProcess) -> bool:
        """It is not in the middle of unsubscribing, which an application waits for."""
        return one.name not in self.checked_world.quitters

    def _stall(self) -> bool:
        one = self.checked_world.pick(self._polls)
        if one is None:
            return False
        self.checked_world.disturbed.add(one.name)
        poll = one.program.config.max_poll_interval
        one.stall(self._left(poll + self.chance.between(-1, 8) * SECOND))
        return True

    def _slow(self) -> bool:
        one = self.checked_world.pick(self._polls)
        if one is None:
            return False
        self.checked_world.disturbed.add(one.name)
        poll = one.program.config.max_poll_interval
        self.checked_world.slow_time += self.plan.horizon - self.checked_world.now
        one.slow_down(self._left(poll * self.chance.between(1, 12) // 8))
        return True

    def _restart(self, *, within: bool) -> bool:
        one = self._static()
        if one is None:
            return False
        session = one.program.config.session_timeout
        one.crash()
        wait = self.chance.between(100, session // 2)
        if not within:
            wait = session + self.chance.between(1, 10) * SECOND
        self.checked_world.schedule(
            self.checked_world.now + self._left(wait), lambda: self._again(one.program)
        )
        return True

    def _again(self, program: ProcessConfig) -> None:
        if program.name not in self.checked_world.processes:
            self.checked_world.start(program)

    def _twin(self) -> bool:
        one = self._static()
        if one is None:
            return False
        name = f"{one.name}'"
        if name in self.checked_world.processes:
            return False
        config = replace(one.program.config, client_id=name)
        self.checked_world.start(replace(one.program, name=name, config=config))
        return True

    def _listener_raises(self) -> bool:
        calls = self.chance.between(1, 3)

        def listener(
            call: ListenerMethod, partitions: tuple[TopicPartition, ...]
        ) -> Exception | None:
            nonlocal calls
            calls -= 1
            return ListenerError("the application's own") if calls == 0 else None

        group = self.chance.pick(self.plan.groups)
        self.checked_world.start(self.checked_world.new_program(group, listener=listener))
        return True

    def _stranger(self) -> bool:
        group = self.chance.pick(self.plan.groups)
        known = {name for names in group.lists for name in names}
        strange = [name for name in ("range", "roundrobin", "sticky") if name not in known]
        if not strange:
            return False
        names = (self.chance.pick(strange),)
        program = self.checked_world.new_program(group, assignors=lambda: resolve_strategies(names))
        self.checked_world.start(program)
        return True

    # the coordinator fails

    def _stop(self) -> bool:
        checked_world = self.checked_world
        checked_world.broker.stop()
        load = self.chance.pick((0, 0, 2_000))

        def start() -> None:
            if checked_world.broker.coordinator is None:
                checked_world.broker.start(load)

        checked_world.schedule(checked_world.now + self.chance.between(100, 12_000), start)
        return True

    def _move(self) -> bool:
        self.checked_world.broker.move_coordinator(self.chance.pick((0, 0, 2_000)))
        return True

    def _crash_at(self, act: Action) -> bool:
        self.checked_world.armed = True
        downtime = self.chance.between(100, 6_000)
        self.checked_world.broker.crash_at(
            BOUNDARIES[act], downtime, self.chance.pick((0, 0, 1_000))
        )
        return True

    # the network fails

    def _stray(self) -> bool:
        """One of the last of its kind, or an older one."""
        kinds: dict[str, list[GroupRequest]] = {}
        for record in self.checked_world.trace[-400:]:
            if record.type is TraceEventType.ASKED:
                assert isinstance(record.detail, GroupRequest)
                kinds.setdefault(type(record.detail).__name__, []).append(record.detail)
        if not kinds:
            return False
        asked = kinds[self.chance.pick(sorted(kinds))]
        self.checked_world.ask(self.chance.pick(asked[-3:] if self.chance.happens(0.4) else asked))
        return True
