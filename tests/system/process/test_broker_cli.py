"""``rota broker`` as a process: ready, stop, exit codes, and one line for what is wrong."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme

import rota
from rota.wire.api import Api
from rota.wire.message import MetadataRequest
from tests.support.echo_server import is_closed
from tests.support.paths import ROOT
from tests.support.raw_client import RawClient

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1"}
COMMAND = [sys.executable, "-m", "rota", "broker"]


class Running:
    """The command, and what it has said."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        assert self.process.stdout is not None
        alarm = threading.Timer(60, self.process.kill)
        alarm.start()
        self.ready = self.process.stdout.readline()
        alarm.cancel()

    @property
    def address(self) -> str:
        return self.ready.removeprefix("ready: ").partition(",")[0]

    def end(self, how: int = signal.SIGTERM) -> tuple[int, str]:
        """Its exit code and what it wrote to its log."""
        self.process.send_signal(how)
        _, log = self.process.communicate(timeout=60)
        return self.process.returncode, log


@contextmanager
def running(*arguments: str) -> Iterator[Running]:
    one = Running("--port", "0", *arguments)
    try:
        yield one
    finally:
        one.process.kill()
        one.process.communicate()


def refused(*arguments: str) -> tuple[int, str]:
    """The exit code and the line of a command that does not get ready."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=ENVIRONMENT,
        check=False,
    )
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert lines
    return done.returncode, lines[-1] if done.returncode == 2 else "\n".join(lines)


def names(address: str) -> set[str]:
    with RawClient(address) as client:
        found = client.ask(Api.METADATA, 9, MetadataRequest(topics=None)).topics
        return {topic.name for topic in found}


@pytest.mark.parametrize(("how", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_it_serves_until_it_is_told_to_stop(tmp_path: Path, how: int, code: int) -> None:
    with rota.Broker(tmp_path) as broker:
        broker.create_topic("kept")
    with running("--data-dir", str(tmp_path)) as command:
        assert command.ready == f"ready: {command.address}, topics in {tmp_path}\n"
        assert names(command.address) == {"kept"}
        ended, log = command.end(how)
    assert ended == code
    assert log == ("rota: interrupted\n" if code else "")
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_without_a_folder_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENVIRONMENT, "TMPDIR", str(tmp_path))
    with running() as command:
        (folder,) = tmp_path.iterdir()
        assert command.ready.endswith(f", topics in {folder}, a temporary folder\n")
        assert command.end()[0] == 0
    assert not list(tmp_path.iterdir())


def test_a_killed_one_leaves_its_folder_to_the_next(tmp_path: Path) -> None:
    with running("--data-dir", str(tmp_path)) as command:
        command.end(signal.SIGKILL)
    with running("--data-dir", str(tmp_path)) as command:
        assert names(command.address) == set()


def test_settings_users_and_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(
        str(tmp_path / "tls.pem")
    )
    (tmp_path / "users").write_text("# who\nann:one:two\n\nbob:x\n")
    (tmp_path / "server.properties").write_text("num.partitions=3\nnum.io.threads=8\n")
    with running(
        *("--host", "localhost", "--advertise", "broker.example:1"),
        *("--config-file", str(tmp_path / "server.properties"), "--config", "num.partitions=4"),
        *("--users-file", str(tmp_path / "users"), "--user", "carl:y"),
        *("--sasl-mechanism", "PLAIN", "--tls-cert", str(tmp_path / "tls.pem"), "-v"),
    ) as command:
        assert command.address == "broker.example:1"
        assert re.search(r", listening at localhost:\d+, SASL_SSL, topics in ", command.ready)
        _, log = command.end()
    assert "server.properties: without effect here: num.io.threads" in log
    assert "INFO cluster" in log  # -v


# What is wrong


def test_a_taken_port() -> None:
    with rota.Broker() as broker:
        port = broker.bootstrap_servers.partition(":")[2]
        assert refused("--port", port) == (
            3,
            f"rota: cannot listen on 127.0.0.1:{port}: the port is taken: "
            "another process listens there",
        )


def test_a_folder_in_use(tmp_path: Path) -> None:
    with rota.Broker(tmp_path):
        code, line = refused("--port", "0", "--data-dir", str(tmp_path))
    assert (code, line) == (3, f"rota: the folder {tmp_path} is in use by process {os.getpid()}")


def test_a_folder_of_somebody_else(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    code, line = refused("--port", "0", "--data-dir", str(tmp_path))
    assert code == 4
    assert f"{tmp_path} is not Rota's, it has 'thesis.txt'" in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["thesis.txt"]


def test_a_folder_of_a_kafka(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")
    code, line = refused("--port", "0", "--data-dir", str(tmp_path))
    assert code == 4
    assert "was last written by a Kafka" in line
    assert "--adopt" in line


def test_a_file_in_place_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, line = refused("--port", "0", "--data-dir", str(tmp_path / "file"))
    assert (code, line) == (3, f"rota: {tmp_path / 'file'} is a file, not a folder")


def test_a_wrong_file_of_settings_is_named(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    for text, problem in (
        ("num.partitons=2", "'num.partitons' is not a setting"),
        ("num.partitions=x", "num.partitions: 'x' is not a whole number"),
    ):
        file.write_text(f"process.roles=broker\n{text}\n")
        code, line = refused("--port", "0", "--config-file", str(file))
        assert code == 4
        assert line.startswith(f"rota: {file}: {problem}")


def test_settings_without_effect_are_named_alike() -> None:
    with running("--config", "num.io.threads=8") as command:
        _, log = command.end()
    assert log == "rota: --config: without effect here: num.io.threads\n"


def test_a_password_is_not_told(capfd: pytest.CaptureFixture[str]) -> None:
    code, line = refused("--port", "0", "--user", "ann:secret", "--config", "a.b=1")
    assert code == 4
    assert "secret" not in line


def test_many_files_may_be_open(tmp_path: Path) -> None:
    with running() as command:
        limits = Path(f"/proc/{command.process.pid}/limits")
        if not limits.exists():
            pytest.skip("this system does not tell")
        (line,) = [one for one in limits.read_text().splitlines() if "open files" in one]
        soft, hard = line.split()[3:5]
        assert soft == hard


def test_a_signal_while_a_client_waits(tmp_path: Path) -> None:
    with running() as command:
        host, _, port = command.address.partition(":")
        with socket.create_connection((host, int(port)), 10) as client:
            client.sendall(b"\0\0\0\x40half a request")
            assert command.end()[0] == 0
            assert is_closed(client)
