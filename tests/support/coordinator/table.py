"""Every question in every state."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

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
from tests.support.coordinator.play import Case, Verdict, before_rota, judge
from tests.support.coordinator.question import QUESTIONS
from tests.support.coordinator.stage import Stage
from tests.support.coordinator.state import STATES
from tests.support.coordinator.transcript import Step

Bundle = tuple[str, tuple[str, ...]]
"""A state and the questions that are put to one group in it."""
TOGETHER = 10
"""How many questions that change nothing are put to one group, one after the other."""


def asked(bundle: Bundle) -> Case:
    """A case: into the state, then these questions."""
    state, questions = bundle

    def case(stage: Stage) -> None:
        group = STATES[state](stage)
        for question in questions:
            QUESTIONS[question](group)

    return case


def changes_nothing(steps: Sequence[Step]) -> bool:
    """Whether the last question but the closing one was refused, or only read."""
    question = steps[-2]
    if len(steps) > 2 and steps[-3].group != question.group:
        return False
    reply = question.answers.get(question.sender)
    return reply is not None and len(question.answers) == 1 and refused_or_read(reply)


def refused_or_read(reply: Reply) -> bool:
    """Whether the one who answered so has changed nothing."""
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


def bundles() -> list[Bundle]:
    """The table as few cases: a group need not be made anew after what changed nothing."""
    found: list[Bundle] = []
    quiet: defaultdict[str, list[str]] = defaultdict(list)
    for state in STATES:
        for question in QUESTIONS:
            bundle = (state, (question,))
            if changes_nothing(before_rota(asked(bundle)).steps):
                quiet[state].append(question)
            else:
                found.append(bundle)
    for state, questions in quiet.items():
        starts = range(0, len(questions), TOGETHER)
        found += [(state, tuple(questions[at : at + TOGETHER])) for at in starts]
    return found


def judge_table(port: int) -> dict[str, Verdict]:
    """The whole table; bundles that differ are taken apart."""
    verdicts = judge(port, {bundle: asked(bundle) for bundle in bundles()})
    differing = [bundle for bundle, each in verdicts.items() if each.difference is not None]
    apart = [(state, (question,)) for state, questions in differing for question in questions]
    for bundle in differing:
        del verdicts[bundle]
    verdicts |= judge(port, {bundle: asked(bundle) for bundle in apart})
    return {f"{state} / {' + '.join(asks)}": each for (state, asks), each in verdicts.items()}
