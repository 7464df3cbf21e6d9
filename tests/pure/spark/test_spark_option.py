"""Every option of the source: what it becomes, and by which name it is refused."""

from __future__ import annotations

import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.engine.model.topic import TopicPartition
from rota.errors import InputError, Unreachable
from rota.spark import option, query
from rota.spark.query import SourceOptions

AT = {"kafka.bootstrap.servers": "here:9092"}
BASE = AT | {"subscribe": "orders"}
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="ann" password="hunter2";'
)


def parse(*, streaming: bool | None = None, **options: str) -> SourceOptions:
    """Options whose names have no dots; ``__`` stands for one."""
    named = {name.replace("__", "."): value for name, value in options.items()}
    return option.parse_options(BASE | named, streaming=streaming)


def refusal_of(given: dict[str, str], *, streaming: bool | None = None) -> str:
    with pytest.raises((InputError, Unreachable)) as caught:
        option.parse_options(given, streaming=streaming)
    return str(caught.value)


def test_a_batch_reads_all_that_there_is() -> None:
    found = option.parse_options(BASE, streaming=False)
    assert found.starting == query.EarliestOffsets()
    assert found.ending == query.LatestOffsets()
    assert found.subscription == query.SubscribeTopics(("orders",))
    assert (found.fail_on_data_loss, found.include_headers, found.include_batch_info) == (
        True,
        False,
        False,
    )
    assert (found.lookup_attempts, found.lookup_retry_interval, found.poll_timeout) == (
        3,
        1_000,
        120_000,
    )  # Spark's own
    assert found.client_config.client_id == option.CLIENT_ID
    assert found.warnings == ()


def test_a_stream_begins_at_the_end() -> None:
    assert option.parse_options(BASE, streaming=True).starting == query.LatestOffsets()


@given(st.lists(st.booleans(), min_size=30, max_size=30))
def test_the_case_of_letters_does_not_count(upper: list[bool]) -> None:
    given = AT | {"subscribe": "orders", "maxTriggerDelay": "7s", "kafka.client.id": "me"}

    def mixed(name: str) -> str:
        pairs = zip(name, upper, strict=False)
        return "".join(each.upper() if flag else each.lower() for each, flag in pairs)

    assert option.parse_options(
        {mixed(name): value for name, value in given.items()}
    ) == option.parse_options(given)


def test_topics_are_trimmed_and_named_once() -> None:
    assert parse(subscribe=" orders, returns ,,orders").subscription == query.SubscribeTopics(
        ("orders", "returns")
    )


def test_a_pattern_leaves_the_brokers_own_topics_out() -> None:
    given = AT | {"subscribePattern": "o.*"}
    assert option.parse_options(given).subscription == query.SubscribePattern(
        "o.*", include_internal=False
    )
    given["kafka.exclude.internal.topics"] = "false"
    assert option.parse_options(given).subscription == query.SubscribePattern(
        "o.*", include_internal=True
    )


def test_partitions_are_assigned() -> None:
    given = AT | {"assign": '{"orders": [1, 0]}'}
    two = (TopicPartition("orders", 1), TopicPartition("orders", 0))
    assert option.parse_options(given).subscription == query.AssignPartitions(two)


@pytest.mark.parametrize("text", ["committed", " Committed "])
def test_a_query_begins_where_its_group_is(text: str) -> None:
    found = parse(startingOffsets=text, kafka__group__id=" billing ")
    assert found.starting == query.CommittedOffsets("billing")


@pytest.mark.parametrize("text", ["earliest", " EARLIEST "])
def test_words_for_the_ends_are_trimmed_and_of_any_case(text: str) -> None:
    assert parse(startingOffsets=text, streaming=True).starting == query.EarliestOffsets()


def test_a_time_comes_before_times_and_those_before_offsets() -> None:
    given = {
        "startingOffsets": "latest",
        "startingOffsetsByTimestamp": '{"orders": {"0": 5}}',
        "startingTimestamp": "9",
    }
    found = option.parse_options(BASE | given)
    assert found.starting == query.GlobalTimestamp("startingTimestamp", 9)
    assert found.warnings == (
        "startingOffsetsByTimestamp: without effect beside startingTimestamp",
        "startingOffsets: without effect beside startingTimestamp",
    )
    del given["startingTimestamp"]
    times = {TopicPartition("orders", 0): 5}
    assert option.parse_options(BASE | given).starting == query.SpecificTimestamps(
        "startingOffsetsByTimestamp", times
    )


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("15m", 900_000),
        ("2 min", 120_000),
        ("500", 500),
        ("3S", 3_000),
        ("2500us", 2),
        ("1d", 864e5),
    ],
)
def test_a_delay_is_written_as_in_spark(text: str, milliseconds: int) -> None:
    assert parse(maxTriggerDelay=text).max_trigger_delay == milliseconds


def test_kafkas_settings_go_to_kafkas_client() -> None:
    found = option.parse_options(
        BASE
        | {
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": JAAS,
            "kafka.max.partition.fetch.bytes": "1000",
            "kafka.isolation.level": "read_committed",
            "kafka.client.id": "me",
        }
    )
    assert found.client_config.sasl is not None
    assert found.client_config.sasl.username == "ann"
    assert found.read_config.max_partition_bytes == 1_000
    assert found.read_config.committed_only
    assert found.client_config.client_id == "me"


def test_no_secret_is_shown() -> None:
    login = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": JAAS,
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.key.password": "hunter2",
    }
    found = option.parse_options(BASE | login)
    assert "hunter2" not in repr(found)
    again = pickle.loads(pickle.dumps(found))
    assert again == found
    assert "hunter2" not in repr(again) + " ".join(again.warnings)
    assert "hunter2" not in refusal_of(BASE | login | {"kafka.sasl.jaas.config": JAAS[:-2]})
    assert "hunter2" not in refusal_of(BASE | login | {"kafka.ssl.keystore.key": "hunter2"})


def test_all_batches_are_shown_whatever_the_isolation() -> None:
    found = parse(includeBatchInfo="true", kafka__isolation__level="read_committed")
    assert not found.read_config.committed_only
    assert any("includeBatchInfo" in each for each in found.warnings)


@pytest.mark.parametrize("name", option.IGNORED_SETTINGS)
def test_what_has_no_effect_here_is_taken_and_said(name: str) -> None:
    found = option.parse_options(BASE | {f"kafka.{name}": "org.example.Whatever"})
    assert [each for each in found.warnings if each.startswith(f"kafka.{name}: without effect")]


def test_what_kafkas_client_warns_of_is_named_as_here() -> None:
    found = option.parse_options(BASE | {"kafka.metrics.num.samples": "3"})
    assert [each for each in found.warnings if each.startswith("kafka.metrics.num.samples: ")]


def test_limits_of_triggers_are_without_effect_in_a_batch() -> None:
    found = parse(maxOffsetsPerTrigger="5", streaming=False)
    assert found.batch_warnings == (
        "maxOffsetsPerTrigger: without effect: a batch query has no triggers",
    )


# Refusals


@pytest.mark.parametrize("name", option.ENDING_OPTIONS)
def test_a_stream_has_no_end(name: str) -> None:
    given = BASE | {name: "5"}
    assert refusal_of(given, streaming=True) == f"{name}: a stream has no end"


@pytest.mark.parametrize("name", option.REFUSED_SETTINGS)
def test_what_makes_no_sense_here_is_refused(name: str) -> None:
    said = refusal_of(BASE | {f"kafka.{name}": "x"})
    assert said.startswith(f"kafka.{name}: not for this source: ")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"startingOffset": "x"},
            "'startingOffset' is not an option of format(\"rota\"); did you mean start",
        ),
        ({"maxoffsetpertrigger": "5"}, "did you mean maxOffsetsPerTrigger"),
        ({"subscribepatern": "5"}, "did you mean subscribePattern"),
        ({"nonsense": "5"}, "'nonsense' is not an option of"),
        ({"group.id": "g"}, "group.id: add the prefix kafka. to Kafka's settings: kafka.group.id"),
        ({"path": "/x"}, "load() takes no path"),
        ({"group.membership": "true"}, "group.membership: not built yet"),
        ({"kafka.nonsense": "5"}, "kafka.nonsense: 'nonsense' is not a consumer setting"),
        ({"kafka.isolation_level": "x"}, "kafka.isolation_level: settings have Kafka's names"),
        ({"kafka.key.serializer": "x"}, "kafka.key.serializer: is a producer setting"),
        ({"kafka.bootstrap.servers": "here"}, "kafka.bootstrap.servers: "),
        ({"kafka.isolation.level": "READ_COMMITTED"}, "kafka.isolation.level: 'READ_COMMITTED'"),
        ({"kafka.fetch.min.bytes": "many"}, "kafka.fetch.min.bytes: 'many' is not a whole number"),
        ({"kafka.ssl.truststore.password": "x"}, "kafka.ssl.truststore.password: stores with"),
        ({"assign": "{}"}, "set exactly one of subscribe, subscribePattern and assign: "),
        ({"subscribe": " "}, "subscribe: is empty"),
        ({"subscribe": ","}, "subscribe: the list of topics is empty"),
        (
            {"startingOffsets": "first"},
            "startingOffsets: 'first' is none of earliest, latest, comm",
        ),
        ({"endingOffsets": "committed"}, "endingOffsets: 'committed' is none of earliest, latest "),
        ({"startingOffsets": "committed"}, "startingOffsets: committed needs kafka.group.id"),
        ({"startingOffsets": "{"}, "startingOffsets: not JSON"),
        ({"startingTimestamp": "-3"}, "startingTimestamp: '-3' is not a whole number from -2"),
        ({"startingTimestamp": "1e3"}, "startingTimestamp: '1e3' is not a whole number"),
        ({"endingTimestamp": "noon"}, "endingTimestamp: 'noon' is not a whole number"),
        ({"endingOffsetsByTimestamp": "5"}, "endingOffsetsByTimestamp: '5' is not like"),
        ({"startingOffsetsByTimestampStrategy": "x"}, "startingOffsetsByTimestampStrategy: 'x'"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay: 'soon' is not a time"),
        ({"failOnDataLoss": "yes"}, "failOnDataLoss: 'yes' is neither true nor false"),
        ({"includeHeaders": "1"}, "includeHeaders: '1' is neither true nor false"),
        (
            {"minOffsetsPerTrigger": "6", "maxOffsetsPerTrigger": "5"},
            "minOffsetsPerTrigger: 6 is more than maxOffsetsPerTrigger, which is 5",
        ),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, str], said: str) -> None:
    assert said in refusal_of(BASE | {"kafka.security.protocol": "SSL"} | given)


@pytest.mark.parametrize(
    "name",
    [
        *("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "minPartitions"),
        *("maxRecordsPerPartition", "slots", "kafkaConsumer.pollTimeoutMs"),
        "fetchOffset.numRetries",
    ],
)
@pytest.mark.parametrize("text", ["0", "-1", "1.5", "", "1_000", "9223372036854775808"])
def test_counts_are_whole_numbers_above_zero(name: str, text: str) -> None:
    assert re.match(
        rf"{re.escape(name)}: .* is not a whole number from 1 to 9223372036854775807",
        refusal_of(BASE | {name: text}),
    )


def test_the_pause_may_be_none() -> None:
    assert parse(fetchOffset__retryIntervalMs="0").lookup_retry_interval == 0
    assert refusal_of(BASE | {"fetchOffset.retryIntervalMs": "-1"}).startswith(
        "fetchOffset.retryInt"
    )


def test_brokers_are_needed() -> None:
    assert refusal_of({"subscribe": "orders"}).startswith("kafka.bootstrap.servers: is needed")


def test_what_to_read_is_needed() -> None:
    assert refusal_of(AT).endswith("assign: none is given")


def test_a_file_that_is_not_there_is_named() -> None:
    given = {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "/no/such.pem"}
    assert refusal_of(BASE | given).startswith(
        "kafka.ssl.truststore.location: '/no/such.pem' cannot"
    )
