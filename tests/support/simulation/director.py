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
from tests.support.simulation.plan import DUSK, SECOND, UNTROUBLED, Act, GroupPlan
from tests.support.simulation.worlds import Arena, Wish

BOUNDARIES = {
    Act.CRASH_BEFORE_APPEND: CrashPoint.BEFORE_APPEND,
    Act.CRASH_BEFORE_REPLAY: CrashPoint.BEFORE_REPLAY,
    Act.CRASH_BEFORE_REPLY: CrashPoint.BEFORE_RESPONSE,
}


class Refused(RotaError):
    """What a listener raises."""


class Director:
    """Acts in a world."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.chance = arena.chance
        self.plan = arena.plan
        self._acts: dict[Act, Callable[[], bool]] = {
            Act.JOIN: self._join,
            Act.LEAVE: self._leave,
            Act.ALL_LEAVE: self._all_leave,
            Act.RESUBSCRIBE: self._resubscribe,
            Act.UNSUBSCRIBE: self._unsubscribe,
            Act.MORE_PARTITIONS: self._more_partitions,
            Act.TOPIC_ADDED: self._topic_added,
            Act.TOPIC_DELETED: self._topic_deleted,
            Act.COMMIT_SYNC: lambda: self._commit(self.chance.between(0, 5_000)),
            Act.COMMIT_ASYNC: lambda: self._commit(None),
            Act.LOOK: self._look,
            Act.ADMIN_COMMIT: self._admin_commit,
            Act.DELETE_OFFSETS: self._delete_offsets,
            Act.DELETE_GROUP: self._delete_group,
            Act.REMOVE_STATIC: self._remove_static,
            Act.CRASH: self._crash,
            Act.PAUSE: self._pause,
            Act.STALL: self._stall,
            Act.SLOW: self._slow,
            Act.RESTART_SOON: lambda: self._restart(within=True),
            Act.RESTART_LATE: lambda: self._restart(within=False),
            Act.TWIN: self._twin,
            Act.LISTENER_RAISES: self._listener_raises,
            Act.STRANGER: self._stranger,
            Act.STOP: self._stop,
            Act.MOVE: self._move,
            Act.CRASH_BEFORE_APPEND: lambda: self._crash_at(Act.CRASH_BEFORE_APPEND),
            Act.CRASH_BEFORE_REPLAY: lambda: self._crash_at(Act.CRASH_BEFORE_REPLAY),
            Act.CRASH_BEFORE_REPLY: lambda: self._crash_at(Act.CRASH_BEFORE_REPLY),
            Act.STRAY: self._stray,
        }

    def rehearse(self) -> None:
        """Plans everything, up to the last repair."""
        arena, plan = self.arena, self.plan
        together = self.chance.happens(0.5)
        for group in plan.groups:
            for _ in range(group.size):
                at = 0 if together else self.chance.between(0, 5 * SECOND)
                arena.schedule(at, functools.partial(self._start, group))
        for time, act in plan.script:
            arena.schedule(time, functools.partial(self.act, act))
        dusk = plan.horizon - DUSK
        arena.schedule(dusk, self._mend)
        for after in range(1, 5):
            arena.schedule(dusk + after * SECOND, self._use_up)
        arena.schedule(plan.horizon, self._end)

    def _start(self, group: GroupPlan) -> None:
        self.arena.start(self.arena.new_program(group))

    def act(self, act: Act) -> None:
        """Does it, if there is somebody to do it to."""
        if self._acts[act]():
            self.arena.tally[f"act {act.name}"] += 1

    def _mend(self) -> None:
        weather = self.arena.weather
        weather.rates = replace(weather.rates, append_failed=0.0)

    def _use_up(self) -> None:
        """A crash that still waits for an append gets one."""
        if self.arena.armed:
            self.arena.probe()

    def _end(self) -> None:
        """From now on nothing goes wrong."""
        arena = self.arena
        arena.weather.clear_up()
        if arena.coordinator is None:
            arena.start_coordinator()
        for one in list(arena.processes.values()):
            if one.processing != one.program.processing:
                one.slow_down(one.program.processing)
        if self.plan.resets and self.plan.kind not in UNTROUBLED:
            arena.reset_connections()

    def _left(self, wanted: int) -> int:
        """So long, but not beyond the end of the script."""
        return max(1, min(wanted, self.plan.horizon - SECOND - self.arena.now))

    # life

    def _join(self) -> bool:
        if len(self.arena.processes) >= 20:
            return False
        self.arena.start(self.arena.new_program(self.chance.pick(self.plan.groups)))
        return True

    def _leave(self) -> bool:
        one = self.arena.pick()
        if one is not None:
            one.leave()
        return one is not None

    def _all_leave(self) -> bool:
        group = self.chance.pick(self.plan.groups).name
        arena = self.arena
        arena.catch_up()
        for one in list(arena.processes.values()):
            able = one.name not in arena.closing and one.frozen_until <= arena.now
            if one.program.config.group == group and able:
                one.leave()
        return True

    def _resubscribe(self) -> bool:
        one = self.arena.pick(lambda one: self.arena.wishes[one.name] is not None)
        if one is None:
            return False
        self._wish(one.name, self.arena.new_wish())
        return True

    def _unsubscribe(self) -> bool:
        arena = self.arena

        def waits_inside(one: SimulatedProcess) -> bool:
            return (
                not (one.processing or one.processing_timer) and arena.wishes[one.name] is not None
            )

        one = arena.pick(waits_inside)
        if one is None:
            return False
        arena.wishes[one.name] = None
        arena.quitters.add(one.name)
        arena.disturbed.add(one.name)
        one.handle_event(Unsubscribed())
        again = arena.new_wish()
        name = one.name
        arena.schedule(
            arena.now + self._left(self.chance.between(0, 10) * SECOND),
            lambda: self._wish(name, again),
        )
        return True

    def _wish(self, name: str, wish: Wish) -> None:
        arena = self.arena
        arena.catch_up()
        if name in arena.processes and name not in arena.closing:
            arena.wishes[name] = wish
            arena[name].subscribe(wish.topics, wish.pattern)

    def _more_partitions(self) -> bool:
        topic = self.chance.pick(sorted(self.arena.cluster.partitions))
        count = self.arena.cluster.partitions[topic] + self.chance.between(1, 3)
        self.arena.set_partitions({topic: count})
        return True

    def _topic_added(self) -> bool:
        counts = self.arena.cluster.partitions
        missing = [name for name in (f"t{n}" for n in range(8)) if name not in counts]
        if not missing:
            return False
        self.arena.set_partitions({self.chance.pick(missing): self.chance.between(1, 6)})
        return True

    def _topic_deleted(self) -> bool:
        counts = self.arena.cluster.partitions
        if len(counts) < 2:
            return False
        self.arena.delete_topic(self.chance.pick(sorted(counts)))
        return True

    def _commit(self, wait: int | None) -> bool:
        one = self.arena.pick()
        if one is not None:
            one.commit(wait=wait)
        return one is not None

    # admins

    def _group(self) -> str:
        return self.chance.pick(self.plan.groups).name

    def _look(self) -> bool:
        group = self._group()
        self.arena.ask(ListGroups())
        self.arena.ask(DescribeGroups(groups=(group, "nobody's")))
        self.arena.ask(OffsetFetch(group=group))
        return True

    def _some_partition(self) -> TopicPartition:
        topic = self.chance.pick(sorted(self.arena.cluster.partitions))
        return TopicPartition(topic, self.chance.below(self.arena.cluster.partitions[topic]))

    def _admin_commit(self) -> bool:
        at = OffsetAndMetadata(self.chance.below(1_000_000))
        self.arena.ask(OffsetCommit(group=self._group(), offsets={self._some_partition(): at}))
        return True

    def _delete_offsets(self) -> bool:
        partitions = tuple(sorted({self._some_partition() for _ in range(3)}))
        self.arena.ask(OffsetDelete(group=self._group(), partitions=partitions))
        return True

    def _delete_group(self) -> bool:
        self.arena.ask(DeleteGroups(groups=(self._group(),)))
        return True

    def _remove_static(self) -> bool:
        one = self._static()
        if one is None:
            return False
        leaver = LeavingMember(group_instance_id=one.program.config.group_instance_id)
        self.arena.disturbed.add(one.name)
        self.arena.ask(LeaveGroup(group=one.program.config.group, members=(leaver,)))
        return True

    # processes fail

    def _static(self) -> SimulatedProcess | None:
        return self.arena.pick(
            lambda one: one.program.config.group_instance_id is not None, frozen=True
        )

    def _crash(self) -> bool:
        one = self.arena.pick(frozen=True)
        if one is not None:
            one.crash()
        return one is not None

    def _pause(self) -> bool:
        one = self.arena.pick()
        if one is None:
            return False
        self.arena.disturbed.add(one.name)
        session = one.program.config.session_timeout
        one.pause(self._left(session + self.chance.between(-2, 8) * SECOND))
        return True

    def _polls(self, one: SimulatedProcess) -> bool:
        """It is not in the middle of unsubscribing, which an application waits for."""
        return one.name not in self.arena.quitters

    def _stall(self) -> bool:
        one = self.arena.pick(self._polls)
        if one is None:
            return False
        self.arena.disturbed.add(one.name)
        poll = one.program.config.max_poll_interval
        one.stall(self._left(poll + self.chance.between(-1, 8) * SECOND))
        return True

    def _slow(self) -> bool:
        one = self.arena.pick(self._polls)
        if one is None:
            return False
        self.arena.disturbed.add(one.name)
        poll = one.program.config.max_poll_interval
        self.arena.slow_time += self.plan.horizon - self.arena.now
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
        self.arena.schedule(self.arena.now + self._left(wait), lambda: self._again(one.program))
        return True

    def _again(self, program: ProcessConfig) -> None:
        if program.name not in self.arena.processes:
            self.arena.start(program)

    def _twin(self) -> bool:
        one = self._static()
        if one is None:
            return False
        name = f"{one.name}'"
        if name in self.arena.processes:
            return False
        config = replace(one.program.config, client_id=name)
        self.arena.start(replace(one.program, name=name, config=config))
        return True

    def _listener_raises(self) -> bool:
        calls = self.chance.between(1, 3)

        def listener(
            call: ListenerMethod, partitions: tuple[TopicPartition, ...]
        ) -> Exception | None:
            nonlocal calls
            calls -= 1
            return Refused("the application's own") if calls == 0 else None

        group = self.chance.pick(self.plan.groups)
        self.arena.start(self.arena.new_program(group, listener=listener))
        return True

    def _stranger(self) -> bool:
        group = self.chance.pick(self.plan.groups)
        known = {name for names in group.lists for name in names}
        strange = [name for name in ("range", "roundrobin", "sticky") if name not in known]
        if not strange:
            return False
        names = (self.chance.pick(strange),)
        program = self.arena.new_program(group, assignors=lambda: resolve_strategies(names))
        self.arena.start(program)
        return True

    # the coordinator fails

    def _stop(self) -> bool:
        arena = self.arena
        arena.stop_coordinator()
        load = self.chance.pick((0, 0, 2_000))

        def start() -> None:
            if arena.coordinator is None:
                arena.start_coordinator(load)

        arena.schedule(arena.now + self.chance.between(100, 12_000), start)
        return True

    def _move(self) -> bool:
        self.arena.move_coordinator(self.chance.pick((0, 0, 2_000)))
        return True

    def _crash_at(self, act: Act) -> bool:
        self.arena.armed = True
        downtime = self.chance.between(100, 6_000)
        self.arena.crash_coordinator_at(BOUNDARIES[act], downtime, self.chance.pick((0, 0, 1_000)))
        return True

    # the network fails

    def _stray(self) -> bool:
        """One of the last of its kind, or an older one."""
        kinds: dict[str, list[GroupRequest]] = {}
        for record in self.arena.trace[-400:]:
            if record.type is TraceEventType.ASKED:
                assert isinstance(record.detail, GroupRequest)
                kinds.setdefault(type(record.detail).__name__, []).append(record.detail)
        if not kinds:
            return False
        asked = kinds[self.chance.pick(sorted(kinds))]
        self.arena.ask(self.chance.pick(asked[-3:] if self.chance.happens(0.4) else asked))
        return True
