"""A journal read piece by piece says the same as one read at once."""

from __future__ import annotations

from operator import attrgetter

import pytest

from rota.engine.history.generations import HistoryReader
from rota.pipeline import arrow
from rota.pipeline.tables import GENERATIONS
from tests.support import first_recording

GROUPS = sorted(first_recording.read_journal())


@pytest.mark.parametrize("group", GROUPS)
def test_what_is_told_on_the_way_and_at_the_end_is_all(group: str) -> None:
    reading = HistoryReader(group, first_recording.topic_names())
    generations, ownership = [], []
    for each in reading.generations(first_recording.read_journal()[group]):
        generations.append(each)
        ownership += reading.take_ended()
    ownership += reading.take_remaining()
    at_once = first_recording.read_histories()[group]
    assert generations == at_once.generations
    order = attrgetter("topic", "partition", "since", "member_id")
    assert sorted(ownership, key=order) == at_once.ownership
    assert reading.window == at_once.window


@pytest.mark.parametrize("group", GROUPS)
def test_rows_are_read_as_what_was_written(group: str) -> None:
    made = first_recording.read_histories()[group].generations
    rows = arrow.facts_to_batch(GENERATIONS, made)
    assert arrow.GenerationReader().read(rows) == made
    reader = arrow.GenerationReader()  # a piece may be a part of a larger one
    pieces = [reader.read(rows.slice(first, 2)) for first in range(0, len(made), 2)]
    assert [each for piece in pieces for each in piece] == made
