"""State machines as pictures: a table of legal moves, drawn."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TypeVar

State = TypeVar("State", bound=enum.Enum)


def state_diagram(moves: Mapping[tuple[State, State], str], first: State) -> str:
    """The moves as a Mermaid state diagram; states that nothing leads out of are ends."""
    lines = [f"{old.value} --> {new.value}: {why}" for (old, new), why in moves.items()]
    left = {old for old, _ in moves}
    ends = dict.fromkeys(new for _, new in moves if new not in left)
    shown = [f"[*] --> {first.value}", *lines, *(f"{end.value} --> [*]" for end in ends)]
    return "\n".join(["stateDiagram-v2", *(f"    {line}" for line in shown)])
