"""The table of legal moves: complete, and what the documentation shows."""

from __future__ import annotations

import pytest
from docs import generate_states

from rota.engine.coordinator.state import GROUP_TRANSITIONS, ClassicGroup, GroupState


def test_the_documented_diagrams_and_tables_are_what_make_docs_writes() -> None:
    text = generate_states.PAGE.read_text(encoding="utf-8")
    assert generate_states.drawn(text) == text


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
