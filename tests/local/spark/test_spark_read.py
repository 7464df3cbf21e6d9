"""What a task reads: the records of its ranges, each once, and how it ends."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

import rota
from rota.engine.formats.record_batch import ControlRecordType
from rota.engine.model.topic import TopicPartition
from rota.errors import TimedOut
from rota.spark import task
from rota.spark.plan import OffsetRange
from rota.spark.task import read_ranges
from tests.support.spark_topic import (
    T0,
    T1,
    broker_with_topic,
    close_client_pool,
    encode_records,
    encode_transaction_end,
    encode_transaction_records,
    read_offsets,
    read_rows,
    source_options,
)
from tests.support.waiting import wait_until

COMMITTED = {"kafka.isolation.level": "read_committed"}


@pytest.fixture(autouse=True)
def close_kept_readers() -> Iterator[None]:
    yield
    close_client_pool()


@pytest.fixture
def broker() -> Iterator[rota.Broker]:
    with rota.Broker() as running:
        running.create_topic("t", 3)
        yield running


def fill(broker: rota.Broker, partition: int, count: int, *, size: int = 5, each: int = 1) -> None:
    for _ in range(count // each):
        broker.produce("t", *["x" * size] * each, partition=partition)


def has_connections(broker: rota.Broker, count: int) -> bool:
    """Has the broker so many connections, as soon as it has seen who left?"""

    def found() -> int:
        return broker._call(lambda node, _: len(node.clients))

    wait_until(f"{count} connections", lambda: found() == count, found)
    return True


# What is within a range


@pytest.mark.parametrize("kind", [ControlRecordType.COMMIT, ControlRecordType.ABORT])
def test_a_range_may_end_anywhere_in_a_transaction(tmp_path: Path, kind: ControlRecordType) -> None:
    log = [
        encode_records(0, 2),
        encode_transaction_records(7, 2, 3),
        encode_transaction_end(kind, 7, 5),
        encode_records(6, 1),
        encode_records(7, 0, last=8),
    ]
    own = [0, 1, 6] if kind is ControlRecordType.ABORT else [0, 1, 2, 3, 4, 6]
    with broker_with_topic(tmp_path, log) as broker:
        for until in range(10):
            found = read_offsets(broker.bootstrap_servers, (T0, 0, until), given=COMMITTED)
            assert found == [(0, at) for at in own if at < until]


def test_ranges_without_any_record(tmp_path: Path) -> None:
    """Only a marker, only an aborted transaction, only offsets that compaction emptied."""
    log = [
        encode_transaction_records(7, 0, 2),
        encode_transaction_end(ControlRecordType.ABORT, 7, 2),
        encode_records(3, 0, last=9),
        encode_records(10, 1),
    ]
    with broker_with_topic(tmp_path, log) as broker:
        for start, until in ((2, 3), (0, 3), (3, 10), (5, 7)):
            assert read_offsets(broker.bootstrap_servers, (T0, start, until), given=COMMITTED) == []


def test_control_records_are_rows_if_that_is_asked_for(tmp_path: Path) -> None:
    log = [
        encode_records(0, 1),
        encode_transaction_records(7, 1, 1),
        encode_transaction_end(ControlRecordType.ABORT, 7, 2),
    ]
    with broker_with_topic(tmp_path, log) as broker:
        asked = {"includeBatchInfo": "true"}
        found = read_rows(broker.bootstrap_servers, (T0, 0, 3), given=asked)
    names = ("offset", "control", "transactional", "producerId", "producerEpoch")
    assert [tuple(row[name] for name in names) for row in found] == [
        (0, False, False, -1, -1),
        (1, False, True, 7, 0),
        (2, True, True, 7, 0),
    ]


def test_compaction_left_nothing_before_the_logs_end(tmp_path: Path) -> None:
    log = [encode_records(0, 2)]
    with broker_with_topic(tmp_path, log) as broker:
        pass
    empty = tmp_path / "t-0" / f"{9:020}.log"  # offsets 2 to 8 were, and the next is 9
    empty.write_bytes(b"")
    with rota.Broker(tmp_path) as broker:
        given = {"kafka.fetch.max.wait.ms": 1, "kafkaConsumer.pollTimeoutMs": 10_000}
        assert read_offsets(broker.bootstrap_servers, (T0, 0, 9), given=given) == [(0, 0), (0, 1)]
        assert read_offsets(broker.bootstrap_servers, (T0, 4, 8), given=given) == []


def test_an_open_transaction_is_waited_for_and_named(tmp_path: Path) -> None:
    log = [encode_records(0, 2), encode_transaction_records(7, 2, 1), encode_records(3, 1)]
    given = COMMITTED | {"kafkaConsumer.pollTimeoutMs": 300, "kafka.fetch.max.wait.ms": 1}
    with broker_with_topic(tmp_path, log) as broker, pytest.raises(TimedOut) as caught:
        read_rows(broker.bootstrap_servers, (T0, 0, 4), given=given)
    assert "t-0: no progress from offset 2 for 0.3 s" in str(caught.value)
    assert "a transaction is open at offset 2" in str(caught.value)


def test_ranges_of_one_partition_in_one_task(broker: rota.Broker) -> None:
    fill(broker, 0, 10)
    found = read_offsets(broker.bootstrap_servers, (T0, 0, 3), (T0, 5, 6), (T0, 8, 10))
    assert sorted(found) == [(0, at) for at in (0, 1, 2, 5, 8, 9)]


def test_an_answer_that_is_full_before_its_last_range(
    broker: rota.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranges are asked for together by an estimate of a byte for each offset."""
    monkeypatch.setattr(task, "DEFAULT_OFFSET_BYTES", 1.0)
    monkeypatch.setattr(task, "FETCH_MARGIN", 0)
    for partition in range(3):
        fill(broker, partition, 20, size=300, each=5)
    every = [(TopicPartition("t", number), 0, 20) for number in range(3)]
    found = read_offsets(broker.bootstrap_servers, *every)
    assert sorted(found) == [(number, at) for number in range(3) for at in range(20)]


def test_batches_larger_than_what_is_asked_for(broker: rota.Broker) -> None:
    for partition in range(2):
        fill(broker, partition, 40, size=2_000, each=10)
    given = {"kafka.max.partition.fetch.bytes": 1, "kafka.fetch.max.bytes": 1}
    found = read_offsets(broker.bootstrap_servers, (T0, 0, 40), (T1, 3, 33), given=given)
    assert sorted(found) == [(0, at) for at in range(40)] + [(1, at) for at in range(3, 33)]


def test_rows_of_a_range_come_in_order_and_in_pieces(
    broker: rota.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.spark.task.MAX_ROWS", 7)
    fill(broker, 0, 40, each=20)
    options = source_options(broker.bootstrap_servers)
    pieces = [each.num_rows for each in read_ranges((OffsetRange(T0, 0, 40),), options)]
    assert pieces == [7] * 5 + [5]


def test_nothing_to_read(broker: rota.Broker) -> None:
    assert read_offsets(broker.bootstrap_servers) == []


# Links


def test_a_link_is_kept_and_nothing_else(broker: rota.Broker) -> None:
    fill(broker, 0, 4)
    task = (T0, 0, 4)
    for _ in range(5):
        assert len(read_offsets(broker.bootstrap_servers, task)) == 4
        assert has_connections(broker, 1)
    close_client_pool()
    assert has_connections(broker, 0)


def test_who_stops_early_leaves_no_connection(broker: rota.Broker) -> None:
    fill(broker, 0, 400, size=100, each=4)
    given = {"kafka.max.partition.fetch.bytes": 500}
    reading = read_ranges(
        (OffsetRange(T0, 0, 400),), source_options(broker.bootstrap_servers, given)
    )
    first = next(reading)
    reading.close()  # type: ignore[attr-defined]
    assert first.num_rows == 4
    assert has_connections(broker, 0)
    assert len(read_offsets(broker.bootstrap_servers, (T0, 0, 400), given=given)) == 400


def test_two_tasks_at_a_time_and_two_clusters(broker: rota.Broker) -> None:
    fill(broker, 0, 4)
    with rota.Broker() as other:
        other.create_topic("t")
        fill(other, 0, 6)
        options = [source_options(each.bootstrap_servers) for each in (broker, broker, other)]
        readings = [read_ranges((OffsetRange(T0, 0, 4),), each) for each in options]
        assert [sum(batch.num_rows for batch in each) for each in zip(*readings, strict=True)] == [
            12
        ]
        again = [read_offsets(each.bootstrap_servers, (T0, 0, 4)) for each in (broker, other)]
        assert again[0] == again[1] == [(0, at) for at in range(4)]
        assert has_connections(broker, 1)
        assert has_connections(other, 1)


def test_no_more_links_than_needed(broker: rota.Broker) -> None:
    fill(broker, 0, 1)
    for number in range(task.MAX_CLIENTS + 3):
        given = {"kafka.client.id": f"reader-{number}"}
        assert len(read_offsets(broker.bootstrap_servers, (T0, 0, 1), given=given)) == 1
    assert has_connections(broker, task.MAX_CLIENTS)


def test_a_kept_link_after_the_broker_was_restarted(broker: rota.Broker) -> None:
    fill(broker, 0, 4)
    assert len(read_offsets(broker.bootstrap_servers, (T0, 0, 4))) == 4
    broker.restart()
    assert len(read_offsets(broker.bootstrap_servers, (T0, 0, 4))) == 4
    broker.disconnect()
    assert len(read_offsets(broker.bootstrap_servers, (T0, 0, 4))) == 4


def test_what_was_imported_is_frozen_once(
    broker: rota.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    monkeypatch.setattr(gc, "freeze", lambda: calls.append(1))
    kept = task.ClientPool()
    config = source_options(broker.bootstrap_servers).client_config
    for _ in range(3):
        kept.take_client(config).close()
    assert calls == [1]
