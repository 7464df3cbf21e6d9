"""``rota consume``, through the command line: where it starts and ends, what it prints, and what
the group knows afterwards.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

import rota
from tests.support.command import ROTA, RotaCommand
from tests.support.process import RunningCommand
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def broker() -> Iterator[rota.Broker]:
    with rota.Broker() as one:
        one.create_topic("orders", partitions=3)
        for number in range(3):
            one.produce("orders", *(f"{number}:{value}" for value in range(4)), partition=number)
        yield one


def test_what_is_printed_is_committed_while_no_more_records_come(broker: rota.Broker) -> None:
    flags = ("--topic", "orders", "--group", "quiet", "--from-beginning")
    with start_consume(broker, *flags, "--config", "auto.commit.interval.ms=200") as running:
        for _ in range(12):
            running.read_line()
        wait_until("12 are committed", lambda: sum(broker.committed("quiet").values()) == 12)
        assert running.is_running


def start_consume(broker: rota.Broker, *arguments: str) -> RunningCommand:
    where = ("--bootstrap-servers", broker.bootstrap_servers)
    return RunningCommand(*ROTA, "consume", *arguments, *where)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_ends_it_in_good_order(broker: rota.Broker, number: int, code: int) -> None:
    group = f"stopped-by-{number}"
    with start_consume(
        broker, "--topic", "orders", "--group", group, "--from-beginning"
    ) as running:
        lines = [running.read_line() for _ in range(12)]
        assert broker.groups[group] == "Stable"
        ended = running.end(number)
    assert (ended.code, ended.out, len(set(lines))) == (code, "", 12)
    assert "Traceback" not in ended.err
    assert "rota: 12 records\n" in ended.err
    assert broker.groups[group] == "Empty"
    assert sum(broker.committed(group).values()) == 12


def test_two_members_share_the_partitions(broker: rota.Broker, rota_command: RotaCommand) -> None:
    flags = ("--topic", "orders", "--group", "shared", "--from-beginning")
    strategy = ("--strategy", "cooperative-sticky", "--config", "heartbeat.interval.ms=100")
    where = ("--bootstrap-servers", broker.bootstrap_servers)
    with start_consume(broker, *flags, *strategy) as first:
        lines = [first.read_line() for _ in range(12)]
        second = rota_command("consume", *flags, *strategy, "--timeout", "1", *where)
        assert (second.code, second.lines) == (0, [])
        assert "rota: assigned: orders " in second.err
        ended = first.end(signal.SIGTERM)
    assert (ended.code, ended.out, len(set(lines))) == (0, "", 12)
    assert "rota: revoked: orders " in ended.err
    assert sum(broker.committed("shared").values()) == 12


def test_a_reader_that_has_seen_enough_ends_it(broker: rota.Broker) -> None:
    broker.produce("flood", *["line" * 100] * 1000)
    with start_consume(
        broker, "--topic", "flood", "--group", "piped", "--from-beginning"
    ) as running:
        running.read_line()
        running.close_output()
        wait_until(
            "it has ended",
            lambda: not running.is_running,
            meanwhile=lambda: broker.produce("flood", *["line" * 100] * 100),
        )
        ended = running.wait()
    assert ended.code == 0
    assert "Traceback" not in ended.err
    assert broker.groups["piped"] == "Empty"
    assert sum(broker.committed("piped").values()) < len(broker.read("flood"))
