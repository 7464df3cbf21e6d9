"""``rota run --poll`` on the command line, as far as it goes without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

import rota
from tests.support.command import RotaCommand
from tests.support.live_group import commit_offsets

pytest.importorskip("pyspark")

HOST = ("--bootstrap-servers", "127.0.0.1:1")


RunCommand = Callable[..., tuple[int, str, str]]


@pytest.fixture
def rota_run(rota_command: RotaCommand) -> RunCommand:
    return partial(rota_command, "run")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--poll",), "--poll reads a live cluster: give --bootstrap-servers"),
        (("--segments", "x", "--poll", "1s"), "--poll reads a live cluster"),
        ((*HOST, "--for", "1m"), "--for is the duration of --poll"),
        ((*HOST, "--poll", "10ms"), "the shortest interval is 100ms"),
        ((*HOST, "--poll", "often"), "is not a time such as"),
        ((*HOST, "--poll", "--for", "0s"), "give a duration longer than 0"),
        ((*HOST, "--poll", "--follow"), "--poll does not: give one of them"),
        ((*HOST, "--poll", "--demo"), "--demo uses simulated data"),
        ((*HOST, "--poll", "--lookups", "5"), "leave out --lookups"),
    ],
)
def test_a_wrong_command_line(rota_run: RunCommand, words: tuple[str, ...], problem: str) -> None:
    code, _, text = rota_run(*words)
    assert code == 2
    assert problem in " ".join(text.split())


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--until", "2020-01-01T00:00Z"), "--until is in the past"),
        (("--since", "2199-01-01T00:00Z"), "--since is later than the end of --poll"),
    ],
)
def test_times_of_which_nothing_can_be_seen(
    rota_run: RunCommand, tmp_path: Path, words: tuple[str, ...], problem: str
) -> None:
    code, _, text = rota_run(*HOST, "--poll", "--out", str(tmp_path), *words)
    assert code == 4
    assert problem in text


@pytest.fixture
def broker() -> Iterator[rota.Broker]:
    with rota.Broker() as running:
        running.create_topic("orders", 1)
        commit_offsets(running, "secret", {("orders", 0): 1})
        yield running


def test_nothing_may_be_looked_at(
    broker: rota.Broker, rota_run: RunCommand, tmp_path: Path
) -> None:
    """It is said which ACLs it takes: before, and when it fails; nothing is left behind."""
    broker.fail("DescribeGroups", "GROUP_AUTHORIZATION_FAILED", times=None)
    servers = ("--bootstrap-servers", broker.bootstrap_servers)
    code, _, text = rota_run(*servers, "--poll", "--for", "1s", "--out", str(tmp_path / "out"))
    assert code == 3
    assert text.count("Describe on the cluster") == 2
    assert "no permission to describe group 'secret'" in text
    assert {each.name for each in (tmp_path / "out").iterdir()} == {".lock"}


def test_no_broker(rota_run: RunCommand, tmp_path: Path) -> None:
    where = (*HOST, "--timeout", "0.2", "--out", str(tmp_path))
    code, _, text = rota_run(*where, "--poll", "--for", "1s")
    assert code == 3
    assert "127.0.0.1:1" in text.splitlines()[-1]
