"""Scenarios: a group, its topics, and events that change them, read from TOML.

`docs/how-to/simulate.md` describes the file. Every value is checked while it is read; an error
names the line and the key. tomllib has lines of syntax errors only; :func:`find_lines` has all.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TypeAlias

from rota.engine.assignors.registry import (
    DEFAULT_STRATEGIES,
    StrategyList,
    common_protocol,
    resolve_strategies,
)
from rota.engine.model import duration
from rota.engine.model.config import MAX_INT, MINUTE, GroupConfig
from rota.engine.model.text import (
    MAX_SHOWN_CHARACTERS,
    compile_pattern,
    find_string_problem,
    list_first_names,
    quote_shortened,
)
from rota.engine.model.topic import MAX_PARTITIONS
from rota.engine.simulator.process import EVEN_TRAFFIC, Traffic
from rota.errors import InputError

#: The keys and list positions that lead to a value: ``("members", 2, "joins")``.
KeyPath: TypeAlias = tuple[str | int, ...]

_TOML_TOKEN = re.compile(
    r'''
    """(?:\\.|[^\\])*?"{3,5} | \'{3}.*?\'{3,5}  # texts of several lines, with quotes at their end
    | "(?:\\.|[^"\\])*" | '[^']*'
    | \#[^\n]*
    | [\[\]{}=,.\n]
    | [^\[\]{}=,.\s\#"']+
    ''',
    re.DOTALL | re.VERBOSE,
)

_BRACKET_DEPTH = {"[": 1, "{": 1, "]": -1, "}": -1}


def find_lines(text: str) -> dict[KeyPath, int]:
    """Returns the line of each key and table of valid TOML; keys inside a value get its line."""
    lines: dict[KeyPath, int] = {}
    last: dict[KeyPath, int] = {}
    table: KeyPath = ()
    for line, tokens in _split_statements(text):
        if tokens[0] == "[":
            path = table = _read_header(tokens, last)
        else:
            path = table + _read_key(tokens)
        for end in range(1, len(path) + 1):
            lines.setdefault(path[:end], line)
    return lines


def _split_statements(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yields headers and key-value pairs, each with its first line."""
    line = begun = 1
    depth = 0
    tokens: list[str] = []
    for token in _TOML_TOKEN.findall(text + "\n"):
        if depth == 0 and token.isspace():
            if tokens:
                yield begun, tokens
            tokens = []
        elif token[0] not in "#\n":
            begun = begun if tokens else line
            tokens.append(token)
            depth += _BRACKET_DEPTH.get(token, 0)
        line += token.count("\n")


def _read_key(tokens: Iterable[str]) -> tuple[str, ...]:
    """Returns the parts of a key without quotes and escapes."""
    parts = takewhile(lambda token: token not in {"=", "]"}, tokens)
    return tuple(
        str(tomllib.loads(f"part = {part}")["part"]) if part[0] in "\"'" else part
        for part in parts
        if part != "."
    )


def _read_header(header: list[str], last: dict[KeyPath, int]) -> KeyPath:
    """Returns a header's path. ``last`` has each list's last position, for headers inside it."""
    is_list = header[1] == "["
    path: KeyPath = ()
    parts = _read_key(header[1 + is_list :])
    for number, name in enumerate(parts, 1):
        path = (*path, name)
        if is_list and number == len(parts):
            last[path] = last.get(path, -1) + 1
        if path in last:
            path = (*path, last[path])
    return path


#: The form of tomllib's error messages.
_TOML_ERROR = re.compile(r"(.*) \(at (?:line (\d+), column \d+|end of document)\)$")
_BARE_KEY = re.compile(r"[\w-]+")
MAX_NUMBER_BITS = 64  # larger numbers are not shown in messages
MAX_NAME_BYTES = 30_000  # so that a name with a suffix fits into a Kafka string (32,767)


class ScenarioSource:
    """The file or mapping that a scenario comes from."""

    def __init__(self, name: str, text: str | None = None) -> None:
        self.name = name
        self._text = text

    def error(self, path: KeyPath, problem: str) -> InputError:
        line = self._line(path)
        place = self.name if line is None else f"{self.name}, line {line}"
        key = format_key_path(path)
        return InputError(f"{place}: {f'{key}: ' if key else ''}{problem}")

    def _line(self, path: KeyPath) -> int | None:
        lines = {} if self._text is None else find_lines(self._text)
        while path and path not in lines:
            path = path[:-1]
        return lines.get(path)

    def parse(self, text: str) -> Mapping[str, object]:
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            match = _TOML_ERROR.match(str(error))
            if match is None:
                raise InputError(f"{self.name}: not TOML: {error}") from None
            line = match[2] or str(text.count("\n") + 1)
            raise InputError(f"{self.name}, line {line}: not TOML: {match[1]}") from None
        except ValueError:  # raised by int for a number with more than 4,300 digits
            raise InputError(f"{self.name}: not a scenario: a number is too long") from None
        except RecursionError:
            raise InputError(f"{self.name}: not a scenario: nested too deeply") from None


def format_key_path(path: KeyPath) -> str:
    """Formats a path as ``members[2].joins``."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            is_plain = _BARE_KEY.fullmatch(step) and len(step) <= MAX_SHOWN_CHARACTERS
            text += f"{'.' if text else ''}{step if is_plain else quote_shortened(step)}"
    return text


class ScenarioTable:
    def __init__(self, source: ScenarioSource, path: KeyPath, value: object) -> None:
        self.source = source
        self.path = path
        if not isinstance(value, Mapping):
            raise source.error(path, f"must be a table, not {_describe_value(value)}")
        for key in value:
            if not isinstance(key, str):
                raise source.error(path, f"keys must be texts, not {_describe_value(key)}")
            if problem := find_string_problem(key, MAX_NAME_BYTES):
                raise source.error((*path, key), problem)
        self.values: Mapping[str, object] = value

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def error(self, key: str | None, problem: str) -> InputError:
        return self.source.error(self.path if key is None else (*self.path, key), problem)

    def _type_error(self, key: str, expected: str, value: object) -> InputError:
        return self.error(key, f"must be {expected}, not {_describe_value(value)}")

    def reject_unknown_keys(self, known: Sequence[str]) -> None:
        for key in self.values:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
                raise self.error(key, f"unknown key: {hint}")

    def require(self, key: str, default: object = None) -> object:
        """Returns the value, or the default unless that is None."""
        if default is None and key not in self.values:
            raise self.error(None, f"{key} is missing")
        return self.values.get(key, default)

    def text(self, key: str, default: str | None = None) -> str:
        value = self.require(key, default)
        if not isinstance(value, str) or not value:
            raise self._type_error(key, "a text", value)
        return self._check_text(key, value)

    def texts(self, key: str) -> tuple[str, ...]:
        """Returns one text or a list of texts as a tuple."""
        value = self.require(key)
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, list | tuple):
            raise self._type_error(key, "a name or a list of names", value)
        if not listed:
            raise self.error(key, "must be a name or a list of names; the list is empty")
        for one in listed:
            if not isinstance(one, str) or not one:
                raise self.error(key, f"must hold names only, not {_describe_value(one)}")
        return tuple(self._check_text(key, one) for one in listed)

    def _check_text(self, key: str, text: str) -> str:
        if problem := find_string_problem(text, MAX_NAME_BYTES):
            raise self.error(key, f"{quote_shortened(text)} {problem}")
        return text

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise self._type_error(key, "true or false", value)
        return value

    def count(self, key: str, default: int | None = None, least: int = 0) -> int:
        value = self.require(key, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._type_error(key, "a whole number", value)
        if value < least:
            raise self._type_error(key, f"at least {least}", value)
        return value

    def time(
        self,
        key: str,
        default: int | None = None,
        least: int = 0,
        most: int = duration.LONGEST_DURATION,
    ) -> int:
        if key not in self.values and default is not None:
            return default
        value = self.require(key)
        if not isinstance(value, str):
            raise self._type_error(key, 'a time such as "90s" or "5m"', value)
        try:
            time = duration.parse_duration(value)
        except ValueError as error:
            raise self.error(key, str(error)) from None
        if not least <= time <= most:
            bound, limit = ("least", least) if time < least else ("most", most)
            limit_text = duration.format_duration(limit)
            raise self.error(key, f"must be at {bound} {limit_text}, not {value}")
        return time

    def table(self, key: str) -> ScenarioTable:
        return ScenarioTable(self.source, (*self.path, key), self.values.get(key, {}))

    def tables(self, key: str) -> list[ScenarioTable]:
        value = self.values.get(key, [])
        if not isinstance(value, list | tuple):
            raise self._type_error(key, f"a list of tables ([[{key}]])", value)
        path = (*self.path, key)
        return [ScenarioTable(self.source, (*path, n), one) for n, one in enumerate(value)]


def _describe_value(value: object) -> str:
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, str):
        return quote_shortened(value)
    if isinstance(value, int) and value.bit_length() > MAX_NUMBER_BITS:
        return "such a large number"  # repr refuses thousands of digits
    return repr(value)


DEFAULT_CLIENT_ID = "consumer-{group}-1"  # Kafka's default, the same in every process


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSpec:
    """Members with the same settings: ``name-0``, ``name-1``, ..., or one with just this name."""

    name: str
    names: tuple[str, ...]
    topics: tuple[str, ...]
    pattern: str | None
    static: bool
    strategy: StrategyList | None  # None: the scenario's
    joins: int
    join_interval: int  # the time between two joins
    session: int
    heartbeat: int
    max_poll: int
    processing: int
    listener: int
    auto_commit: bool
    commit_interval: int = 5_000
    capacity: int | None = None  # records per second that a member can handle; None means no limit
    #: May contain ``{group}``, ``{name}`` of the member, and ``{start}``, which differs each time.
    client_id: str = DEFAULT_CLIENT_ID


@dataclass(frozen=True, slots=True)
class _MemberEvent:
    at: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JoinEvent(_MemberEvent):
    """Starts new members, or members that ended."""

    specs: Mapping[str, MemberSpec]  # the settings of each name


class LeaveEvent(_MemberEvent):
    """Members close their consumers."""


class CrashEvent(_MemberEvent):
    """Members end without a LeaveGroup request."""


@dataclass(frozen=True, slots=True)
class StallEvent(_MemberEvent):
    """Applications stay outside of poll."""

    time: int


@dataclass(frozen=True, slots=True)
class PauseEvent(_MemberEvent):
    """Processes are frozen."""

    time: int


@dataclass(frozen=True, slots=True)
class SlowDownEvent(_MemberEvent):
    """Applications take longer between polls, for a time or until the end."""

    processing: int
    time: int | None


@dataclass(frozen=True, slots=True)
class RestartEvent(_MemberEvent):
    """Members close and start again."""

    downtime: int


@dataclass(frozen=True, slots=True)
class DeployEvent(_MemberEvent):
    """Members are replaced one after another."""

    downtime: int
    interval: int
    surge: bool  # starts the new process before the old one closes
    strategy: StrategyList | None  # settings of the new processes; None keeps the old ones
    static: bool | None


@dataclass(frozen=True, slots=True)
class SubscribeEvent(_MemberEvent):
    """Members subscribe to other topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AddPartitionsEvent:
    """Topics get more partitions, or are created."""

    at: int
    partitions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CoordinatorDownEvent:
    """The group's broker is down."""

    at: int
    downtime: int


ScenarioEvent: TypeAlias = (
    JoinEvent
    | LeaveEvent
    | CrashEvent
    | StallEvent
    | PauseEvent
    | SlowDownEvent
    | RestartEvent
    | DeployEvent
    | SubscribeEvent
    | AddPartitionsEvent
    | CoordinatorDownEvent
)


DEFAULT_GROUP_CONFIG = GroupConfig()
SECOND = 1_000
MAX_MEMBERS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A group and its events. Times are in milliseconds."""

    name: str
    group: str
    duration: int
    topics: Mapping[str, int]
    members: tuple[MemberSpec, ...]
    events: tuple[ScenarioEvent, ...]
    strategy: StrategyList = DEFAULT_STRATEGIES
    heartbeat_drift: int = 20  # largest delay of heartbeats, constant for a process
    latency: int = 2
    jitter: int = 1
    append: int = 2
    metadata_age: int = 5 * MINUTE
    initial_delay: int = DEFAULT_GROUP_CONFIG.initial_rebalance_delay
    traffic: Traffic = EVEN_TRAFFIC


def read_scenario(given: str | Mapping[str, object], source: str = "scenario") -> Scenario:
    """Reads a scenario from TOML text, or from a mapping with the same keys.

    :param source: the name of the scenario in error messages
    :raises InputError: the scenario is wrong; the message names line and key
    """
    if isinstance(given, str):
        if "\n" not in given and given.endswith(".toml"):
            raise _not_a_text_error(source, f"the path {quote_shortened(given)}")
        origin = ScenarioSource(source, given)
        values = origin.parse(given)
    elif isinstance(given, Mapping):
        origin, values = ScenarioSource(source), given
    else:
        raise _not_a_text_error(source, type(given).__name__)
    return _ScenarioReader(ScenarioTable(origin, (), values)).read_scenario()


def _not_a_text_error(source: str, given: str) -> InputError:
    return InputError(
        f"{source}: pass the text of a scenario, or the same as a mapping, not {given}; "
        "a file must be read first"
    )


#: The keys of each event, without ``at``.
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

TOP_KEYS = ("group", "duration", "strategy")
TOP_TIMES = ("initial_rebalance_delay", "metadata_max_age", "heartbeat_drift")
TOP_TABLES = ("topics", "network", "members", "events")
MEMBER_KEYS = (
    "name",
    "count",
    "topics",
    "pattern",
    "static",
    "strategy",
    "client_id",
    "joins",
    "apart",
)
MEMBER_TIMES = ("session", "heartbeat", "max_poll", "processing", "listener", "auto_commit")


def _read_client_id(table: ScenarioTable) -> str:
    text = table.text("client_id", DEFAULT_CLIENT_ID)
    try:
        text.format(group="", name="", start="")
    except (KeyError, IndexError, ValueError):
        raise table.error("client_id", "may contain {group}, {name} and {start}") from None
    return text


@dataclass(slots=True)
class _ScenarioReader:
    """Reads one scenario, and keeps the names of members and topics that it has read so far."""

    top: ScenarioTable
    duration: int = 0
    #: All topics of the scenario; while events are read, their partition counts so far.
    topics: dict[str, int] = field(default_factory=dict)
    initial_topics: dict[str, int] = field(default_factory=dict)
    specs: dict[str, MemberSpec] = field(default_factory=dict)
    #: The members of each ``[[members]]`` table with a count, by its name.
    families: dict[str, list[str]] = field(default_factory=dict)

    def read_scenario(self) -> Scenario:
        top = self.top
        top.reject_unknown_keys((*TOP_KEYS, *TOP_TIMES, *TOP_TABLES))
        first = self.initial_topics = self._counts(top.table("topics"))
        if not first:
            raise top.error("topics" if "topics" in top else None, "no topics: add [topics]")
        for event in top.tables("events"):
            if "partitions" in event:
                self._counts(event.table("partitions"))
        self.duration = top.time("duration", least=SECOND)
        strategy = _read_strategy(top) or DEFAULT_STRATEGIES
        network = top.table("network")
        network.reject_unknown_keys(("latency", "jitter", "append"))
        members = tuple(self._read_members(table) for table in top.tables("members"))
        if not members:
            raise top.error(None, "no members: add [[members]]")
        self.topics = dict(first)
        return Scenario(
            name=top.source.name,
            group=top.text("group", "group"),
            duration=self.duration,
            topics=first,
            members=members,
            events=tuple(
                self._read_event(table)
                for table in sorted(top.tables("events"), key=lambda table: table.time("at"))
            ),
            strategy=strategy,
            heartbeat_drift=top.time("heartbeat_drift", 20),
            latency=network.time("latency", 2),
            jitter=network.time("jitter", 1),
            append=network.time("append", 2),
            metadata_age=top.time("metadata_max_age", 5 * MINUTE),
            initial_delay=top.time(
                "initial_rebalance_delay",
                DEFAULT_GROUP_CONFIG.initial_rebalance_delay,
                most=MAX_INT,
            ),
        )

    def _counts(self, table: ScenarioTable) -> dict[str, int]:
        counts = {}
        for topic in table.values:
            counts[topic] = table.count(topic, least=1)
            if counts[topic] > MAX_PARTITIONS:
                raise table.error(topic, f"must be at most {MAX_PARTITIONS}")
            self.topics[topic] = counts[topic]
        if sum(self.topics.values()) > MAX_PARTITIONS:
            raise table.error(None, f"more than {MAX_PARTITIONS} partitions in all")
        return counts

    def _read_members(self, table: ScenarioTable) -> MemberSpec:
        table.reject_unknown_keys((*MEMBER_KEYS, *MEMBER_TIMES))
        name = table.text("name")
        count = table.count("count", least=1) if "count" in table else None
        if count is not None and count > MAX_MEMBERS:
            raise table.error("count", f"must be at most {MAX_MEMBERS}")
        names = (name,) if count is None else tuple(f"{name}-{n}" for n in range(count))
        session = table.time("session", 45 * SECOND, DEFAULT_GROUP_CONFIG.min_session_timeout)
        if session > DEFAULT_GROUP_CONFIG.max_session_timeout:
            raise table.error("session", "must be at most 30m, group.max.session.timeout.ms")
        heartbeat = table.time("heartbeat", 3 * SECOND, 1)
        if heartbeat >= session:
            raise table.error("heartbeat", "must be less than the session")
        members = MemberSpec(
            name=name,
            names=names,
            topics=self._topics(table) if "pattern" not in table else (),
            pattern=_read_pattern(table),
            static=table.flag("static"),
            strategy=_read_strategy(table),
            joins=self._moment(table, "joins", 0),
            join_interval=table.time("apart", 0),
            session=session,
            heartbeat=heartbeat,
            max_poll=table.time("max_poll", 5 * MINUTE, 1, MAX_INT),
            processing=table.time("processing", 0),
            listener=table.time("listener", 0),
            auto_commit=table.flag("auto_commit", default=True),
            client_id=_read_client_id(table),
        )
        if members.joins + (len(names) - 1) * members.join_interval > self.duration:
            last = quote_shortened(names[-1])
            raise table.error("apart", f"{last} would join after the scenario's end")
        for one in dict.fromkeys((*names, name)):
            if one in self.specs or one in self.families:
                raise table.error("name", f"{quote_shortened(one)} is the name of members above")
        self.specs |= dict.fromkeys(names, members)
        if count is not None:
            self.families[name] = list(names)
        return members

    def _moment(self, table: ScenarioTable, key: str, default: int | None = None) -> int:
        moment = table.time(key, default)
        if moment > self.duration:
            raise table.error(key, "is after the scenario's end (its duration)")
        return moment

    def _topics(self, table: ScenarioTable) -> tuple[str, ...]:
        if "topics" not in table:
            return tuple(sorted(self.initial_topics))
        topics = table.texts("topics")
        for topic in topics:
            if topic not in self.topics:
                raise table.error("topics", _unknown_name_text("topic", topic, self.topics))
        return topics

    def _read_event(self, table: ScenarioTable) -> ScenarioEvent:
        kinds = [key for key in EVENT_KEYS if key in table]
        table.reject_unknown_keys(("at", *EVENT_KEYS, *dict.fromkeys(sum(EVENT_KEYS.values(), ()))))
        if len(kinds) != 1:
            problem = f"not both {kinds[0]} and {kinds[1]}" if kinds else "there is none"
            raise table.error(None, f"an event needs one of {', '.join(EVENT_KEYS)}; {problem}")
        kind = kinds[0]
        table.reject_unknown_keys(("at", kind, *EVENT_KEYS[kind]))
        at = self._moment(table, "at")
        if kind == "partitions":
            return self._partitions_event(table, at)
        if kind == "coordinator_down":
            return CoordinatorDownEvent(at=at, downtime=table.time(kind))
        if kind == "join":
            return self._join_event(table, at)
        return _EVENT_BUILDERS[kind](self, table, at, self._names(table, kind))

    def _names(self, table: ScenarioTable, key: str) -> tuple[str, ...]:
        """Returns known members; the name of a family stands for all its members."""
        found: list[str] = []
        for name in table.texts(key):
            found += self._family(table, key, name)
        return tuple(dict.fromkeys(found))

    def _family(self, table: ScenarioTable, key: str, name: str) -> list[str]:
        if name not in self.specs and name not in self.families:
            known = (*self.families, *self.specs)
            raise table.error(key, _unknown_name_text("member", name, known))
        return self.families.get(name, [name])

    def _partitions_event(self, table: ScenarioTable, at: int) -> AddPartitionsEvent:
        counts = table.table("partitions")
        for topic in counts.values:
            now = self.topics.get(topic, 0)
            if counts.count(topic, least=1) <= now:
                raise counts.error(topic, f"has {now} partitions already, and never gets fewer")
        return AddPartitionsEvent(at=at, partitions=self._counts(counts))

    def _join_event(self, table: ScenarioTable, at: int) -> JoinEvent:
        like = None
        if "like" in table:
            like = self.specs[self._family(table, "like", table.text("like"))[0]]
        found: dict[str, MemberSpec] = {}
        for name in table.texts("join"):
            if name in self.specs:
                found[name] = self.specs[name]
                continue
            family = name.rpartition("-")[0]
            members = like
            if members is None and family in self.families:
                members = self.specs[self.families[family][0]]
            if members is None and name in self.families:
                known = list_first_names(self.families[name])
                problem = f'needs single members: {known}; or like = "{name}" for a new one'
                raise table.error("join", problem)
            if members is None:
                problem = 'is new: like = "..." must name the member whose settings it has'
                raise table.error("join", f"{quote_shortened(name)} {problem}")
            found[name] = self.specs[name] = members
            self.families.setdefault(members.name, list(members.names)).append(name)
        return JoinEvent(at=at, names=tuple(found), specs=found)

    def read_subscription(self, table: ScenarioTable) -> tuple[str, ...]:
        table.require("topics")
        return self._topics(table)


_EventBuilder: TypeAlias = Callable[
    [_ScenarioReader, ScenarioTable, int, tuple[str, ...]], ScenarioEvent
]

_EVENT_BUILDERS: Mapping[str, _EventBuilder] = {
    "leave": lambda _, _table, at, names: LeaveEvent(at, names),
    "crash": lambda _, _table, at, names: CrashEvent(at, names),
    "stall": lambda _, table, at, names: StallEvent(at, names, table.time("for")),
    "pause": lambda _, table, at, names: PauseEvent(at, names, table.time("for")),
    "slow": lambda _, table, at, names: SlowDownEvent(
        at, names, table.time("processing"), table.time("for") if "for" in table else None
    ),
    "restart": lambda _, table, at, names: RestartEvent(at, names, table.time("down", 5 * SECOND)),
    "deploy": lambda _, table, at, names: DeployEvent(
        at,
        names,
        downtime=table.time("down", 5 * SECOND),
        interval=table.time("between", 30 * SECOND),
        surge=table.flag("surge"),
        strategy=_read_strategy(table),
        static=table.flag("static") if "static" in table else None,
    ),
    "subscribe": lambda reader, table, at, names: SubscribeEvent(
        at, names, reader.read_subscription(table)
    ),
}


def _read_strategy(table: ScenarioTable) -> StrategyList | None:
    if "strategy" not in table:
        return None
    names = table.texts("strategy")
    try:
        common_protocol(resolve_strategies(names))
    except InputError as error:
        raise table.error("strategy", str(error)) from None
    return names


def _read_pattern(table: ScenarioTable) -> str | None:
    if "pattern" not in table:
        return None
    if "topics" in table:
        raise table.error("pattern", "not both topics and pattern")
    pattern = table.text("pattern")
    try:
        compile_pattern(pattern)
    except InputError as error:
        raise table.error("pattern", str(error)) from None
    return pattern


def _unknown_name_text(what: str, name: str, known: Sequence[str] | Mapping[str, int]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(list(known)[:20])}"
    return f"no such {what}: {quote_shortened(name)}; {hint}"
