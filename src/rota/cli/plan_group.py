"""The group of ``rota plan``, from a case file or from a cluster."""

from __future__ import annotations

import argparse
import base64
import difflib
import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from rota.cli.flags import run_with_admin, suggest_command
from rota.client.group_description import (
    STABLE,
    STATES_WITHOUT_MEMBERS,
    GroupDescription,
    short_member_names,
)
from rota.engine.assignors import registry
from rota.engine.model.member import Member
from rota.engine.model.text import list_first_names
from rota.engine.plan import ReplicaRacks
from rota.errors import InputError, TimedOut, UnknownStrategy

if TYPE_CHECKING:
    from rota.client.admin import Admin
    from rota.engine.model.topic import Cluster

CASE_KEYS = ("partitions", "racks", "members", "settings")
HEARTBEAT, SESSION = SETTINGS = ("heartbeat.interval.ms", "session.timeout.ms")
MEMBER_KEYS = ("id", "topics", "owned", "generation", "group_instance_id", "rack", "user_data")
MAX_CASE_INTEGER = 2**31 - 1
JSON_TYPES: Mapping[type, str] = {
    dict: "an object",
    list: "a list",
    str: "a string",
    int: "a whole number",
    type(None): "null",
}
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    partitions: Mapping[str, int]
    racks: ReplicaRacks
    members: tuple[Member, ...]
    left: tuple[Member, ...] = ()
    #: Settings of the members in milliseconds, by their names in Kafka.
    settings: Mapping[str, int] = field(default_factory=dict)

    def with_partitions(self, counts: Mapping[str, int]) -> Case:
        """Returns the case with other partition counts. New partitions have no known racks."""
        racks = {}
        for topic, replicas in self.racks.items():
            count = counts.get(topic, len(replicas))
            racks[topic] = [*replicas[:count], *[()] * (count - len(replicas))]
        return replace(self, partitions={**self.partitions, **counts}, racks=racks)

    def with_members(self, count: int, topics: tuple[str, ...] | None = None) -> Case:
        """Adds members with the most common subscription (or ``topics``); ids sort last."""
        if count == 0:
            return self
        if not self.members and topics is None:
            raise InputError("--add: no member has a subscription to copy; use --member ID=TOPIC")
        used_ids = {member.id for member in self.members + self.left}
        last, name = max(used_ids, default=""), "new"
        while name <= last and len(name) < len(last) + len("new"):  # a ~ per character at most
            name = f"~{name}"
        free = (each for each in (f"{name}-{n}" for n in range(1, 2**31)) if each not in used_ids)
        times = Counter(tuple(sorted(member.topics)) for member in self.members)
        common = min(times, key=lambda listed: (-times[listed], listed), default=topics or ())
        added = tuple(Member(id=next(free), topics=common) for _ in range(count))
        return replace(self, members=self.members + added)

    def without_members(self, ids: Iterable[str]) -> Case:
        leaving = set(ids)
        unknown = leaving.difference(member.id for member in self.members)
        if unknown:
            known = ", ".join(member.id for member in self.members)
            raise InputError(f"--remove {min(unknown)!r}: no such member; members are {known}")
        left = tuple(member for member in self.members if member.id in leaving)
        members = tuple(member for member in self.members if member.id not in leaving)
        return replace(self, members=members, left=self.left + left)


def _has_several_values(text: str) -> bool:
    """Returns whether every line is a JSON object."""
    try:
        values = [json.loads(line) for line in text.splitlines() if line.strip()]
    except (ValueError, RecursionError):
        return False
    return len(values) > 1 and all(isinstance(value, dict) for value in values)


def parse_case(text: str, source: str) -> Case:
    """Parses a case file. Errors name the path in the file."""
    try:
        data = json.loads(text, object_pairs_hook=_reject_duplicate_keys)
    except ValueError as error:
        hint = suggest_command(text, source, "plan")
        if _has_several_values(text):
            looks = "this looks like a file of records for rota produce"
            raise InputError(
                f"{source}: several JSON values: {looks}; rota plan needs a case file"
            ) from None
        raise InputError(f"{source}: not JSON: {hint or error}") from None
    except RecursionError:
        raise InputError(f"{source}: not a case file: nested too deeply") from None
    reader = _CaseReader(source)
    case = reader.fields(data, "", CASE_KEYS, required=("partitions", "members"))
    partitions = {
        topic: reader.integer(count, f"partitions.{topic}", can_be_negative=False)
        for topic, count in reader.expect(dict, case["partitions"], "partitions").items()
    }
    racks = {
        topic: [reader.strings(*each) for each in reader.items(replicas, f"racks.{topic}")]
        for topic, replicas in (reader.optional(dict, case, "racks", "") or {}).items()
    }
    members = tuple(reader.member(*each) for each in reader.items(case["members"], "members"))
    settings = reader.fields(case.get("settings") or {}, "settings", SETTINGS, required=())
    times = {
        name: reader.integer(value, f"settings.{name}", can_be_negative=False)
        for name, value in settings.items()
    }
    return Case(partitions=partitions, racks=racks, members=members, settings=times)


class _CaseReader:
    def __init__(self, source: str) -> None:
        self._source = source

    def error(self, path: str, problem: str) -> InputError:
        return InputError(f"{self._source}: {path.lstrip('.') or 'the file'} {problem}")

    def expect(self, expected: type[T], value: object, path: str) -> T:
        if type(value) is not expected:
            actual = repr(value) if type(value) is int else JSON_TYPES.get(type(value), repr(value))
            raise self.error(path, f"must be {JSON_TYPES[expected]}, not {actual}")
        return value

    def optional(
        self, expected: type[T], fields: Mapping[str, object], key: str, path: str
    ) -> T | None:
        value = fields.get(key)
        return None if value is None else self.expect(expected, value, f"{path}.{key}")

    def items(self, value: object, path: str) -> Iterator[tuple[object, str]]:
        for number, item in enumerate(self.expect(list, value, path)):
            yield item, f"{path}[{number}]"

    def strings(self, value: object, path: str) -> tuple[str, ...]:
        return tuple(self.expect(str, *each) for each in self.items(value, path))

    def integer(self, value: object, path: str, *, can_be_negative: bool = True) -> int:
        number = self.expect(int, value, path)
        if abs(number) > MAX_CASE_INTEGER:
            raise self.error(path, f"is out of range: {number}")
        if number < 0 and not can_be_negative:
            raise self.error(path, f"must not be negative: {number}")
        return number

    def fields(
        self, value: object, path: str, known: Sequence[str], required: Sequence[str]
    ) -> dict[str, object]:
        fields: dict[str, object] = self.expect(dict, value, path)
        for key in fields:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
                raise self.error(f"{path}.{key}", f"is an unknown key: {hint}")
        for key in required:
            if key not in fields:
                raise self.error(f"{path}.{key}", "is missing")
        return fields

    def member(self, value: object, path: str) -> Member:
        fields = self.fields(value, path, MEMBER_KEYS, required=("id", "topics"))
        generation = self.optional(int, fields, "generation", path)
        if generation is not None:
            self.integer(generation, f"{path}.generation")
        user_data = self.optional(str, fields, "user_data", path)
        try:
            decoded = None if user_data is None else base64.b64decode(user_data, validate=True)
        except ValueError:
            raise self.error(f"{path}.user_data", f"is not base64: {user_data!r}") from None
        return Member(
            id=self.expect(str, fields["id"], f"{path}.id"),
            topics=self.strings(fields["topics"], f"{path}.topics"),
            owned={
                topic: [
                    self.integer(*each) for each in self.items(numbers, f"{path}.owned.{topic}")
                ]
                for topic, numbers in (self.optional(dict, fields, "owned", path) or {}).items()
            },
            generation=generation,
            group_instance_id=self.optional(str, fields, "group_instance_id", path),
            rack=self.optional(str, fields, "rack", path),
            user_data=decoded,
        )


def _reject_duplicate_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    for key, count in Counter(key for key, _ in pairs).items():
        if count > 1:
            raise ValueError(f"an object has the key {key!r} twice")
    return dict(pairs)


STRATEGIES_BY_MEMBER_ID = frozenset({"range", "roundrobin"})  # they assign by member id
POLL_INTERVAL = 0.2  # seconds between two requests while the group is rebalancing


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveGroup:
    case: Case
    overview: GroupDescription
    short_names: Mapping[str, str]

    @property
    def strategies(self) -> list[str]:
        """The group's strategy; for an empty group, the default list of Kafka's consumers."""
        return [self.overview.strategy] if self.overview.members else [*registry.DEFAULT_STRATEGIES]

    @property
    def solver(self) -> tuple[str, str]:
        """The solver of the group's leader, and the reason. Brokers do not say who leads."""
        from rota.engine.history import client_settings  # noqa: PLC0415 (for a cluster only)

        group, members = self.overview, self.overview.members or ()
        libraries = [
            client_settings.detect_library(
                client_settings.LibrarySigns(
                    group=group.group,
                    client_id=each.client_id,
                    group_instance_id=each.group_instance_id,
                    strategy=group.strategy,
                )
            )
            for each in members
        ]
        count = libraries.count(client_settings.ROTA)
        if count and count == len(members):
            return "exact", "all members run Rota"
        if count:
            return "kafka", f"only {count} of {len(members)} members are known to run Rota"
        return "kafka", "no member is known to run Rota"

    def notes(self, joining: int, strategy: str) -> tuple[str, ...]:
        if not self.overview.members:
            topics = list_first_names(sorted(self.case.partitions))
            return (
                f"the group is empty; the plan assumes that new members subscribe to {topics}, "
                "where the group has committed offsets",
            )
        if not joining or strategy not in STRATEGIES_BY_MEMBER_ID:
            return ()
        return (
            f"{strategy} assigns by the order of member ids, which are random; the plan assumes "
            "that the ids of new members sort after all others",
        )

    def resolve_member(self, label: str) -> str:
        """Returns the one member with an id or name that is, or begins with, ``label``."""
        exact, prefix = [], []
        for each in self.overview.members or ():
            names = (each.id, each.group_instance_id, self.short_names[each.id], each.client_id)
            if label in names:
                exact.append(each.id)
            if any(name is not None and name.startswith(label) for name in names):
                prefix.append(each.id)
        matching = exact or prefix
        if len(matching) == 1:
            return matching[0]
        if matching:
            several = list_first_names(sorted(self.short_names[each] for each in matching))
            raise InputError(f"--remove {label!r}: several members match: {several}")
        known = ", ".join(sorted(self.short_names.values()))
        hint = f"members are {known}" if known else "the group is empty"
        raise InputError(f"--remove {label!r}: no such member; {hint}")


def verb_of_plan(args: argparse.Namespace) -> str:
    return "plan" if args.max_moves is None and args.max_downtime is None else "check"


def read_live_group(args: argparse.Namespace) -> LiveGroup:
    """Returns the group of --group, once it is stable; raises InputError or TimedOut."""

    async def fetch(admin: Admin) -> LiveGroup:
        group = await _wait_until_stable(admin, args.group, args.timeout)
        _check_plannable(group, strategy_given=args.strategy is not None or args.compare)
        members = group.members or ()
        topics = {topic for each in members for topic in (*each.topics, *each.assigned.names)}
        if not members:
            if not args.add and not args.member:
                limits = {"--max-moves": args.max_moves, "--max-downtime": args.max_downtime}
                given = " and ".join(name for name, limit in limits.items() if limit is not None)
                leave_out = given and f"leave out {given} and "
                raise InputError(
                    f"nothing to {verb_of_plan(args)}: the group has no members; {leave_out}add "
                    "--add 3: it plans three members that subscribe to the topics of the group's "
                    "committed offsets"
                )
            topics = {each.topic for each in await admin.fetch_committed(args.group)}
        cluster = (await admin.fetch_metadata(topics)).cluster()
        if not members and not cluster.partitions:
            raise InputError(
                f"nothing to plan: group {args.group!r} is empty, and the topics of its committed "
                "offsets do not exist"
            )
        return _to_live_group(group, cluster)

    return run_with_admin(args, fetch)


async def _wait_until_stable(admin: Admin, name: str, patience: float) -> GroupDescription:
    """Waits until the rebalance is over: brokers do not describe assignments before."""
    import asyncio  # noqa: PLC0415 (a plan of a file needs no network)

    end = time.monotonic() + patience
    while True:
        group = await admin.describe_group(name)
        if not group.is_classic or group.state == STABLE or group.state in STATES_WITHOUT_MEMBERS:
            return group
        if time.monotonic() + POLL_INTERVAL >= end:
            raise TimedOut(
                f"group {name!r} has been rebalancing for {patience:g} s ({group.state}): its "
                "assignment is known when the rebalance is over; --timeout waits longer"
            )
        await asyncio.sleep(POLL_INTERVAL)


def _check_plannable(group: GroupDescription, *, strategy_given: bool) -> None:
    name = f"group {group.group!r}"
    if group.members is None:
        text = f"{name} has the type {group.group_type}"
        raise InputError(f"{text}: its assignment cannot be described")
    if not group.is_consumer_group:
        text = f"{name} is a group of {group.protocol_type} workers, not of consumers"
        raise InputError(f"{text}: its assignment cannot be planned")
    if not strategy_given and not group.is_classic:
        raise InputError(
            f"{name} is assigned by the broker (KIP-848, strategy {group.strategy}), not by its "
            "members; --strategy or --compare plans it with a strategy of members"
        )
    if not strategy_given and group.members:
        try:
            registry.resolve_strategy(group.strategy)
        except UnknownStrategy:
            raise InputError(
                f"{name} has the strategy {group.strategy!r}, which Rota does not know; give "
                "another one with --strategy, or your own as package.module:Class"
            ) from None
    for each in group.members:
        if each.problem is not None:
            raise InputError(f"{name}: member {each.id} cannot be decoded: {each.problem}")


def _to_live_group(group: GroupDescription, cluster: Cluster) -> LiveGroup:
    members = group.members or ()
    matched = sorted({topic for each in members for topic in each.assigned.names})
    planned = tuple(
        Member(
            id=each.id,
            topics=dict.fromkeys((*each.topics, *(matched if each.pattern else ()))),
            owned=each.assigned,
            generation=group.generation,
            group_instance_id=each.group_instance_id,
            rack=each.rack,
        )
        for each in members
    )
    return LiveGroup(
        case=Case(partitions=cluster.partitions, racks=cluster.racks, members=planned),
        short_names=short_member_names(members),
        overview=group,
    )
