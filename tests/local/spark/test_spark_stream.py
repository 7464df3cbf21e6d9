"""A stream's plan, trigger by trigger, against a broker and without a JVM: called as by Spark."""

from __future__ import annotations

import json
import logging
import pickle
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Protocol

import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
)

import rota
from rota import Broker
from rota.errors import InputError, UnknownTopic, Unreachable
from rota.spark import source
from rota.spark.plan import OffsetRange
from rota.spark.query import DataLost
from rota.spark.source import StreamReader, TaskPartition
from tests.support.spark_query import (
    FAST,
    SHORT,
    commit_offsets,
    count_open_connections,
    delete_records_before,
    p,
    produce_records,
    retry_until_reachable,
    source_options,
)

Json = dict[str, dict[str, int]]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with rota.Broker() as started:
        yield started


class Query:
    """A query as Spark runs it. A new one with the same log goes on where the other was."""

    def __init__(self, broker: Broker, log: list[Json] | None = None, /, **given: str) -> None:
        named = {name.replace("__", "."): value for name, value in given.items()}
        self.reader = StreamReader(source_options(broker, FAST | named, streaming=True), 2)
        #: The ends of the batches, as the checkpoint has them.
        self.log: list[Json] = [] if log is None else log

    @property
    def start(self) -> Json:
        return self.log[-1] if self.log else as_spark_json(self.reader.initialOffset())

    def plan_end(self, limit: ReadLimit | None = None) -> Json:
        """Where the next batch ends."""
        limit = limit or self.reader.getDefaultReadLimit()
        return as_spark_json(self.reader.latestOffset(self.start, limit))

    def read(self, start: Json, end: Json) -> list[OffsetRange]:
        tasks = self.reader.partitions(start, end)
        assert all(isinstance(each, TaskPartition) for each in tasks)
        return sorted(each for task in tasks for each in task.ranges)  # type: ignore[attr-defined]

    def trigger(self, limit: ReadLimit | None = None) -> list[OffsetRange] | None:
        """What a trigger reads; None: Spark sees nothing new, and makes no batch."""
        start, end = self.start, self.plan_end(limit)
        if self.log and end == start:
            return None
        self.log.append(end)
        return self.read(start, end)


def as_spark_json(offsets: Mapping[str, Mapping[str, int]]) -> Json:
    """As they come back to the source."""
    found: Json = json.loads(json.dumps(offsets))
    return found


class BeginQuery(Protocol):
    """Begins a query, or goes on with one that has this log."""

    def __call__(self, log: list[Json] | None = None, /, **given: str) -> Query: ...


@pytest.fixture
def begin_query(broker: Broker) -> Iterator[BeginQuery]:
    opened: list[Query] = []

    def begun(log: list[Json] | None = None, /, **given: str) -> Query:
        opened.append(Query(broker, log, **given))
        return opened[-1]

    yield begun
    for each in opened:
        each.reader.stop()


# Where a query begins


def test_from_the_beginning(broker: Broker, begin_query: BeginQuery) -> None:
    produce_records(broker, 3, 2)
    query = begin_query(startingOffsets="earliest")
    assert query.trigger() == [OffsetRange(p(0), 0, 3), OffsetRange(p(1), 0, 2)]
    assert query.trigger() is None
    assert query.log == [{"orders": {"0": 3, "1": 2}}]
    produce_records(broker, 0, 4)
    assert query.trigger() == [OffsetRange(p(1), 2, 6)]


def test_from_the_end_only_what_comes_is_read(broker: Broker, begin_query: BeginQuery) -> None:
    produce_records(broker, 3, 2)
    query = begin_query()
    assert query.trigger() == []
    assert query.log == [{"orders": {"0": 3, "1": 2}}]
    produce_records(broker, 1, 1)
    assert query.trigger() == [OffsetRange(p(0), 3, 4), OffsetRange(p(1), 2, 3)]


def test_fixed_and_moving_beginnings_together(broker: Broker, begin_query: BeginQuery) -> None:
    """As in Spark's own, whose first batch may be continued here after a kill."""
    produce_records(broker, 10, 10)
    query = begin_query(startingOffsets='{"orders": {"0": -1, "1": 3}}')
    assert query.trigger() == [OffsetRange(p(1), 3, 10)]
    assert query.log == [{"orders": {"0": 10, "1": 10}}]
    produce_records(broker, 1, 1)
    again = begin_query(startingOffsets='{"orders": {"0": -1, "1": 3}}')
    assert again.read(again.start, query.log[0]) == [OffsetRange(p(1), 3, 10)]


def test_from_what_the_group_has_read(broker: Broker, begin_query: BeginQuery) -> None:
    produce_records(broker, 3, 2)
    commit_offsets(broker, "billing", {p(0): 1})
    query = begin_query(startingOffsets="committed", kafka__group__id="billing")
    assert query.trigger() == []
    assert query.trigger() == [OffsetRange(p(0), 1, 3), OffsetRange(p(1), 0, 2)]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"startingOffsets": '{"orders": {"0": -1, "1": -1}}'},
        {"startingTimestamp": "-1"},
        {"startingTimestamp": "99999999999999", "startingOffsetsByTimestampStrategy": "latest"},
        {"startingOffsets": "committed", "kafka.group.id": "billing"},
    ],
)
def test_a_kill_in_the_first_batch_does_not_move_the_beginning(
    broker: Broker, begin_query: BeginQuery, given: dict[str, str]
) -> None:
    produce_records(broker, 3, 2)
    commit_offsets(broker, "billing", {p(0): 3, p(1): 2})
    first = begin_query(**given)
    end = first.plan_end()  # it is in the checkpoint; then the driver is killed
    assert end == {"orders": {"0": 3, "1": 2}}
    produce_records(broker, 1, 1)
    commit_offsets(broker, "billing", {p(0): 4, p(1): 3})
    again = begin_query(**given)
    assert again.read(again.start, end) == []
    again.log.append(end)
    assert again.trigger() == [OffsetRange(p(0), 3, 4), OffsetRange(p(1), 2, 3)]


def test_a_group_that_is_set_back_after_a_kill_does_not_move_the_beginning(
    broker: Broker, begin_query: BeginQuery
) -> None:
    produce_records(broker, 10)
    commit_offsets(broker, "billing", {p(0): 8})
    given = {"startingOffsets": "committed", "kafka__group__id": "billing"}
    end = begin_query(**given).plan_end()
    commit_offsets(broker, "billing", {p(0): 0})
    again = begin_query([end], **given)
    assert again.read(as_spark_json(again.reader.initialOffset()), end) == []
    assert again.trigger() == [OffsetRange(p(0), 8, 10)]


@pytest.mark.parametrize(
    ("given", "first"),
    [
        ({"startingOffsets": "earliest"}, 0),
        ({"startingOffsets": '{"orders": {"0": 1, "1": 1}}'}, 1),
        ({"startingOffsetsByTimestamp": '{"orders": {"0": 0, "1": 0}}'}, 0),
        ({"startingTimestamp": "0"}, 0),
    ],
)
def test_a_batch_that_was_killed_is_the_same_again(
    broker: Broker, begin_query: BeginQuery, given: dict[str, str], first: int
) -> None:
    """Partitions that came after the kill are not of it, and not lost either."""
    produce_records(broker, 3, 2)
    end = begin_query(**given).plan_end()
    produce_records(broker, 1, 1)
    broker.create_partitions("orders", 3)
    produce_records(broker, 0, 0, 5)
    again = begin_query(**given)
    assert again.read(again.start, end) == [
        OffsetRange(p(0), first, 3),
        OffsetRange(p(1), first, 2),
    ]
    again.log.append(end)
    assert again.trigger() == [
        OffsetRange(p(0), 3, 4),
        OffsetRange(p(1), 2, 3),
        OffsetRange(p(2), 0, 5),
    ]


@pytest.mark.parametrize("words", ["latest", "earliest"])
def test_what_comes_to_a_topic_that_was_not_there_is_read(
    broker: Broker, begin_query: BeginQuery, words: str
) -> None:
    query = begin_query(subscribePattern="^orders", startingOffsets=words)
    assert query.trigger() == []
    assert query.log == [{}]
    assert query.trigger() is None
    produce_records(broker, 3)
    assert query.trigger() == [OffsetRange(p(0), 0, 3)]


@pytest.mark.parametrize("words", ["latest", "earliest"])
def test_the_same_after_a_kill(broker: Broker, begin_query: BeginQuery, words: str) -> None:
    given = {"subscribePattern": "^orders", "startingOffsets": words}
    begin_query(**given).plan_end()
    produce_records(broker, 3)
    again = begin_query(**given)
    assert again.read(again.start, {}) == []
    again.log.append({})
    assert again.trigger() == [OffsetRange(p(0), 0, 3)]


def test_partitions_that_come_are_read_from_their_beginning(
    broker: Broker, begin_query: BeginQuery
) -> None:
    produce_records(broker, 3)
    query = begin_query()
    query.trigger()
    broker.create_partitions("orders", 2)
    produce_records(broker, 1, 4)
    assert query.trigger() == [OffsetRange(p(0), 3, 4), OffsetRange(p(1), 0, 4)]


def test_a_topic_that_is_missing_is_named(broker: Broker, begin_query: BeginQuery) -> None:
    with pytest.raises(UnknownTopic, match="there is no topic 'orders'"):
        begin_query().plan_end()


def test_a_checkpoint_of_sparks_own_source_is_continued(
    broker: Broker, begin_query: BeginQuery
) -> None:
    produce_records(broker, 3, 2)
    query = begin_query([json.loads('{"orders":{"1":1,"0":2}}')])
    assert query.trigger() == [OffsetRange(p(0), 2, 3), OffsetRange(p(1), 1, 2)]


def test_a_checkpoint_of_something_else_is_refused(broker: Broker, begin_query: BeginQuery) -> None:
    produce_records(broker, 3)
    with pytest.raises(InputError, match="the checkpoint: topic 'logOffset': its partitions are"):
        begin_query([{"logOffset": 5}]).plan_end()  # type: ignore[dict-item]


# How far a trigger goes


def test_a_trigger_has_a_most(broker: Broker, begin_query: BeginQuery) -> None:
    produce_records(broker, 100, 10, 1)
    query = begin_query(startingOffsets="earliest", maxOffsetsPerTrigger="20")
    assert query.reader.getDefaultReadLimit() == ReadMaxRows(20)
    while query.trigger() is not None:
        pass
    ends = [tuple(each["orders"].values()) for each in query.log]
    assert ends == [(18, 1, 1), (36, 2, 1), (53, 4, 1), (70, 6, 1), (87, 8, 1), (100, 10, 1)]
    assert as_spark_json(query.reader.reportLatestOffset() or {}) == query.log[-1]


def test_a_trigger_that_is_to_read_all_reads_all(broker: Broker, begin_query: BeginQuery) -> None:
    """Trigger.Once says so."""
    produce_records(broker, 100)
    query = begin_query(startingOffsets="earliest", maxOffsetsPerTrigger="20")
    assert query.trigger(ReadAllAvailable()) == [OffsetRange(p(0), 0, 100)]


@pytest.mark.parametrize(
    "given",
    [
        {"startingOffsets": '{"orders": {"0": 0, "1": -1}}'},
        {"startingTimestamp": "0", "startingOffsetsByTimestampStrategy": "latest"},
    ],
)
def test_a_trigger_with_a_single_batch_reads_in_it(
    broker: Broker, begin_query: BeginQuery, given: dict[str, str]
) -> None:
    produce_records(broker, 10, 0)
    query = begin_query(**given)
    assert query.trigger(ReadAllAvailable()) == [OffsetRange(p(0), 0, 10)]
    again = begin_query(**given)
    assert again.read(again.start, query.log[0]) == [OffsetRange(p(0), 0, 10)], "and after a kill"


def test_a_single_batch_says_that_it_only_keeps_where_the_group_is(
    broker: Broker, begin_query: BeginQuery, caplog: pytest.LogCaptureFixture
) -> None:
    produce_records(broker, 10)
    query = begin_query(startingOffsets="committed", kafka__group__id="billing")
    assert query.trigger(ReadAllAvailable()) == []
    assert "trigger(once=True) runs no second batch" in caplog.text
    assert query.trigger(ReadAllAvailable()) == [OffsetRange(p(0), 0, 10)]


def test_spark_alone_says_that_all_is_to_be_read(begin_query: BeginQuery) -> None:
    assert not isinstance(begin_query().reader.getDefaultReadLimit(), ReadAllAvailable)


def test_new_partitions_have_their_share(broker: Broker, begin_query: BeginQuery) -> None:
    produce_records(broker, 50)
    query = begin_query(startingOffsets="earliest", maxOffsetsPerTrigger="10")
    query.trigger()
    broker.create_partitions("orders", 2)
    produce_records(broker, 0, 40)
    assert query.trigger() == [OffsetRange(p(0), 10, 15), OffsetRange(p(1), 0, 5)]


def test_a_trigger_waits_for_enough(broker: Broker, begin_query: BeginQuery) -> None:
    produce_records(broker, 3)
    query = begin_query(startingOffsets="earliest", minOffsetsPerTrigger="10")
    assert query.reader.getDefaultReadLimit() == ReadMinRows(10)
    assert query.trigger() == [OffsetRange(p(0), 0, 3)], "the first one does not wait"
    produce_records(broker, 9)
    assert query.trigger() is None
    produce_records(broker, 1)
    assert query.trigger() == [OffsetRange(p(0), 3, 13)]


def test_a_trigger_does_not_wait_longer_than_it_may(
    broker: Broker, begin_query: BeginQuery
) -> None:
    produce_records(broker, 3)
    given = {"minOffsetsPerTrigger": "10", "maxTriggerDelay": "0ms"}
    query = begin_query(startingOffsets="earliest", **given)
    query.trigger()
    produce_records(broker, 1)
    assert query.trigger() == [OffsetRange(p(0), 3, 4)]


def test_least_and_most_together(broker: Broker, begin_query: BeginQuery) -> None:
    produce_records(broker, 30)
    given = {"minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "12"}
    query = begin_query(startingOffsets="earliest", **given)
    assert query.trigger() == [OffsetRange(p(0), 0, 12)]
    assert query.trigger() == [OffsetRange(p(0), 12, 24)]
    assert query.trigger() is None


# What is there now


def test_what_comes_later_is_left_for_the_next_run(broker: Broker, begin_query: BeginQuery) -> None:
    produce_records(broker, 5)
    query = begin_query(startingOffsets="earliest", maxOffsetsPerTrigger="3")
    query.reader.prepareForTriggerAvailableNow()
    assert query.trigger() == [OffsetRange(p(0), 0, 3)]
    produce_records(broker, 5)
    assert query.trigger() == [OffsetRange(p(0), 3, 5)]
    assert query.trigger() is None
    after = begin_query(query.log)
    after.reader.prepareForTriggerAvailableNow()
    assert after.trigger() == [OffsetRange(p(0), 5, 10)]


def test_what_is_there_is_read_however_little_it_is(
    broker: Broker, begin_query: BeginQuery
) -> None:
    produce_records(broker, 5)
    query = begin_query([{"orders": {"0": 4}}], minOffsetsPerTrigger="100")
    query.reader.prepareForTriggerAvailableNow()
    assert query.trigger() == [OffsetRange(p(0), 4, 5)]


@pytest.mark.parametrize(
    "given",
    [
        {"startingOffsets": "latest"},
        {"startingOffsets": "earliest"},
        {"startingOffsets": "committed", "kafka__group__id": "billing"},
    ],
)
def test_what_comes_between_the_target_and_the_beginning_is_no_loss(
    broker: Broker, begin_query: BeginQuery, given: dict[str, str]
) -> None:
    produce_records(broker, 5)
    query = begin_query(**given)
    query.reader.prepareForTriggerAvailableNow()
    broker.create_partitions("orders", 2)
    produce_records(broker, 5, 5)
    commit_offsets(broker, "billing", {p(0): 7})
    while query.trigger() is not None:
        pass
    assert query.log[-1]["orders"]["0"] >= 5


def test_a_leader_that_is_behind_for_a_moment_does_not_set_a_run_back(
    broker: Broker, begin_query: BeginQuery
) -> None:
    produce_records(broker, 5)
    query = begin_query([{"orders": {"0": 8}}])
    query.reader.prepareForTriggerAvailableNow()
    produce_records(broker, 5)
    assert query.trigger() is None


# What is lost


def test_a_partition_that_is_gone_is_lost(
    broker: Broker, begin_query: BeginQuery, caplog: pytest.LogCaptureFixture
) -> None:
    produce_records(broker, 3)
    start: Json = {"orders": {"0": 1, "1": 5}}
    with pytest.raises(DataLost, match="orders-1: gone.*failOnDataLoss=false"):
        begin_query([start]).trigger()
    query = begin_query([start], failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "rota.spark"):
        assert query.trigger() == [OffsetRange(p(0), 1, 3)]
    assert "records may be lost: orders-1: gone" in caplog.text


def test_a_topic_that_was_made_anew_went_back(broker: Broker, begin_query: BeginQuery) -> None:
    produce_records(broker, 10)
    start: Json = {"orders": {"0": 30}}
    with pytest.raises(DataLost, match="orders-0: went back from offset 30 to 10"):
        begin_query([start]).trigger()
    query = begin_query([start], failOnDataLoss="false")
    assert query.trigger() == []
    assert query.log[-1] == {"orders": {"0": 10}}, "as in Spark's own"


def test_committed_offsets_behind_the_end_are_lost(broker: Broker, begin_query: BeginQuery) -> None:
    produce_records(broker, 40)
    given = {"startingOffsets": "committed", "kafka__group__id": "billing"}
    commit_offsets(broker, "billing", {p(0): 30})
    broker.delete_topic("orders")
    produce_records(broker, 10)
    commit_offsets(broker, "billing", {p(0): 30})
    query = begin_query(**given)
    assert query.trigger() == []
    with pytest.raises(DataLost, match="orders-0: went back from offset 30 to 10"):
        query.trigger()
    query = begin_query(failOnDataLoss="false", **given)
    assert [query.trigger(), query.trigger()] == [[], []]
    produce_records(broker, 2)
    assert query.trigger() == [OffsetRange(p(0), 10, 12)]


def test_a_new_partition_whose_first_records_are_gone_is_lost(
    broker: Broker, begin_query: BeginQuery
) -> None:
    produce_records(broker, 3, 3)
    delete_records_before(broker, p(1), 2)
    start: Json = {"orders": {"0": 3}}
    with pytest.raises(DataLost, match="orders-1: new, and begins at offset 2, not at 0"):
        begin_query([start]).trigger()
    assert begin_query([start], failOnDataLoss="false").trigger() == [OffsetRange(p(1), 2, 3)]


def test_a_partition_that_came_and_went_is_lost(broker: Broker, begin_query: BeginQuery) -> None:
    produce_records(broker, 3)
    query = begin_query(failOnDataLoss="false")
    assert query.read({}, {"orders": {"0": 3}, "gone": {"0": 5}}) == [OffsetRange(p(0), 0, 3)]


def test_an_end_before_the_start_is_asked_for_again(
    broker: Broker, begin_query: BeginQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker may be behind for a moment."""
    produce_records(broker, 3)
    pause = SimpleNamespace(time=time.time, sleep=lambda _: produce_records(broker, 4))
    monkeypatch.setattr(source, "time", pause)
    assert begin_query([{"orders": {"0": 5}}]).plan_end() == {"orders": {"0": 7}}


# A broker that is down


@pytest.mark.parametrize("phase", ["latestOffset", "partitions", "prepareForTriggerAvailableNow"])
def test_a_broker_that_is_down_is_named_in_every_phase(
    broker: Broker, begin_query: BeginQuery, phase: str
) -> None:
    produce_records(broker, 3)
    query = begin_query(startingOffsets="earliest", **SHORT)
    address = broker.bootstrap_servers
    acts: dict[str, Callable[[], object]] = {
        "latestOffset": query.plan_end,
        "partitions": lambda: query.read(query.start, {"orders": {"0": 3}}),
        "prepareForTriggerAvailableNow": query.reader.prepareForTriggerAvailableNow,
    }
    broker.stop()
    host, _, port = address.rpartition(":")
    with socket.socket() as held:  # so that no broker of another test gets the port meanwhile
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((host, int(port)))
        with pytest.raises(Unreachable, match=address):
            acts[phase]()
    broker.start()
    produce_records(broker, 2)
    assert retry_until_reachable(query.trigger) == [OffsetRange(p(0), 0, 2)], "it is asked again"


# Life


def test_stop_closes_the_connections(broker: Broker, begin_query: BeginQuery) -> None:
    produce_records(broker, 3)
    query = begin_query()
    query.trigger()
    assert count_open_connections(broker) == 1
    query.reader.stop()
    query.reader.stop()
    assert count_open_connections(broker) == 0


def test_what_goes_to_executors_has_no_connections_and_shows_no_secrets(
    broker: Broker, begin_query: BeginQuery
) -> None:
    produce_records(broker, 3)
    query = begin_query(startingOffsets="earliest")
    query.trigger()
    copy = pickle.loads(pickle.dumps(query.reader))
    assert isinstance(copy, StreamReader)
    tasks = pickle.loads(pickle.dumps(query.reader.partitions({}, {"orders": {"0": 3}})))
    assert [each.ranges for each in tasks] == [(OffsetRange(p(0), 0, 3),)]
    assert "0, until=3" in repr(tasks)


def test_slots_and_splits_make_the_tasks(broker: Broker, begin_query: BeginQuery) -> None:
    produce_records(broker, 30, 10, 10, 10)
    whole = {"orders": {"0": 30, "1": 10, "2": 10, "3": 10}}
    assert len(begin_query().reader.partitions({}, whole)) == 2, "the session's parallelism"
    assert len(begin_query(slots="3").reader.partitions({}, whole)) == 3
    assert len(begin_query(minPartitions="6").reader.partitions({}, whole)) == 6
    tasks = begin_query(maxRecordsPerPartition="10").reader.partitions({}, whole)
    assert len(tasks) == 6
