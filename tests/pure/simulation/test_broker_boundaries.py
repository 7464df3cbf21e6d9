"""A whole broker that dies, or whose disk fails, at every place of a story.

It is spoken to by frames, and its next life begins from what is on the disk. The checks that run
with every event hold what matters: a restart gives what the journal says, an append is there as a
whole or not at all, and nobody was told of a success that is not there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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
from tests.support.simulation import broker, story
from tests.support.simulation.broker import CheckedBrokerWorld

#: At a commit only every so-manieth append is broken; `make nightly` breaks all.
EVERY = 3


@contextmanager
def open_broker_world() -> Iterator[CheckedBrokerWorld]:
    with story.open_world(watched=broker.create_checked_world) as world:
        assert isinstance(world, CheckedBrokerWorld)
        yield world


@cache
def recorded_appends() -> tuple[tuple[ClassicEntry, ...], ...]:
    """What the story writes when nothing goes wrong, append by append."""
    found: list[tuple[ClassicEntry, ...]] = []
    with open_broker_world() as world:
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


def crash_at(number: int, boundary: CrashPoint) -> int:
    """Plays the story with a crash at an append; tells how often the broker stopped."""
    with open_broker_world() as world:
        count = 0

        def arm(entries: tuple[ClassicEntry, ...]) -> None:
            nonlocal count
            if count == number:
                world.broker.crash_at(boundary, downtime=1_000)
            count += 1

        world.driver.on_append = arm
        story.schedule_events(world)
        story.run_to_end(world)
        return [record.detail for record in world.trace].count("stopped")


@pytest.mark.parametrize("boundary", CrashPoint)
@pytest.mark.parametrize(
    "first", [0, *(pytest.param(each, marks=pytest.mark.nightly) for each in range(1, EVERY))]
)
def test_it_dies_at_every_boundary_of_every_append(boundary: CrashPoint, first: int) -> None:
    for number in range(first, len(recorded_appends()), EVERY):
        assert crash_at(number, boundary) == 1


def test_every_append_fails_once() -> None:
    told = 0
    numbers = range(0, len(recorded_appends()), EVERY)
    for number in numbers:
        with open_broker_world() as world:
            world.unreliable_network.failures[number] = Code.KAFKA_STORAGE_ERROR
            story.schedule_events(world)
            story.run_to_end(world)
            assert world.tally["append failed"] == 1
            lines = world.whole_broker.lines
            assert [line for line in lines if "cannot be written; members wait" in line]
            told += story.count_retriable(world)
    # most appends are waited for by a member; some, such as those of a deleted topic, by nobody
    assert told >= len(numbers) * 0.6


def test_the_disk_is_full_for_a_while() -> None:
    with open_broker_world() as world:
        story.schedule_events(world)
        world.unreliable_network.failures.update(
            dict.fromkeys(range(3, 40), Code.KAFKA_STORAGE_ERROR)
        )
        story.run_to_end(world)
        assert world.tally["append failed"] >= 20
        assert [line for line in world.whole_broker.lines if "can be written again" in line]
