"""``rota produce`` and ``rota consume`` with a real Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.cli.main import main
from tests.support.coordinator.connection import Connection, create_topics
from tests.support.kafka import KafkaBroker

Capture = pytest.CaptureFixture[bytes]


def test_what_is_produced_is_consumed(
    broker: KafkaBroker, capsysbinary: Capture, tmp_path: Path
) -> None:
    with Connection(broker.port) as admin:
        create_topics(admin, {"commands": 1})
    where = ["--bootstrap-servers", f"127.0.0.1:{broker.port}"]
    lines = tmp_path / "lines"
    lines.write_bytes(b"a:1\nb:\xff\na:3\n")
    topic = ["--topic", "commands"]
    assert main(["produce", *topic, "--key-separator", ":", str(lines), *where]) == 0
    printed = capsysbinary.readouterr()
    assert (printed.out, printed.err) == (b"", b"rota: 3 records written to commands\n")
    flags = ["--from-beginning", "--to-end", "--print-key", "--separator", ":", "--quiet"]
    assert main(["consume", *topic, *flags, *where]) == 0
    assert capsysbinary.readouterr().out == lines.read_bytes()
    group = ["--group", "reading", "--from-beginning", "--timeout", "1"]
    assert main(["consume", *topic, *group, "--max-messages", "2", *where]) == 0
    assert capsysbinary.readouterr().out == b"1\n\xff\n"
    assert main(["consume", *topic, *group, *where]) == 0
    assert capsysbinary.readouterr().out == b"3\n"
