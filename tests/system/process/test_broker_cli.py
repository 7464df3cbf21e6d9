"""``rota broker`` as a process: ready, stop, exit codes, and one line for what is wrong."""

from __future__ import annotations

import os
import re
import signal
import socket
from pathlib import Path

import pytest
import trustme

import rota
from rota.protocol.messages import Api, MetadataRequest
from tests.support.command import ROTA, run_rota
from tests.support.echo_server import is_closed, limit_open_files
from tests.support.process import RunningCommand, environment, run_python
from tests.support.raw_client import RawClient

BROKER = (*ROTA, "broker")


class BrokerCommand(RunningCommand):
    """``rota broker`` on any port, ready."""

    def __init__(self, *arguments: str, **changes: str) -> None:
        super().__init__(*BROKER, "--port", "0", *arguments, env=environment(**changes))
        self.ready = self.read_line()

    @property
    def address(self) -> str:
        return self.ready.removeprefix("ready: ").partition(",")[0]


def run_refused(*arguments: str) -> tuple[int, str]:
    """The exit code and the line of a command that does not get ready."""
    done = run_rota("broker", *arguments)
    assert done.out == ""
    lines = done.err.splitlines()
    assert lines
    return done.code, lines[-1] if done.code == 2 else "\n".join(lines)


def topic_names(address: str) -> set[str]:
    with RawClient(address) as client:
        found = client.ask(Api.METADATA, 9, MetadataRequest(topics=None)).topics
        return {topic.name for topic in found if topic.name is not None}


@pytest.mark.quick
@pytest.mark.parametrize(("how", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_it_serves_until_it_is_told_to_stop(tmp_path: Path, how: int, code: int) -> None:
    with rota.Broker(tmp_path) as broker:
        broker.create_topic("kept")
    with BrokerCommand("--data-dir", str(tmp_path)) as command:
        assert command.ready == f"ready: {command.address}, topics in {tmp_path}\n"
        assert topic_names(command.address) == {"kept"}
        ended = command.end(how)
    assert ended.code == code
    assert ended.err == ("rota: interrupted\n" if code else "")
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_without_a_folder_nothing_is_left(tmp_path: Path) -> None:
    with BrokerCommand(TMPDIR=str(tmp_path)) as command:
        (folder,) = tmp_path.iterdir()
        assert command.ready.endswith(f", topics in {folder}, a temporary folder\n")
        assert command.end().code == 0
    assert not list(tmp_path.iterdir())


def test_a_killed_one_leaves_its_folder_to_the_next(tmp_path: Path) -> None:
    with BrokerCommand("--data-dir", str(tmp_path)) as command:
        command.end(signal.SIGKILL)
    with BrokerCommand("--data-dir", str(tmp_path)) as command:
        assert topic_names(command.address) == set()


def test_settings_users_and_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(
        str(tmp_path / "tls.pem")
    )
    (tmp_path / "users").write_text("# who\nann:one:two\n\nbob:x\n")
    (tmp_path / "server.properties").write_text("num.partitions=3\nnum.io.threads=8\n")
    with BrokerCommand(
        *("--host", "localhost", "--advertise", "broker.example:1"),
        *("--config-file", str(tmp_path / "server.properties"), "--config", "num.partitions=4"),
        *("--users-file", str(tmp_path / "users"), "--user", "carl:y"),
        *("--sasl-mechanism", "PLAIN", "--tls-cert", str(tmp_path / "tls.pem"), "-v"),
    ) as command:
        assert command.address == "broker.example:1"
        assert re.search(r", listening at localhost:\d+, SASL_SSL, topics in ", command.ready)
        log = command.end().err
    assert "server.properties: these settings have no effect: num.io.threads" in log
    assert "INFO cluster" in log  # -v


# What is wrong


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    code, line = run_refused("--port", "0", "--data-dir", str(tmp_path))
    assert (code, line) == (
        3,
        f"rota: the folder {tmp_path} cannot be written: Permission denied",
    )


def test_a_taken_port() -> None:
    with rota.Broker() as broker:
        port = broker.bootstrap_servers.partition(":")[2]
        assert run_refused("--port", port) == (
            3,
            f"rota: cannot listen on 127.0.0.1:{port}: another process listens on this port",
        )


def test_a_folder_in_use(tmp_path: Path) -> None:
    with rota.Broker(tmp_path):
        code, line = run_refused("--port", "0", "--data-dir", str(tmp_path))
    assert (code, line) == (3, f"rota: the folder {tmp_path} is in use by process {os.getpid()}")


def test_a_folder_of_somebody_else(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    code, line = run_refused("--port", "0", "--data-dir", str(tmp_path))
    assert code == 4
    assert f"{tmp_path} does not belong to Rota, it has 'thesis.txt'" in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["thesis.txt"]


def test_a_folder_of_a_kafka(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")
    code, line = run_refused("--port", "0", "--data-dir", str(tmp_path))
    assert code == 4
    assert "was last used by Kafka" in line
    assert "--adopt" in line


def test_a_file_in_place_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, line = run_refused("--port", "0", "--data-dir", str(tmp_path / "file"))
    assert (code, line) == (3, f"rota: {tmp_path / 'file'} is a file, not a folder")


def test_a_wrong_file_of_settings_is_named(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    for text, problem in (
        ("num.partitons=2", "'num.partitons' is not a broker setting"),
        ("num.partitions=x", "num.partitions: 'x' is not a whole number"),
    ):
        file.write_text(f"process.roles=broker\n{text}\n")
        code, line = run_refused("--port", "0", "--config-file", str(file))
        assert code == 4
        assert line.startswith(f"rota: {file}: {problem}")


def test_settings_without_effect_are_named_alike() -> None:
    with BrokerCommand("--config", "num.io.threads=8") as command:
        log = command.end().err
    assert log == "rota: --config: these settings have no effect: num.io.threads\n"


def test_a_password_is_not_told(capfd: pytest.CaptureFixture[str]) -> None:
    code, line = run_refused("--port", "0", "--user", "ann:secret", "--config", "a.b=1")
    assert code == 4
    assert "secret" not in line


def test_many_files_may_be_open(tmp_path: Path) -> None:
    with BrokerCommand() as command:
        limits = Path(f"/proc/{command.process_id}/limits")
        if not limits.exists():
            pytest.skip("this system does not tell")
        (line,) = [one for one in limits.read_text().splitlines() if "open files" in one]
        soft, hard = line.split()[3:5]
        assert soft == hard


def test_a_signal_while_a_client_waits(tmp_path: Path) -> None:
    with BrokerCommand() as command:
        host, _, port = command.address.partition(":")
        with socket.create_connection((host, int(port)), 10) as client:
            client.sendall(b"\0\0\0\x40half a request")
            assert command.end().code == 0
            assert is_closed(client)


SIGNALLED = """
import signal, sys
from rota.cli.main import main

signals = 0

def trace(frame, event, _argument):
    global signals
    if frame.f_code.co_name == "wait":
        if "rota.cli.broker" in {each.f_globals["__name__"] for each in (frame, frame.f_back)}:
            signals += 1
            signal.raise_signal(signal.SIGTERM)
    return trace

sys.settrace(trace)
code = main(["broker", "--port", "0"])
sys.exit(code if signals else "no signal was raised")
"""


def test_a_signal_at_any_step_of_its_waiting() -> None:
    """SIGTERM is raised at each line of the wait, whatever lock it holds there."""
    ended = run_python(SIGNALLED).checked()
    assert ended.lines[0].startswith("ready: ")


def resident_bytes(process: int) -> int:
    """Bytes of memory that a process occupies."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


@pytest.mark.nightly
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="this system does not tell")
def test_ten_thousand_idle_connections() -> None:
    limit_open_files(10_500)
    with BrokerCommand() as command:
        topic_names(command.address)
        before = resident_bytes(command.process_id)
        clients = [RawClient(command.address) for _ in range(10_000)]
        for client in clients:
            client.ask(Api.METADATA, 9, MetadataRequest(topics=None))
        assert before < 100 << 20
        assert resident_bytes(command.process_id) - before < 200 << 20
        assert topic_names(command.address) == set()
        for client in clients:
            client.close()
        ended = command.end()
        assert (ended.code, ended.err) == (0, "")
