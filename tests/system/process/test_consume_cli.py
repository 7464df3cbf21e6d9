"""``rota consume``, through the command line: where it starts and ends, what it prints, and what
the group knows afterwards.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

import rota
from rota.cli.main import main
from tests.support.paths import ROOT

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1"}
Capture = pytest.CaptureFixture[bytes]


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


class Ran:
    """What a command printed, and its exit code."""

    def __init__(self, code: int, out: bytes, err: bytes) -> None:
        self.code, self.out, self.said = code, out, err.decode()

    @property
    def lines(self) -> list[str]:
        return self.out.decode().splitlines()


@pytest.fixture
def consume(broker: rota.Broker, capsysbinary: Capture) -> Run:
    return Run(broker, capsysbinary)


class Run:
    """Runs the command in this process."""

    def __init__(self, broker: rota.Broker, capture: Capture) -> None:
        self.broker, self.capture = broker, capture

    def __call__(self, *arguments: str, servers: str | None = None) -> Ran:
        try:
            code = main(
                [
                    *("consume", *arguments),
                    *("--bootstrap-servers", servers or self.broker.bootstrap_servers),
                ]
            )
        except SystemExit as ended:
            code = int(str(ended.code))
        out, err = self.capture.readouterr()
        return Ran(code, out, err)


def test_what_is_printed_is_committed_while_no_more_records_come(broker: rota.Broker) -> None:
    flags = ("--topic", "orders", "--group", "quiet", "--from-beginning")
    with started(broker, *flags, "--config", "auto.commit.interval.ms=200") as process:
        assert process.stdout is not None
        for _ in range(12):
            process.stdout.readline()
        while sum(broker.committed("quiet").values()) < 12:
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()


def started(broker: rota.Broker, *arguments: str) -> subprocess.Popen[bytes]:
    where = ["--bootstrap-servers", broker.bootstrap_servers]
    return subprocess.Popen(
        [sys.executable, "-m", "rota", "consume", *arguments, *where],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    )


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_ends_it_in_good_order(broker: rota.Broker, number: int, code: int) -> None:
    group = f"stopped-by-{number}"
    process = started(broker, "--topic", "orders", "--group", group, "--from-beginning")
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(12)]
    assert broker.groups[group] == "Stable"
    process.send_signal(number)
    out, said = process.communicate(timeout=30)
    assert (process.returncode, out, len(set(lines))) == (code, b"", 12)
    assert b"Traceback" not in said
    assert b"rota: 12 records\n" in said
    assert broker.groups[group] == "Empty"
    assert sum(broker.committed(group).values()) == 12


def test_two_members_share_the_partitions(broker: rota.Broker, consume: Run) -> None:
    flags = ("--topic", "orders", "--group", "shared", "--from-beginning")
    strategy = ("--strategy", "cooperative-sticky", "--config", "heartbeat.interval.ms=100")
    with started(broker, *flags, *strategy) as first:
        assert first.stdout is not None
        lines = [first.stdout.readline() for _ in range(12)]
        second = consume(*flags, *strategy, "--timeout", "1")
        assert (second.code, second.lines) == (0, [])
        assert "rota: assigned: orders " in second.said
        first.send_signal(signal.SIGTERM)
        rest, said = first.communicate(timeout=30)
    assert (first.returncode, rest, len(set(lines))) == (0, b"", 12)
    assert b"rota: revoked: orders " in said
    assert sum(broker.committed("shared").values()) == 12


def test_a_reader_that_has_seen_enough_ends_it(broker: rota.Broker) -> None:
    broker.produce("flood", *["line" * 100] * 1000)
    with started(broker, "--topic", "flood", "--group", "piped", "--from-beginning") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        while process.poll() is None:
            broker.produce("flood", *["line" * 100] * 100)
        assert process.stderr is not None
        said = process.stderr.read()
    assert process.returncode == 0
    assert b"Traceback" not in said
    assert broker.groups["piped"] == "Empty"
    assert sum(broker.committed("piped").values()) < len(broker.read("flood"))
