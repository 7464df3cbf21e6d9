"""The table of legal moves: complete, and what the documentation shows."""

from __future__ import annotations

import pytest

from rota.group.classic import Group
from rota.group.state import MOVES, State
from rota.member import state as member
from rota.model.diagram import state_diagram
from tests.support.paths import ROOT

UNJOINED = member.State.UNJOINED
ARCHITECTURE = ROOT / "docs" / "architecture.md"


def test_the_documented_diagrams_are_drawn_from_the_tables() -> None:
    text = ARCHITECTURE.read_text()
    for drawn in (state_diagram(MOVES, State.EMPTY), state_diagram(member.MOVES, UNJOINED)):
        assert f"```mermaid\n{drawn}\n```" in text


@pytest.mark.parametrize("old", State)
@pytest.mark.parametrize("new", State)
def test_a_group_moves_along_the_table_only(old: State, new: State) -> None:
    group = Group("g")
    group.state = old
    if (old, new) in MOVES:
        group.move(new, 7)
        assert (group.previous, group.state, group.timestamp) == (old, new, 7)
    else:
        with pytest.raises(AssertionError, match="no move"):
            group.move(new, 7)


def test_every_state_can_be_reached_and_left() -> None:
    assert {new for _, new in MOVES} == set(State)
    assert {old for old, _ in MOVES} == set(State) - {State.DEAD}
