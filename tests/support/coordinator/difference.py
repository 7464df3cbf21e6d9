"""Where Rota means to answer otherwise than Kafka: each difference by name, as a rule.

A rule turns what Rota did into what Kafka is expected to do. What is left must be equal. The
reasons stand in docs/differences.md under the same names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rota.engine.model.response import GroupResponse, JoinGroupResult, SyncGroupResult
from rota.errors import Code
from tests.support.coordinator.transcript import Step, Transcript

Rule = Callable[[Step], Step]


def _without(step: Step, dropped: Callable[[str, GroupResponse], bool]) -> Step:
    kept = {label: reply for label, reply in step.answers.items() if not dropped(label, reply)}
    return replace(step, answers=kept)


def drop_overtaken_responses(step: Step) -> Step:
    """Kafka forgets a parked request when the same member sends it again."""
    who, _, _ = step.sender.partition(".")

    def dropped(label: str, reply: GroupResponse) -> bool:
        earlier = label != step.sender and label.startswith(f"{who}.")
        match step.kind, reply:
            case ("JoinGroup", JoinGroupResult(code=code)) | (
                "SyncGroup",
                SyncGroupResult(code=code),
            ):
                return earlier and code == Code.REBALANCE_IN_PROGRESS
        return False

    return _without(step, dropped)


def drop_parked_sync_of_leaver(step: Step) -> Step:
    """Kafka forgets the parked sync of a member that leaves."""

    def dropped(label: str, reply: GroupResponse) -> bool:
        return isinstance(reply, SyncGroupResult) and reply.code == Code.UNKNOWN_MEMBER_ID

    return _without(step, dropped) if step.kind == "LeaveGroup" else step


RULES: dict[str, Rule] = {
    "overtaken request": drop_overtaken_responses,
    "left while syncing": drop_parked_sync_of_leaver,
}


def apply_rules(ours: Transcript) -> tuple[Transcript, frozenset[str]]:
    """What Kafka is expected to do where Rota did this, and the rules that say so."""
    used = set()
    steps = []
    for step in ours.steps:
        changed = step
        for name, rule in RULES.items():
            before, changed = changed, rule(changed)
            if changed != before:
                used.add(name)
        steps.append(changed)
    return replace(ours, steps=tuple(steps)), frozenset(used)
