"""A case plays on a stage: a group, its actors, and a note of everything that was answered."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Protocol as Interface

from rota.engine.model.request import DescribeGroups, GroupRequest
from rota.engine.model.response import GroupResponse, ListGroupsResult
from tests.support.coordinator.transcript import Renaming, Step, format_value

#: How many milliseconds a side listens on for other answers while requests are parked.
QUIET = 30


class Side(Interface):
    """One that answers requests: Rota's coordinator in virtual time, or a broker in real time."""

    def send(self, label: str, client_id: str, request: GroupRequest) -> None:
        """Send on a connection that no other request waits on."""

    def collect(
        self, milliseconds: int, expected: Collection[str] | None
    ) -> Mapping[str, GroupResponse]:
        """Let time pass, and give the answers that have come, by label."""

    def ask(self, request: GroupRequest, wanted: Callable[[GroupResponse], bool]) -> GroupResponse:
        """An admin's question; a side that needs time for what is wanted may ask again."""

    def restart(self) -> None:
        """The coordinator ends without a word and comes back; so do all connections."""

    def create_topic(self, topic: str) -> None:
        """Offsets of this topic are accepted."""

    def delete_topic(self, topic: str) -> None:
        """The topic is gone from the cluster."""


class CaseRun:
    """The case's group on one side; what the other side did is what this one may wait for."""

    def __init__(self, side: Side, group: str, expected: tuple[Step, ...] = ()) -> None:
        self.group = group
        self.steps: list[Step] = []
        self.names = Renaming(group)
        #: Actors, who learn from what they are answered.
        self.listeners: dict[str, Callable[[GroupResponse], None]] = {}
        self._side = side
        self._expected = expected
        self._sent: Counter[str] = Counter()

    def send(self, who: str, request: GroupRequest) -> GroupResponse | None:
        """Send, and give the answer if it comes at once."""
        self._sent[who] += 1
        label = f"{who}.{self._sent[who]}"
        done = f"{label}: {format_value(self.names.of(request))}"
        self._side.send(label, who, request)
        return self._step(done, 0).get(label)

    def wait(self, milliseconds: int) -> None:
        """Let time pass."""
        self._step(f"{milliseconds} ms pass", milliseconds)

    def restart(self) -> None:
        """The coordinator is restarted."""
        self._side.restart()
        self._step("restart", 0)

    def delete_topic(self, topic: str) -> None:
        """A topic is deleted."""
        self._side.delete_topic(topic)
        self._step(f"topic {topic} is deleted", 0)

    def create_topic(self, topic: str) -> None:
        """A topic is there."""
        self._side.create_topic(topic)

    def look(self, request: GroupRequest) -> None:
        """An admin looks at what may take a moment to come about."""
        before = self.steps[-1].group
        expected = self._next_expected()
        wanted = None if expected is None else expected.answers["look"]
        reply = self._side.ask(request, lambda reply: wanted in (None, self._shown(reply)))
        done = f"look: {format_value(self.names.of(request))}"
        self.steps.append(Step(done, {"look": self._shown(reply)}, before))

    def _next_expected(self) -> Step | None:
        at = len(self.steps)
        return self._expected[at] if at < len(self._expected) else None

    def _step(self, done: str, milliseconds: int) -> Mapping[str, GroupResponse]:
        expected = self._next_expected()
        labels = None if expected is None else expected.answers
        answers = self._side.collect(milliseconds, labels)
        for label, reply in sorted(answers.items()):
            who, _, _ = label.partition(".")
            if who in self.listeners:
                self.listeners[who](reply)
        shown = {label: self._shown(answers[label]) for label in sorted(answers)}
        wanted = None if expected is None else expected.group
        group = self._side.ask(
            DescribeGroups(groups=(self.group,)),
            lambda reply: wanted in (None, self.names.copy().of(reply)),
        )
        self.steps.append(Step(done, shown, self._shown(group)))
        return answers

    def _shown(self, reply: GroupResponse) -> GroupResponse:
        if isinstance(reply, ListGroupsResult):  # other cases have groups of their own
            own = tuple(each for each in reply.groups if each.group == self.group)
            reply = dataclasses.replace(reply, groups=own)
        return self.names.of(reply)
