"""What the driver asks a cluster, over the wire: partitions, beginnings, ends, times, commits."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import rota
from rota import Broker
from rota.engine.model.topic import TopicPartition
from rota.errors import AuthorizationFailed, InputError, RotaError, UnknownTopic, Unreachable
from rota.spark import query
from rota.spark.plan import OffsetLookup, Offsets
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


@pytest.fixture
def broker() -> Iterator[Broker]:
    with rota.Broker() as started:
        yield started


def lookup_partitions(broker: Broker, **given: str) -> list[TopicPartition]:
    with OffsetLookup(source_options(broker, FAST | given)) as lookup:
        return lookup.partitions()


def start_offsets(broker: Broker, **given: str) -> Offsets:
    """Where a query begins."""
    named = {name.replace("__", "."): value for name, value in given.items()}
    options = source_options(broker, FAST | named)
    with OffsetLookup(options) as lookup:
        return lookup.resolve_offsets(options.starting, lookup.partitions())


# Which partitions


def test_topics_are_read_whole_and_in_order(broker: Broker) -> None:
    broker.create_topic("returns", 1)
    broker.create_topic("orders", 2)
    found = lookup_partitions(broker, subscribe="returns,orders")
    assert found == [p(0), p(1), TopicPartition("returns", 0)]


@pytest.mark.parametrize("given", [{"subscribe": "oders"}, {"assign": '{"oders": [0]}'}])
def test_a_topic_that_is_missing_is_named_with_the_nearest(
    broker: Broker, given: dict[str, str]
) -> None:
    broker.create_topic("orders")
    with pytest.raises(UnknownTopic, match="there is no topic 'oders'; did you mean orders"):
        lookup_partitions(broker, **given)
    assert "oders" not in broker.topics, "who asks makes no topic"


def test_a_partition_that_is_missing_is_named_at_once(broker: Broker) -> None:
    broker.create_topic("orders", 2)
    with pytest.raises(
        UnknownTopic, match="assign: there is no partition orders-7, orders-9: orders has 2"
    ):
        lookup_partitions(broker, assign='{"orders": [9, 0, 7]}')


def test_a_name_that_no_topic_can_have_is_refused(broker: Broker) -> None:
    with pytest.raises(InputError, match="no topic can have the name 'a b'"):
        lookup_partitions(broker, subscribe="a b")


def test_a_pattern_is_searched_in_the_names(broker: Broker) -> None:
    for name in ("orders", "old-orders", "returns"):
        broker.create_topic(name)
    found = lookup_partitions(broker, subscribePattern="^o.*rs$")
    assert found == [TopicPartition("old-orders", 0), p(0)]
    assert lookup_partitions(broker, subscribePattern="nothing") == []


def test_a_pattern_finds_internal_topics_only_if_told_so(broker: Broker) -> None:
    produce_records(broker, 1)
    commit_offsets(broker, "billing", {p(0): 1})
    assert lookup_partitions(broker, subscribePattern="offsets") == []
    given = {"subscribePattern": "offsets", "kafka.exclude.internal.topics": "false"}
    assert TopicPartition("__consumer_offsets", 0) in lookup_partitions(broker, **given)


def test_an_internal_topic_may_be_named(broker: Broker) -> None:
    produce_records(broker, 1)
    commit_offsets(broker, "billing", {p(0): 1})
    assert TopicPartition("__consumer_offsets", 0) in lookup_partitions(
        broker, subscribe="__consumer_offsets"
    )


def test_no_permission_is_said_at_once(broker: Broker) -> None:
    broker.create_topic("orders")
    broker.fail("Metadata", "TOPIC_AUTHORIZATION_FAILED")
    with pytest.raises(AuthorizationFailed, match="no permission for topic 'orders'"):
        lookup_partitions(broker)


def test_a_topic_that_has_no_leader_for_a_moment_is_asked_for_again(broker: Broker) -> None:
    broker.create_topic("orders")
    broker.fail("Metadata", "LEADER_NOT_AVAILABLE", times=2)
    assert lookup_partitions(broker) == [p(0)]
    assert broker.clear_faults() == 0


# Where they begin and end


def test_the_words_for_the_ends(broker: Broker) -> None:
    produce_records(broker, 5, 3)
    delete_records_before(broker, p(0), 2)
    assert start_offsets(broker, startingOffsets="earliest") == {p(0): 2, p(1): 0}
    assert start_offsets(broker, startingOffsets='{"orders": {"0": -1, "1": -2}}') == {
        p(0): 5,
        p(1): 0,
    }
    assert start_offsets(broker, startingOffsets='{"orders": {"0": 4, "1": -1}}') == {
        p(0): 4,
        p(1): 3,
    }
    options = source_options(broker)
    with OffsetLookup(options) as lookup:
        assert lookup.latest_offsets(lookup.partitions()) == {p(0): 5, p(1): 3}


def test_partitions_that_are_gone_are_left_out_at_once(broker: Broker) -> None:
    produce_records(broker, 5)
    gone = TopicPartition("gone", 0)
    with OffsetLookup(source_options(broker)) as lookup:
        assert lookup.latest_offsets([p(0), p(7), gone]) == {p(0): 5}
        assert lookup.earliest_offsets([gone]) == {}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ('{"orders": {"0": 1}}', "orders-1 missing; use -2 for the earliest"),
        ('{"orders": {"0": 1, "1": 1, "2": 1}}', "orders-2 not subscribed to, or missing in Kafka"),
        ('{"orders": {"0": 1, "1": 1}, "x": {"0": 1}}', "x-0 not subscribed to"),
    ],
)
def test_offsets_are_given_for_all_partitions_and_no_others(
    broker: Broker, given: str, message: str
) -> None:
    broker.create_topic("orders", 2)
    with pytest.raises(InputError, match=f"startingOffsets: .*{message}"):
        start_offsets(broker, startingOffsets=given)
    with pytest.raises(InputError, match=f"startingOffsetsByTimestamp: .*{message[:10]}"):
        start_offsets(broker, startingOffsetsByTimestamp=given)


def test_a_time_is_the_first_record_that_is_not_older(broker: Broker) -> None:
    broker.create_topic("orders", 2)
    for number in (0, 1):
        for time in (1_000, 2_000, 3_000):
            broker.produce("orders", "x", partition=number, timestamp=time)
    assert start_offsets(broker, startingTimestamp="1500") == {p(0): 1, p(1): 1}
    times = '{"orders": {"0": 1000, "1": 3000}}'
    assert start_offsets(broker, startingOffsetsByTimestamp=times) == {p(0): 0, p(1): 2}
    assert start_offsets(broker, startingTimestamp="-1") == {p(0): 3, p(1): 3}
    assert start_offsets(broker, startingTimestamp="-2") == {p(0): 0, p(1): 0}


def test_a_time_that_no_record_has_reached_is_an_error_or_the_end(broker: Broker) -> None:
    broker.create_topic("orders", 2)
    broker.produce("orders", "x", partition=0, timestamp=1_000)
    with pytest.raises(InputError, match=r"startingTimestamp: orders-1 has no record at this"):
        start_offsets(broker, startingTimestamp="500")
    given = {"startingTimestamp": "500", "startingOffsetsByTimestampStrategy": "latest"}
    assert start_offsets(broker, **given) == {p(0): 0, p(1): 0}
    with OffsetLookup(source_options(broker)) as lookup:
        where = query.GlobalTimestamp("endingTimestamp", 5_000)
        assert lookup.resolve_offsets(where, [p(0), p(1)], ending=True) == {p(0): 1, p(1): 0}


# Where a group is


def test_a_group_that_has_read_goes_on_and_begins_elsewhere(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    produce_records(broker, 5, 5)
    commit_offsets(broker, "billing", {p(0): 3})
    given = {"startingOffsets": "committed", "kafka__group__id": "billing"}
    with caplog.at_level(logging.WARNING, "rota.spark"):
        assert start_offsets(broker, **given) == {p(0): 3, p(1): 0}
    message = "group 'billing' has committed nothing for orders-1: reading starts at the beginning"
    assert message in caplog.text


def test_a_group_without_offsets_begins_at_the_beginning(broker: Broker) -> None:
    produce_records(broker, 5)
    delete_records_before(broker, p(0), 2)
    given = {"startingOffsets": "committed", "kafka__group__id": "nobody"}
    assert start_offsets(broker, **given) == {p(0): 2}


def test_no_permission_for_the_group_is_said(broker: Broker) -> None:
    produce_records(broker, 5)
    broker.fail("OffsetFetch", "GROUP_AUTHORIZATION_FAILED", times=None)
    with pytest.raises(RotaError, match="the offsets of group 'billing' cannot be read: no perm"):
        start_offsets(broker, startingOffsets="committed", kafka__group__id="billing")


# Trouble


def test_a_broker_that_is_down_is_named_after_as_many_tries(broker: Broker) -> None:
    broker.create_topic("orders")
    address = broker.bootstrap_servers
    options = source_options(broker, FAST | SHORT | {"fetchOffset.numRetries": "2"})
    broker.stop()
    with OffsetLookup(options) as lookup, pytest.raises(Unreachable, match=address):
        lookup.partitions()


def test_a_broker_that_went_down_and_came_back_is_asked_again(tmp_path: Path) -> None:
    with rota.Broker(tmp_path) as broker:
        produce_records(broker, 5)
        with OffsetLookup(source_options(broker, FAST | SHORT)) as lookup:
            ends = lambda: lookup.latest_offsets(lookup.partitions())  # noqa: E731
            assert retry_until_reachable(ends) == {p(0): 5}
            broker.restart()
            assert retry_until_reachable(ends) == {p(0): 5}
            address = broker.bootstrap_servers
            broker.stop()
            with pytest.raises(Unreachable, match=address):
                lookup.latest_offsets([p(0)])
            broker.start()
            assert retry_until_reachable(ends) == {p(0): 5}


def test_a_broker_that_does_not_answer_is_given_up_and_asked_again(broker: Broker) -> None:
    produce_records(broker, 5)
    broker.delay("ListOffsets", 60.0)
    with OffsetLookup(source_options(broker, FAST | {"kafka.request.timeout.ms": "300"})) as lookup:
        assert lookup.latest_offsets([p(0)]) == {p(0): 5}


def test_an_answer_that_is_lost_is_asked_for_again(broker: Broker) -> None:
    produce_records(broker, 5)
    broker.drop_response("ListOffsets")
    with OffsetLookup(source_options(broker)) as lookup:
        assert lookup.latest_offsets([p(0)]) == {p(0): 5}
    assert broker.clear_faults() == 0


def test_close_closes_the_connections(broker: Broker) -> None:
    broker.create_topic("orders")
    lookup = OffsetLookup(source_options(broker))
    lookup.partitions()
    assert count_open_connections(broker) == 1
    lookup.close()
    lookup.close()
    assert count_open_connections(broker) == 0


def test_ten_thousand_partitions(broker: Broker) -> None:
    broker.create_topic("orders", 10_000)
    options = source_options(broker)
    with OffsetLookup(options) as lookup:
        every = lookup.partitions()
        assert len(every) == 10_000
        assert (
            lookup.latest_offsets(every)
            == lookup.earliest_offsets(every)
            == dict.fromkeys(every, 0)
        )
