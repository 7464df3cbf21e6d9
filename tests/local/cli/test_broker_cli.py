"""``rota broker`` as a process: ready, stop, exit codes, and one line for what is wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rota.wire.api import Api
from rota.wire.message import MetadataRequest
from tests.support.echo_server import allow_files
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


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    code, line = refused("--port", "0", "--data-dir", str(tmp_path))
    assert (code, line) == (
        3,
        f"rota: the folder {tmp_path} cannot be written: Permission denied",
    )


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (["--host", "0.0.0.0"], 4, "nobody has to log in: give --users-file (or --user), or --all"),
        (["--host", "no.such.host.invalid"], 4, "host 'no.such.host.invalid'"),
        (["--config", "num.partition=1"], 4, "did you mean num.partitions"),
        (["--config", "num.partitions"], 2, "not KEY=VALUE"),
        (["--config-file", "missing.properties"], 3, "missing.properties: No such file"),
        (["--users-file", "missing"], 3, "missing: No such file"),
        (["--user", "ann"], 4, "--user: not NAME:PASSWORD"),
        (["--tls-key", "key.pem"], 2, "--tls-key needs --tls-cert"),
        (["--tls-cert", "missing.pem"], 3, "missing.pem: No such file"),
        (["--adopt"], 2, "--adopt needs --data-dir"),
        (["--port", "x"], 2, "'x' is not a port"),
        (["--sasl-mechanism", "PLAIN"], 2, "--sasl-mechanism needs --users-file or --user"),
        (["--user", "a:b", "--sasl-mechanism", "GSSAPI"], 4, "'GSSAPI'; known are PLAIN"),
        (["--user", "a:b", "--user", "a:c"], 4, "--user: a has a password already, by --user"),
        (["--users-file", os.devnull], 4, f"{os.devnull}: there are no users in it"),
        (["--data-dir", ""], 2, "--data-dir is empty"),
        (["--advertise", "x"], 4, "'x' is not HOST:PORT"),
    ],
)
def test_wrong_words(
    arguments: list[str], code: int, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from rota.cli.main import main

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rota.cli.broker._log", lambda *, verbose: None)
        try:
            ended = main(["broker", "--port", "0", *arguments])
        except SystemExit as error:
            ended = int(error.code or 0)
    said = capsys.readouterr().err.splitlines()
    assert ended == code
    assert problem in said[-1]
    assert code == 2 or len(said) == 1


def test_exit_codes_are_those_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    from rota.cli.main import main

    for command, limit in (("plan", "--max-moves"), ("simulate", "--max-stopped"), ("broker", "")):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        codes = capsys.readouterr().out.partition("exit codes:")[2]
        assert ("is exceeded" in codes) == bool(limit)
        assert f"({limit})" in codes or not limit


def resident(process: int) -> int:
    """Bytes of memory that a process occupies."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


@pytest.mark.nightly
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="this system does not tell")
def test_ten_thousand_idle_connections() -> None:
    allow_files(10_500)
    with running() as command:
        names(command.address)
        before = resident(command.process.pid)
        clients = [RawClient(command.address) for _ in range(10_000)]
        for client in clients:
            client.ask(Api.METADATA, 9, MetadataRequest(topics=None))
        assert before < 100 << 20
        assert resident(command.process.pid) - before < 200 << 20
        assert names(command.address) == set()
        for client in clients:
            client.close()
        assert command.end() == (0, "")
