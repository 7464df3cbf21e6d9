"""The rebalances of a group's history, and the events of its processes that caused them.

A policy with the same kind of membership as the one in use has the rebalances of the history
(:func:`list_rebalances`). Under another membership the same processes start, stop and fail at the
same times (:func:`list_process_events`), and ``whatif_replay.py`` finds the rebalances.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import NamedTuple

from rota.engine.history.consumption_end import ConsumptionEnd
from rota.engine.history.downtime import EventTimes
from rota.engine.history.facts import (
    DEFAULT_SESSION_TIMEOUT,
    DowntimeReason,
    Generation,
    GenerationChange,
    GenerationMember,
)
from rota.engine.history.group_evidence import client_of
from rota.engine.history.heartbeats import HEARTBEAT_SLACK
from rota.engine.history.restarts import (
    MemberRestart,
    MembershipEvent,
    find_leave_time,
    find_session_start,
)
from rota.engine.history.snapshot import (
    GroupSnapshot,
    HistoryIndex,
    SnapshotMember,
    drop_topics,
    update_counts,
)
from rota.engine.history.timing import GroupTiming

#: The longest time in a rolling deploy from the return of a member to the close of the next one.
MAX_DEPLOY_PAUSE = 60_000


class Absence(NamedTuple):
    """A member that is gone; ``number`` is its number in the history index."""

    number: int
    since: int
    is_silent: bool = False  # the broker waits for the end of its session
    session: int = DEFAULT_SESSION_TIMEOUT


class WhatIfRebalance(NamedTuple):
    incarnation: int
    generation: int
    at: int  # the time in the journal; unique among the rows of a generation
    snapshot: GroupSnapshot | None  # afterwards; None: a static member returned, no rebalance
    is_needed: bool = True  # something changed: otherwise a KIP-848 group has no rebalance
    starts_new_incarnation: bool = False  # the state before is unknown or no longer matters
    #: The snapshots of earlier rounds of the same cooperative rebalance, without repetitions.
    earlier_snapshots: tuple[GroupSnapshot, ...] = ()
    is_start: bool = False  # the first known state instead of a rebalance
    start: int = 0  # when members are called to join; then until all are assigned
    join_time: int = 0
    sync_time: int = 0
    since_last: int | None = None  # the time since the rebalance before; None: not known
    late_time: int = 0  # the time for which the members really waited for a late or a dead member
    second_late_time: int = 0  # the same for the second round of a cooperative rebalance
    gone: tuple[Absence, ...] = ()  # their partitions have no consumer until then


class CountedEvent(NamedTuple):
    event: MembershipEvent
    counts: Mapping[str, int]
    #: The rounds before the last, with the counts after each.
    earlier: tuple[tuple[Generation, Mapping[str, int]], ...] = ()


def follow_partition_counts(history: Sequence[MembershipEvent]) -> list[CountedEvent]:
    counts: dict[str, int] = {}
    incarnation = -1
    events = []
    for event in history:
        if event.generation.incarnation != incarnation:
            incarnation, counts = event.generation.incarnation, {}
        earlier = []
        for generation in () if event.rebalance is None else event.rebalance.rounds[:-1]:
            counts = update_counts(generation, counts)
            earlier.append((generation, counts))
        counts = update_counts(event.generation, counts)
        if event.rebalance is not None:
            counts = drop_topics(counts, event.rebalance.absent)
        events.append(CountedEvent(event, counts, tuple(earlier)))
    return events


def list_rebalances(
    history: Sequence[CountedEvent], index: HistoryIndex, timing: GroupTiming
) -> list[WhatIfRebalance]:
    rebalances: list[WhatIfRebalance] = []
    times = RowTimes()
    present: tuple[GenerationMember, ...] = ()
    counts: Mapping[str, int] = {}
    incarnation = -1
    assigned_at = returned_at = 0
    for (generation, rebalance, event_times), now, earlier in history:
        starts_incarnation = generation.incarnation != incarnation
        names = {member_name(one) for one in generation.members}
        ends = {} if event_times is None else event_times.gone
        gone = tuple(
            _absence(index.number(member_name(end.member)), end, assigned_at)
            for end in ends.values()
        )
        snapshot = _take_snapshot(index, generation.members, now)
        incarnation = generation.incarnation
        if generation.change is GenerationChange.FIRST_SAMPLE:
            row = _rebalance_at(generation, generation.at, snapshot)
            rebalances.append(row._replace(starts_new_incarnation=True, is_start=True))
        elif rebalance is not None or starts_incarnation:
            at = times.reserve(generation, generation.at)
            is_needed = (
                starts_incarnation
                or _topics_by_member(present) != _topics_by_member(generation.members)
                or counts != now
            )
            rounds = [_take_snapshot(index, one.members, known) for one, known in earlier]
            # rounds of an unchanged group are left out: the replay runs as many as it needs
            pairs = pairwise([*rounds, snapshot])
            distinct = tuple(one for one, later in pairs if one is not later)
            row = _rebalance_at(generation, at, snapshot)._replace(
                is_needed=is_needed,
                starts_new_incarnation=starts_incarnation,
                earlier_snapshots=distinct,
                gone=gone,
            )
            stayed = sum(member_name(one) in names for one in present)
            row = _date(row, event_times, stayed, timing, assigned_at)
            if event_times is not None:
                has_returned = returned_at > assigned_at
                late = _late_time(event_times, stayed, timing, assigned_at, returned=has_returned)
                row = row._replace(late_time=late)
            rebalances.append(row)
            assigned_at = generation.at
        else:
            at = times.reserve(generation, generation.at)
            returned_at = generation.at
            row = _rebalance_at(generation, at, None)._replace(gone=gone, start=generation.at)
            rebalances.append(row)
        present, counts = generation.members, now
    return rebalances


def member_name(member: GenerationMember) -> str:
    """Returns the name under which a member keeps its partitions, static ones over restarts."""
    if member.group_instance_id is None:
        return member.member_id
    return f"static {member.group_instance_id}"


def _absence(number: int, end: ConsumptionEnd, assigned_at: int) -> Absence:
    """:param assigned_at: when the last rebalance ended"""
    silent = end.reason in {DowntimeReason.SILENT, DowntimeReason.RESTARTED} and not end.is_closed
    session = end.member.session_timeout or DEFAULT_SESSION_TIMEOUT
    since = end.time.estimate if end.has_polled_since(assigned_at) else assigned_at
    return Absence(number, since, silent, session)


def _date(
    rebalance: WhatIfRebalance,
    times: EventTimes | None,
    members: int,
    timing: GroupTiming,
    last: int,
) -> WhatIfRebalance:
    """Returns a rebalance of the history with its times.

    :param members: the number of members that stayed
    :param last: when the last rebalance ended
    """
    if times is None:
        start = rebalance.at - timing.sync_time
        join_time = timing.join_time(members, max(start - last, 0))
        return rebalance._replace(start=start, join_time=join_time, sync_time=timing.sync_time)
    join_time = times.joined - times.start
    return rebalance._replace(
        start=times.start,
        join_time=join_time,
        sync_time=times.assigned - times.joined,
        since_last=times.start - last,
        second_late_time=max(
            max(times.later_joins, default=0) - timing.second_join_time - HEARTBEAT_SLACK, 0
        ),
    )


def _late_time(
    times: EventTimes, members: int, timing: GroupTiming, last: int, *, returned: bool
) -> int:
    """Returns how long a rebalance waited for a late or a dead member. ``returned``: a static
    member returned since the last rebalance, so its heartbeats began then.
    """
    join_time = times.joined - times.start
    if not members:
        return join_time
    heartbeats = timing.heartbeats
    limit = heartbeats.expect_waits(members, times.start - last).longest_possible
    if returned:
        limit = max(limit, heartbeats.interval + HEARTBEAT_SLACK)
    return max(join_time - limit, 0)


def _rebalance_at(
    generation: Generation, at: int, snapshot: GroupSnapshot | None
) -> WhatIfRebalance:
    return WhatIfRebalance(generation.incarnation, generation.generation, at, snapshot)


def _topics_by_member(members: Iterable[GenerationMember]) -> dict[str, frozenset[str]]:
    return {member.member_id: frozenset(member.topics) for member in members}


def _take_snapshot(
    index: HistoryIndex, members: Iterable[GenerationMember], counts: Mapping[str, int]
) -> GroupSnapshot:
    return index.snapshot(
        (
            SnapshotMember(
                index.number(member_name(member)),
                member.member_id,
                member.group_instance_id,
                member.topics,
            )
            for member in members
        ),
        counts,
    )


class RowTimes:
    def __init__(self) -> None:
        self._used: set[tuple[int, int, int]] = set()

    def reserve(self, generation: Generation, at: int) -> int:
        while (generation.incarnation, generation.generation, at) in self._used:
            at += 1
        self._used.add((generation.incarnation, generation.generation, at))
        return at


class ProcessEventType(enum.Enum):
    STARTED = "started"
    CLOSED = "closed"  # it closed its consumer, or left because it polled too late
    CRASHED = "crashed"
    CHANGED = "changed"  # other reasons: new topics or partitions, or a call by a member
    #: Its last poll before it left, because it polled too late. It joins no rebalance in that time.
    STOPPED_POLLING = "stopped polling"


class ProcessEvent(NamedTuple):
    at: int
    row: int
    type: ProcessEventType
    member: GenerationMember | None = None
    application: str = ""  # the application: it has the same name after a restart
    session_start: int = 0  # last sign of life before a crash or a session's end; 0: not known
    late_time: int = 0  # the time for which the rebalance that followed waited for a late member
    is_guess: bool = False  # nothing shows whether it was closed or crashed
    sequence: int = 0  # events delayed together (a rolling deploy, slow polls); 0: none
    stops_at: int = 0  # first assignment of a process that never polled after it; else 0
    #: Its last poll was before its last assignment: it did not read those partitions.
    polled_before_assignment: bool = False


def list_process_events(
    history: Sequence[CountedEvent], restarts: Sequence[MemberRestart], timing: GroupTiming
) -> list[ProcessEvent]:
    """Returns the events in order; all members start in the first generation of an incarnation."""
    names = _name_applications(history, restarts)
    clients = _list_clients(history, names)
    events: list[ProcessEvent] = []
    present: dict[str, GenerationMember] = {}
    assigned_at: dict[str, int] = {}  # when each member first had partitions
    incarnation, last, returned = -1, 0, 0
    for row, counted in enumerate(history):
        event = counted.event
        generation = event.generation
        if generation.incarnation == incarnation:
            found = list(_read_event(row, counted, present, names, last))
            found += _list_passing(row, counted, present, clients)
            late = 0
            if event.times is not None and event.rebalance is not None:
                began = event.times.start + HEARTBEAT_SLACK
                is_usual = all(
                    end.reason is DowntimeReason.LEFT
                    and (end.last_poll is None or end.time.estimate <= began)
                    for end in event.times.gone.values()
                )
                stayed = sum(member.member_id in present for member in generation.members)
                if is_usual and stayed:
                    has_returned = returned > last
                    late = _late_time(event.times, stayed, timing, last, returned=has_returned)
            events += [one._replace(late_time=late) for one in found]
        else:
            events += [
                ProcessEvent(
                    generation.at, row, ProcessEventType.STARTED, one, names[one.member_id]
                )
                for one in generation.members
            ]
        present = {member.member_id: member for member in generation.members}
        for one in _list_rounds(event):
            for member in one.members:
                if member.assigned:
                    assigned_at.setdefault(member.member_id, one.at)
        incarnation = generation.incarnation
        if event.rebalance is not None:
            last = generation.at
        elif generation.change is GenerationChange.REPLACED:
            returned = generation.at
    awaited = _list_awaiting_rows(history, events)
    events = [one._replace(late_time=0) if one.row in awaited else one for one in events]
    events = _number_deploys(_close_in_deploys(events))
    return _join_slow_polls(events, assigned_at)


def _pair_restarts(
    events: Sequence[ProcessEvent], *gone: ProcessEventType
) -> list[tuple[ProcessEvent, ProcessEvent]]:
    """Returns the events with which processes stopped and started again, by the time of the stop.
    ``gone``: the types of events with which they stopped.
    """
    found: list[tuple[ProcessEvent, ProcessEvent]] = []
    stopped: dict[str, ProcessEvent] = {}
    for event in sorted(events, key=lambda one: one.at):
        if event.type in gone:
            stopped[event.application] = event
        elif event.type is ProcessEventType.STARTED and event.application in stopped:
            found.append((stopped.pop(event.application), event))
    return sorted(found, key=lambda pair: pair[0].at)


def _close_in_deploys(events: Sequence[ProcessEvent]) -> list[ProcessEvent]:
    """Returns the events; static members that seem to have crashed have closed if they were away
    for as long as the process before or after them in a rolling deploy.
    """
    closes = [(gone.at, back.at) for gone, back in _pair_restarts(events, ProcessEventType.CLOSED)]
    closed: dict[int, ProcessEvent] = {}
    for gone, back in _pair_restarts(events, ProcessEventType.CRASHED):
        since = gone.session_start
        is_static = gone.member is not None and gone.member.group_instance_id is not None
        if is_static and any(
            abs((end - begin) - (back.at - since)) <= HEARTBEAT_SLACK
            and (0 <= since - end <= MAX_DEPLOY_PAUSE or 0 <= begin - back.at <= MAX_DEPLOY_PAUSE)
            for begin, end in closes
        ):
            closed[id(gone)] = gone._replace(at=since, type=ProcessEventType.CLOSED)
    return [closed.get(id(one), one) for one in events]


def _join_slow_polls(
    events: Sequence[ProcessEvent], assigned_at: Mapping[str, int]
) -> list[ProcessEvent]:
    """Returns the events. If a process made its last poll with its first assignment, its start has
    that poll: under another policy it comes at another time, and so does what follows.
    """
    joined: list[ProcessEvent | None] = list(events)
    started: dict[str, int] = {}
    sequences: dict[str, int] = {}
    away: dict[str, int] = {}  # the sequences of processes that have left and will start again
    for place, event in enumerate(events):
        name = event.member.member_id if event.member is not None else ""
        if event.type is ProcessEventType.STARTED:
            started[name] = place
            joined[place] = event._replace(sequence=away.pop(event.application, event.sequence))
        elif event.type is ProcessEventType.STOPPED_POLLING and name in started:
            if abs(event.at - assigned_at.get(name, 0)) <= HEARTBEAT_SLACK:
                number = sequences.setdefault(event.application, -1 - len(sequences))
                begin = joined[started[name]]
                assert begin is not None
                joined[started[name]] = begin._replace(stops_at=event.at, sequence=number)
                joined[place] = None
                away[event.application] = number
        elif event.application in away:  # it leaves
            joined[place] = event._replace(sequence=away[event.application])
    return [one for one in joined if one is not None]


def _number_deploys(events: Sequence[ProcessEvent]) -> list[ProcessEvent]:
    """Returns the events with the numbers of rolling deploys: each application is closed a short
    time after the one before is back, and all are away for the same time.
    """
    known = [one for one in events if not one.is_guess]
    deploys: dict[int, int] = {}
    names: set[str] = set()
    restarts = _pair_restarts(known, ProcessEventType.CLOSED)
    for number, ((gone, back), (other, other_back)) in enumerate(pairwise(restarts), 1):
        names.add(gone.application)
        is_next = (
            -HEARTBEAT_SLACK <= other.at - back.at <= MAX_DEPLOY_PAUSE
            and abs((back.at - gone.at) - (other_back.at - other.at)) <= HEARTBEAT_SLACK
            and other.application not in names
        )
        if is_next:
            deploy = deploys.get(id(gone), number)
            deploys |= dict.fromkeys(map(id, (gone, back, other, other_back)), deploy)
        else:
            names.clear()
    return [one._replace(sequence=deploys.get(id(one), 0)) for one in events]


def _list_awaiting_rows(
    history: Sequence[CountedEvent], events: Iterable[ProcessEvent]
) -> set[int]:
    """Returns rebalances that waited for a gone static member: its absence is its own event."""
    rows: set[int] = set()
    for event in events:
        if event.type in {ProcessEventType.CLOSED, ProcessEventType.CRASHED}:
            row = event.row - 1
            while row >= 0 and history[row].event.generation.at > event.at:
                rows.add(row)
                row -= 1
    return rows


def _name_applications(
    history: Sequence[CountedEvent], restarts: Sequence[MemberRestart]
) -> dict[str, str]:
    """Returns the application of each member id: a static id, or the first id of a chain of
    restarts. A member that is only in an earlier round of a rebalance, or that came back before the
    broker removed it, is matched by its client id, if no two processes have it at the same time.
    """
    before = {one.new_member_id: one.old_member_id for one in restarts}
    rounds = [one.members for counted in history for one in _list_rounds(counted.event)]
    crashed_at = {
        name: end.time.estimate
        for counted in history
        if counted.event.times is not None
        for name, end in counted.event.times.gone.items()
        if end.reason is DowntimeReason.SILENT
    }
    shared: set[str] = set()
    for counted in history:
        for one in _list_rounds(counted.event):
            numbers = Counter(
                member.client_id
                for member in one.members
                if crashed_at.get(member.member_id, one.at) >= one.at
            )
            shared.update(name for name, number in numbers.items() if number > 1)
    names: dict[str, str] = {}
    by_client: dict[str, str] = {}
    for member in chain.from_iterable(rounds):
        client = member.client_id
        if member.group_instance_id is not None:
            names[member.member_id] = member_name(member)
        elif member.member_id not in names:
            name = names.get(before.get(member.member_id, ""))
            if name is None and client not in shared:
                name = by_client.get(client)
            names[member.member_id] = name or member.member_id
        by_client[client] = names[member.member_id]
    return names


def _list_rounds(event: MembershipEvent) -> Sequence[Generation]:
    return (event.generation,) if event.rebalance is None else event.rebalance.rounds


class _Client(NamedTuple):
    member: GenerationMember
    application: str | None  # None: the client id does not tell its members apart
    gone_at: int | None = None


def _list_clients(history: Sequence[CountedEvent], names: Mapping[str, str]) -> dict[str, _Client]:
    clients: dict[str, _Client] = {}
    for one in (each for counted in history for each in _list_rounds(counted.event)):
        for member in one.members:
            client, name = client_of(member.member_id), names[member.member_id]
            known = clients.setdefault(client, _Client(member, name))
            if known.application != name:
                clients[client] = known._replace(application=None)
    return clients


def _list_passing(
    row: int,
    counted: CountedEvent,
    present: Mapping[str, GenerationMember],
    clients: dict[str, _Client],
) -> Iterator[ProcessEvent]:
    """Yields the events of members that joined and left during a rebalance; adds their clients."""
    times = counted.event.times
    some = next(iter((*present.values(), *counted.event.generation.members)), None)
    if times is None or some is None:
        return
    for one in times.passing:
        client = client_of(one.member_id)
        known = clients.get(client, _Client(some, None))
        member = replace(
            known.member, member_id=one.member_id, client_id=client, assigned={}, owned={}
        )
        name = known.application or one.member_id
        if client not in clients or known.gone_at is not None:
            # it never got partitions, nor did another member with its client id
            if known.gone_at is not None and one.joined < known.gone_at:
                name = one.member_id  # another process
            clients[client] = _Client(member, name, one.gone)
        yield ProcessEvent(one.joined, row, ProcessEventType.STARTED, member, name)
        if one.is_crash:
            session = member.session_timeout or DEFAULT_SESSION_TIMEOUT
            start = max(one.gone - session, one.joined)
            yield ProcessEvent(start, row, ProcessEventType.CRASHED, member, name, start)
        else:
            yield ProcessEvent(one.gone, row, ProcessEventType.CLOSED, member, name)


def _read_event(
    row: int,
    counted: CountedEvent,
    present: Mapping[str, GenerationMember],
    names: Mapping[str, str],
    assigned_at: int,
) -> Iterator[ProcessEvent]:
    """:param assigned_at: when the last rebalance ended"""
    event = counted.event
    generation, rebalance, times = event
    start = generation.at if times is None else min(times.start, generation.at)
    found = False
    rounds = _list_rounds(event)
    before = present
    for number, one in enumerate(rounds):
        now = {member.member_id: member for member in one.members}
        gone = [before[name] for name in sorted(before.keys() - now.keys())]
        called = start if number == 0 else rounds[number - 1].at
        for member in gone:
            found = True
            end = None if times is None else times.gone.get(member.member_id)
            is_silent = member.group_instance_id is not None and rebalance is not None
            if end is not None:
                is_silent = end.reason is not DowntimeReason.LEFT and not end.is_closed
            is_expired = end is not None and end.session_start is not None
            application = names.get(member.member_id, member.member_id)
            if end is not None and end.last_poll is not None:
                yield ProcessEvent(
                    end.last_poll.estimate,
                    row,
                    ProcessEventType.STOPPED_POLLING,
                    member,
                    application,
                    polled_before_assignment=not end.has_polled_since(assigned_at),
                )
            yield ProcessEvent(
                find_leave_time(member, event),
                row,
                ProcessEventType.CRASHED if is_silent else ProcessEventType.CLOSED,
                member,
                application,
                find_session_start(member, event) if is_silent or is_expired else 0,
                is_guess=end is not None and end.is_guess,
            )
        for name in sorted(now.keys() - before.keys()):
            found = True
            at = called if times is None else times.joins.get(name, called)
            yield ProcessEvent(at, row, ProcessEventType.STARTED, now[name], names.get(name, name))
        for name in sorted(now.keys() & before.keys()):
            if set(now[name].topics) != set(before[name].topics):
                found = True
                yield ProcessEvent(
                    called, row, ProcessEventType.CHANGED, now[name], names.get(name, name)
                )
        before = now
    if not found and not (times is not None and times.passing):
        yield ProcessEvent(start, row, ProcessEventType.CHANGED)
