"""Draws the states of group and member into architecture.md, from their tables: ``make docs``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import TypeVar

from docs.marked import replaced
from docs.state_outcomes import GROUP_OUTCOMES, MEMBER_OUTCOMES, GroupOutcome, MemberOutcome

from rota.engine.coordinator.state import GROUP_TRANSITIONS, GroupState
from rota.engine.member.state import MEMBER_TRANSITIONS, MemberState

PAGE = Path(__file__).with_name("architecture.md")

S = TypeVar("S", bound=Enum)
T = TypeVar("T", bound=Enum)
Outcome = TypeVar("Outcome")


def drawn(text: str) -> str:
    """Returns the page with today's diagrams and tables between its marks."""
    group = _diagram(GROUP_TRANSITIONS, GroupState.EMPTY)
    member = _diagram(MEMBER_TRANSITIONS, MemberState.UNJOINED)
    text = replaced(text, "group states", f"{group}\n\n{_table(GROUP_OUTCOMES, _group_cell)}")
    return replaced(text, "member states", f"{member}\n\n{_table(MEMBER_OUTCOMES, _member_cell)}")


def _diagram(transitions: Mapping[tuple[S, S], str], first: S) -> str:
    """Returns a Mermaid state diagram. States that no transition leaves are final."""
    lines = [f"{old.value} --> {new.value}: {why}" for (old, new), why in transitions.items()]
    left = {old for old, _ in transitions}
    ends = dict.fromkeys(new for _, new in transitions if new not in left)
    shown = [f"[*] --> {first.value}", *lines, *(f"{end.value} --> [*]" for end in ends)]
    return "\n".join(["```mermaid", "stateDiagram-v2", *(f"    {line}" for line in shown), "```"])


def _table(outcomes: Mapping[tuple[S, T], Outcome], cell: Callable[[Outcome], str]) -> str:
    """Returns a Markdown table: a row for each trigger, a column for each state."""
    states = list(dict.fromkeys(state for state, _ in outcomes))
    triggers = list(dict.fromkeys(trigger for _, trigger in outcomes))
    rows = [["", *(str(state.value) for state in states)], ["---"] * (len(states) + 1)]
    rows += [
        [str(trigger.value), *(cell(outcomes[state, trigger]) for state in states)]
        for trigger in triggers
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _group_cell(outcome: GroupOutcome) -> str:
    code = [] if outcome.code is None else [f"`{outcome.code.name}`"]
    effect = [outcome.effect] if outcome.effect else []
    return _join(code + effect, outcome.next_state)


def _member_cell(outcome: MemberOutcome) -> str:
    parts = []
    if outcome.request is not None:
        parts.append(f"sends {outcome.request.__name__}")
    if outcome.error is not None:
        parts.append(f"`{outcome.error.__name__}`")
    if outcome.effect:
        parts.append(outcome.effect)
    if outcome.rejoins:
        parts.append("the next poll joins")
    return _join(parts, outcome.next_state)


def _join(parts: list[str], next_state: Enum | None) -> str:
    move = [] if next_state is None else [f"→ {next_state.value}"]
    return " ".join(["; ".join(parts), *move]).strip() or "nothing"


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
