"""``rota consume``, through the command line: where it starts and ends, what it prints, and what
the group knows afterwards.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

import rota
from rota.cli import consume_records
from tests.support.command import RotaCommand
from tests.support.process import CommandResult

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.fixture(scope="module")
def broker() -> Iterator[rota.Broker]:
    with rota.Broker() as one:
        one.create_topic("orders", partitions=3)
        for number in range(3):
            for value in range(4):
                one.produce(
                    "orders",
                    f"{number}:{value}",
                    key=str(number),
                    partition=number,
                    timestamp=value,
                )
        yield one


@pytest.fixture
def rota_consume(broker: rota.Broker, rota_command: RotaCommand) -> ConsumeCommand:
    return ConsumeCommand(broker, rota_command)


class ConsumeCommand:
    """Runs ``rota consume`` with a broker."""

    def __init__(self, broker: rota.Broker, rota_command: RotaCommand) -> None:
        self.broker, self._rota_command = broker, rota_command

    def __call__(self, *arguments: str, servers: str | None = None) -> CommandResult:
        where = servers or self.broker.bootstrap_servers
        return self._rota_command("consume", *arguments, "--bootstrap-servers", where)


def test_all_there_is(rota_consume: ConsumeCommand) -> None:
    ran = rota_consume("--topic", "orders", "--from-beginning", "--to-end")
    assert ran.code == 0
    assert sorted(ran.lines) == [f"{p}:{v}" for p in range(3) for v in range(4)]
    assert ran.err == "rota: 12 records\n"
    assert rota_consume.broker.groups == {}


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--partition", "1", "--offset", "earliest"], ["1:0", "1:1", "1:2", "1:3"]),
        (["--partition", "1", "--offset", "3"], ["1:3"]),
        (["--partition", "1", "--offset", "4"], []),
        (["--partition", "0,2", "--offset", "-1"], ["0:3", "2:3"]),
        (["--partition", "0-1", "--offset", "@2"], ["0:2", "0:3", "1:2", "1:3"]),
        (["--partition", "1", "--offset", "@1970-01-01T00:00:00.003Z"], ["1:3"]),
        (["--partition", "1", "--offset", "@2020-01-01"], []),
        (["--partition", "1", "--offset", "-99"], ["1:0", "1:1", "1:2", "1:3"]),
        (["--offset", "latest"], []),
        ([], []),
        (["--partition", "2", "--offset", "1", "--max-messages", "2"], ["2:1", "2:2"]),
    ],
)
def test_where_to_start(
    rota_consume: ConsumeCommand, flags: list[str], expected: list[str]
) -> None:
    ran = rota_consume("--topic", "orders", "--to-end", "--quiet", *flags)
    assert (ran.code, sorted(ran.lines), ran.err) == (0, expected, "")


def test_an_end_by_time(rota_consume: ConsumeCommand) -> None:
    ran = rota_consume("--topic", "orders", "--from-beginning", "--timeout", "0.3", "--quiet")
    assert (ran.code, len(ran.lines)) == (0, 12)


def test_what_a_line_shows(rota_consume: ConsumeCommand) -> None:
    one = ("--topic", "orders", "--partition", "1", "--offset", "2", "--max-messages", "1")
    every = ("--print-key", "--print-place", "--print-time", "--print-headers")
    assert rota_consume(*one, *every, "--separator", "|").lines == [
        "CreateTime:2|orders-1@2|NO_HEADERS|1|1:2"
    ]
    assert rota_consume(*one, "--print-key").lines == ["1\t1:2"]


def test_json_lines(rota_consume: ConsumeCommand) -> None:
    rota_consume.broker.produce("odd", b"\xff", key=None, headers=[("h", b"\xfe")], timestamp=9)
    ran = rota_consume("--topic", "odd", "--from-beginning", "--to-end", "--json")
    assert [json.loads(line) for line in ran.lines] == [
        {
            "topic": "odd",
            "partition": 0,
            "offset": 0,
            "timestamp": 9,
            "timestamp_type": "CreateTime",
            "key": None,
            "value_base64": "/w==",
            "headers": [{"name": "h", "value_base64": "/g=="}],
        }
    ]


def test_deserializers_are_honoured(rota_consume: ConsumeCommand) -> None:
    rota_consume.broker.produce("numbers", (7).to_bytes(8))
    deserializer = "value.deserializer=org.apache.kafka.common.serialization.LongDeserializer"
    ran = rota_consume(
        "--topic", "numbers", "--from-beginning", "--to-end", "--config", deserializer
    )
    assert ran.lines == ["7"]


def test_a_group_goes_on_behind_what_was_printed(rota_consume: ConsumeCommand) -> None:
    group = ("--topic", "orders", "--group", "billing", "--from-beginning", "--quiet")
    first = rota_consume(*group, "--max-messages", "5")
    assert (first.code, len(first.lines), first.err) == (0, 5, "")
    assert sum(rota_consume.broker.committed("billing").values()) == 5
    assert rota_consume.broker.groups["billing"] == "Empty"
    rest = rota_consume(*group, "--timeout", "0.5", "--strategy", "cooperative-sticky")
    assert sorted(first.lines + rest.lines) == [f"{p}:{v}" for p in range(3) for v in range(4)]
    assert sum(rota_consume.broker.committed("billing").values()) == 12


def test_a_group_of_a_pattern_and_of_the_file(rota_consume: ConsumeCommand, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("group.id=from-file\nauto.offset.reset=earliest\nenable.metrics.push=true\n")
    ran = rota_consume("--pattern", "ord.*", "--command-config", str(file), "--max-messages", "12")
    assert (ran.code, len(ran.lines)) == (0, 12)
    assert "rota: enable.metrics.push: without effect: Rota pushes no metrics" in ran.err
    assert "rota: assigned: orders 0-2" in ran.err
    assert sum(rota_consume.broker.committed("from-file").values()) == 12


def test_a_group_commits_nothing_if_it_shall_not(rota_consume: ConsumeCommand) -> None:
    ran = rota_consume(
        *("--topic", "orders", "--group", "looking", "--from-beginning", "--max-messages", "3"),
        *("--config", "enable.auto.commit=false"),
    )
    assert len(ran.lines) == 3
    assert rota_consume.broker.committed("looking") == {}


def test_a_group_does_not_come_back_to_what_it_has_skipped(rota_consume: ConsumeCommand) -> None:
    rota_consume.broker.produce("half", "1", "{")
    group = ("--topic", "half", "--group", "skipping", "--from-beginning", "--timeout", "0.3")
    flags = ("--config", "value.deserializer=json", "--skip-undecodable")
    assert rota_consume(*group, *flags).lines == ["1"]
    assert list(rota_consume.broker.committed("skipping").values()) == [2]


def test_undecodable_records_are_named_and_may_be_skipped(rota_consume: ConsumeCommand) -> None:
    for value in ("1", "{", "3", "nope", "5"):
        rota_consume.broker.produce("doubtful", value)
    flags = ("--topic", "doubtful", "--from-beginning", "--to-end")
    ran = rota_consume(*flags, "--config", "value.deserializer=json")
    assert (ran.code, ran.lines) == (4, ["1"])
    assert "rota: doubtful-0 at offset 1: " in ran.err
    ran = rota_consume(*flags, "--config", "value.deserializer=json", "--skip-undecodable")
    assert (ran.code, ran.lines) == (0, ["1", "3", "5"])
    first, second, end = ran.err.splitlines()
    assert first.startswith("rota: skipped: doubtful-0 at offset 1: ")
    assert second.startswith("rota: skipped: doubtful-0 at offset 3: ")
    assert end == "rota: 3 records, 2 skipped"


def test_a_group_commits_what_was_printed_before_an_undecodable_record(
    rota_consume: ConsumeCommand,
) -> None:
    for value in ("1", "2", "{"):
        rota_consume.broker.produce("damaged", value)
    group = ("--topic", "damaged", "--group", "careful", "--from-beginning")
    ran = rota_consume(*group, "--config", "value.deserializer=json", "--timeout", "5")
    assert (ran.code, ran.lines) == (4, ["1", "2"])
    assert list(rota_consume.broker.committed("careful").values()) == [2]


@pytest.mark.parametrize(
    ("flags", "code", "says"),
    [
        (["--topic", "order"], 4, "there is no topic 'order'; did you mean orders?"),
        (["--topic", "orders", "--partition", "3"], 4, "orders has partitions 0 to 2"),
        (["--topic", "orders", "--offset", "9"], 4, "orders-0 has offsets from 0 up to 4"),
        (["--topic", "orders", "--config", "group.ids=x"], 4, "did you mean group.id"),
        (["--topic", "orders", "--command-config", "none"], 3, "none cannot be read"),
        ([], 2, "give either --topic or --pattern"),
        (["--topic", "a", "--pattern", "b"], 2, "give either --topic or --pattern"),
        (["--topic", "a,"], 4, "the name of a topic is empty"),
        (["--topic", "a", "--group", "g", "--offset", "1"], 2, "--offset is for reading without"),
        (["--topic", "a", "--group", "g", "--to-end"], 2, "--to-end is for reading without"),
        (["--topic", "a", "--strategy", "range"], 2, "--strategy needs a group"),
        (["--pattern", "a"], 2, "--pattern needs a group"),
        (["--topic", "a", "--json", "--print-key"], 2, "--json prints the whole record"),
        (["--topic", "a", "--offset", "soon"], 2, "'soon' is not earliest"),
        (["--topic", "a", "--offset", "@soon"], 2, "neither a time"),
        (
            ["--topic", "a", "--offset", "1", "--from-beginning"],
            2,
            "give either --from-beginning or --offset",
        ),
        (["--topic", "a", "--partition", "x"], 2, "'x' is not a list such as 0,3-5"),
        (["--topic", "a", "--max-messages", "0"], 2, "'0' is not a number of 1 or more"),
        (["--topic", "a", "--timeout", "-1"], 2, "is neither a number of seconds nor a time"),
        (["--topic", "a", "--config", "x"], 2, "expected KEY=VALUE"),
        (["--topic", "a", "--group", "g", "--strategy", "rang"], 4, "did you mean 'range'"),
    ],
)
def test_what_is_wrong_is_named(
    rota_consume: ConsumeCommand, flags: list[str], code: int, says: str
) -> None:
    ran = rota_consume(*flags)
    assert (ran.code, ran.out) == (code, "")
    assert says in ran.err


def test_a_class_of_the_folder_the_command_is_run_in(
    rota_consume: ConsumeCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shouting.py").write_text("def loud(data):\n    return data.decode() + '!'\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each])
    loud = ("--config", "value.deserializer=shouting:loud")
    ran = rota_consume("--topic", "orders", "--partition", "1", "--offset", "3", "--to-end", *loud)
    assert (ran.code, ran.lines) == (0, ["1:3!"])


def test_who_waits_for_new_records_is_told_so(rota_consume: ConsumeCommand) -> None:
    ran = rota_consume("--topic", "orders", "--timeout", "0")
    assert "only new records are read; --from-beginning reads all" in ran.err
    assert "from now on" not in rota_consume("--topic", "orders", "--timeout", "0", "--quiet").err


def test_servers_must_be_named(rota_command: RotaCommand) -> None:
    code, _, err = rota_command("consume", "--topic", "a")
    assert code == 2
    assert "--bootstrap-servers HOST:PORT is needed" in err


def test_an_address_without_a_broker_is_named(
    rota_consume: ConsumeCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume_records, "CONNECT_TIMEOUT", 0.5)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ran = rota_consume("--topic", "orders", servers=address)
    assert ran.code == 3
    first, second = ran.err.splitlines()
    assert first == "rota: no broker has answered yet; trying for 0.5 s"
    assert second.startswith(f"rota: {address} of bootstrap.servers: the connection is refused")


def test_log_in_over_tls(tmp_path: Path, rota_command: RotaCommand) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    certificate = tmp_path / "cert.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(certificate)
    settings = tmp_path / "client.properties"
    settings.write_text(
        "security.protocol=SASL_SSL\n"
        "sasl.mechanism=SCRAM-SHA-512\n"
        f'sasl.jaas.config={SCRAM} required username="ann" \\\n  password="se;cret";\n'
        "ssl.truststore.type=PEM\n"
        f"ssl.truststore.location={tmp_path / 'ca.pem'}\n"
    )
    with rota.Broker(users={"ann": "se;cret"}, tls=str(certificate)) as broker:
        broker.produce("orders", "paid")
        flags = ["--topic", "orders", "--from-beginning", "--to-end"]
        consume = ConsumeCommand(broker, rota_command)
        ran = consume(*flags, "--command-config", str(settings))
        assert (ran.code, ran.out) == (0, "paid\n")
        settings.write_text(settings.read_text().replace("se;cret", "guess"))
        ran = consume(*flags, "--command-config", str(settings))
        assert (ran.code, ran.out) == (4, "")
        assert "guess" not in ran.err


def test_it_ends_although_nobody_stores_the_last_offsets(
    rota_command: RotaCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume_records, "LAST_COMMIT_TIMEOUT", 0.5)
    with rota.Broker() as broker:
        broker.produce("orders", "paid")
        broker.fail("OffsetCommit", "COORDINATOR_NOT_AVAILABLE", times=10_000)
        run = ConsumeCommand(broker, rota_command)
        ran = run("--topic", "orders", "--group", "g", "--from-beginning", "--max-messages", "1")
        assert (ran.code, ran.lines) == (3, ["paid"])
        assert "COORDINATOR_NOT_AVAILABLE" in ran.err
        assert broker.groups["g"] == "Empty"


def test_a_timeout_does_not_count_while_the_group_forms(rota_command: RotaCommand) -> None:
    with rota.Broker(config={"group.initial.rebalance.delay.ms": 1_000}) as broker:
        broker.produce("orders", "paid")
        flags = ["--topic", "orders", "--group", "g", "--from-beginning", "--timeout", "0.2"]
        assert ConsumeCommand(broker, rota_command)(*flags).checked().out == "paid\n"
