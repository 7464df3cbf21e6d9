"""Topics that change under a stream: the same rows, offsets and failures from both sources."""

from __future__ import annotations

import pytest

from tests.system.spark.comparison.queries import EARLIEST, LOSE, per_partition
from tests.system.spark.comparison.source_pair import SourcePair, StreamPair
from tests.system.spark.comparison.topics import KafkaTopics

LOST = "Some data may have been lost"


def start_streams(source_pair: SourcePair, topic: str, **more: str) -> StreamPair:
    """A stream that has read what was there."""
    streams = source_pair.stream_pair({"subscribe": topic, **EARLIEST, **more})
    assert streams.run().count == 10
    return streams


def start_strict_and_lenient(source_pair: SourcePair, topic: str) -> tuple[StreamPair, StreamPair]:
    """The same that fails when data is lost, and one that goes on."""
    strict = start_streams(source_pair, topic)
    return strict, copy_lenient(strict)


def copy_lenient(streams: StreamPair) -> StreamPair:
    """A stream from the same place on that goes on when data is lost."""
    return streams.copy({**streams.options, **LOSE})


def assert_both_fail(streams: StreamPair, own: str, rota: str) -> None:
    """Both sources do, and say so."""
    first, second = streams.run_both()
    assert own in (first.refused or "no failure")
    assert rota in (second.refused or "no failure")


def test_more_records(kafka_topics: KafkaTopics, source_pair: SourcePair) -> None:
    kafka_topics.fill(kafka_topics.create("more"), 10)
    streams = start_streams(source_pair, "more")
    kafka_topics.fill("more", 5)
    assert streams.run().values == [str(number) for number in range(5)]
    assert streams.run().count == 0


def test_each_goes_on_with_the_others_checkpoint(
    kafka_topics: KafkaTopics, source_pair: SourcePair
) -> None:
    kafka_topics.fill(kafka_topics.create("changed", 2), 10)
    streams = start_streams(source_pair, "changed", maxOffsetsPerTrigger="4")
    streams.swap()
    kafka_topics.fill("changed", 6)
    kafka_topics.fill("changed", 3, partition=1)
    seen = streams.run()
    assert seen.places == [
        *(("changed", 0, offset) for offset in range(10, 16)),
        *(("changed", 1, offset) for offset in range(3)),
    ]
    assert seen.last == per_partition("changed", 16, 3)
    streams.swap()
    kafka_topics.fill("changed", 1, partition=1)
    assert streams.run().places == [("changed", 1, 3)]


def test_a_batch_that_did_not_end_is_read_again_by_the_other(
    kafka_topics: KafkaTopics, source_pair: SourcePair
) -> None:
    kafka_topics.fill(kafka_topics.create("cut"), 10)
    streams = start_streams(source_pair, "cut")
    kafka_topics.fill("cut", 5)
    for place in streams.places:
        for name in ("0", ".0.crc"):
            (place / "commits" / name).unlink()
    streams.swap()
    seen = streams.run()
    assert list(map(len, seen.rows)) == [10, 5]
    assert seen.offsets == {0: per_partition("cut", 10), 1: per_partition("cut", 15)}


def test_a_new_partition_is_read_from_its_beginning(
    kafka_topics: KafkaTopics, source_pair: SourcePair
) -> None:
    kafka_topics.fill(kafka_topics.create("grown"), 10)
    streams = start_streams(source_pair, "grown")
    kafka_topics.grow("grown", 2)
    kafka_topics.fill("grown", 3, partition=1)
    kafka_topics.fill("grown", 1)
    seen = streams.run()
    assert seen.places == [("grown", 0, 10), *(("grown", 1, offset) for offset in range(3))]
    assert seen.last == per_partition("grown", 11, 3)


def test_a_new_partition_is_limited_like_others(
    kafka_topics: KafkaTopics, source_pair: SourcePair
) -> None:
    kafka_topics.fill(kafka_topics.create("swollen"), 10)
    streams = start_streams(source_pair, "swollen", maxOffsetsPerTrigger="100")
    kafka_topics.grow("swollen", 2)
    kafka_topics.fill("swollen", 150, partition=1)
    kafka_topics.fill("swollen", 50)
    assert list(map(len, streams.run().rows)) == [100, 100]


def test_a_new_partition_that_does_not_begin_at_0(
    kafka_topics: KafkaTopics, source_pair: SourcePair
) -> None:
    kafka_topics.fill(kafka_topics.create("clipped"), 10)
    strict, loose = start_strict_and_lenient(source_pair, "clipped")
    kafka_topics.grow("clipped", 2)
    kafka_topics.fill("clipped", 5, partition=1)
    kafka_topics.expire("clipped", 2, partition=1)
    assert_both_fail(strict, LOST, "clipped-1")
    assert loose.run().places == [("clipped", 1, offset) for offset in (2, 3, 4)]


def test_retention_overtakes(kafka_topics: KafkaTopics, source_pair: SourcePair) -> None:
    kafka_topics.fill(kafka_topics.create("overtaken"), 10)
    strict, loose = start_strict_and_lenient(source_pair, "overtaken")
    kafka_topics.fill("overtaken", 10)
    kafka_topics.expire("overtaken", 14)
    assert_both_fail(strict, "OffsetOutOfRange", "overtaken-0")
    assert loose.run().places == [("overtaken", 0, offset) for offset in range(14, 20)]


def test_retention_takes_all(kafka_topics: KafkaTopics, source_pair: SourcePair) -> None:
    kafka_topics.fill(kafka_topics.create("emptied"), 10)
    strict, loose = start_strict_and_lenient(source_pair, "emptied")
    kafka_topics.fill("emptied", 10)
    kafka_topics.expire("emptied", 20)
    assert_both_fail(strict, "OffsetOutOfRange", "emptied-0")
    seen = loose.run()
    assert (seen.count, seen.last) == (0, per_partition("emptied", 20))


def test_made_again_with_fewer(kafka_topics: KafkaTopics, source_pair: SourcePair) -> None:
    kafka_topics.fill(kafka_topics.create("renewed"), 10)
    strict, loose = start_strict_and_lenient(source_pair, "renewed")
    kafka_topics.delete("renewed")
    kafka_topics.fill(kafka_topics.create("renewed"), 4)
    assert_both_fail(strict, "offset was changed from 10 to 4", "renewed-0")
    seen = loose.run()
    assert (seen.count, seen.last) == (0, per_partition("renewed", 4))
    kafka_topics.fill("renewed", 2)
    assert loose.run().places == [("renewed", 0, 4), ("renewed", 0, 5)]


def test_made_again_with_fewer_partitions(
    kafka_topics: KafkaTopics, source_pair: SourcePair
) -> None:
    kafka_topics.fill(kafka_topics.create("shrunk", 2), 10)
    strict, loose = start_strict_and_lenient(source_pair, "shrunk")
    kafka_topics.delete("shrunk")
    kafka_topics.fill(kafka_topics.create("shrunk"), 12)
    assert_both_fail(strict, "have been deleted", "shrunk-1")
    assert loose.run().places == [("shrunk", 0, 10), ("shrunk", 0, 11)]


@pytest.mark.parametrize("lose", [False, True])
def test_gone(kafka_topics: KafkaTopics, source_pair: SourcePair, *, lose: bool) -> None:
    topic = f"gone-{lose}".lower()
    kafka_topics.fill(kafka_topics.create(topic), 10)
    streams = start_streams(source_pair, topic, **(LOSE if lose else {}))
    kafka_topics.delete(topic)
    assert_both_fail(streams, "UnknownTopicOrPartition", topic)


def test_topics_come_and_go_by_pattern(kafka_topics: KafkaTopics, source_pair: SourcePair) -> None:
    kafka_topics.fill(kafka_topics.create("leaf-1"), 10)
    strict = source_pair.stream_pair({"subscribePattern": "^leaf-", **EARLIEST})
    strict.run()
    kafka_topics.fill(kafka_topics.create("leaf-2"), 2)
    assert strict.run().places == [("leaf-2", 0, 0), ("leaf-2", 0, 1)]
    loose = copy_lenient(strict)
    kafka_topics.delete("leaf-1")
    kafka_topics.fill("leaf-2", 1)
    assert_both_fail(strict, "have been deleted", "leaf-1-0")
    seen = loose.run()
    assert (seen.places, seen.last) == ([("leaf-2", 0, 2)], per_partition("leaf-2", 3))


def test_while_it_runs(kafka_topics: KafkaTopics, source_pair: SourcePair) -> None:
    kafka_topics.fill(kafka_topics.create("live"), 10)
    streams = source_pair.stream_pair({"subscribe": "live", **EARLIEST})
    with streams.running() as drained:
        assert drained() == [("live", 0, offset) for offset in range(10)]
        kafka_topics.fill("live", 2)
        assert drained()[10:] == [("live", 0, 10), ("live", 0, 11)]
        kafka_topics.grow("live", 2)
        kafka_topics.fill("live", 3, partition=1)
        assert drained()[12:] == [("live", 1, offset) for offset in range(3)]
