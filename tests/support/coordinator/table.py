"""Every question in every state."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from rota.engine.model.response import (
    DeleteGroupsResult,
    DescribeGroupsResult,
    GroupResponse,
    LeaveGroupResult,
    ListGroupsResult,
    OffsetCommitResult,
    OffsetFetchResult,
)
from rota.errors import Code
from tests.support.coordinator.case_run import QUIET, CaseRun
from tests.support.coordinator.comparison import (
    Case,
    CaseResult,
    RepeatedCase,
    compare_cases,
    run_case,
    run_on_rota,
)
from tests.support.coordinator.node import CoordinatorSide
from tests.support.coordinator.question import QUESTIONS
from tests.support.coordinator.scripted_member import CONFIG
from tests.support.coordinator.state import STATES
from tests.support.coordinator.transcript import Step

#: A state and the questions that are put to one group in it.
Bundle = tuple[str, tuple[str, ...]]
#: How many questions that change nothing are put to one group, one after the other.
TOGETHER = 10
#: Milliseconds that a timer of the group must be away after the last of them. The broker's timers
#: run on while requests are encoded and threads wait for a core; with less, a busy machine lets the
#: initial delay end in the middle of the questions.
IN_HAND = 400


@functools.cache
def question_case(bundle: Bundle) -> Case:
    """A case: into the state, then these questions; the same one each time."""
    state, questions = bundle

    def case(stage: CaseRun) -> None:
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


def refused_or_read(reply: GroupResponse) -> bool:
    """Whether the one who answered so has changed nothing."""
    match reply:
        case OffsetFetchResult() | DescribeGroupsResult() | ListGroupsResult():
            return True
        case OffsetCommitResult() | DeleteGroupsResult():
            return bool(reply.codes) and Code.NONE not in reply.codes.values()
        case LeaveGroupResult(code=Code.NONE):
            return all(member.code != Code.NONE for member in reply.members)
        case _:
            # an id given out is an error code to the member, but is remembered by the group
            return reply.code not in {Code.NONE, Code.MEMBER_ID_REQUIRED}


def bundle_questions() -> list[Bundle]:
    """The table as few cases: a group need not be made anew after what changed nothing."""
    found: list[Bundle] = []
    quiet: defaultdict[str, list[str]] = defaultdict(list)
    for state in STATES:
        for question in QUESTIONS:
            bundle = (state, (question,))
            if changes_nothing(run_on_rota(question_case(bundle)).steps):
                quiet[state].append(question)
            else:
                found.append(bundle)
    for state, questions in quiet.items():
        size = questions_per_group(state)
        starts = range(0, len(questions), size)
        found += [(state, tuple(questions[at : at + size])) for at in starts]
    return found


def questions_per_group(state: str) -> int:
    """How many questions a group in this state can be asked before one of its timers is near."""
    side = CoordinatorSide(CONFIG)
    run_case(STATES[state], side)
    return max(1, min(TOGETHER, (side.remaining - IN_HAND) // QUIET))


def compare_table(port: int) -> dict[str, CaseResult]:
    """The whole table; bundles that differ are taken apart."""
    verdicts = compare_cases(port, {bundle: question_case(bundle) for bundle in bundle_questions()})
    for bundle in [bundle for bundle, each in verdicts.items() if each.difference is not None]:
        seen, (state, questions) = verdicts.pop(bundle), bundle
        alone = compare_cases(
            port, {(state, (each,)): question_case((state, (each,))) for each in questions}
        )
        for each, verdict in alone.items():  # each gets the difference of the joint run
            assert seen.difference is not None
            repeats = (*seen.repeats, RepeatedCase(1, seen.difference), *verdict.repeats)
            verdicts[each] = replace(verdict, repeats=repeats)
    return {f"{state} / {' + '.join(asks)}": each for (state, asks), each in verdicts.items()}
