"""Journals, logs and samples as nobody wants them: what can be read is read, the rest is counted.

One run over a folder with all of them, a partition each: what is wrong with one harms no other.
"""

from __future__ import annotations

import json
import os
import re
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from rota.cli.main import ExitCode, main
from rota.cli.report_summary import print_summary, story_json
from rota.engine.formats import journal
from rota.engine.model.journal_entry import (
    GroupMetadataTombstone,
    JournalEntry,
    OffsetCommitTombstone,
)
from rota.errors import InputError, Unreachable
from rota.pipeline.stages import EvidenceSources, RunOptions, RunSummary
from rota.pipeline.tables import EVIDENCE, TABLES, Table
from rota.report.story import build_story, read_gold_tables
from tests.support.journal_folder import (
    START,
    Raw,
    encode_journal_batch,
    group_member,
    group_metadata_entry,
    offset_commit_entry,
    write_segment,
)
from tests.system.spark.pipeline_run import run_evidence

#: Bytes of a string, in Kafka.
LONGEST = 32_767
#: Names that Kafka takes: any UTF-8.
NAMES = [
    "plain",
    "",
    'it\'s "quoted" `back` \\ %s {x}',
    "line\nbreak\ttab\r",
    "\x00nul\x1b[31m",
    "עברית \u202eright to left",
    "日本語🦊 e\u0301",
    "<script>alert(1)</script>",
    "x" * LONGEST,
]

OFFSET_KEY, OFFSET_VALUE = journal.encode_entry(offset_commit_entry("undecodable"))
GROUP_KEY, GROUP_VALUE = journal.encode_entry(
    group_metadata_entry("undecodable", 1, group_member("a", 0))
)
assert OFFSET_VALUE is not None
assert GROUP_VALUE is not None
BAD_KEYS: list[Raw] = [
    (None, b"no key"),
    (b"", b"an empty key"),
    (b"\x00", b"half a type"),
    (OFFSET_KEY[:-1], OFFSET_VALUE),
    (GROUP_KEY[:4], GROUP_VALUE),
    (struct.pack(">hh", 2, 3) + b"\xff\xfe\xfd", GROUP_VALUE),  # no UTF-8
    (struct.pack(">hh", 2, -5), GROUP_VALUE),
]
BAD_VALUES: list[Raw] = [
    (OFFSET_KEY, b""),
    (OFFSET_KEY, OFFSET_VALUE[:-3]),
    (OFFSET_KEY, struct.pack(">h", 99) + OFFSET_VALUE[2:]),
    (GROUP_KEY, b"\x00"),
    (GROUP_KEY, GROUP_VALUE[:-1]),
    (GROUP_KEY, GROUP_VALUE + b"more"),
    (GROUP_KEY, struct.pack(">h", 99) + GROUP_VALUE[2:]),
]
STRANGE: list[Raw] = [
    (struct.pack(">hh", 99, 1) + b"g", b"of a type that nobody knows"),
    (struct.pack(">hh", 24, 1) + b"g", b"of a newer release"),
]
#: Times of a clock that goes back, of none, and of one that has gone mad.
BACK = [START + 60_000, START + 50_000, START, -1, START + 70_000, 1 << 62]


def write_journal(folder: Path) -> None:
    write_segment(
        folder,
        0,
        *(encode_journal_batch(*group_entries(name), offset=2 * n) for n, name in enumerate(NAMES)),
    )
    write_segment(
        folder,
        1,
        encode_journal_batch(
            *BAD_KEYS, *BAD_VALUES, *STRANGE, group_metadata_entry("still", 1, group_member("a", 0))
        ),
    )
    odd = group_member("odd", 1, asked=b"\xff\xff garbage")
    write_segment(
        folder,
        2,
        encode_journal_batch(group_metadata_entry("odd-member", 1, group_member("a", 0), odd)),
    )
    reborn: list[JournalEntry] = [
        group_metadata_entry("reborn", 1, group_member("a", 0)),
        group_metadata_entry("reborn", 2),
        offset_commit_entry("reborn"),
        OffsetCommitTombstone(group="reborn", topic="t", partition=0),
        GroupMetadataTombstone(group="reborn"),
        group_metadata_entry("reborn", 1, group_member("b", 0)),
    ]  # fmt: skip
    write_segment(
        folder, 3, encode_journal_batch(*reborn, at=[START + n for n in range(len(reborn))])
    )
    clock = [
        group_metadata_entry("clock", n, group_member("a", n)) for n in range(1, len(BACK) + 1)
    ]
    write_segment(folder, 4, encode_journal_batch(*clock, at=BACK))
    crowd = [group_member(f"m{n:05}", n) for n in range(10_000)]
    write_segment(folder, 5, encode_journal_batch(group_metadata_entry("crowd", 7, *crowd)))
    write_segment(
        folder,
        6,
        encode_journal_batch(group_metadata_entry("last", 2**31 - 1, group_member("a", 0))),
    )
    write_segment(
        folder,
        7,
        encode_journal_batch(replace(offset_commit_entry("long", 5), metadata="m" * LONGEST)),
    )
    write_damaged_files(folder)


def group_entries(name: str) -> tuple[JournalEntry, JournalEntry]:
    return group_metadata_entry(name, 1, group_member("a", 0)), offset_commit_entry(name, 42)


def write_damaged_files(folder: Path) -> None:
    """Files that are cut, filled, flipped, empty or of something else."""
    good = [
        encode_journal_batch(group_metadata_entry(f"kept-{n}", 1, group_member("a", 0)), offset=n)
        for n in range(4)
    ]
    flipped = bytearray(good[1])
    flipped[-3] ^= 0x40
    write_segment(folder, 10, good[0], bytes(flipped), good[2])
    write_segment(folder, 11, good[0], good[3][:-10])
    write_segment(folder, 12, good[0], bytes(4096))
    write_segment(folder, 13, b"")
    write_segment(folder, 14, b"this is a text, not a log\n" * 50)
    write_segment(folder, 15, good[0], name="0" * 20 + ".log.deleted")
    (folder / "__consumer_offsets-16").mkdir()
    (folder / "__consumer_offsets-x").mkdir()
    (folder / "clicks-0").mkdir()
    (folder / "meta.properties").write_text("version=1\n")


LOG = """\
[2027-01-15 08:00:00,123] INFO [GroupCoordinator 1]: Preparing to rebalance group still in state \
PreparingRebalance with old generation 1 (__consumer_offsets-1) (reason: a reason of old) \
(kafka.coordinator.group.GroupCoordinator)
[2027-01-15 08:00:00,200] INFO [GroupCoordinator 1]: Group still did something no version says \
(kafka.coordinator.group.GroupCoordinator)
\tat java.base/java.lang.Thread.run(Thread.java:1583)
{"ts":"2027-01-15T08:00:00Z","msg":"another program's log"}
"""
SAMPLES = [
    json.dumps({"t": START, "topic": "t", "partition": 0, "beginning": 0, "end": 50}),
    "no JSON",
    json.dumps({"t": START, "topic": "t", "partition": "x", "end": 50}),
    json.dumps([1, 2]),
    json.dumps({"topic": "t", "partition": 0, "end": 50}),
    json.dumps({"t": START, "topic": "t", "partition": 0, "end": 10**30}),
    json.dumps({"t": START, "topic": "t", "partition": 2**40, "end": 50}),
    json.dumps({"t": float("inf"), "topic": "t", "partition": 0, "end": 50}),
    json.dumps({"t": 10**17, "topic": "t", "partition": 0, "end": 50}),
    "",
]


@pytest.fixture(scope="module")
def run_summary(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> RunSummary:
    folder = tmp_path_factory.mktemp("bad")
    write_journal(folder / "logs")
    (folder / "server.log").write_text(LOG)
    (folder / "noise.log").write_bytes(b"\xff\xfe\x00 no text at all \x80\n" * 20)
    (folder / "ends.jsonl").write_text("\n".join(SAMPLES))
    evidence = EvidenceSources(
        segments=(str(folder / "logs"),),
        server_logs=(str(folder / "server.log"), str(folder / "noise.log")),
        ends=(str(folder / "ends.jsonl"),),
    )
    return run_evidence(spark, evidence, folder / "out").summary


def read_table(done: RunSummary, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(Path(done.out) / name).to_pylist()
    return found


def unread_items(done: RunSummary, words: str) -> tuple[int, str]:
    """How many things of a kind could not be read, and what is told of them."""
    (found,) = [each for each in done.unread if words in each.what]
    return found.count, "\n".join(found.examples)


def test_groups_may_have_any_name(run_summary: RunSummary) -> None:
    generations = {row["group"] for row in read_table(run_summary, "silver/generations")}
    assert set(NAMES) <= generations
    committed = {row["group"]: row["offset"] for row in read_table(run_summary, "silver/commits")}
    assert {committed[name] for name in NAMES} == {42}
    assert set(NAMES) <= {row["group"] for row in read_table(run_summary, "gold/ownership")}


def test_what_cannot_be_decoded_is_kept_and_counted(run_summary: RunSummary) -> None:
    kept = [
        row for row in read_table(run_summary, "bronze/journal") if row["journal_partition"] == 1
    ]
    assert len(kept) == len(BAD_KEYS) + len(BAD_VALUES) + len(STRANGE) + 1
    offsets, examples = unread_items(run_summary, "offset records")
    assert offsets == 4
    assert "partition 1 offset 3: " in examples
    groups, examples = unread_items(run_summary, "group records")
    assert offsets + groups == len(BAD_KEYS) + len(BAD_VALUES), "nothing is passed over in silence"
    assert "partition 1 offset 5: " in examples
    assert {row["group"] for row in read_table(run_summary, "silver/commits")}.isdisjoint(
        {"undecodable"}
    )


def test_records_of_kinds_that_are_not_read_are_named(run_summary: RunSummary) -> None:
    for name in ("type 24", "type 99"):
        assert unread_items(run_summary, f"a type that Rota does not decode ({name})") == (1, "")


def test_the_account_tells_what_could_not_be_read(run_summary: RunSummary) -> None:
    (row,) = read_table(run_summary, "gold/evidence")
    assert [(one["what"], one["count"], one["examples"]) for one in row["unread"]] == [
        (one.what, one.count, list(one.examples)) for one in run_summary.unread
    ]


def test_a_good_record_among_bad_ones_is_read(run_summary: RunSummary) -> None:
    assert [
        row["group"]
        for row in read_table(run_summary, "silver/generations")
        if row["group"] == "still"
    ]


def test_a_member_whose_subscription_cannot_be_read_keeps_its_partitions(
    run_summary: RunSummary,
) -> None:
    (found,) = [
        row for row in read_table(run_summary, "silver/generations") if row["group"] == "odd-member"
    ]
    odd = next(each for each in found["members"] if each["client_id"] == "odd")
    assert odd["problem"]
    assert odd["topics"] == []
    assert dict(odd["assigned"]) == {"t": [1]}
    owners = [
        row for row in read_table(run_summary, "gold/ownership") if row["group"] == "odd-member"
    ]
    assert {row["partition"]: row["client_id"] for row in owners} == {0: "a", 1: "odd"}


def test_a_group_made_again_has_another_life(run_summary: RunSummary) -> None:
    found = [row for row in read_table(run_summary, "gold/rebalances") if row["group"] == "reborn"]
    lives = {(row["incarnation"], row["to_generation"], row["members_after"]) for row in found}
    assert lives == {(0, 1, 1), (0, 2, 0), (1, 1, 1)}
    owners = [row for row in read_table(run_summary, "gold/ownership") if row["group"] == "reborn"]
    assert [row["client_id"] for row in sorted(owners, key=lambda row: row["until"] is None)] == [
        "a",
        "b",
    ]


def test_the_order_is_the_journals_not_the_clocks(run_summary: RunSummary) -> None:
    found = [row for row in read_table(run_summary, "gold/rebalances") if row["group"] == "clock"]
    steps = {row["to_generation"]: row["from_generation"] for row in found}
    assert steps == {1: 0, 2: 1, 3: 2, 4: 3, 5: 4, 6: 5}
    assert all(row["unseen"] == 0 for row in found)
    for row in read_table(run_summary, "gold/ownership"):
        assert row["until"] is None or row["since"] <= row["until"], row["group"]


def test_ten_thousand_members_are_one_generation(run_summary: RunSummary) -> None:
    (found,) = [
        row for row in read_table(run_summary, "silver/generations") if row["group"] == "crowd"
    ]
    assert len(found["members"]) == 10_000
    owners = [row for row in read_table(run_summary, "gold/ownership") if row["group"] == "crowd"]
    assert len({row["partition"] for row in owners}) == 10_000


def test_the_last_generation_that_a_number_holds(run_summary: RunSummary) -> None:
    (found,) = [
        row for row in read_table(run_summary, "silver/generations") if row["group"] == "last"
    ]
    assert found["generation"] == 2**31 - 1


def test_metadata_may_be_long(run_summary: RunSummary) -> None:
    (found,) = [row for row in read_table(run_summary, "silver/commits") if row["group"] == "long"]
    assert len(found["metadata"]) == LONGEST


def test_damage_costs_the_batches_that_it_hit(run_summary: RunSummary) -> None:
    kept = {
        (row["journal_partition"], row["journal_offset"])
        for row in read_table(run_summary, "bronze/journal")
        if row["journal_partition"] >= 10
    }
    assert kept == {(10, 0), (10, 2), (11, 0), (12, 0)}
    count, where = unread_items(run_summary, "damaged batches")
    assert count == 1
    assert "__consumer_offsets-10" in where
    for flaw, partition in (("cut", 11), ("zeros", 12), ("frame", 14)):
        count, where = unread_items(run_summary, f"not a valid batch ({flaw})")
        assert count == 1
        assert f"__consumer_offsets-{partition}/" in where


def test_lines_of_another_version_are_counted(run_summary: RunSummary) -> None:
    count, line = unread_items(run_summary, "log lines about a group")
    assert count == 1
    assert line.startswith("server.log line 2: ")
    assert "no version says" in line
    assert run_summary.lines == 1


def test_samples_that_are_none_are_counted(run_summary: RunSummary) -> None:
    count, line = unread_items(run_summary, "files of log end samples")
    assert count == 8
    assert line == "ends.jsonl line 2: no JSON"
    assert run_summary.samples == 1


def test_a_mad_clock_does_not_hide_the_verdicts(run_summary: RunSummary) -> None:
    """One record is of the year 9999; the samples end long before it."""
    found = [row for row in read_table(run_summary, "gold/status") if row["group"] == "plain"]
    assert [(row["topic"], row["verdict"], row["lag"]) for row in found] == [
        ("t", "STOP", 8),
        (None, "ERR", 8),
    ]


def test_what_was_found_can_be_printed(
    run_summary: RunSummary, capsys: pytest.CaptureFixture[str]
) -> None:
    story, page = (
        build_story(read_gold_tables(run_summary.out)),
        Path(run_summary.out, "report.html"),
    )
    print_summary(story, page)
    shown = capsys.readouterr().out
    assert "\x1b" not in shown, "no name reaches the terminal's controls"
    assert " not decoded (" in " ".join(shown.split())
    found = json.loads(json.dumps(story_json(story, page)))
    assert found["groups"]
    assert "not a valid batch (zeros)" in str(found["not_read"])


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_what_must_be_there_is_there(run_summary: RunSummary, table: Table) -> None:
    found = pq.read_table(Path(run_summary.out) / table.name)
    assert found.column_names == [column.name for column in table.columns]
    for column in table.columns:
        if column.required:
            assert found[column.name].null_count == 0, column.name


def rota_run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """The exit code of ``rota run``, and what it says."""
    code = main(["run", *arguments])
    return code, capsys.readouterr().err


def test_a_folder_that_is_none_is_said_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for path in (tmp_path / "missing", file):
        code, line = rota_run(capsys, "--segments", str(path), "--out", str(tmp_path / "out"))
        assert code == ExitCode.UNREACHABLE
        assert line == f"rota: --segments {path}: the folder does not exist\n"
    assert not (tmp_path / "out").exists()


def test_a_folder_without_a_journal_is_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "clicks-0").mkdir()
    code, line = rota_run(capsys, "--segments", str(tmp_path), "--out", str(tmp_path / "out"))
    assert code == ExitCode.BAD_INPUT
    assert "no folder __consumer_offsets-N" in line


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_folder_that_may_not_be_read_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_segment(tmp_path, 0, encode_journal_batch(offset_commit_entry("g")))
    file.chmod(0)
    code, line = rota_run(capsys, "--segments", str(tmp_path), "--out", str(tmp_path / "out"))
    assert code == ExitCode.UNREACHABLE
    assert str(file) in line


def test_a_missing_log_or_sample_file_is_named(spark: SparkSession, tmp_path: Path) -> None:
    write_segment(tmp_path, 0, encode_journal_batch(offset_commit_entry("g")))
    missing = str(tmp_path / "missing.log")
    for option, evidence in (
        ("--server-log", EvidenceSources(segments=(str(tmp_path),), server_logs=(missing,))),
        ("--ends", EvidenceSources(segments=(str(tmp_path),), ends=(missing,))),
    ):
        with pytest.raises(Unreachable, match=f"{option} {missing}: the file does not exist"):
            run_evidence(spark, evidence, tmp_path / "out")
    assert not (tmp_path / "out" / "gold").exists()


def test_a_group_that_is_not_in_the_input_is_told_with_similar_names(
    spark: SparkSession, tmp_path: Path
) -> None:
    groups = map(offset_commit_entry, ("billing", "audit"))
    write_segment(tmp_path, 0, encode_journal_batch(*groups))
    sources = EvidenceSources(segments=(str(tmp_path),))
    for name, hint in (("biling", "did you mean billing?"), ("x*", "known are audit, billing")):
        problem = f"--group {name}: the input has no such group; {hint}"
        with pytest.raises(InputError, match=re.escape(problem)):
            run_evidence(spark, sources, tmp_path / "out", RunOptions(groups=(name,)))


def test_a_journal_with_nothing_in_it_gives_empty_tables(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_segment(tmp_path, 0, b"")
    empty = run_evidence(spark, EvidenceSources(segments=(str(tmp_path),)), tmp_path / "out")
    assert empty.summary.records == 0
    for table in TABLES:
        if table is not EVIDENCE:
            assert not empty.rows(table)
    (row,) = empty.rows(EVIDENCE)
    assert (row["records"], row["first"], row["windows"]) == (0, None, [])
