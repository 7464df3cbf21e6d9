"""The true downtime of partitions in the two recorded runs, as the clients' callbacks show it.

A gap of a partition starts when its last owner stops to have it and ends when any member of the
group gets it in an ``assigned`` callback. An owner stops

- in a ``revoked`` or ``lost`` callback. This holds for a graceful close too: the recordings show
  commits between the order to close and the callback, up to 240 ms after the order;
- when it is killed or closed without LeaveGroup (``crashed``), or frozen for longer than its
  session. The callbacks of a crashed client are its own business: the broker heard nothing;
- when its ``max.poll.interval.ms`` ends while it does not poll: the client leaves the group then.
  Its ``lost`` callback comes much later, when it polls again.

Only a partition that had an owner can have a gap. While no member subscribes to its topic it has no
gap, unless the group has no members at all. A deleted group has no gaps: they end at the deletion.
"""

from __future__ import annotations

import enum
import gzip
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from tests.support import first_recording, second_recording
from tests.support.recording_scenario import GROUPS, STORY, ActionKind, ScriptedAction


class GapType(enum.StrEnum):
    """How the last owner stopped to have the partition."""

    #: It stayed in the group.
    REVOKED = "revoked"
    #: A ``lost`` callback, but not after a slow poll.
    LOST = "lost"
    LEFT = "left"
    CRASHED = "crashed"
    #: A static member was closed without leaving.
    RESTARTED = "restarted"
    #: It left because it did not poll.
    SLOW_POLL = "slow poll"


class GapEnd(enum.StrEnum):
    ASSIGNED = "assigned"
    GROUP_DELETED = "group deleted"
    #: No member subscribes to the topic any more.
    UNSUBSCRIBED = "unsubscribed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrueGap:
    """A time in which no member had a partition."""

    group: str
    topic: str
    partition: int
    since: int
    #: None: it lasts to the end of the recording.
    until: int | None
    last_client: str
    kind: GapType
    end: GapEnd | None = None
    #: The client that got the partition.
    next_client: str | None = None


class PauseType(enum.StrEnum):
    """Why a member did not poll though it had its partitions."""

    #: Longer than ``max.poll.interval.ms``.
    SLOW_POLL = "slow poll"
    #: Shorter: nobody but the member knows.
    BUSY = "busy"
    #: Its process was stopped for less than its session.
    FROZEN = "frozen"


@dataclass(frozen=True, slots=True, kw_only=True)
class TruePause:
    """A time in which the owner of a partition did not poll."""

    group: str
    topic: str
    partition: int
    since: int
    #: For a slow poll: when the client left the group.
    until: int
    client: str
    kind: PauseType


Partition = tuple[str, int]


class MemberEventType(enum.StrEnum):
    SUBSCRIBED = "subscribed"
    ASSIGNED = "assigned"
    #: ``how`` says how the owner stopped to have the partitions.
    STOPPED = "stopped"
    PAUSED = "paused"
    #: It is no member any more, or will be found to be none.
    GONE = "gone"
    GROUP_DELETED = "group deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberEvent:
    """What a client did, in the same form for both recordings."""

    at: int
    what: MemberEventType
    client: str = ""
    #: None: all that the client has, or all topics of a pattern.
    partitions: tuple[Partition, ...] | None = None
    topics: tuple[str, ...] | None = None
    how: GapType = GapType.REVOKED
    pause: PauseType = PauseType.BUSY
    #: End of a pause.
    until: int = 0


def group_names() -> list[str]:
    """All groups of both recordings whose members have partitions of their own."""
    return sorted(_events_by_group())


@cache
def find_true_gaps(group: str) -> Sequence[TrueGap]:
    """Returns the gaps of a group's partitions, by their start."""
    return _track_ownership(group).gaps


@cache
def find_true_pauses(group: str) -> Sequence[TruePause]:
    """Returns the times in which owners did not poll, by their start."""
    return _track_ownership(group).pauses


@cache
def find_true_downtime(group: str) -> Sequence[TrueGap]:
    """Returns the gaps; a gap after a slow poll starts when the owner polled last."""
    began = {
        (pause.topic, pause.partition, pause.until): pause.since
        for pause in find_true_pauses(group)
        if pause.kind is PauseType.SLOW_POLL
    }
    return [
        replace(gap, since=began.get((gap.topic, gap.partition, gap.since), gap.since))
        for gap in find_true_gaps(group)
    ]


@dataclass(slots=True)
class _Ownership:
    """Who has which partition of a group."""

    group: str
    owners: dict[Partition, set[str]] = field(default_factory=lambda: defaultdict(set))
    #: Topics by client; None: a pattern.
    subscribed: dict[str, tuple[str, ...] | None] = field(default_factory=dict)
    open: dict[Partition, TrueGap] = field(default_factory=dict)
    gaps: list[TrueGap] = field(default_factory=list)
    pauses: list[TruePause] = field(default_factory=list)

    def handle(self, event: MemberEvent) -> None:
        match event.what:
            case MemberEventType.SUBSCRIBED:
                self.subscribed[event.client] = event.topics
                self._end_unsubscribed(event.at)
            case MemberEventType.ASSIGNED:
                for partition in event.partitions or ():
                    self.owners[partition].add(event.client)
                    self._end(partition, event.at, GapEnd.ASSIGNED, event.client)
            case MemberEventType.STOPPED:
                self._stop(event)
            case MemberEventType.GONE:
                self.subscribed.pop(event.client, None)
                self._end_unsubscribed(event.at)
            case MemberEventType.PAUSED:
                self.pauses += [
                    TruePause(
                        group=self.group,
                        topic=topic,
                        partition=number,
                        since=event.at,
                        until=event.until,
                        client=event.client,
                        kind=event.pause,
                    )
                    for topic, number in self.owned(event.client)
                ]
            case MemberEventType.GROUP_DELETED:
                for partition in list(self.open):
                    self._end(partition, event.at, GapEnd.GROUP_DELETED)
                self.owners.clear()

    def owned(self, client: str) -> list[Partition]:
        return sorted(one for one, clients in self.owners.items() if client in clients)

    def _stop(self, event: MemberEvent) -> None:
        owned = self.owned(event.client)
        for partition in owned if event.partitions is None else event.partitions:
            if partition not in owned:
                continue
            self.owners[partition].discard(event.client)
            topic, number = partition
            if not self.owners[partition] and self._wants(topic, event):
                self.open[partition] = TrueGap(
                    group=self.group,
                    topic=topic,
                    partition=number,
                    since=event.at,
                    until=None,
                    last_client=event.client,
                    kind=event.how,
                )

    def _wants(self, topic: str, event: MemberEvent) -> bool:
        """Whether a member subscribes to the topic, or nobody is left."""
        others = dict(self.subscribed)
        if event.how is GapType.LEFT:
            others.pop(event.client, None)
        return not others or _is_subscribed(topic, others.values())

    def _end_unsubscribed(self, at: int) -> None:
        for partition in list(self.open):
            if self.subscribed and not _is_subscribed(partition[0], self.subscribed.values()):
                self._end(partition, at, GapEnd.UNSUBSCRIBED)

    def _end(self, partition: Partition, at: int, end: GapEnd, client: str | None = None) -> None:
        gap = self.open.pop(partition, None)
        if gap is not None:
            self.gaps.append(replace(gap, until=at, end=end, next_client=client))


def _is_subscribed(topic: str, subscriptions: Iterable[tuple[str, ...] | None]) -> bool:
    return any(topics is None or topic in topics for topics in subscriptions)


@cache
def _track_ownership(group: str) -> _Ownership:
    found = _Ownership(group)
    for event in sorted(_events_by_group()[group], key=lambda event: event.at):
        found.handle(event)
    found.gaps += found.open.values()
    found.gaps.sort(key=lambda gap: (gap.since, gap.topic, gap.partition))
    return found


@cache
def _events_by_group() -> Mapping[str, Sequence[MemberEvent]]:
    return {**_events_of_first_run(), **_events_of_second_run()}


def _slow_poll(at: int, client: str, limit: int) -> Iterator[MemberEvent]:
    """A member that stops to poll, and leaves the group when its poll interval ends."""
    yield MemberEvent(
        at=at,
        what=MemberEventType.PAUSED,
        client=client,
        until=at + limit,
        pause=PauseType.SLOW_POLL,
    )
    yield MemberEvent(
        at=at + limit, what=MemberEventType.STOPPED, client=client, how=GapType.SLOW_POLL
    )


# The first run.


def _events_of_first_run() -> Mapping[str, Sequence[MemberEvent]]:
    found: dict[str, list[MemberEvent]] = defaultdict(list)
    #: Static members that are being closed, by group and client.
    restarting: set[tuple[str, str]] = set()
    share_groups = {
        event["group"]
        for event in first_recording.read_expected()
        if event["event"] == "start" and event.get("protocol") == "share"
    }
    for event in first_recording.read_expected():
        group, client = event["group"], event.get("client", "")
        if group is None or group in share_groups:
            continue
        if event["event"] == "static_restart_begin":
            restarting.add((group, client))
        elif event["event"] == "start":
            restarting.discard((group, client))
        how = GapType.RESTARTED if (group, client) in restarting else GapType.LEFT
        found[group] += _translate(event, client, how)
    return {
        group: events
        for group, events in found.items()
        if any(event.what is MemberEventType.ASSIGNED for event in events)
    }


def _translate(event: Mapping[str, Any], client: str, closed: GapType) -> Iterator[MemberEvent]:
    at, phase = event["t"], event.get("phase")
    match event["event"]:
        case "start" | "subscription_changed":
            pattern = event.get("pattern") or event.get("regex")
            topics = None if pattern else tuple(event["topics"])
            yield MemberEvent(at=at, what=MemberEventType.SUBSCRIBED, client=client, topics=topics)
        case "assigned":
            yield MemberEvent(
                at=at,
                what=MemberEventType.ASSIGNED,
                client=client,
                partitions=_partitions(event["partitions"], ":"),
            )
        case "revoked" | "lost" as callback if phase != "crash":
            yield MemberEvent(
                at=at,
                what=MemberEventType.STOPPED,
                client=client,
                partitions=_partitions(event["partitions"], ":"),
                how=GapType(callback) if phase is None else closed,
            )
        case "crashed":
            yield MemberEvent(
                at=at, what=MemberEventType.STOPPED, client=client, how=GapType.CRASHED
            )
            yield MemberEvent(at=at, what=MemberEventType.GONE, client=client)
        case "closed" if phase != "crash":
            yield MemberEvent(at=at, what=MemberEventType.GONE, client=client)
        case "slow_poll_begin":
            yield from _slow_poll(at, client, event["max_poll_interval_ms"])
        case "busy_begin":
            until = at + event["sleep_ms"]
            yield MemberEvent(at=at, what=MemberEventType.PAUSED, client=client, until=until)
        case "group_deleted":
            yield MemberEvent(at=at, what=MemberEventType.GROUP_DELETED)
        case _:
            pass


def _partitions(names: Iterable[str], separator: str) -> tuple[Partition, ...]:
    split = (name.rpartition(separator) for name in names)
    return tuple((topic, int(number)) for topic, _, number in split)


# The second run.


def read_callbacks() -> Iterator[tuple[int, str, str, tuple[Partition, ...]]]:
    """The clients' lines of the second run: time, client, what, partitions."""
    text = gzip.decompress((second_recording.RECORDED / "clients.txt.gz").read_bytes()).decode()
    for line in text.splitlines():
        at, client, what, names = line.split(" ")
        yield int(at), client, what, _partitions(filter(None, names.split(",")), "-")


def _events_of_second_run() -> Mapping[str, Sequence[MemberEvent]]:
    found: dict[str, list[MemberEvent]] = defaultdict(list)
    group_of: dict[str, str] = {}
    #: Times of the orders to close, and to start.
    closed: dict[str, list[int]] = defaultdict(list)
    started: dict[str, list[int]] = defaultdict(list)
    script = sorted(STORY, key=lambda action: action.at)
    for done, action in zip(second_recording.read_expected()[:-1], script, strict=True):
        assert (done["group"], done["event"]) == (action.group, action.do)
        for client in action.who:
            group_of[client] = action.group
            if action.do is ActionKind.START:
                started[client].append(done["t"])
            elif action.do is ActionKind.CLOSE:
                closed[client].append(done["t"])
            found[action.group] += _translate_action(action, done["t"], client)
    for at, client, what, partitions in read_callbacks():
        group = group_of[client]
        orders = [(time, True) for time in closed[client]]
        orders += [(time, False) for time in started[client]]
        closing = max(order for order in orders if order[0] <= at)[1]
        how = GapType.RESTARTED if GROUPS[group].static else GapType.LEFT
        if what == "assigned":
            found[group].append(
                MemberEvent(
                    at=at, what=MemberEventType.ASSIGNED, client=client, partitions=partitions
                )
            )
        elif what in ("revoked", "lost"):
            found[group].append(
                MemberEvent(
                    at=at,
                    what=MemberEventType.STOPPED,
                    client=client,
                    partitions=partitions,
                    how=how if closing else GapType(what),
                )
            )
        elif what == "closed":  # aiokafka calls back nobody when it is closed
            found[group] += [
                MemberEvent(at=at, what=MemberEventType.STOPPED, client=client, how=how),
                MemberEvent(at=at, what=MemberEventType.GONE, client=client),
            ]
    return found


def _translate_action(action: ScriptedAction, at: int, client: str) -> Iterator[MemberEvent]:
    settings = GROUPS[action.group].settings
    match action.do:
        case ActionKind.START:
            # a topic of this run always has a subscriber
            yield MemberEvent(at=at, what=MemberEventType.SUBSCRIBED, client=client)
        case ActionKind.SLOW | ActionKind.SLOW_COMMITTING:
            yield from _slow_poll(at, client, int(settings["max.poll.interval.ms"]))
        case ActionKind.KILL:
            yield MemberEvent(
                at=at, what=MemberEventType.STOPPED, client=client, how=GapType.CRASHED
            )
            yield MemberEvent(at=at, what=MemberEventType.GONE, client=client)
        case ActionKind.FREEZE:
            time_ms = int(action.what) * 1_000
            if time_ms > int(settings["session.timeout.ms"]):
                yield MemberEvent(
                    at=at, what=MemberEventType.STOPPED, client=client, how=GapType.CRASHED
                )
            else:
                yield MemberEvent(
                    at=at,
                    what=MemberEventType.PAUSED,
                    client=client,
                    until=at + time_ms,
                    pause=PauseType.FROZEN,
                )
        case _:
            pass


@cache
def recording_end(group: str) -> int:
    """When the clients of a group's recording were killed."""
    if group.startswith("a-"):
        events = first_recording.read_expected()
        return next(int(event["t"]) for event in events if event["event"] == "run_end")
    return int(second_recording.read_expected()[-1]["t"])
