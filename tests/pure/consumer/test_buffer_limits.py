"""How many bytes may be under way and wait, and what of it is kept when all is paused."""

from __future__ import annotations

import pytest

from rota.client.fetch import FetchedPartition, FetchPosition, ResponseEnd
from rota.client.offsets import EARLIEST
from rota.consumer.fetcher import compute_byte_limits
from rota.consumer.positions import LeaderAndEpoch, Positions
from rota.engine.model.config import FetchConfig
from rota.engine.model.topic import TopicPartition

MIB = 1 << 20
ZEROS = memoryview(bytes(8 * MIB))


def fetch_config(of_all: int = 50, of_partition: int = 4) -> FetchConfig:
    return FetchConfig(fetch_max_bytes=of_all * MIB, max_partition_bytes=of_partition * MIB)


@pytest.mark.parametrize(
    ("brokers", "settings", "answer", "waiting"),
    [
        (0, fetch_config(), 8, 25),
        (1, fetch_config(), 8, 25),
        (3, fetch_config(), 8, 25),
        (5, fetch_config(), 5, 25),
        (7, fetch_config(), 4, 25),
        (12, fetch_config(), 4, 25),
        (12, fetch_config(50, 1), 50 / 24, 25),
        (60, fetch_config(50, 1), 1, 25),
        (1, fetch_config(4), 2, 4),
        (3, fetch_config(4), 2, 4),
        (1, fetch_config(20), 8, 16),
        (3, fetch_config(20), 4, 10),
        (1, fetch_config(100, 90), 50, 100),
    ],
)
def test_what_there_is_room_for(
    brokers: int, settings: FetchConfig, answer: float, waiting: int
) -> None:
    found = compute_byte_limits(settings, brokers)
    assert (found.response, found.buffered) == (int(answer * MIB), waiting * MIB)
    under_way = 2 * max(brokers, 1) * found.response
    assert found.inactive == found.buffered + max(settings.fetch_max_bytes, under_way)


def test_there_is_room_for_something_always() -> None:
    assert compute_byte_limits(FetchConfig(fetch_max_bytes=0, max_partition_bytes=0), 3) == (
        1,
        1,
        7,
    )


def full_positions(brokers: int, settings: FetchConfig) -> Positions:
    """As much waits as ever can: the last were asked for just before there was enough."""
    positions = Positions(reset=EARLIEST, backoff=float, preferred_replica_expiry=1.0)
    names = [TopicPartition("t", number) for number in range(4 * brokers)]
    positions.assign(names)
    positions.update_leaders(lambda name: LeaderAndEpoch(name.partition % brokers))
    for each in names:
        positions.seek(each, FetchPosition(0))
    limits = compute_byte_limits(settings, brokers)
    while positions.buffered_bytes < limits.buffered:
        for wants in positions.requests_for_fetch(0.0, (), settings.max_partition_bytes).values():
            left = 2 * limits.response
            for want in wants:
                size = min(settings.max_partition_bytes, left)
                left -= size
                records = ZEROS[:size]
                fetched = FetchedPartition(
                    want.token.partition, 0, want.offset, records, -1, -1, -1
                )
                positions.handle_fetched(
                    want.token, fetched, ResponseEnd(FetchPosition(want.offset + 1)), 0.0
                )
    return positions


@pytest.mark.parametrize(("brokers", "of_all"), [(1, 50), (12, 50), (1, 4), (3, 4), (6, 16)])
def test_all_that_waits_is_kept_when_all_is_paused(brokers: int, of_all: int) -> None:
    positions = full_positions(brokers, fetch_config(of_all))
    for each in positions:
        positions.pause(each.partition, paused=True)
    assert (
        0
        < positions.inactive_bytes
        == positions.buffered_bytes
        <= compute_byte_limits(fetch_config(of_all), brokers).inactive
    )


def test_no_more_is_let_go_of_than_must_be_and_never_the_last() -> None:
    positions = full_positions(2, fetch_config())
    names = [each.partition for each in positions]
    for each in names[:5]:
        positions.pause(each, paused=True)
    before = positions.buffered_bytes
    kept = positions.inactive_bytes
    positions.release_inactive(kept)
    assert positions.buffered_bytes == before
    positions.release_inactive(kept - 1)
    assert [positions[each].buffered_bytes for each in names[:2]] == [
        0,
        positions[names[1]].inactive_bytes,
    ]
    assert positions.buffered_bytes == before - kept + positions.inactive_bytes
    positions.release_inactive(0)
    assert [positions[each].buffered_bytes > 0 for each in names[:5]] == [*[False] * 4, True]
    assert (
        positions[names[0]].fetch_position
        == positions[names[0]].consumed_position
        == FetchPosition(0)
    )
