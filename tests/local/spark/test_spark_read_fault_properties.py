"""Whatever fails and passes, the rows of a task are those of the log."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rota
from rota.engine.model.topic import TopicPartition
from tests.support.spark_topic import close_client_pool, read_offsets

PARTITIONS, RECORDS = 3, 40
CODES = (
    *("NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_ID", "UNKNOWN_TOPIC_OR_PARTITION"),
    *("OFFSET_OUT_OF_RANGE", "OFFSET_NOT_AVAILABLE", "FENCED_LEADER_EPOCH", "KAFKA_STORAGE_ERROR"),
)
#: An API and an error; none: the answer is lost.
faults = st.one_of(
    st.tuples(st.just("Fetch"), st.sampled_from(CODES)),
    st.tuples(st.just("ListOffsets"), st.just("NOT_LEADER_OR_FOLLOWER")),
    st.tuples(st.sampled_from(["Fetch", "Metadata", "ListOffsets"]), st.just("")),
)
spans = st.lists(st.integers(0, RECORDS), min_size=2, max_size=4).map(sorted)


@pytest.fixture(scope="module")
def broker() -> Iterator[rota.Broker]:
    with rota.Broker() as running:
        running.create_topic("t", PARTITIONS)
        for partition in range(PARTITIONS):
            for _ in range(RECORDS // 4):
                running.produce("t", *["x" * 50] * 4, partition=partition)
        yield running
    close_client_pool()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(faults, max_size=6),
    st.lists(spans, min_size=PARTITIONS, max_size=PARTITIONS),
    st.sampled_from([1, 300, 1 << 20]),
    st.booleans(),
)
def test_the_rows_are_the_same(
    broker: rota.Broker,
    planned: list[tuple[str, str]],
    bounds: list[list[int]],
    most: int,
    cut: bool,
) -> None:
    if cut:
        broker.disconnect()
    for api, error in planned:
        if error:
            broker.fail(api, error)
        else:
            broker.drop_response(api)
    ranges = [
        (TopicPartition("t", number), start, until)
        for number, points in enumerate(bounds)
        for start, until in zip(points[::2], points[1::2], strict=False)
    ]
    asked = {"kafka.max.partition.fetch.bytes": most, "kafka.retry.backoff.max.ms": 20}
    found = read_offsets(broker.bootstrap_servers, *ranges, given=asked)
    broker.clear_faults()
    expected = [(name.partition, at) for name, *span in ranges for at in range(*span)]
    assert sorted(found) == sorted(expected)
