"""Plays cases on both sides and compares them."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from rota.errors import Code
from rota.model.reply import (
    CommitReply,
    DeleteGroupsReply,
    DescribeGroupsReply,
    FetchOffsetsReply,
    LeaveReply,
    ListGroupsReply,
    Reply,
)
from rota.model.request import FetchOffsets
from tests.kafka.coordinator.actor import CONFIG
from tests.kafka.coordinator.difference import expected_of_kafka
from tests.kafka.coordinator.live import Live
from tests.kafka.coordinator.node import Node
from tests.kafka.coordinator.question import QUESTIONS
from tests.kafka.coordinator.stage import Side, Stage, Step, first_difference
from tests.kafka.coordinator.state import STATES

Case = Callable[[Stage], object]
Bundle = tuple[str, tuple[str, ...]]
"""A state and the questions that are put to a group in it."""
Name = TypeVar("Name")
AT_ONCE = 48
"""Cases spend their time waiting for the broker's timers, so many run side by side."""
TOGETHER = 10
"""How many questions that change nothing are put to one group, one after the other."""


def asked(state: str, *questions: str) -> Case:
    """A case: into the state, then these questions."""

    def case(stage: Stage) -> None:
        group = STATES[state](stage)
        for question in questions:
            QUESTIONS[question](group)

    return case


def play(case: Case, side: Side, expected: Sequence[Step] = ()) -> tuple[Step, ...]:
    """The case's steps on one side, and last what offsets the group has then."""
    stage = Stage(side, f"group-{uuid.uuid4()}", tuple(expected))
    case(stage)
    stage.send("admin", FetchOffsets(group=stage.group))
    return tuple(stage.steps)


def changes_nothing(steps: Sequence[Step]) -> bool:
    """Whether the last question but the closing one was refused, or only read."""
    before, asked_in, _ = steps[-3:] if len(steps) > 2 else (None, *steps)
    if before is not None and before.group != asked_in.group:
        return False
    reply = asked_in.answers.get(asked_in.sender)
    return reply is not None and len(asked_in.answers) == 1 and _refused_or_read(reply)


def _refused_or_read(reply: Reply) -> bool:
    match reply:
        case FetchOffsetsReply() | DescribeGroupsReply() | ListGroupsReply():
            return True
        case CommitReply() | DeleteGroupsReply():
            return bool(reply.codes) and Code.NONE not in reply.codes.values()
        case LeaveReply(code=Code.NONE):
            return all(member.code != Code.NONE for member in reply.members)
        case _:
            # an id given out is an error code to the member, but is remembered by the group
            return reply.code not in {Code.NONE, Code.MEMBER_ID_REQUIRED}


def bundled(states: Sequence[str] = tuple(STATES)) -> list[Bundle]:
    """The table as few cases: questions that change nothing share a group."""
    bundles: list[Bundle] = []
    quiet: defaultdict[str, list[str]] = defaultdict(list)
    for state in states:
        for question in QUESTIONS:
            if changes_nothing(play(asked(state, question), Node(CONFIG))):
                quiet[state].append(question)
            else:
                bundles.append((state, (question,)))
    for state, questions in quiet.items():
        starts = range(0, len(questions), TOGETHER)
        bundles += [(state, tuple(questions[at : at + TOGETHER])) for at in starts]
    return bundles


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a case: the rules that explain a difference, and one that none explains."""

    rules: frozenset[str]
    difference: str | None


def judge(port: int, case: Case) -> Verdict:
    """Play a case before Rota, then before Kafka with what is expected of it."""
    try:
        expected, rules = expected_of_kafka(play(case, Node(CONFIG)))
    except Exception as error:  # noqa: BLE001 the other cases shall be judged too
        return Verdict(frozenset(), f"Rota fails: {error!r}")
    with Live(port) as live:
        theirs = play(case, live, expected)
    return Verdict(rules, first_difference(expected, theirs))


def judge_all(port: int, cases: Mapping[Name, Case]) -> dict[Name, Verdict]:
    """Many cases at once.

    A case that differs is played again alone: where the machine was too slow for the broker's
    timers, the difference does not come again.
    """
    with ThreadPoolExecutor(AT_ONCE) as pool:
        played = pool.map(lambda case: judge(port, case), cases.values())
        verdicts = dict(zip(cases, played, strict=True))
    for name, verdict in verdicts.items():
        if verdict.difference is not None:
            verdicts[name] = judge(port, cases[name])
    return verdicts


def judge_table(port: int) -> dict[str, Verdict]:
    """Every question in every state; bundles that differ are taken apart."""
    together = bundled()
    verdicts = judge_all(port, {each: asked(each[0], *each[1]) for each in together})
    differing = [each for each in together if verdicts[each].difference is not None]
    apart = [(state, (question,)) for state, questions in differing for question in questions]
    verdicts |= judge_all(port, {each: asked(each[0], *each[1]) for each in apart})
    for bundle in differing:
        if len(bundle[1]) > 1:
            del verdicts[bundle]
    return {f"{state} / {', '.join(questions)}": each for (state, questions), each in verdicts.items()}
