"""What Spark's own source refuses, Rota's refuses too, and names what was wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.system.spark.beside.case import EARLIEST, SOON, after, at, between, timed
from tests.system.spark.beside.stage import Beside, Options


@dataclass(frozen=True, slots=True)
class Refusal:
    """A query that neither source runs."""

    name: str
    options: Options
    #: In what Spark's own says.
    own: str
    #: In what Rota says.
    rota: str


def returns(**more: Any) -> dict[str, Any]:
    return {
        "subscribe": "returns",
        **{key.replace("__", "."): value for key, value in more.items()},
    }


def orders(**more: Any) -> dict[str, Any]:
    return {"subscribe": "orders", **more}


ONE = "One of the following options must be specified"
ONLY_ONE = "Only one of the following options"
WRONG = 'Expected e.g. {"topicA":'
UNLIKE = "don't match what are assigned"

#: Wrong whatever the cluster has.
OPTION = (
    Refusal("no topic", {}, ONE, "subscribe, subscribePattern and assign"),
    Refusal("two ways", returns(assign={"returns": [0]}), ONLY_ONE, "assign"),
    Refusal("two ways, one a pattern", returns(subscribePattern="x"), ONLY_ONE, "subscribePattern"),
    Refusal("no topics", {"subscribe": " , "}, "No topics to subscribe to", "subscribe"),
    Refusal(
        "no pattern", {"subscribePattern": " "}, "Pattern to subscribe is empty", "subscribePattern"
    ),
    Refusal("no right pattern", {"subscribePattern": "("}, "Unclosed group", "subscribePattern"),
    Refusal("no partitions", {"assign": "orders"}, "No topicpartitions to assign", "assign"),
    Refusal("wrong partitions", {"assign": "{orders"}, WRONG, "assign"),
    Refusal("partitions in words", {"assign": {"orders": ["0"]}}, WRONG, "assign"),
    Refusal(
        "no address",
        returns(**{"kafka.bootstrap.servers": None}),
        "'kafka.bootstrap.servers' must be specified",
        "kafka.bootstrap.servers",
    ),
    *(
        Refusal(f"a setting of the source's own: {name}", returns(**{name: "x"}), name[6:], name)
        for name in (
            "kafka.auto.offset.reset",
            "kafka.key.deserializer",
            "kafka.value.deserializer",
            "kafka.enable.auto.commit",
            "kafka.interceptor.classes",
        )
    ),
    Refusal("no tasks", returns(minPartitions="0"), "minPartitions must be pos", "minPartitions"),
    Refusal("tasks in words", returns(minPartitions="x"), 'input string: "x"', "minPartitions"),
    Refusal(
        "tasks of nothing",
        returns(maxRecordsPerPartition="0"),
        "maxrecordsperpartition must be positive",
        "maxRecordsPerPartition",
    ),
    Refusal(
        "at least more than at most",
        returns(minOffsetsPerTrigger="2", maxOffsetsPerTrigger="1"),
        "is higher than the maxOffsetsPerTrigger",
        "minOffsetsPerTrigger",
    ),
    Refusal("loss, perhaps", returns(failOnDataLoss="maybe"), '"maybe"', "failOnDataLoss"),
    Refusal("headers, perhaps", returns(includeHeaders="maybe"), '"maybe"', "includeHeaders"),
    Refusal("a word for an offset", returns(startingOffsets="first"), WRONG, "startingOffsets"),
    Refusal("broken JSON", returns(startingOffsets='{"returns":{'), WRONG, "startingOffsets"),
    Refusal("a list", returns(startingOffsets={"returns": [0]}), WRONG, "startingOffsets"),
    Refusal(
        "a partition in words",
        returns(startingOffsets={"returns": {"first": 0}}),
        WRONG,
        "startingOffsets",
    ),
    Refusal(
        "an offset in quotes", returns(startingOffsets=at("returns", "3")), WRONG, "startingOffsets"
    ),
    Refusal("a time in words", timed(startingTimestamp="x"), "single long", "startingTimestamp"),
    Refusal("half a time", timed(startingTimestamp="1.5"), "single long", "startingTimestamp"),
    Refusal(
        "times in words",
        timed(startingOffsetsByTimestamp="soon"),
        'Expected e.g. {"topicA": {"0": 123456789',
        "startingOffsetsByTimestamp",
    ),
    Refusal(
        "what to do without a time",
        timed(1, startingOffsetsByTimestampStrategy="earliest"),
        "No value found for 'EARLIEST'",
        "startingOffsetsByTimestampStrategy",
    ),
    Refusal(
        "isolation in capitals",
        returns(**{"kafka.isolation.level": "READ_COMMITTED"}),
        "isolation.level",
        "isolation.level",
    ),
    Refusal(
        "a number in words",
        returns(**{"kafka.fetch.min.bytes": "x"}),
        "fetch.min.bytes",
        "kafka.fetch.min.bytes",
    ),
)

#: Wrong for what the cluster has.
CLUSTER = (
    Refusal(
        "a topic that is not there", {"subscribe": "orders,missing"}, "UnknownTopic", "missing"
    ),
    Refusal("a partition of none", {"assign": {"missing": [0]}}, "UnknownTopic", "missing"),
    Refusal(
        "no record so late", timed(8.5), "No offset matched from request of topic-part", "timed-1"
    ),
    Refusal(
        "no record at all",
        {"subscribe": "empty", "startingTimestamp": after(0)},
        "No offset matched from request",
        "empty-0",
    ),
    Refusal(
        "no record so late in one",
        timed(startingOffsetsByTimestamp=at("timed", after(3), after(60))),
        "No offset matched from request of topic-partition timed-1",
        "timed-1",
    ),
    Refusal(
        "retention has passed",
        {"subscribe": "aged", "startingOffsets": at("aged", 2, 0)},
        "OffsetOutOfRange",
        "aged-0",
    ),
)

BATCH = (
    Refusal(
        "from the end",
        orders(startingOffsets="latest"),
        "starting offset can't be latest",
        "startingOffsets",
    ),
    Refusal(
        "from the end of one",
        orders(startingOffsets=at("orders", 3, -1, 0)),
        "startingOffsets for orders-1 can't be latest",
        "startingOffsets",
    ),
    Refusal(
        "to the beginning",
        orders(endingOffsets="earliest"),
        "ending offset can't be earliest",
        "endingOffsets",
    ),
    Refusal(
        "to the beginning of one",
        orders(endingOffsets=at("orders", 3, -2, 0)),
        "ending offset for orders-1 can't be earliest",
        "endingOffsets",
    ),
    Refusal("partitions left out", orders(startingOffsets=at("orders", 3)), UNLIKE, "orders-1"),
    Refusal(
        "a partition too many", orders(startingOffsets=at("orders", 3, 0, 0, 0)), UNLIKE, "orders-3"
    ),
    Refusal(
        "a topic too many",
        orders(startingOffsets={**at("orders", 0, 0, 0), **at("returns", 0)}),
        UNLIKE,
        "returns-0",
    ),
    Refusal(
        "ends of partitions left out", orders(endingOffsets=at("orders", 3)), UNLIKE, "orders-1"
    ),
    Refusal(
        "times of partitions left out",
        timed(startingOffsetsByTimestamp=at("timed", after(0))),
        UNLIKE,
        "timed-1",
    ),
    Refusal(
        "starts and ends of others",
        between("orders", (8, 0, 0), (9, 1)),
        "should have the same topic-partitions",
        "orders-2",
    ),
    Refusal(
        "from behind to before",
        between("orders", (8, 0, 0), (5, -1, -1)),
        "start offset 8 is greater than the end offset 5",
        "orders-0",
    ),
    Refusal(
        "from late to early",
        {
            "subscribe": "timed",
            "startingOffsetsByTimestamp": at("timed", after(3), after(6)),
            "endingOffsetsByTimestamp": at("timed", after(5), after(5)),
        },
        "is greater than the end timestamp",
        "timed-1",
    ),
    Refusal(
        "from late to early, as found",
        timed(4.5, 2.5),
        "resolved start offset 5 is greater than the resolved end offset 3",
        "startingTimestamp",
    ),
    Refusal(
        "from past the end",
        orders(startingOffsets=at("orders", 50, 0, 0), failOnDataLoss="false"),
        "resolved start offset 50 is greater than the resolved end offset 10",
        "orders-0",
    ),
    Refusal(
        "an offset that means nothing", orders(startingOffsets=at("orders", -3, 0, 0)), "-3", "-3"
    ),
    Refusal(
        "past the end",
        {**between("orders", (0, 0, 0), (50, 0, 0)), **SOON},
        "OffsetOutOfRange",
        "orders-0",
    ),
    Refusal(
        "wholly before retention", between("aged", (2, 0), (4, 0)), "OffsetOutOfRange", "aged-0"
    ),
)

STREAM = (
    Refusal(
        "an end",
        returns(endingOffsets="latest"),
        "ending offset not valid in streaming queries",
        "endingOffsets",
    ),
    Refusal(
        "an end by time",
        returns(endingOffsetsByTimestamp="{}"),
        "ending timestamp not valid in streaming queries",
        "endingOffsetsByTimestamp",
    ),
    Refusal(
        "offsets of partitions left out",
        orders(startingOffsets=at("orders", 3)),
        "you must specify all TopicPartitions",
        "orders-1",
    ),
    Refusal("so many in words", returns(maxOffsetsPerTrigger="x"), '"x"', "maxOffsetsPerTrigger"),
    Refusal("so few in words", returns(minOffsetsPerTrigger="x"), '"x"', "minOffsetsPerTrigger"),
    Refusal(
        "a delay in words",
        returns(minOffsetsPerTrigger="1", maxTriggerDelay="soon"),
        "Failed to parse time string: soon",
        "maxTriggerDelay",
    ),
    Refusal(
        "from past the end",
        orders(startingOffsets=at("orders", 30, 0, 0)),
        "offset was changed from 30 to 10",
        "orders-0",
    ),
)

#: What Spark's own takes without a word, and Rota does not.
STRICTER = (
    Refusal("an option that nobody knows", returns(inculdeHeaders="true"), "", "includeHeaders"),
    Refusal("a partition that is not there", {"assign": {"orders": [1, 7]}}, "", "orders-7"),
    Refusal("a setting that nobody knows", returns(**{"kafka.fetch.min.byte": "1"}), "", "bytes"),
    Refusal("half an offset", returns(startingOffsets=at("returns", 1.5)), "", "startingOffsets"),
    Refusal("no offset", returns(startingOffsets=at("returns", None)), "", "startingOffsets"),
)


def refused(case: Refusal, twins: tuple[str | None, str | None]) -> None:
    own, rota = twins
    assert own is not None, "Spark's own has not refused"
    assert case.own in own
    assert rota is not None, "Rota has not refused"
    assert case.rota in rota


@pytest.mark.parametrize("case", [*OPTION, *CLUSTER, *BATCH], ids=lambda case: case.name)
def test_batch(case: Refusal, beside: Beside) -> None:
    own, rota = beside.both("read", case.options)
    refused(case, (own.refused, rota.refused))


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
def test_stream(case: Refusal, beside: Beside) -> None:
    own, rota = beside.twins({**EARLIEST, **case.options}).both()
    refused(case, (own.refused, rota.refused))


@pytest.mark.parametrize("case", STRICTER, ids=lambda case: case.name)
def test_only_rota_refuses(case: Refusal, beside: Beside) -> None:
    own, rota = beside.both("read", case.options)
    assert own.refused is None
    assert case.rota in (rota.refused or "")
