"""A consumer's settings, read under Kafka's names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import pytest
from docs import generate_settings

import rota
from rota.client.config import Settings, read_settings, require_mapping
from rota.client.config_keys import CONSUMER_KEYS
from rota.consumer.records import ConsumerInterceptor
from rota.engine.assignors.range import RangeAssignor
from rota.engine.assignors.sticky import StickyAssignor
from rota.engine.model.config import Address, ClientConfig, FetchConfig, KeySupport, MemberConfig
from rota.errors import InputError, UnknownStrategy

WHERE = {"bootstrap.servers": "localhost:9092"}


def read_consumer_settings(**more: object) -> Settings:
    """With ``_`` for the dots of keys."""
    return read_settings(WHERE | {key.replace("_", "."): value for key, value in more.items()})


def refusal_of(settings: Mapping[str, object]) -> str:
    with pytest.raises(InputError) as caught:
        read_settings({**WHERE, **settings})
    return str(caught.value)


def test_defaults_are_those_of_the_configurations() -> None:
    found = read_consumer_settings(group_id="g", client_id="me")
    bootstrap = (Address("localhost", 9092),)
    assert found.client == ClientConfig(bootstrap_servers=bootstrap, client_id="me")
    assert found.fetch == FetchConfig()
    assert found.member == MemberConfig(group="g", client_id="me")
    assert [each.name for each in found.strategies] == ["range", "cooperative-sticky"]
    assert (found.key_deserializer, found.value_deserializer) == (None, None)
    assert (found.interceptors, found.warnings) == ((), ())


def test_the_page_of_settings_is_what_make_docs_writes() -> None:
    assert generate_settings.PAGE.read_text(encoding="utf-8") == generate_settings.page()


def test_values_come_as_text_or_as_themselves() -> None:
    for value in (7, "7", " 7 "):
        assert read_consumer_settings(max_poll_records=value).fetch.max_poll_records == 7
    for value in (False, "false", "FALSE"):
        assert read_consumer_settings(check_crcs=value).fetch.check_crcs is False
    assert read_consumer_settings(group_id=None).member is None


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("max.poll.records", 0, "from 1 to 2147483647"),
        ("max.poll.records", True, "True is not a whole number"),
        ("max.poll.records", 1.0, "1.0 is not a whole number"),
        ("max.poll.records", "many", "'many' is not a whole number"),
        ("check.crcs", "perhaps", "neither true nor false"),
        ("group.id", 5, "not text but int"),
        ("isolation.level", "READ_COMMITTED", "not one of"),
        ("client.dns.lookup", "resolve_canonical_bootstrap_servers_only", "Kerberos"),
        ("group.protocol", "consumer", "KIP-848"),
        ("group.remote.assignor", "uniform", "partition.assignment.strategy"),
        ("share.acquire.mode", "record_limit", "share groups"),
        ("config.providers", "file", "write the values themselves"),
        ("config.providers.file.class", "x", "write the values themselves"),
        ("security.providers", "x", "OpenSSL"),
        ("group.id", " ", "not empty"),
        ("metric.reporters", ["a", "a"], "twice"),
        ("metric.reporters", "a,,b", "empty item"),
    ],
)
def test_what_cannot_be_is_refused_by_its_key(key: str, value: object, says: str) -> None:
    message = refusal_of({key: value})
    assert message.startswith(f"{key}: ")
    assert says in message


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("max.poll.record", "did you mean max.poll.records"),
        ("bootstrap_servers", "Kafka's names: bootstrap.servers"),
        ("auto_offset_reset", "Kafka's names: auto.offset.reset"),
        ("sasl_plain_password", "sasl.jaas.config"),
        ("sasl.password", "librdkafka's name; Kafka's is sasl.jaas.config"),
        ("ssl.ca.location", "ssl.truststore.location, with ssl.truststore.type=PEM"),
        ("metadata.broker.list", "Kafka's is bootstrap.servers"),
        ("enable.partition.eof", "end_offsets"),
        ("consumer_timeout_ms", r"poll(timeout=...)"),
        ("acks", "is a producer setting"),
        ("x" * 100, "not a consumer setting"),
    ],
)
def test_an_unknown_key_is_named_with_the_one_that_is_meant(key: str, says: str) -> None:
    message = refusal_of({key: "secret"})
    assert says in message
    assert "secret" not in message


def test_a_name_that_is_no_text_is_refused() -> None:
    with pytest.raises(InputError, match="7: the name of a setting must be text"):
        read_settings({7: "x"})  # type: ignore[dict-item]


def test_every_key_without_effect_is_named_once() -> None:
    for key in CONSUMER_KEYS.values():
        if key.support is KeySupport.NO_EFFECT and not key.name.startswith(("ssl.", "sasl.")):
            value = True if key.default is False else key.default
            assert [
                each
                for each in read_settings(WHERE | {key.name: value}).warnings
                if key.name in each
            ] == [f"{key.name}: without effect: {key.description}"]
    assert read_consumer_settings(enable_metrics_push=False, metric_reporters="").warnings == ()


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        ("a:1", ["a:1"]),
        (" a:1 , b.example:65535", ["a:1", "b.example:65535"]),
        (["a:1", "b:2"], ["a:1", "b:2"]),
        ("[::1]:9092,127.0.0.1:9", ["[::1]:9092", "127.0.0.1:9"]),
        ("PLAINTEXT://a:1", ["a:1"]),
        ("kafka_1:9092", ["kafka_1:9092"]),
    ],
)
def test_servers_are_text_or_a_list(servers: object, expected: list[str]) -> None:
    found = read_consumer_settings(bootstrap_servers=servers).client.bootstrap_servers
    assert list(map(str, found)) == expected


@pytest.mark.parametrize(
    ("servers", "says"),
    [
        ("", "at least one host:port"),
        ([], "at least one host:port"),
        ("a", "'a': the port is missing"),
        ("a:", "'a:': the port is missing"),
        ("a:x", "'x' is not a port"),
        ("a:0", "from 1 to 65535"),
        ("a:65536", "from 1 to 65535"),
        (":9092", "the host is missing"),
        ("a:1,,b:2", "empty item"),
        ("a:1,a:1", "twice"),
        ("a:1;b:2", "'1;b:2' is not a port"),
        ("::1:9092", "IPv6"),
        ("[::1]", "the port is missing"),
        ("[::1:9092", "'['"),
        ("[nine]:9092", "'nine' is not an IPv6 address"),
        ("http://a:80", "web server"),
        ("a b:1", "'a b' is not a host name"),
        ([9092], "9092: must be text"),
    ],
)
def test_a_wrong_server_is_named(servers: object, says: str) -> None:
    message = refusal_of({"bootstrap.servers": servers})
    assert message.startswith("bootstrap.servers: ")
    assert says in message


def test_servers_must_be_given() -> None:
    with pytest.raises(InputError, match="bootstrap.servers: at least one"):
        read_settings({})


class Mine(RangeAssignor):
    name = "mine"


class Silent:
    pass


class Seeing(ConsumerInterceptor):
    pass


class Broken(ConsumerInterceptor):
    def __init__(self) -> None:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("strategies", "expected"),
    [
        ("sticky", ["sticky"]),
        ("roundrobin, range", ["roundrobin", "range"]),
        (["sticky", "org.apache.kafka.clients.consumer.RangeAssignor"], ["sticky", "range"]),
        (Mine, ["mine"]),
        ([Mine, "range"], ["mine", "range"]),
        (StickyAssignor(solver="kafka"), ["sticky"]),
        (f"{__name__}:Mine", ["mine"]),
    ],
)
def test_strategies_are_named_or_given(strategies: object, expected: list[str]) -> None:
    found = read_consumer_settings(partition_assignment_strategy=strategies).strategies
    assert [each.name for each in found] == expected


@pytest.mark.parametrize("strategies", ["rang", "", [], "range,range", [Mine, Mine()], Silent, 5])
def test_wrong_strategies_are_refused_by_the_key(strategies: object) -> None:
    assert refusal_of({"partition.assignment.strategy": strategies}).startswith(
        "partition.assignment.strategy: "
    )


def test_an_unknown_strategy_is_told_apart() -> None:
    with pytest.raises(UnknownStrategy, match="did you mean 'sticky'"):
        read_consumer_settings(partition_assignment_strategy="stickly")


def test_interceptors_are_named_or_given() -> None:
    mine = Seeing()
    found = read_consumer_settings(interceptor_classes=[mine, Seeing]).interceptors
    assert found[0] is mine
    assert isinstance(found[1], Seeing)
    named = read_consumer_settings(interceptor_classes=f"{__name__}:Seeing").interceptors
    assert isinstance(named[0], Seeing)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("org.example.Tracing", "Rota cannot run a Java class"),
        ("nowhere:Class", "cannot be loaded: no module nowhere in the current folder"),
        ("./mine.py:Traced", "is not module:Class: for the class Traced in mine.py in this folder"),
        (Silent, "has no on_consume"),
        (Broken, "cannot be created: RuntimeError('no')"),
    ],
)
def test_a_wrong_interceptor_is_named(value: object, says: str) -> None:
    assert says in refusal_of({"interceptor.classes": value})


@pytest.mark.parametrize(
    ("name", "data", "value"),
    [
        ("string", "ä".encode(), "ä"),
        (str, "ä".encode(), "ä"),
        ("org.apache.kafka.common.serialization.StringDeserializer", b"a", "a"),
        ("json", b'{"a": [1]}', {"a": [1]}),
        ("LongDeserializer", (-5).to_bytes(8, signed=True), -5),
        ("integer", b"\0\0\1\0", 256),
        ("ShortDeserializer", b"\1\0", 256),
        ("double", b"\x3f\xf8\0\0\0\0\0\0", 1.5),
        ("FloatDeserializer", b"\x3f\xc0\0\0", 1.5),
        ("boolean", b"\1", True),
        (int, b"12", 12),
        (bytes.hex, b"\1", "01"),
        ("codecs:utf_7_decode", b"a", ("a", 1)),
    ],
)
def test_deserializers_by_name_or_as_callables(name: object, data: bytes, value: object) -> None:
    found = read_consumer_settings(value_deserializer=name)
    assert found.key_deserializer is None
    assert found.value_deserializer is not None
    assert found.value_deserializer(data) == value


def test_bytes_need_no_deserializer() -> None:
    for name in ("bytes", bytes, "ByteArrayDeserializer", "BytesDeserializer"):
        assert read_consumer_settings(key_deserializer=name).key_deserializer is None


def test_texts_may_have_another_encoding() -> None:
    encodings = {"value.deserializer.encoding": "ISO-8859-1", "deserializer.encoding": "UTF-16"}
    found = read_settings(
        WHERE | encodings | {"key.deserializer": "string", "value.deserializer": "string"}
    )
    assert found.key_deserializer is not None
    assert found.value_deserializer is not None
    assert found.value_deserializer(b"\xe4") == "ä"
    assert found.key_deserializer("ä".encode("utf-16")) == "ä"
    wrong = {"key.deserializer": "string", "key.deserializer.encoding": "hex"}
    assert "'hex' is not an encoding of text" in refusal_of(wrong)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("string", b"\xff"),
        ("long", b"123"),
        ("integer", b""),
        ("boolean", b"\2"),
        ("uuid", b"x"),
        ("void", b""),
    ],
)
def test_bytes_that_are_none_raise(name: str, data: bytes) -> None:
    read_value = read_consumer_settings(value_deserializer=name).value_deserializer
    assert read_value is not None
    with pytest.raises(ValueError, match=".+"):
        read_value(data)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("StringDeserialiser", "did you mean StringDeserializer"),
        ("io.confluent.kafka.serializers.KafkaAvroDeserializer", "package.module:name"),
        ("nowhere:read", "cannot be loaded"),
        (7, "7 cannot be called"),
    ],
)
def test_a_wrong_deserializer_is_named(value: object, says: str) -> None:
    message = refusal_of({"key.deserializer": value})
    assert message.startswith("key.deserializer: ")
    assert says in message


@pytest.mark.parametrize(
    ("value", "reset", "milliseconds"),
    [
        ("earliest", "earliest", 0),
        ("none", "none", 0),
        ("by_duration:PT1H", "by_duration", 3_600_000),
        ("by_duration:P1DT0.0001S", "by_duration", 86_400_001),
    ],
)
def test_where_to_start(value: str, reset: str, milliseconds: int) -> None:
    found = read_consumer_settings(auto_offset_reset=value).fetch
    assert (found.auto_offset_reset, found.reset_duration) == (reset, milliseconds)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("smallest", "did you mean earliest"),
        ("earlyest", "did you mean earliest"),
        ("end", "did you mean latest"),
        ("Earliest", "must be earliest, latest, none or"),
        ("by_duration", "by_duration:PT1H is an hour ago"),
        ("by_duration:1h", "'1h' is not a duration"),
        ("by_duration:-PT1H", "negative"),
    ],
)
def test_a_wrong_start_is_named(value: str, says: str) -> None:
    assert says in refusal_of({"auto.offset.reset": value})


def test_without_a_group_nothing_is_committed() -> None:
    assert read_consumer_settings().member is None
    assert read_consumer_settings(enable_auto_commit=False).member is None
    assert "needs group.id" in refusal_of({"enable.auto.commit": True})


def test_clients_without_an_id_are_numbered() -> None:
    first, second = (read_consumer_settings(group_id="g").client.client_id for _ in range(2))
    assert first.startswith("consumer-g-")
    assert int(second.rpartition("-")[2]) == int(first.rpartition("-")[2]) + 1
    assert (
        read_consumer_settings(group_id="g", group_instance_id="i").client.client_id
        == "consumer-g-i"
    )


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"session.timeout.ms": 3_000}, "heartbeat.interval.ms: 3000 is not less than"),
        ({"group.instance.id": ""}, "group.instance.id"),
        ({"group.instance.id": "a b"}, "other characters than"),
    ],
)
def test_what_does_not_fit_together_is_refused(settings: dict[str, object], says: str) -> None:
    assert says in refusal_of({"group.id": "g"} | settings)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"heartbeat.interval.ms": 20_000, "group.id": "g"}, "a third of session.timeout.ms"),
        ({"group.instance.id": "i"}, "without effect without group.id"),
        ({"retry.backoff.ms": 2_000}, "more than retry.backoff.max.ms 1000"),
        ({"reconnect.backoff.ms": 20}, "does not grow"),
        ({"socket.connection.setup.timeout.ms": 40_000}, "more than socket.connection.setup"),
        ({"fetch.max.wait.ms": 30_000}, "fetches without new records will time out"),
        ({"fetch.min.bytes": 100, "max.partition.fetch.bytes": 10}, "of one partition waits"),
        ({"default.api.timeout.ms": 1_000}, "a call can time out before its first request"),
        ({"ssl.key.password": "x", "ssl.truststore.type": "PEM"}, "ssl.key.password, ssl.trust"),
        ({"sasl.mechanism": "PLAIN"}, "without effect while security.protocol is PLAINTEXT"),
    ],
)
def test_what_is_unwise_is_warned_of(settings: dict[str, object], says: str) -> None:
    warnings = read_settings(WHERE | settings).warnings
    assert len(warnings) == 1
    assert says in warnings[0]


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("security.protocol", "TLS", "did you mean SSL"),
        ("security.protocol", "sasl_tls", "did you mean SASL_SSL"),
        ("security.protocol", "sasl-ssl", "did you mean SASL_SSL"),
        ("isolation.level", "committed", "did you mean read_committed"),
    ],
)
def test_a_value_that_was_meant_is_named(key: str, value: str, says: str) -> None:
    assert says in refusal_of({key: value})


@pytest.mark.parametrize("made", [rota.AsyncConsumer, rota.Consumer])
def test_settings_that_are_not_given_as_a_mapping(made: Callable[..., object]) -> None:
    for given in ("client.properties", "localhost:9092", None, [("group.id", "g")]):
        with pytest.raises(InputError, match="settings are a mapping with Kafka's names") as caught:
            made(given)
        assert str(given)[:10] in str(caught.value)
        assert "rota.load_properties(path)" in str(caught.value)


@pytest.mark.parametrize("made", [rota.AsyncConsumer, rota.Consumer])
def test_settings_are_one_mapping(made: Callable[..., object]) -> None:
    text = "pass one mapping of settings with Kafka's names: rota." + made.__name__
    for args, keywords in (
        ((), {"bootstrap_servers": "h:9092"}),
        (({},), {"group_id": "g"}),
        (("t", WHERE), {}),
        ((), {}),
    ):
        with pytest.raises(InputError, match=text):
            made(*args, **keywords)
    with pytest.raises(InputError, match="bootstrap.servers"):
        made(config={})


def test_a_mapping_of_any_kind_is_taken() -> None:
    view = MappingProxyType(WHERE)
    assert require_mapping(view) is view
