"""Compaction takes old records away, and no fact inside the window with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.engine.formats import journal
from rota.engine.history.facts import (
    Generation,
    GenerationChange,
    JournalRecord,
    PartitionOwnership,
    Rebalance,
)
from rota.engine.history.generations import GroupHistory, read_history
from rota.engine.history.journal_window import JournalWindow, find_window
from rota.engine.history.rebalances import find_rebalances
from rota.engine.model.journal_entry import GroupMetadataTombstone
from tests.support import first_recording

GROUPS = sorted(first_recording.read_journal())


def compact_records(
    records: Sequence[JournalRecord], until: int, *, tombstones: bool
) -> list[JournalRecord]:
    """What is left when the log was cleaned up to a position: the last record of each key; of
    tombstones, after a while, not even that.
    """
    last: dict[bytes, int] = {}
    dead: set[int] = set()
    for position, one in enumerate(records[:until]):
        key, value = journal.encode_entry(one.entry)
        last[key] = position
        if value is None:
            dead.add(position)
    kept = sorted(set(last.values()) - (set() if tombstones else dead))
    return [*(records[position] for position in kept), *records[until:]]


def batch_ends(records: Sequence[JournalRecord]) -> list[int]:
    """Where the log may have been cut: what the coordinator wrote at once is in one batch."""
    return [
        position
        for position in range(len(records) + 1)
        if position in {0, len(records)}
        or records[position].offset != records[position - 1].offset + 1
        or records[position].at != records[position - 1].at
    ]


def _read(group: str, records: Sequence[JournalRecord]) -> GroupHistory:
    return read_history(group, records, first_recording.topic_names())


def _generations(timeline: GroupHistory, offset: int) -> list[Generation]:
    """Those after an offset; lives are counted from the first that is there."""
    found = [one for one in timeline.generations if one.offset > offset]
    first = found[0].incarnation if found else 0
    return [replace(one, incarnation=one.incarnation - first) for one in found]


def _steps(timeline: GroupHistory, offset: int) -> list[Rebalance]:
    """Those that began after an offset, and so from a generation that is known."""
    found = find_rebalances(timeline.generations)
    kept = [one for one in found if one.rounds[0].offset > offset]
    first = kept[0].after.incarnation if kept else 0
    return [_numbered(one, first) for one in kept]


def _numbered(step: Rebalance, first: int) -> Rebalance:
    before = step.before
    return replace(
        step,
        rounds=tuple(replace(one, incarnation=one.incarnation - first) for one in step.rounds),
        before=None if before is None else _state(before),
    )


def _state(generation: Generation) -> Generation:
    """What is known where the evidence begins: the state, but not how it came about."""
    members = (replace(one, owned={}, owned_generation=None) for one in generation.members)
    return replace(
        generation,
        incarnation=0,
        change=GenerationChange.REBALANCED,
        offset=0,
        at=0,
        state_at=0,
        members=tuple(members),
    )


def _owners(timeline: GroupHistory, at: int) -> list[PartitionOwnership]:
    """Who owned what from a time on, as far as it was from that time on."""
    clipped = [
        replace(one, since=max(one.since, at), from_generation=0)
        for one in timeline.ownership
        if one.until is None or one.until > at
    ]
    return sorted(clipped, key=lambda one: (one.topic, one.partition, one.since))


def _check(group: str, until: int, *, tombstones: bool) -> None:
    records = first_recording.read_journal()[group]
    whole = first_recording.read_histories()[group]
    left = _read(group, compact_records(records, until, tombstones=tombstones))
    if left.window is None:
        assert until == len(records)
        return
    offset, at = left.window.offset, left.window.at

    assert _generations(left, offset) == _generations(whole, offset)
    # whose leaving made the group a classic one is not known where its entry is the first left
    skipped = any(
        one.change is GenerationChange.CONVERTED and one.offset == offset
        for one in whole.generations
    )
    assert _steps(left, offset)[skipped:] == _steps(whole, offset)[skipped:]
    assert _owners(left, at) == _owners(whole, at)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("tombstones", [True, False])
def test_compaction_at_any_point_changes_no_fact_inside_the_window(
    group: str, tombstones: bool
) -> None:
    for until in batch_ends(first_recording.read_journal()[group]):
        _check(group, until, tombstones=tombstones)


@pytest.mark.parametrize("group", GROUPS)
def test_the_window_is_not_smaller_than_it_must_be(group: str) -> None:
    """One change of the group's members at most is left out beyond what compaction took."""
    records = first_recording.read_journal()[group]
    for until in batch_ends(records)[:-1]:
        left = compact_records(records, until, tombstones=True)
        found = _read(group, left).window
        assert found is not None
        known = [one for one in find_rebalances(_read(group, left).generations) if one.known_before]
        truly = [
            one
            for one in find_rebalances(first_recording.read_histories()[group].generations)
            if one.rounds[0].offset >= records[until].offset
        ]
        assert len(known) >= len(truly) - 1


def test_where_only_a_tombstone_is_left_all_that_follows_it_is_known() -> None:
    found = find_window([JournalRecord(5, 1_000, GroupMetadataTombstone(group="g"))])
    assert found == JournalWindow(offset=6, at=1_000, is_whole=False)


@given(data=st.data())
def test_cleaned_twice_is_cleaned_once(data: st.DataObject) -> None:
    records = first_recording.read_journal()[data.draw(st.sampled_from(GROUPS))]
    second = data.draw(st.integers(0, len(records)))
    first = data.draw(st.integers(0, second))
    once = compact_records(records, second, tombstones=True)
    early = compact_records(records, first, tombstones=True)

    assert compact_records(early, second - (len(records) - len(early)), tombstones=True) == once
