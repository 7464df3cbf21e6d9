"""A case plays on a stage: a group, its actors, and everything that was answered, step by step.

The same case is played before Rota's coordinator and before a live broker. Member ids are made by
the coordinator, so both transcripts name them by what precedes the random part and a number.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from typing import Protocol as Interface

from rota.model.reply import DescribedMember, JoinedMember, ListGroupsReply, Reply
from rota.model.request import DescribeGroups, Protocol, Request

GROUP = "the group"
"""What transcripts call the case's group."""
MADE = re.compile(r"(.*)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""A member id that a coordinator made: client id or static id, and a random part."""
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Step:
    """What was done, which requests were answered, and what the group was like then.

    A request is known by who sent it and the how manieth of theirs it was: ``b.2``.
    """

    done: str
    answers: Mapping[str, Reply]
    group: Reply

    @property
    def sender(self) -> str:
        """The label of what was sent, if anything was."""
        label, colon, _ = self.done.partition(": ")
        return label if colon else ""

    @property
    def kind(self) -> str:
        """The kind of request that was sent, if one was."""
        return self.done.partition(": ")[2].partition("(")[0]


class Side(Interface):
    """One that answers requests: Rota's coordinator in virtual time, or a broker in real time."""

    def send(self, label: str, client_id: str, request: Request) -> None:
        """Send on a connection that no other request waits on."""

    def collect(self, milliseconds: int, expected: Step | None) -> Mapping[str, Reply]:
        """Let time pass, and give the answers that have come, by label."""

    def ask(self, request: Request, wanted: Callable[[Reply], bool]) -> Reply:
        """An admin's question; a side that needs time for what is wanted may ask again."""


@dataclass(slots=True)
class Stage:
    """The case's group on one side; what the other side did is what this one may wait for."""

    side: Side
    group: str
    expected: tuple[Step, ...] = ()
    steps: list[Step] = field(default_factory=list)
    listeners: dict[str, Callable[[Reply], None]] = field(default_factory=dict)
    _sent: Counter[str] = field(default_factory=Counter)
    _names: dict[str, str] = field(default_factory=dict)

    def send(self, who: str, request: Request) -> Reply | None:
        """Send, and give the answer if it comes at once."""
        self._sent[who] += 1
        label = f"{who}.{self._sent[who]}"
        shown = renamed(request, self._names, self.group)
        self.side.send(label, who, request)
        return self._step(f"{label}: {brief(shown)}", 0).get(label)

    def wait(self, milliseconds: int) -> None:
        """Let time pass."""
        self._step(f"{milliseconds} ms pass", milliseconds)

    def _step(self, done: str, milliseconds: int) -> Mapping[str, Reply]:
        expected = self.expected[len(self.steps)] if len(self.steps) < len(self.expected) else None
        answers = self.side.collect(milliseconds, expected)
        for label, reply in sorted(answers.items()):
            who, _, _ = label.partition(".")
            if who in self.listeners:
                self.listeners[who](reply)
        shown = {label: self._shown(answers[label]) for label in sorted(answers)}
        group = self.side.ask(
            DescribeGroups(groups=(self.group,)),
            lambda reply: expected is None or self._shown(reply, dict(self._names)) == expected.group,
        )
        self.steps.append(Step(done, shown, self._shown(group)))
        return answers

    def _shown(self, reply: Reply, names: dict[str, str] | None = None) -> Reply:
        if isinstance(reply, ListGroupsReply):  # other cases have groups of their own
            own = tuple(each for each in reply.groups if each.group == self.group)
            reply = dataclasses.replace(reply, groups=own)
        return renamed(reply, self._names if names is None else names, self.group)


def renamed(value: V, names: dict[str, str], group: str) -> V:
    """The value with ids and group as transcripts name them, and members in a fixed order."""
    result: Any = value
    match value:
        case str():
            result = GROUP if value == group else _named(value, names)
        case tuple() if value and isinstance(value[0], JoinedMember | DescribedMember):
            ordered = sorted(value, key=lambda each: MADE.sub(r"\1", each.member_id))
            result = tuple(renamed(each, names, group) for each in ordered)
        case tuple() if type(value) is tuple:
            result = tuple(renamed(each, names, group) for each in value)
        case Mapping():
            pairs = sorted(value.items())
            result = {renamed(key, names, group): renamed(each, names, group) for key, each in pairs}
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            changes = {
                each.name: renamed(getattr(value, each.name), names, group)
                for each in dataclasses.fields(value)
            }
            result = dataclasses.replace(value, **changes)
    return result  # type: ignore[no-any-return]


def _named(text: str, names: dict[str, str]) -> str:
    made = MADE.fullmatch(text)
    if made is None:
        return text
    if text not in names:
        alike = sum(name.startswith(f"{made[1]}#") for name in names.values())
        names[text] = f"{made[1]}#{alike + 1}"
    return names[text]


def brief(value: object) -> str:
    """A value by those of its fields that say something."""
    match value:
        case Protocol():
            return value.name
        case tuple() if type(value) is tuple:
            return "[" + ", ".join(map(brief, value)) + "]"
        case Mapping():
            return "{" + ", ".join(f"{key}: {brief(each)}" for key, each in value.items()) + "}"
        case _ if not dataclasses.is_dataclass(value) or isinstance(value, type):
            return str(value)
    said = []
    for each in dataclasses.fields(value):
        content = getattr(value, each.name)
        if content not in (each.default, (), GROUP):
            said.append(f"{each.name}={brief(content)}")
    return f"{type(value).__name__}({', '.join(said)})"


def first_difference(ours: Sequence[Step], theirs: Sequence[Step]) -> str | None:
    """The first step that went otherwise, in words."""
    for number, (one, other) in enumerate(zip(ours, theirs, strict=False), 1):
        if one == other:
            continue
        lines = [f"step {number}, {one.done}"]
        if one.done != other.done:
            lines.append(f"  Kafka: {other.done}")
        for label in sorted({*one.answers, *other.answers}):
            pair = (one.answers.get(label), other.answers.get(label))
            if pair[0] != pair[1]:
                lines.append(f"  answer to {label}\n    Rota:  {brief(pair[0])}\n    Kafka: {brief(pair[1])}")
        if one.group != other.group:
            lines.append(f"  group\n    Rota:  {brief(one.group)}\n    Kafka: {brief(other.group)}")
        return "\n".join(lines)
    if len(ours) != len(theirs):
        return f"Rota's case has {len(ours)} steps, Kafka's {len(theirs)}"
    return None

