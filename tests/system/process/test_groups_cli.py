"""``rota groups`` as an operator or a CI job runs it, against a broker."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

import rota
from tests.support.command import ROTA, run_rota
from tests.support.live_group import broker_with_topics, create_billing_group
from tests.support.process import RunningCommand, run_python


@pytest.fixture
def broker() -> Iterator[rota.Broker]:
    with broker_with_topics(orders=2, payments=1) as running:
        yield running


def test_what_a_client_needs_is_named(tmp_path: Path) -> None:
    program = (
        "import sys, importlib.util as u\n"
        "found = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'kafka' else found(name, *a)\n"
        "from rota.cli.main import main\n"
        "print(main(['groups', 'list', '--bootstrap-servers', 'x:1']))\n"
        "print(sorted(m for m in sys.modules if m in {'asyncio', 'rota.protocol.messages'}))\n"
        "main(['groups', '--help'])\n"
    )
    done = run_python(program)
    assert "needs kafka-python: pip install 'rota[consumer]'" in done.err
    assert done.out.startswith("3\n[]\nusage: rota groups")


def test_a_plan_of_a_file_needs_no_network() -> None:
    program = (
        "import sys\nfrom rota.cli.main import main\n"
        "main(['plan', '--partitions', 't=2', '--members', '1', '--json'])\n"
        "heavy = {'asyncio', 'kafka', 'ssl', 'rota.protocol.messages', 'rota.client.cluster'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    assert run_python(program).checked().err == "[]\n"


def test_a_pipe_gets_no_colours(broker: rota.Broker) -> None:
    create_billing_group(broker)
    where = ("--bootstrap-servers", broker.bootstrap_servers)
    done = run_rota("groups", "describe", "billing", *where).checked()
    assert "\x1b" not in done.out
    assert "second" in done.out
    assert done.err == ""


def test_control_c_ends_the_waiting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = f"127.0.0.1:{silent.getsockname()[1]}"
        with RunningCommand(*ROTA, "groups", "list", "--bootstrap-servers", where) as running:
            connection, _ = silent.accept()
            with connection:
                connection.recv(1)  # it has asked, and waits
                ended = running.end(signal.SIGINT)
    assert ended == (130, "", "rota: interrupted\n")
