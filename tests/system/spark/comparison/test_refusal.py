"""What Spark's own source refuses, Rota's refuses too, and names what was wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.system.spark.comparison.queries import (
    EARLIEST,
    SOON,
    offset_range,
    per_partition,
    time_after,
    time_range,
)
from tests.system.spark.comparison.source_pair import Options, SourcePair


@dataclass(frozen=True, slots=True)
class RefusedQuery:
    """A query that neither source runs."""

    name: str
    options: Options
    #: In what Spark's own says.
    own: str
    #: In what Rota says.
    rota: str


def returns_options(**more: Any) -> dict[str, Any]:
    return {
        "subscribe": "returns",
        **{key.replace("__", "."): value for key, value in more.items()},
    }


def orders_options(**more: Any) -> dict[str, Any]:
    return {"subscribe": "orders", **more}


ONE = "One of the following options must be specified"
ONLY_ONE = "Only one of the following options"
WRONG = 'Expected e.g. {"topicA":'
UNLIKE = "don't match what are assigned"

#: Wrong whatever the cluster has.
OPTION = (
    RefusedQuery("no topic", {}, ONE, "subscribe, subscribePattern and assign"),
    RefusedQuery("two ways", returns_options(assign={"returns": [0]}), ONLY_ONE, "assign"),
    RefusedQuery(
        "two ways, one a pattern",
        returns_options(subscribePattern="x"),
        ONLY_ONE,
        "subscribePattern",
    ),
    RefusedQuery("no topics", {"subscribe": " , "}, "No topics to subscribe to", "subscribe"),
    RefusedQuery(
        "no pattern", {"subscribePattern": " "}, "Pattern to subscribe is empty", "subscribePattern"
    ),
    RefusedQuery(
        "no right pattern", {"subscribePattern": "("}, "Unclosed group", "subscribePattern"
    ),
    RefusedQuery("no partitions", {"assign": "orders"}, "No topicpartitions to assign", "assign"),
    RefusedQuery("wrong partitions", {"assign": "{orders"}, WRONG, "assign"),
    RefusedQuery("partitions in words", {"assign": {"orders": ["0"]}}, WRONG, "assign"),
    RefusedQuery(
        "no address",
        returns_options(**{"kafka.bootstrap.servers": None}),
        "'kafka.bootstrap.servers' must be specified",
        "kafka.bootstrap.servers",
    ),
    *(
        RefusedQuery(
            f"a setting of the source's own: {name}", returns_options(**{name: "x"}), name[6:], name
        )
        for name in (
            "kafka.auto.offset.reset",
            "kafka.key.deserializer",
            "kafka.value.deserializer",
            "kafka.enable.auto.commit",
            "kafka.interceptor.classes",
        )
    ),
    RefusedQuery(
        "no tasks", returns_options(minPartitions="0"), "minPartitions must be pos", "minPartitions"
    ),
    RefusedQuery(
        "tasks in words", returns_options(minPartitions="x"), 'input string: "x"', "minPartitions"
    ),
    RefusedQuery(
        "tasks of nothing",
        returns_options(maxRecordsPerPartition="0"),
        "maxrecordsperpartition must be positive",
        "maxRecordsPerPartition",
    ),
    RefusedQuery(
        "at least more than at most",
        returns_options(minOffsetsPerTrigger="2", maxOffsetsPerTrigger="1"),
        "is higher than the maxOffsetsPerTrigger",
        "minOffsetsPerTrigger",
    ),
    RefusedQuery(
        "loss, perhaps", returns_options(failOnDataLoss="maybe"), '"maybe"', "failOnDataLoss"
    ),
    RefusedQuery(
        "headers, perhaps", returns_options(includeHeaders="maybe"), '"maybe"', "includeHeaders"
    ),
    RefusedQuery(
        "a word for an offset", returns_options(startingOffsets="first"), WRONG, "startingOffsets"
    ),
    RefusedQuery(
        "broken JSON", returns_options(startingOffsets='{"returns":{'), WRONG, "startingOffsets"
    ),
    RefusedQuery(
        "a list", returns_options(startingOffsets={"returns": [0]}), WRONG, "startingOffsets"
    ),
    RefusedQuery(
        "a partition in words",
        returns_options(startingOffsets={"returns": {"first": 0}}),
        WRONG,
        "startingOffsets",
    ),
    RefusedQuery(
        "an offset in quotes",
        returns_options(startingOffsets=per_partition("returns", "3")),
        WRONG,
        "startingOffsets",
    ),
    RefusedQuery(
        "a time in words", time_range(startingTimestamp="x"), "single long", "startingTimestamp"
    ),
    RefusedQuery(
        "half a time", time_range(startingTimestamp="1.5"), "single long", "startingTimestamp"
    ),
    RefusedQuery(
        "times in words",
        time_range(startingOffsetsByTimestamp="soon"),
        'Expected e.g. {"topicA": {"0": 123456789',
        "startingOffsetsByTimestamp",
    ),
    RefusedQuery(
        "what to do without a time",
        time_range(1, startingOffsetsByTimestampStrategy="earliest"),
        "No value found for 'EARLIEST'",
        "startingOffsetsByTimestampStrategy",
    ),
    RefusedQuery(
        "isolation in capitals",
        returns_options(**{"kafka.isolation.level": "READ_COMMITTED"}),
        "isolation.level",
        "isolation.level",
    ),
    RefusedQuery(
        "a number in words",
        returns_options(**{"kafka.fetch.min.bytes": "x"}),
        "fetch.min.bytes",
        "kafka.fetch.min.bytes",
    ),
)

#: Wrong for what the cluster has.
CLUSTER = (
    RefusedQuery(
        "a topic that is not there", {"subscribe": "orders,missing"}, "UnknownTopic", "missing"
    ),
    RefusedQuery("a partition of none", {"assign": {"missing": [0]}}, "UnknownTopic", "missing"),
    RefusedQuery(
        "no record so late",
        time_range(8.5),
        "No offset matched from request of topic-part",
        "timed-1",
    ),
    RefusedQuery(
        "no record at all",
        {"subscribe": "empty", "startingTimestamp": time_after(0)},
        "No offset matched from request",
        "empty-0",
    ),
    RefusedQuery(
        "no record so late in one",
        time_range(
            startingOffsetsByTimestamp=per_partition("timed", time_after(3), time_after(60))
        ),
        "No offset matched from request of topic-partition timed-1",
        "timed-1",
    ),
    RefusedQuery(
        "retention has passed",
        {"subscribe": "aged", "startingOffsets": per_partition("aged", 2, 0)},
        "OffsetOutOfRange",
        "aged-0",
    ),
)

BATCH = (
    RefusedQuery(
        "from the end",
        orders_options(startingOffsets="latest"),
        "starting offset can't be latest",
        "startingOffsets",
    ),
    RefusedQuery(
        "from the end of one",
        orders_options(startingOffsets=per_partition("orders", 3, -1, 0)),
        "startingOffsets for orders-1 can't be latest",
        "startingOffsets",
    ),
    RefusedQuery(
        "to the beginning",
        orders_options(endingOffsets="earliest"),
        "ending offset can't be earliest",
        "endingOffsets",
    ),
    RefusedQuery(
        "to the beginning of one",
        orders_options(endingOffsets=per_partition("orders", 3, -2, 0)),
        "ending offset for orders-1 can't be earliest",
        "endingOffsets",
    ),
    RefusedQuery(
        "partitions left out",
        orders_options(startingOffsets=per_partition("orders", 3)),
        UNLIKE,
        "orders-1",
    ),
    RefusedQuery(
        "a partition too many",
        orders_options(startingOffsets=per_partition("orders", 3, 0, 0, 0)),
        UNLIKE,
        "orders-3",
    ),
    RefusedQuery(
        "a topic too many",
        orders_options(
            startingOffsets={**per_partition("orders", 0, 0, 0), **per_partition("returns", 0)}
        ),
        UNLIKE,
        "returns-0",
    ),
    RefusedQuery(
        "ends of partitions left out",
        orders_options(endingOffsets=per_partition("orders", 3)),
        UNLIKE,
        "orders-1",
    ),
    RefusedQuery(
        "times of partitions left out",
        time_range(startingOffsetsByTimestamp=per_partition("timed", time_after(0))),
        UNLIKE,
        "timed-1",
    ),
    RefusedQuery(
        "starts and ends of others",
        offset_range("orders", (8, 0, 0), (9, 1)),
        "should have the same topic-partitions",
        "orders-2",
    ),
    RefusedQuery(
        "from behind to before",
        offset_range("orders", (8, 0, 0), (5, -1, -1)),
        "start offset 8 is greater than the end offset 5",
        "orders-0",
    ),
    RefusedQuery(
        "from late to early",
        {
            "subscribe": "timed",
            "startingOffsetsByTimestamp": per_partition("timed", time_after(3), time_after(6)),
            "endingOffsetsByTimestamp": per_partition("timed", time_after(5), time_after(5)),
        },
        "is greater than the end timestamp",
        "timed-1",
    ),
    RefusedQuery(
        "from late to early, as found",
        time_range(4.5, 2.5),
        "resolved start offset 5 is greater than the resolved end offset 3",
        "startingTimestamp",
    ),
    RefusedQuery(
        "from past the end",
        orders_options(startingOffsets=per_partition("orders", 50, 0, 0), failOnDataLoss="false"),
        "resolved start offset 50 is greater than the resolved end offset 10",
        "orders-0",
    ),
    RefusedQuery(
        "an offset that means nothing",
        orders_options(startingOffsets=per_partition("orders", -3, 0, 0)),
        "-3",
        "-3",
    ),
    RefusedQuery(
        "past the end",
        {**offset_range("orders", (0, 0, 0), (50, 0, 0)), **SOON},
        "OffsetOutOfRange",
        "orders-0",
    ),
    RefusedQuery(
        "wholly before retention",
        offset_range("aged", (2, 0), (4, 0)),
        "OffsetOutOfRange",
        "aged-0",
    ),
)

STREAM = (
    RefusedQuery(
        "an end",
        returns_options(endingOffsets="latest"),
        "ending offset not valid in streaming queries",
        "endingOffsets",
    ),
    RefusedQuery(
        "an end by time",
        returns_options(endingOffsetsByTimestamp="{}"),
        "ending timestamp not valid in streaming queries",
        "endingOffsetsByTimestamp",
    ),
    RefusedQuery(
        "offsets of partitions left out",
        orders_options(startingOffsets=per_partition("orders", 3)),
        "you must specify all TopicPartitions",
        "orders-1",
    ),
    RefusedQuery(
        "so many in words", returns_options(maxOffsetsPerTrigger="x"), '"x"', "maxOffsetsPerTrigger"
    ),
    RefusedQuery(
        "so few in words", returns_options(minOffsetsPerTrigger="x"), '"x"', "minOffsetsPerTrigger"
    ),
    RefusedQuery(
        "a delay in words",
        returns_options(minOffsetsPerTrigger="1", maxTriggerDelay="soon"),
        "Failed to parse time string: soon",
        "maxTriggerDelay",
    ),
    RefusedQuery(
        "from past the end",
        orders_options(startingOffsets=per_partition("orders", 30, 0, 0)),
        "offset was changed from 30 to 10",
        "orders-0",
    ),
)

#: What Spark's own takes without a word, and Rota does not.
STRICTER = (
    RefusedQuery(
        "an option that nobody knows", returns_options(inculdeHeaders="true"), "", "includeHeaders"
    ),
    RefusedQuery("a partition that is not there", {"assign": {"orders": [1, 7]}}, "", "orders-7"),
    RefusedQuery(
        "a setting that nobody knows", returns_options(**{"kafka.fetch.min.byte": "1"}), "", "bytes"
    ),
    RefusedQuery(
        "half an offset",
        returns_options(startingOffsets=per_partition("returns", 1.5)),
        "",
        "startingOffsets",
    ),
    RefusedQuery(
        "no offset",
        returns_options(startingOffsets=per_partition("returns", None)),
        "",
        "startingOffsets",
    ),
)


def assert_refused(case: RefusedQuery, streams: tuple[str | None, str | None]) -> None:
    own, rota = streams
    assert own is not None, "Spark's own has not refused"
    assert case.own in own
    assert rota is not None, "Rota has not refused"
    assert case.rota in rota


@pytest.mark.parametrize("case", [*OPTION, *CLUSTER, *BATCH], ids=lambda case: case.name)
def test_batch(case: RefusedQuery, source_pair: SourcePair) -> None:
    own, rota = source_pair.run_both("read", case.options)
    assert_refused(case, (own.refused, rota.refused))


# options are read, and offsets of times found, alike in both kinds of queries
ALIKE = {
    *(case.name for case in OPTION),
    *("a partition of none", "no record so late", "no record so late in one"),
}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.nightly if case.name in ALIKE else ())
        for case in (*OPTION, *CLUSTER, *STREAM)
    ],
    ids=lambda case: case.name,
)
def test_stream(case: RefusedQuery, source_pair: SourcePair) -> None:
    own, rota = source_pair.stream_pair({**EARLIEST, **case.options}).run_both()
    assert_refused(case, (own.refused, rota.refused))


@pytest.mark.parametrize("case", STRICTER, ids=lambda case: case.name)
def test_only_rota_refuses(case: RefusedQuery, source_pair: SourcePair) -> None:
    own, rota = source_pair.run_both("read", case.options)
    assert own.refused is None
    assert case.rota in (rota.refused or "")
