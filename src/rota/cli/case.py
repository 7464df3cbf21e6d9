"""A group as a person writes it down: the case file of ``rota plan``, or its flags."""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rota.errors import InputError
from rota.model.membership import Member
from rota.plan import ReplicaRacks

CASE_KEYS = ("partitions", "racks", "members")
MEMBER_KEYS = ("id", "topics", "owned", "generation", "static_id", "rack")
MAX_PARTITION = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Topics and members, and those that have just left."""

    partitions: Mapping[str, int]
    racks: ReplicaRacks
    members: tuple[Member, ...]
    left: tuple[Member, ...] = ()

    def with_partitions(self, counts: Mapping[str, int]) -> Case:
        """The same case with other partition counts; where new replicas are is not known."""
        racks = {
            topic: [*listed[: counts.get(topic, len(listed))]]
            + [()] * (counts.get(topic, len(listed)) - len(listed))
            for topic, listed in self.racks.items()
        }
        return replace(self, partitions={**self.partitions, **counts}, racks=racks)

    def with_members(self, count: int, topics: tuple[str, ...] | None = None) -> Case:
        """The same case with new members, subscribed as most of the others are. Their names come
        behind all others: some strategies go by that.

        :param topics: what they read if there are no others
        """
        if count == 0:
            return self
        if not self.members and topics is None:
            raise InputError("--add: the group has no member whose subscription could be taken")
        taken = {member.id for member in self.members + self.left}
        name = _behind("new", max(taken, default=""))
        free = (each for each in (f"{name}-{n}" for n in range(1, 2**31)) if each not in taken)
        times = Counter(tuple(sorted(member.topics)) for member in self.members)
        wanted = min(times, key=lambda listed: (-times[listed], listed), default=topics or ())
        added = tuple(Member(id=next(free), topics=wanted) for _ in range(count))
        return replace(self, members=self.members + added)

    def without_members(self, ids: Iterable[str]) -> Case:
        """The same case after these members have left."""
        gone = set(ids)
        unknown = gone.difference(member.id for member in self.members)
        if unknown:
            known = ", ".join(member.id for member in self.members)
            raise InputError(f"--remove {min(unknown)!r}: no such member; members are {known}")
        left = tuple(member for member in self.members if member.id in gone)
        members = tuple(member for member in self.members if member.id not in gone)
        return replace(self, members=members, left=self.left + left)


def _behind(name: str, last: str) -> str:
    """The name, so marked that it comes behind another one."""
    for _ in last:
        if name > last:
            break
        name = f"~{name}"
    return name


def read_case(text: str, source: str) -> Case:
    """A case from JSON; whatever is wrong is named by its path in the file."""
    try:
        data = json.loads(text, object_pairs_hook=_no_duplicates)
    except ValueError as error:
        raise InputError(f"{source}: not JSON: {error}") from None
    except RecursionError:
        raise InputError(f"{source}: not a case file: nested too deeply") from None
    reader = _Reader(source)
    case = reader.mapping(data, "")
    reader.known_keys(case, CASE_KEYS, "")
    for key in ("partitions", "members"):
        if key not in case:
            raise reader.error(key, "is missing")
    partitions = {
        topic: reader.count(count, f"partitions.{topic}")
        for topic, count in reader.mapping(case["partitions"], "partitions").items()
    }
    racks = {
        topic: [
            reader.strings(replicas, f"racks.{topic}[{number}]")
            for number, replicas in enumerate(reader.sequence(listed, f"racks.{topic}"))
        ]
        for topic, listed in reader.optional_mapping(case.get("racks"), "racks").items()
    }
    members = tuple(
        reader.member(member, f"members[{number}]")
        for number, member in enumerate(reader.sequence(case["members"], "members"))
    )
    return Case(partitions=partitions, racks=racks, members=members)


class _Reader:
    """Checks JSON values, and names the path to what is wrong."""

    def __init__(self, source: str) -> None:
        self._source = source

    def error(self, path: str, problem: str) -> InputError:
        return InputError(f"{self._source}: {path or 'the file'} {problem}")

    def mapping(self, value: object, path: str) -> dict[str, object]:
        if not isinstance(value, dict):
            raise self.error(path, f"must be an object, not {_kind(value)}")
        return value

    def optional_mapping(self, value: object, path: str) -> dict[str, object]:
        return {} if value is None else self.mapping(value, path)

    def sequence(self, value: object, path: str) -> list[object]:
        if not isinstance(value, list):
            raise self.error(path, f"must be a list, not {_kind(value)}")
        return value

    def string(self, value: object, path: str) -> str:
        if not isinstance(value, str):
            raise self.error(path, f"must be a string, not {_kind(value)}")
        return value

    def optional_string(self, value: object, path: str) -> str | None:
        return None if value is None else self.string(value, path)

    def strings(self, value: object, path: str) -> tuple[str, ...]:
        listed = self.sequence(value, path)
        return tuple(self.string(item, f"{path}[{n}]") for n, item in enumerate(listed))

    def integer(self, value: object, path: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.error(path, f"must be a whole number, not {_kind(value)}")
        if abs(value) > MAX_PARTITION:
            raise self.error(path, f"is out of range: {value}")
        return value

    def count(self, value: object, path: str) -> int:
        number = self.integer(value, path)
        if number < 0:
            raise self.error(path, f"must not be negative: {number}")
        return number

    def known_keys(self, value: Mapping[str, object], known: Sequence[str], path: str) -> None:
        for key in value:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
                raise self.error(f"{path}.{key}".lstrip("."), f"is an unknown key: {hint}")

    def member(self, value: object, path: str) -> Member:
        fields = self.mapping(value, path)
        self.known_keys(fields, MEMBER_KEYS, path)
        for key in ("id", "topics"):
            if key not in fields:
                raise self.error(f"{path}.{key}", "is missing")
        owned = self.optional_mapping(fields.get("owned"), f"{path}.owned")
        generation = fields.get("generation")
        return Member(
            id=self.string(fields["id"], f"{path}.id"),
            topics=self.strings(fields["topics"], f"{path}.topics"),
            owned={
                topic: [
                    self.integer(number, f"{path}.owned.{topic}[{n}]")
                    for n, number in enumerate(self.sequence(numbers, f"{path}.owned.{topic}"))
                ]
                for topic, numbers in owned.items()
            },
            generation=None
            if generation is None
            else self.integer(generation, f"{path}.generation"),
            static_id=self.optional_string(fields.get("static_id"), f"{path}.static_id"),
            rack=self.optional_string(fields.get("rack"), f"{path}.rack"),
        )


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """JSON lets a key stand twice, and the first would be lost."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} stands twice in one object")
    return found


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", type(None): "null"}
    return names.get(type(value), repr(value))
