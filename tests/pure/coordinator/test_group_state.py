"""The table of legal moves: complete, and what the documentation shows."""

from __future__ import annotations

import pytest

from rota.engine.coordinator.state import GROUP_TRANSITIONS, ClassicGroup, GroupState
from rota.engine.member import state
from rota.engine.model.text import draw_state_diagram
from tests.support.paths import ROOT

UNJOINED = state.MemberState.UNJOINED
ARCHITECTURE = ROOT / "docs" / "architecture.md"


def test_the_documented_diagrams_are_drawn_from_the_tables() -> None:
    text = ARCHITECTURE.read_text()
    for drawn in (
        draw_state_diagram(GROUP_TRANSITIONS, GroupState.EMPTY),
        draw_state_diagram(state.MEMBER_TRANSITIONS, UNJOINED),
    ):
        assert f"```mermaid\n{drawn}\n```" in text


@pytest.mark.parametrize("old", GroupState)
@pytest.mark.parametrize("new", GroupState)
def test_a_group_moves_along_the_table_only(old: GroupState, new: GroupState) -> None:
    group = ClassicGroup("g")
    group.state = old
    if (old, new) in GROUP_TRANSITIONS:
        group.transition_to(new, 7)
        assert (group.previous_state, group.state, group.state_timestamp) == (old, new, 7)
    else:
        with pytest.raises(AssertionError, match="no move"):
            group.transition_to(new, 7)


def test_every_state_can_be_reached_and_left() -> None:
    assert {new for _, new in GROUP_TRANSITIONS} == set(GroupState)
    assert {old for old, _ in GROUP_TRANSITIONS} == set(GroupState) - {GroupState.DEAD}
