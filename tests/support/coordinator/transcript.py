"""What a case left behind, in a form that is the same on both sides where both did the same."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rota.engine.model.journal_entry import ClassicEntry, GroupMetadataMember
from rota.engine.model.request import JoinGroupProtocol
from rota.engine.model.response import DescribedMember, GroupResponse, JoinedMember

#: What transcripts call the case's group.
GROUP = "the group"
#: A member id that a coordinator made: client id or static id, and a random part.
MADE = re.compile(r"(.*)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
#: Most values, which have no names in them.
PLAIN = frozenset({bool, bytes, int, type(None)})
UNORDERED = (JoinedMember, DescribedMember, GroupMetadataMember)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Step:
    """What was done, which requests were answered, and what the group was like then.

    A request is known by who sent it and the how manieth of theirs it was: ``b.2``.
    """

    done: str
    answers: Mapping[str, GroupResponse]
    group: GroupResponse

    @property
    def sender(self) -> str:
        """The label of what was sent, if anything was."""
        label, colon, _ = self.done.partition(": ")
        return label if colon else ""

    @property
    def kind(self) -> str:
        """The kind of request that was sent, if one was."""
        return self.done.partition(": ")[2].partition("(")[0]


@dataclass(frozen=True, slots=True)
class Transcript:
    """A case from its first step to its last, and what it wrote into the journal."""

    steps: tuple[Step, ...]
    journal: tuple[ClassicEntry, ...]


class Renaming:
    """Names for what each side makes up by itself: member ids, and the group's name.

    A member id is named by what precedes its random part, and a number.
    """

    def __init__(self, group: str, names: Mapping[str, str] | None = None) -> None:
        self._group = group
        self._names = dict(names or {})

    def copy(self) -> Renaming:
        """The same names, apart from those that are yet to come."""
        return Renaming(self._group, self._names)

    def of(self, value: V) -> V:
        """The value under these names, with members in a fixed order."""
        if type(value) in PLAIN:
            return value
        result: Any = value
        match value:
            case str():
                result = GROUP if value == self._group else self._name(value)
            case tuple() if value and isinstance(value[0], UNORDERED):
                ordered = sorted(value, key=lambda each: self._place(each.member_id))
                result = tuple(map(self.of, ordered))
            case tuple() if type(value) is tuple:
                result = tuple(map(self.of, value))
            case Mapping():
                pairs = sorted(value.items())
                result = {self.of(key): self.of(content) for key, content in pairs}
            case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
                names = _names(type(value))
                changes = {name: self.of(getattr(value, name)) for name in names}
                result = dataclasses.replace(value, **changes)
        return result  # type: ignore[no-any-return]

    def _place(self, member_id: str) -> tuple[str, str]:
        """Members by what their ids begin with; of equal ones, those not seen yet come last."""
        return MADE.sub(r"\1", member_id), self._names.get(member_id, "~")

    def _name(self, text: str) -> str:
        made = MADE.fullmatch(text)
        if made is None:
            return text
        if text not in self._names:
            alike = sum(name.startswith(f"{made[1]}#") for name in self._names.values())
            self._names[text] = f"{made[1]}#{alike + 1}"
        return self._names[text]


@functools.cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(each.name for each in dataclasses.fields(kind))


def format_value(value: object) -> str:
    """A value by those of its fields that say something."""
    match value:
        case JoinGroupProtocol():
            return value.name
        case tuple() if type(value) is tuple:
            return "[" + ", ".join(map(format_value, value)) + "]"
        case Mapping():
            return (
                "{" + ", ".join(f"{key}: {format_value(each)}" for key, each in value.items()) + "}"
            )
        case _ if not dataclasses.is_dataclass(value) or isinstance(value, type):
            return str(value)
    said = []
    for each in dataclasses.fields(value):
        content = getattr(value, each.name)
        if content not in (each.default, (), {}, GROUP):
            said.append(f"{each.name}={format_value(content)}")
    return f"{type(value).__name__}({', '.join(said)})"


def find_difference(ours: Transcript, theirs: Transcript) -> str | None:
    """The first thing that went otherwise, in words; None if nothing did."""
    for number, (one, other) in enumerate(zip(ours.steps, theirs.steps, strict=False), 1):
        if one != other:
            return f"step {number}, {one.done}\n{_step_difference(one, other)}"
    if ours.steps != theirs.steps:
        return f"{len(ours.steps)} steps with Rota, {len(theirs.steps)} with Kafka"
    if ours.journal != theirs.journal:
        journals = _format_entries(ours.journal), _format_entries(theirs.journal)
        return f"journal\n{_format_pair(*journals)}"
    return None


def _step_difference(one: Step, other: Step) -> str:
    lines = []
    if one.done != other.done:
        lines.append(f"  Kafka: {other.done}")
    for label in sorted({*one.answers, *other.answers}):
        pair = (one.answers.get(label), other.answers.get(label))
        if pair[0] != pair[1]:
            lines.append(f"  answer to {label}\n{_format_pair(*map(format_value, pair))}")
    if one.group != other.group:
        lines.append(f"  group\n{_format_pair(format_value(one.group), format_value(other.group))}")
    return "\n".join(lines)


def _format_pair(ours: str, theirs: str) -> str:
    return f"    Rota:  {ours}\n    Kafka: {theirs}"


def _format_entries(entries: Sequence[ClassicEntry]) -> str:
    return "".join(f"\n      {format_value(entry)}" for entry in entries) or "nothing"
