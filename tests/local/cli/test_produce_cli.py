"""``rota produce``, through the command line: what the topic holds afterwards."""

from __future__ import annotations

import importlib.util
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

import rota
from rota.cli import produce_records
from rota.engine.formats.hashing import murmur2
from tests.support.command import RotaCommand


@pytest.fixture(scope="module")
def broker() -> Iterator[rota.Broker]:
    with rota.Broker() as one:
        yield one


class ProduceCommand:
    """Runs a command with a broker, and lines on stdin."""

    def __init__(self, broker: rota.Broker, rota_command: RotaCommand) -> None:
        self.broker, self._rota_command = broker, rota_command

    def __call__(
        self, *arguments: str, lines: bytes = b"", servers: str | None = None
    ) -> tuple[int, bytes, str]:
        """Exit code, output, and what was said."""
        where = servers or self.broker.bootstrap_servers
        ran = self._rota_command(*arguments, "--bootstrap-servers", where, stdin=lines)
        return ran.code, ran.raw, ran.err


@pytest.fixture
def rota_produce(broker: rota.Broker, rota_command: RotaCommand) -> ProduceCommand:
    return ProduceCommand(broker, rota_command)


def test_lines_become_records(rota_produce: ProduceCommand) -> None:
    code, out, err = rota_produce("produce", "--topic", "lines", lines=b"one\ntwo\r\n\nno end\xff")
    assert (code, out, err) == (0, b"", "rota: 4 records written to lines\n")
    records = rota_produce.broker.read("lines")
    assert [one.value for one in records] == [b"one", b"two", b"", b"no end\xff"]
    assert {one.key for one in records} == {None}


def test_files_keys_and_headers(rota_produce: ProduceCommand, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"a\t1\nb\t2\t3\n")
    second.write_bytes(b"\t4\n")
    flags = ("--key-separator", "\\t", "--header", "from=files", "--header", "x=")
    code, _, err = rota_produce(
        "produce", "--topic", "keyed", *flags, "--quiet", str(first), str(second)
    )
    assert (code, err) == (0, "")
    records = rota_produce.broker.read("keyed")
    assert [(one.key, one.value) for one in records] == [
        (b"a", b"1"),
        (b"b", b"2\t3"),
        (b"", b"4"),
    ]
    assert records[0].headers == (("from", b"files"), ("x", b""))


def test_a_key_goes_where_javas_producer_would_put_it(rota_produce: ProduceCommand) -> None:
    rota_produce.broker.create_topic("spread", partitions=7)
    lines = b"".join(b"key-%d:v\n" % number for number in range(50))
    assert rota_produce("produce", "--topic", "spread", "--key-separator", ":", lines=lines)[0] == 0
    records = rota_produce.broker.read("spread")
    assert len(records) == 50
    for one in records:
        assert one.key is not None
        assert one.partition == (murmur2(one.key) & 0x7FFFFFFF) % 7


def test_one_partition_for_all(rota_produce: ProduceCommand) -> None:
    rota_produce.broker.create_topic("aimed", partitions=3)
    assert rota_produce("produce", "--topic", "aimed", "--partition", "2", lines=b"a\nb\n")[0] == 0
    assert {one.partition for one in rota_produce.broker.read("aimed")} == {2}
    code, _, err = rota_produce("produce", "--topic", "aimed", "--partition", "9", lines=b"a\n")
    assert code == 4
    assert "rota: stdin, line 1: topic 'aimed' has no partition 9\n" in err


def test_what_consume_prints_produce_copies_byte_by_byte(rota_produce: ProduceCommand) -> None:
    broker = rota_produce.broker
    broker.create_topic("source", partitions=2)
    broker.produce("source", b"\xff\x00", "ä", None, key=b"\xfe", partition=1, timestamp=5)
    broker.produce("source", "x", headers=[("h", b"\xff"), ("h", None)], partition=0)
    flags = ("--topic", "source", "--from-beginning", "--to-end", "--json")
    _, lines, _ = rota_produce("consume", *flags)
    broker.create_topic("copy", partitions=2)
    code, _, err = rota_produce(
        "produce", "--topic", "copy", "--json", "--keep-partitions", lines=lines
    )
    assert code == 0, err

    def content(topic: str) -> list[object]:
        return [
            (one.partition, one.offset, one.timestamp, one.key, one.value, one.headers)
            for one in broker.read(topic)
        ]

    assert content("copy") == content("source")


def test_json_says_where_unless_told_otherwise(rota_produce: ProduceCommand) -> None:
    lines = json.dumps({"topic": "said", "value": {"a": 1}}).encode()
    assert rota_produce("produce", "--json", lines=lines)[0] == 0
    assert [one.value for one in rota_produce.broker.read("said")] == [b'{"a":1}']
    code, _, err = rota_produce("produce", "--json", lines=b'{"value": "x"}\n')
    assert (code, "stdin, line 1: has no topic" in err) == (4, True)


@pytest.mark.parametrize(
    ("flags", "lines", "says"),
    [
        (["--key-separator", ":"], b"a:1\nnone\nb:2\n", "stdin, line 2: has no ':' between"),
        (["--json"], b'{"value": "1"}\n{', "stdin, line 2: not JSON"),
        (["--json"], b'{"value": "1"}\n{"value": 1, "timestamp": 0}', "line 2: timestamp: librd"),
        ([], b"a\n" + b"x" * (2 << 20), "stdin, line 2: "),
    ],
)
def test_a_wrong_line_is_named_and_those_before_it_are_written(
    rota_produce: ProduceCommand, flags: list[str], lines: bytes, says: str
) -> None:
    topic = f"wrong-{abs(hash(says))}"
    code, _, err = rota_produce("produce", "--topic", topic, *flags, lines=lines)
    assert code == 4
    assert f"rota: 1 record written to {topic}\n" in err
    assert says in err
    assert len(rota_produce.broker.read(topic)) == 1


def test_what_cannot_be_written_is_named(rota_produce: ProduceCommand) -> None:
    rota_produce.broker.create_topic("refusing")
    rota_produce.broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED")
    code, _, err = rota_produce("produce", "--topic", "refusing", lines=b"a\n")
    assert code == 3
    assert "1 of 1 record could not be written: stdin, line 1: " in err
    assert "authorization" in err.lower()


def test_an_address_without_a_broker_is_named(
    rota_produce: ProduceCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce_records, "CONNECT_TIMEOUT", 0.5)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, _, err = rota_produce("produce", "--topic", "t", lines=b"a\n", servers=address)
    assert code == 3
    assert address in err
    assert err.count("\n") == 2
    assert err.startswith("rota: no broker has answered yet; trying for 0.5 s\n")
    assert err.endswith("failed: Connection refused\n")


def test_a_wrong_password_is_said(
    rota_produce: ProduceCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce_records, "CONNECT_TIMEOUT", 2.0)
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={module} required username="ann" password="right";\n'
    )
    with rota.Broker(users={"ann": "right"}) as broker:
        where = broker.bootstrap_servers
        flags = ("produce", "--topic", "t", "--command-config", str(file))
        code, _, err = rota_produce(*flags, lines=b"a\n", servers=where)
        assert code == 0
        assert "sends the password as it is" in err
        file.write_text(file.read_text().replace("right", "wrong-guess"))
        code, _, err = rota_produce(*flags, lines=b"a\n", servers=where)
        assert code == 4
        assert where in err
        assert "wrong-guess" not in err


def test_without_confluent_kafka_the_extra_is_named(
    rota_produce: ProduceCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name == "confluent_kafka" else found(name, *rest),
    )
    code, _, err = rota_produce("produce", "--topic", "t", lines=b"a\n")
    assert code == 3
    assert "pip install 'rota[produce]'" in err


@pytest.mark.parametrize(
    ("flags", "code", "says"),
    [
        ([], 2, "--topic is needed"),
        (["--topic", ""], 2, "is empty"),
        (["--topic", "t", "--json", "--key-separator", ":"], 2, "JSON lines have their own keys"),
        (["--topic", "t", "--key-separator", ""], 2, "--key-separator is empty"),
        (["--topic", "t", "--keep-partitions"], 2, "needs --json"),
        (["--topic", "t", "--partition", "x"], 2, "'x' is not the number of a partition"),
        (["--topic", "t", "--header", "=x"], 2, "expected NAME=VALUE"),
        (["--topic", "t", "nowhere"], 3, "nowhere: No such file"),
        (["--topic", "t", "--config", "lingers.ms=5"], 4, "did you mean linger.ms"),
        (["--topic", "a b"], 4, "--topic: "),
    ],
)
def test_what_is_wrong_is_named(
    rota_produce: ProduceCommand, flags: list[str], code: int, says: str
) -> None:
    found, out, err = rota_produce("produce", *flags, lines=b"a\n")
    assert (found, out) == (code, b"")
    assert says in err
