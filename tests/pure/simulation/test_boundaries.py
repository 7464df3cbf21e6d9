"""A coordinator that dies, or cannot write, at every place of a story.

The checks that run with every event hold what matters here: a restart gives what the journal says,
an append is there as a whole or not at all, and nobody was told of a success that is not there.
"""

from __future__ import annotations

from functools import cache

import pytest

from rota.engine.model.journal_entry import (
    ClassicEntry,
    GroupMetadataEntry,
    GroupMetadataTombstone,
    OffsetCommitEntry,
    OffsetCommitTombstone,
)
from rota.engine.simulator.broker import CrashPoint
from rota.errors import Code
from tests.support.examples import first
from tests.support.simulation import story
from tests.support.simulation.unreliable_network import FAILURES


@cache
def recorded_appends() -> tuple[tuple[ClassicEntry, ...], ...]:
    """What the story writes when nothing goes wrong, append by append."""
    found: list[tuple[ClassicEntry, ...]] = []
    with story.open_world() as world:
        world.driver.on_append = found.append
        story.schedule_events(world)
        story.run_to_end(world)
    return tuple(found)


def test_the_story_writes_every_kind_of_entry() -> None:
    kinds = {type(entry) for entries in recorded_appends() for entry in entries}
    assert kinds == {
        GroupMetadataEntry,
        GroupMetadataTombstone,
        OffsetCommitEntry,
        OffsetCommitTombstone,
    }
    saved = [
        one
        for entries in recorded_appends()
        for one in entries
        if isinstance(one, GroupMetadataEntry)
    ]
    generations = [one.generation for one in saved]
    assert len(generations) > len(set(generations)), "no static member came back"
    assert any(not one.members for one in saved)


def crash_at(crashes: dict[int, CrashPoint]) -> int:
    """Plays the story with a crash at these appends, by their numbers; tells how many there were.

    What an admin asked for is not asked again, so that after a crash there may be fewer appends.
    """
    with story.open_world() as world:
        count = 0

        def arm(entries: tuple[ClassicEntry, ...]) -> None:
            nonlocal count
            if count in crashes:
                world.broker.crash_at(crashes[count], downtime=1_000)
            count += 1

        world.driver.on_append = arm
        story.schedule_events(world)
        story.run_to_end(world)
        return [record.detail for record in world.trace].count("stopped")


@pytest.mark.parametrize("boundary", first(1, CrashPoint))
def test_it_dies_at_every_boundary_of_every_append(boundary: CrashPoint) -> None:
    for number in range(len(recorded_appends())):
        assert crash_at({number: boundary}) == 1


@pytest.mark.nightly
@pytest.mark.parametrize("first", CrashPoint)
@pytest.mark.parametrize("second", CrashPoint)
def test_it_dies_twice(first: CrashPoint, second: CrashPoint) -> None:
    for number in range(len(recorded_appends())):
        for later in range(number + 1, len(recorded_appends())):
            assert crash_at({number: first, later: second}) in (1, 2)


@pytest.mark.parametrize("code", first(1, FAILURES), ids=lambda code: code.name)
def test_every_append_fails_once(code: Code) -> None:
    told = 0
    for number in range(len(recorded_appends())):
        with story.open_world() as world:
            world.unreliable_network.failures[number] = code
            story.schedule_events(world)
            story.run_to_end(world)
            assert world.tally["append failed"] == 1
            told += story.count_retriable(world)
    # most appends are waited for by a member; some, such as those of a deleted topic, by nobody
    assert told >= len(recorded_appends()) * 0.7


def test_no_append_succeeds_for_a_while() -> None:
    with story.open_world() as world:
        story.schedule_events(world)
        world.unreliable_network.failures.update(
            dict.fromkeys(range(3, 40), Code.KAFKA_STORAGE_ERROR)
        )
        story.run_to_end(world)
        assert world.tally["append failed"] >= 20
