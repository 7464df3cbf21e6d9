"""Scenarios: a group, its topics, and what happens to them when, as a person writes it down.

The file is TOML; `docs/how-to/simulate.md` describes it. Everything is checked while it is read,
so that a mistake is named by its line and key before anything runs.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from rota.assignors.registry import DEFAULT_LIST, StrategyList, common_protocol, resolve_all
from rota.errors import InputError
from rota.model.config import INT, MINUTE, GroupConfig
from rota.model.text import compiled, shortened
from rota.model.topic import MAX_PARTITIONS
from rota.sim.happening import (
    CoordinatorStops,
    Crashes,
    Deploys,
    Grows,
    Happening,
    Joins,
    Leaves,
    Members,
    Pauses,
    Restarts,
    Slows,
    Stalls,
    Subscribes,
)
from rota.sim.source import Source, Table
from rota.sim.traffic import EVENLY, Traffic

GROUP = GroupConfig()
SECOND = 1_000
MOST_MEMBERS = 10_000
"""Beyond this a number in a scenario is a slip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A group and what happens to it. Times are in milliseconds."""

    name: str
    group: str
    duration: int
    topics: Mapping[str, int]
    members: tuple[Members, ...]
    events: tuple[Happening, ...]
    strategy: StrategyList = DEFAULT_LIST
    heartbeat_drift: int = 20
    """Each process's heartbeats are this much late at most, each time by the same."""
    latency: int = 2
    jitter: int = 1
    append: int = 2
    metadata_age: int = 5 * MINUTE
    initial_delay: int = GROUP.initial_rebalance_delay
    traffic: Traffic = EVENLY


def read_scenario(given: str | Mapping[str, object], source: str = "scenario") -> Scenario:
    """A scenario out of TOML text, or out of the same as a mapping.

    ``source`` is named in errors.

    :raises InputError: something is wrong; line and key are named
    """
    if isinstance(given, str):
        if "\n" not in given and given.endswith(".toml"):
            raise _no_text(source, f"the path {shortened(given)}")
        origin = Source(source, given)
        values = origin.parse(given)
    elif isinstance(given, Mapping):
        origin, values = Source(source), given
    else:
        raise _no_text(source, type(given).__name__)
    return _Reader(Table(origin, (), values)).scenario()


def _no_text(source: str, given: str) -> InputError:
    return InputError(
        f"{source}: the text of a scenario is needed, or the same as a mapping, not {given}; "
        "a file must be read first"
    )


EVENT_KEYS = {
    "join": ("like",),
    "leave": (),
    "crash": (),
    "stall": ("for",),
    "pause": ("for",),
    "slow": ("processing", "for"),
    "restart": ("down",),
    "deploy": ("down", "between", "surge", "strategy", "static"),
    "subscribe": ("topics",),
    "partitions": (),
    "coordinator_down": (),
}
"""What can happen, and what can be said of it beside ``at``."""

TOP_KEYS = (
    "group",
    "duration",
    "strategy",
    "initial_rebalance_delay",
    "metadata_max_age",
    "heartbeat_drift",
)
TOP_TABLES = ("topics", "network", "members", "events")
MEMBER_KEYS = ("name", "count", "topics", "pattern", "static", "strategy", "joins", "apart")
MEMBER_TIMES = ("session", "heartbeat", "max_poll", "processing", "listener", "auto_commit")


@dataclass(slots=True)
class _Reader:
    """Reads one scenario; knows the names that have come up so far."""

    top: Table
    duration: int = 0
    topics: dict[str, int] = field(default_factory=dict)
    """All topics that there ever are; while events are read, their counts so far."""
    first: dict[str, int] = field(default_factory=dict)
    """Those that there are from the start."""
    known: dict[str, Members] = field(default_factory=dict)
    families: dict[str, list[str]] = field(default_factory=dict)

    def scenario(self) -> Scenario:
        top = self.top
        top.only((*TOP_KEYS, *TOP_TABLES))
        first = self.first = self._counts(top.table("topics"))
        if not first:
            raise top.error("topics" if "topics" in top else None, "no topics: [topics] is needed")
        for event in top.tables("events"):
            if "partitions" in event:
                self._counts(event.table("partitions"))
        self.duration = top.time("duration", least=SECOND)
        strategy = _strategy(top) or DEFAULT_LIST
        network = top.table("network")
        network.only(("latency", "jitter", "append"))
        members = tuple(self._members(table) for table in top.tables("members"))
        if not members:
            raise top.error(None, "no members: [[members]] is needed")
        self.topics = dict(first)
        return Scenario(
            name=top.source.name,
            group=top.text("group", "group"),
            duration=self.duration,
            topics=first,
            members=members,
            events=tuple(
                self._event(table)
                for table in sorted(top.tables("events"), key=lambda table: table.time("at"))
            ),
            strategy=strategy,
            heartbeat_drift=top.time("heartbeat_drift", 20),
            latency=network.time("latency", 2),
            jitter=network.time("jitter", 1),
            append=network.time("append", 2),
            metadata_age=top.time("metadata_max_age", 5 * MINUTE),
            initial_delay=top.time(
                "initial_rebalance_delay", GROUP.initial_rebalance_delay, most=INT
            ),
        )

    def _counts(self, table: Table) -> dict[str, int]:
        counts = {}
        for topic in table.values:
            counts[topic] = table.count(topic, least=1)
            if counts[topic] > MAX_PARTITIONS:
                raise table.error(topic, f"must be at most {MAX_PARTITIONS}")
            self.topics[topic] = counts[topic]
        if sum(self.topics.values()) > MAX_PARTITIONS:
            raise table.error(None, f"more than {MAX_PARTITIONS} partitions in all")
        return counts

    # members

    def _members(self, table: Table) -> Members:
        table.only((*MEMBER_KEYS, *MEMBER_TIMES))
        name = table.text("name")
        count = table.count("count", least=1) if "count" in table else None
        if count is not None and count > MOST_MEMBERS:
            raise table.error("count", f"must be at most {MOST_MEMBERS}")
        names = (name,) if count is None else tuple(f"{name}-{n}" for n in range(count))
        session = table.time("session", 45 * SECOND, GROUP.min_session_timeout)
        if session > GROUP.max_session_timeout:
            raise table.error("session", "must be at most 30m, group.max.session.timeout.ms")
        heartbeat = table.time("heartbeat", 3 * SECOND, 1)
        if heartbeat >= session:
            raise table.error("heartbeat", "must be less than the session")
        members = Members(
            name=name,
            names=names,
            topics=self._topics(table) if "pattern" not in table else (),
            pattern=_pattern(table),
            static=table.flag("static"),
            strategy=_strategy(table),
            joins=self._moment(table, "joins", 0),
            apart=table.time("apart", 0),
            session=session,
            heartbeat=heartbeat,
            max_poll=table.time("max_poll", 5 * MINUTE, 1, INT),
            processing=table.time("processing", 0),
            listener=table.time("listener", 0),
            auto_commit=table.flag("auto_commit"),
        )
        if members.joins + (len(names) - 1) * members.apart > self.duration:
            raise table.error(
                "apart", f"{shortened(names[-1])} would join after the scenario's end"
            )
        for one in names:
            if one in self.known or one in self.families:
                raise table.error("name", f"{shortened(one)} is the name of members above")
            self.known[one] = members
        if count is not None:
            if name in self.known or name in self.families:
                raise table.error("name", f"{shortened(name)} is the name of members above")
            self.families[name] = list(names)
        return members

    def _moment(self, table: Table, key: str, default: int | None = None) -> int:
        moment = table.time(key, default)
        if moment > self.duration:
            raise table.error(key, "is after the scenario's end (its duration)")
        return moment

    def _topics(self, table: Table) -> tuple[str, ...]:
        if "topics" not in table:
            return tuple(sorted(self.first))
        topics = table.texts("topics")
        for topic in topics:
            if topic not in self.topics:
                raise table.error("topics", _unknown("topic", topic, self.topics))
        return topics

    # events

    def _event(self, table: Table) -> Happening:
        kinds = [key for key in EVENT_KEYS if key in table]
        table.only(("at", *EVENT_KEYS, *dict.fromkeys(sum(EVENT_KEYS.values(), ()))))
        if len(kinds) != 1:
            said = f"not both {kinds[0]} and {kinds[1]}" if kinds else "none is given"
            raise table.error(None, f"one of {', '.join(EVENT_KEYS)} is needed; {said}")
        kind = kinds[0]
        table.only(("at", kind, *EVENT_KEYS[kind]))
        at = self._moment(table, "at")
        if kind == "partitions":
            return self._grows(table, at)
        if kind == "coordinator_down":
            return CoordinatorStops(at=at, down=table.time(kind))
        if kind == "join":
            return self._joins(table, at)
        return _NAMED[kind](self, table, at, self._names(table, kind))

    def _names(self, table: Table, key: str) -> tuple[str, ...]:
        """Members that there are by now; the name of several stands for all of them."""
        found: list[str] = []
        for name in table.texts(key):
            if name not in self.known and name not in self.families:
                raise table.error(key, _unknown("member", name, (*self.families, *self.known)))
            found += self.families.get(name, [name])
        return tuple(dict.fromkeys(found))

    def _grows(self, table: Table, at: int) -> Grows:
        counts = table.table("partitions")
        for topic in counts.values:
            now = self.topics.get(topic, 0)
            if counts.count(topic, least=1) <= now:
                raise counts.error(topic, f"has {now} partitions already, and never gets fewer")
        return Grows(at=at, partitions=self._counts(counts))

    def _joins(self, table: Table, at: int) -> Joins:
        like = self._like(table)
        found: dict[str, Members] = {}
        for name in table.texts("join"):
            if name in self.known:
                found[name] = self.known[name]
                continue
            family = name.rpartition("-")[0]
            members = like
            if members is None and family in self.families:
                members = self.known[self.families[family][0]]
            if members is None:
                raise table.error(
                    "join",
                    f'{shortened(name)} is new: like = "..." must name one it is configured as',
                )
            found[name] = self.known[name] = members
            self.families.setdefault(members.name, list(members.names)).append(name)
        return Joins(at=at, names=tuple(found), like=found)

    def _like(self, table: Table) -> Members | None:
        if "like" not in table:
            return None
        name = table.text("like")
        if name in self.families:
            name = self.families[name][0]
        if name not in self.known:
            raise table.error("like", _unknown("member", name, (*self.families, *self.known)))
        return self.known[name]

    def subscribed(self, table: Table) -> tuple[str, ...]:
        """The topics of an event that changes a subscription."""
        table.needed("topics")
        return self._topics(table)


_Named: TypeAlias = Callable[[_Reader, Table, int, tuple[str, ...]], Happening]

_NAMED: Mapping[str, _Named] = {
    "leave": lambda _, _table, at, names: Leaves(at=at, names=names),
    "crash": lambda _, _table, at, names: Crashes(at=at, names=names),
    "stall": lambda _, table, at, names: Stalls(at=at, names=names, time=table.time("for")),
    "pause": lambda _, table, at, names: Pauses(at=at, names=names, time=table.time("for")),
    "slow": lambda _, table, at, names: Slows(
        at=at,
        names=names,
        processing=table.time("processing"),
        time=table.time("for") if "for" in table else None,
    ),
    "restart": lambda _, table, at, names: Restarts(
        at=at, names=names, down=table.time("down", 5 * SECOND)
    ),
    "deploy": lambda _, table, at, names: Deploys(
        at=at,
        names=names,
        down=table.time("down", 5 * SECOND),
        between=table.time("between", 30 * SECOND),
        surge=table.flag("surge"),
        strategy=_strategy(table),
        static=table.flag("static") if "static" in table else None,
    ),
    "subscribe": lambda reader, table, at, names: Subscribes(
        at=at, names=names, topics=reader.subscribed(table)
    ),
}


def _strategy(table: Table) -> StrategyList | None:
    if "strategy" not in table:
        return None
    names = table.texts("strategy")
    try:
        common_protocol(resolve_all(names))
    except InputError as error:
        raise table.error("strategy", str(error)) from None
    return names


def _pattern(table: Table) -> str | None:
    if "pattern" not in table:
        return None
    if "topics" in table:
        raise table.error("pattern", "not both topics and pattern")
    pattern = table.text("pattern")
    try:
        compiled(pattern)
    except InputError as error:
        raise table.error("pattern", str(error)) from None
    return pattern


def _unknown(what: str, name: str, known: Sequence[str] | Mapping[str, int]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(list(known)[:20])}"
    return f"no such {what}: {shortened(name)}; {hint}"
