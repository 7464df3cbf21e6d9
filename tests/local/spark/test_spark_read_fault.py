"""A task when something is wrong: what passes is waited for, the rest is named."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rota
from rota.client.fetch import FetchedPartition
from rota.engine.model.topic import TopicPartition
from rota.errors import AuthorizationFailed, RecordError, TimedOut
from rota.spark.plan import OffsetRange
from rota.spark.query import DataLost
from rota.spark.task import FetchedRange, FetchLoop, read_ranges
from tests.support.spark_topic import (
    T0,
    T1,
    broker_with_topic,
    close_client_pool,
    encode_records,
    read_offsets,
    read_rows,
    source_options,
)

WHOLE = [(0, at) for at in range(10)]
SOON: dict[str, object] = {"kafkaConsumer.pollTimeoutMs": 400}
#: Enough for a broker that answers, on a busy machine too.
LATER: dict[str, object] = {"kafkaConsumer.pollTimeoutMs": 1_500}
GO_ON: dict[str, object] = {"failOnDataLoss": "false"}


@pytest.fixture(autouse=True)
def close_kept_readers() -> Iterator[None]:
    yield
    close_client_pool()


@pytest.fixture
def broker() -> Iterator[rota.Broker]:
    """Ten records in a partition, each in a batch of its own."""
    with rota.Broker() as running:
        running.create_topic("t", 2)
        for row in range(10):
            running.produce("t", f"{row}", partition=0)
        yield running


# What passes


@pytest.mark.parametrize(
    "error",
    [
        "NOT_LEADER_OR_FOLLOWER",
        "FENCED_LEADER_EPOCH",
        "UNKNOWN_LEADER_EPOCH",
        "UNKNOWN_TOPIC_ID",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "OFFSET_NOT_AVAILABLE",
        "KAFKA_STORAGE_ERROR",
        "UNKNOWN",
    ],
)
def test_errors_that_pass(broker: rota.Broker, error: str) -> None:
    broker.fail("Fetch", error, times=3)
    assert read_offsets(broker.bootstrap_servers, (T0, 0, 10)) == WHOLE
    assert broker.clear_faults() == 0


def test_an_offset_that_is_out_of_range_for_a_moment(broker: rota.Broker) -> None:
    """A new leader may be behind."""
    broker.fail("Fetch", "OFFSET_OUT_OF_RANGE", times=2)
    assert read_offsets(broker.bootstrap_servers, (T0, 0, 10)) == WHOLE


@pytest.mark.parametrize("api", ["Fetch", "Metadata"])
def test_a_connection_that_is_lost_for_an_answer(broker: rota.Broker, api: str) -> None:
    broker.drop_response(api, times=3)
    given = {"kafka.max.partition.fetch.bytes": 150}
    assert read_offsets(broker.bootstrap_servers, (T0, 0, 10), given=given) == WHOLE
    assert broker.clear_faults() == 0


def test_a_pause_that_ends_while_it_is_looked_what_to_do(
    broker: rota.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process may be held up anywhere: no range is forgotten for that."""
    send = FetchLoop._send_fetches

    def slow(inquiry: FetchLoop, now: float) -> None:
        send(inquiry, now)
        time.sleep(0.03)  # longer than the pause

    monkeypatch.setattr(FetchLoop, "_send_fetches", slow)
    broker.drop_response("Fetch", times=2)
    given = {"kafkaConsumer.pollTimeoutMs": 10_000}
    assert read_offsets(broker.bootstrap_servers, (T0, 0, 10), given=given) == WHOLE


def test_a_look_up_that_fails(broker: rota.Broker) -> None:
    broker.fail("Fetch", "OFFSET_OUT_OF_RANGE")
    broker.drop_response("ListOffsets", times=2)
    assert read_offsets(broker.bootstrap_servers, (T0, 0, 10)) == WHOLE
    assert broker.clear_faults() == 0


def test_a_broker_that_is_restarted_meanwhile(broker: rota.Broker) -> None:
    given = {"kafka.max.partition.fetch.bytes": 150}
    reading = read_ranges(
        (OffsetRange(T0, 0, 10),), source_options(broker.bootstrap_servers, given)
    )
    found = next(reading).num_rows
    broker.restart()
    assert found + sum(each.num_rows for each in reading) == 10


def test_a_broker_that_is_down_for_a_while(tmp_path: Path) -> None:
    with broker_with_topic(tmp_path, [encode_records(0, 10)]) as broker:
        servers = broker.bootstrap_servers
        broker.stop()
        back = threading.Timer(0.5, broker.start)
        back.start()
        try:
            assert read_offsets(servers, (T0, 0, 10)) == WHOLE
        finally:
            back.join()


def test_an_answer_that_does_not_come(broker: rota.Broker) -> None:
    broker.delay("Fetch", 3600)
    begun = time.monotonic()
    given = {"kafka.request.timeout.ms": 300}
    assert read_offsets(broker.bootstrap_servers, (T0, 0, 10), given=given) == WHOLE
    assert time.monotonic() - begun < 60


def test_nobody_is_late_while_spark_takes_rows(broker: rota.Broker) -> None:
    given = {"kafka.request.timeout.ms": 1_000, "kafka.max.partition.fetch.bytes": 150, **LATER}
    reading = read_ranges(
        (OffsetRange(T0, 0, 10),), source_options(broker.bootstrap_servers, given)
    )
    found = next(reading).num_rows
    time.sleep(1.8)  # longer than both
    assert found + sum(each.num_rows for each in reading) == 10


# What does not


def test_a_broker_that_is_down_for_good(broker: rota.Broker) -> None:
    servers = broker.bootstrap_servers
    broker.stop()
    with pytest.raises(TimedOut) as caught:
        read_offsets(servers, (T0, 0, 10), given=SOON)
    text = str(caught.value)
    assert "t-0: no progress from offset 0 for 0.4 s" in text
    assert "(kafkaConsumer.pollTimeoutMs)" in text
    assert servers in text


def test_a_broker_that_goes_down_for_good_in_the_middle(broker: rota.Broker) -> None:
    servers = broker.bootstrap_servers
    given = {"kafka.max.partition.fetch.bytes": 150, **LATER}
    reading = read_ranges((OffsetRange(T0, 0, 10),), source_options(servers, given))
    next(reading)
    broker.stop()
    with pytest.raises(TimedOut, match=r"no progress from offset [1-9]") as caught:
        list(reading)
    assert servers in str(caught.value)


def test_a_broker_that_never_answers(broker: rota.Broker) -> None:
    broker.delay("Fetch", 3600, times=None)
    given = {"kafka.request.timeout.ms": 600, **LATER}
    with pytest.raises(TimedOut, match="no response to Fetch within 0.6 s") as caught:
        read_offsets(broker.bootstrap_servers, (T0, 0, 10), given=given)
    assert broker.bootstrap_servers in str(caught.value)
    with pytest.raises(TimedOut, match="has not responded"):
        read_offsets(broker.bootstrap_servers, (T0, 0, 10), given=SOON)


def test_errors_that_do_not_pass(broker: rota.Broker) -> None:
    broker.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", times=None)
    with pytest.raises(TimedOut, match=r"offset 3 for 0.4 s .* error 6 \(NOT_LEADER_OR_FOLL"):
        read_offsets(broker.bootstrap_servers, (T0, 3, 10), given=SOON)


def test_no_permission(broker: rota.Broker) -> None:
    broker.fail("Fetch", "TOPIC_AUTHORIZATION_FAILED")
    with pytest.raises(AuthorizationFailed, match="no permission to read topic 't'"):
        read_offsets(broker.bootstrap_servers, (T0, 0, 10))
    broker.fail("Metadata", "TOPIC_AUTHORIZATION_FAILED")
    with pytest.raises(AuthorizationFailed, match="no permission to read topic 't'"):
        read_offsets(broker.bootstrap_servers, (T0, 0, 10))


def test_a_broker_that_finds_its_log_damaged(broker: rota.Broker) -> None:
    broker.fail("Fetch", "CORRUPT_MESSAGE")
    with pytest.raises(RecordError, match=r"offset 4.*CORRUPT_MESSAGE"):
        read_offsets(broker.bootstrap_servers, (T0, 4, 10))


def test_a_damaged_batch_is_named_unless_it_is_behind_the_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damaged on the way: what the broker sends is whole."""
    log = [encode_records(0, 3), encode_records(3, 3), encode_records(6, 4)]
    bad = len(log[0]) + 70
    monkeypatch.setattr("rota.spark.task.FetchedRange", corrupt_fetch(bad))
    with broker_with_topic(tmp_path, log) as broker:
        with pytest.raises(RecordError) as caught:
            read_rows(broker.bootstrap_servers, (T0, 0, 10))
        error = caught.value
        assert (error.topic, error.partition, error.offset) == ("t", 0, 3)
        assert read_offsets(broker.bootstrap_servers, (T0, 0, 3)) == WHOLE[:3]


def corrupt_fetch(at: int) -> Callable[[FetchedPartition, int], FetchedRange]:
    """Answers with one bit wrong."""

    def made(fetched: FetchedPartition, until: int) -> FetchedRange:
        found = bytearray(fetched.records)
        found[at] ^= 1
        return FetchedRange(fetched._replace(records=memoryview(found)), until)

    return made


# What is lost


def delete_records_before(broker: rota.Broker, before: int) -> None:
    """Deletes the records of a partition before an offset."""
    broker._call(lambda node, now: node.context.topics.delete_records_before({("t", 0): before}))


def test_records_that_retention_took(broker: rota.Broker, caplog: pytest.LogCaptureFixture) -> None:
    delete_records_before(broker, 4)
    with pytest.raises(DataLost, match="t-0 from offset 0 to 10: the log now begins at 4"):
        read_offsets(broker.bootstrap_servers, (T0, 0, 10))
    with caplog.at_level(logging.WARNING, "rota.spark"):
        assert read_offsets(broker.bootstrap_servers, (T0, 0, 10), given=GO_ON) == WHOLE[4:]
        assert read_offsets(broker.bootstrap_servers, (T0, 0, 3), given=GO_ON) == []
    assert "t-0 from offset 0 to 10: the log now begins at 4" in caplog.text


def test_a_log_that_ends_before_the_range(broker: rota.Broker) -> None:
    given: dict[str, object] = {"kafka.fetch.max.wait.ms": 1}
    for start, until in ((0, 12), (10, 12), (11, 12)):
        with pytest.raises(DataLost, match=f"to {until}: the log now ends at 10"):
            read_offsets(broker.bootstrap_servers, (T0, start, until), given=given)
        found = read_offsets(broker.bootstrap_servers, (T0, start, until), given=given | GO_ON)
        assert found == WHOLE[start:]


def test_a_topic_that_is_deleted_and_made_again(broker: rota.Broker) -> None:
    assert read_offsets(broker.bootstrap_servers, (T0, 0, 10)) == WHOLE
    broker.delete_topic("t")
    broker.create_topic("t", 2)
    broker.produce("t", "new", partition=0)
    with pytest.raises(DataLost, match="the log now ends at 1"):
        read_offsets(broker.bootstrap_servers, (T0, 4, 10))
    assert read_offsets(broker.bootstrap_servers, (T0, 4, 10), given=GO_ON) == []
    given = GO_ON | {"kafka.fetch.max.wait.ms": 1}
    assert read_offsets(broker.bootstrap_servers, (T0, 0, 10), given=given) == WHOLE[:1]


def test_a_topic_or_a_partition_that_is_gone(broker: rota.Broker) -> None:
    broker.create_topic("u")
    broker.produce("u", "kept")
    broker.delete_topic("t")
    other = TopicPartition("u", 0)
    patient: dict[str, object] = {"kafkaConsumer.pollTimeoutMs": 1_000}  # half of it is enough
    with pytest.raises(DataLost, match="t-0 from offset 0 to 10: the partition does not exist"):
        read_offsets(broker.bootstrap_servers, (T0, 0, 10), (other, 0, 1), given=patient)
    given = GO_ON | patient
    assert read_offsets(broker.bootstrap_servers, (T0, 0, 10), (other, 0, 1), given=given) == [
        (0, 0)
    ]
    broker.create_topic("t", 1)
    assert read_offsets(broker.bootstrap_servers, (T1, 0, 10), given=given) == []


def test_messages_say_what_to_do(broker: rota.Broker) -> None:
    delete_records_before(broker, 4)
    with pytest.raises(DataLost, match="failOnDataLoss=false to continue without them"):
        read_offsets(broker.bootstrap_servers, (T0, 0, 10))
