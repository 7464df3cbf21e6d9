"""Evidence in other shapes: copies, pieces, compacted, damaged, redacted, of some groups."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from rota.engine.formats import journal, record_batch, record_batch_columns, record_batch_scan
from rota.engine.formats.record_batch import BatchRecord, ControlRecordType
from rota.engine.model.journal_entry import OffsetCommitEntry
from rota.pipeline.stages import EvidenceSources, RunOptions
from rota.pipeline.tables import (
    COMMITS,
    DOWNTIME,
    GENERATIONS,
    GROUPS,
    JOURNAL,
    OWNERSHIP,
    REBALANCES,
    TABLES,
)
from tests.support.recorded_segment import journal_segments
from tests.support.transactions import encode_end_transaction_marker
from tests.system.spark.pipeline_run import (
    LOG,
    PipelineRun,
    Row,
    read_all_tables,
    run_evidence,
    write_segment,
)

NOW = 1_790_000_000_000


def split_segment(data: bytes) -> tuple[bytes, bytes, int]:
    """A segment as two, and the first offset of the second."""
    positions = record_batch_scan.find_batches(data).positions.tolist()
    middle = positions[len(positions) // 2]
    return data[:middle], data[middle:], int.from_bytes(data[middle : middle + 8])


def test_copies_and_pieces_in_any_order_give_the_same_tables(
    spark: SparkSession, segments: Path, unlogged_run: PipelineRun, tmp_path: Path
) -> None:
    replica = tmp_path / "replica"
    for partition, data in journal_segments().items():
        first, second, offset = split_segment(data)
        write_segment(replica, partition, second, offset)
        write_segment(replica, partition, first)
    (replica / "__consumer_offsets-0" / "00000000000000000000.log.deleted").write_bytes(b"old")
    evidence = EvidenceSources(segments=(str(replica), str(segments), str(replica)))
    found = run_evidence(spark, evidence, tmp_path / "out")
    assert read_all_tables(found.out) == read_all_tables(unlogged_run.out)


def compact_segment(data: bytes, until: int) -> bytes:
    """A segment as compaction leaves it: up to an offset only the last record of each key there."""
    columns = record_batch_columns.decode_batches(data)
    records = list(record_batch_columns.iterate_records(columns))
    last = {record.key: record.offset for record in records if record.offset < until}
    kept = bytearray()
    for number, record in enumerate(records):
        if record.offset < until and last[record.key] != record.offset:
            continue
        of = int(columns.batch[number])
        info = columns.batches
        kept += record_batch.encode_batch(
            [record],
            transactional=bool(info.transactional[of]),
            control=bool(info.control[of]),
            producer_id=int(info.producer_id[of]),
            producer_epoch=int(info.producer_epoch[of]),
        )
    return bytes(kept)


def test_compaction_changes_no_fact_inside_the_window(
    spark: SparkSession, unlogged_run: PipelineRun, tmp_path: Path
) -> None:
    chance = random.Random(7)
    for partition, data in journal_segments().items():
        end = int(record_batch_columns.decode_batches(data).offset[-1])
        write_segment(
            tmp_path / "logs", partition, compact_segment(data, chance.randint(0, end // 2))
        )
    found = run_evidence(
        spark, EvidenceSources(segments=(str(tmp_path / "logs"),)), tmp_path / "out"
    )
    begin = {group: at for group, at, _ in found.summary.windows}
    assert any(not whole for _, _, whole in found.summary.windows)
    seen = {(row["group"], row["generation"]) for row in found.rows(GENERATIONS)}

    def facts(rows: Iterable[Row]) -> Iterator[tuple[object, ...]]:
        names = ("group", "to_generation", "rounds", "moved", "moves_needed", "members_after")
        for row in rows:
            inside = row["at"].timestamp() * 1000 > begin[row["group"]]
            if inside and (row["group"], row["from_generation"]) in seen:
                yield tuple(row[name] for name in names)

    before, after = (set(facts(each.rows(REBALANCES))) for each in (unlogged_run, found))
    assert after == before
    assert len(after) > 40


def encode_commit(group: str, partition: int, offset: int) -> tuple[bytes, bytes | None]:
    return journal.encode_entry(
        OffsetCommitEntry(
            group=group, topic="t", partition=partition, offset=offset, commit_timestamp=NOW
        )
    )


def test_only_offsets_of_committed_transactions_count(spark: SparkSession, tmp_path: Path) -> None:
    def told(offset: int, producer: int, number: int) -> bytes:
        record = BatchRecord(offset, NOW, *encode_commit("g", number, 100 + offset))
        return record_batch.encode_batch(
            [record], transactional=True, producer_id=producer, producer_epoch=3, base_sequence=0
        )

    def ended(kind: ControlRecordType, offset: int, producer: int, epoch: int) -> bytes:
        return encode_end_transaction_marker(
            kind, offset=offset, timestamp=NOW, producer_id=producer, producer_epoch=epoch
        )

    log = [
        told(0, 7, 0),  # committed, by a marker of the next epoch
        told(1, 8, 1),  # aborted
        record_batch.encode_batch(
            [BatchRecord(2, NOW, *encode_commit("g", 2, 102))]
        ),  # of no transaction
        ended(ControlRecordType.ABORT, 3, 8, 3),
        ended(ControlRecordType.COMMIT, 4, 7, 4),
        told(5, 8, 3),  # the same producer, now committed
        ended(ControlRecordType.COMMIT, 6, 8, 3),
        told(7, 7, 4),  # open
    ]
    write_segment(tmp_path / "logs", 0, b"".join(log))
    found = run_evidence(
        spark, EvidenceSources(segments=(str(tmp_path / "logs"),)), tmp_path / "out"
    )
    assert [row["partition"] for row in found.rows(COMMITS)] == [0, 2, 3]
    assert len(found.rows(JOURNAL)) == len(log)


def test_a_damaged_batch_costs_itself_alone(
    spark: SparkSession, unlogged_run: PipelineRun, tmp_path: Path
) -> None:
    for partition, data in journal_segments().items():
        if partition == 12:
            (position, size) = list(record_batch_scan.find_batches(data))[5]
            lost = len(record_batch_columns.decode_batches(data[position : position + size]))
            spoilt = bytearray(data)
            spoilt[position + size - 1] ^= 1
            spoilt += data[:50]  # and the last one is cut
            write_segment(tmp_path / "logs", partition, bytes(spoilt))
            continue
        write_segment(tmp_path / "logs", partition, data)
    found = run_evidence(
        spark, EvidenceSources(segments=(str(tmp_path / "logs"),)), tmp_path / "out"
    )
    assert found.summary.records == unlogged_run.summary.records - lost
    unread = {unread.what: unread for unread in found.summary.unread}
    assert "checksum" in unread["damaged batches"].examples[0]
    assert unread["byte ranges that are not a valid batch (cut)"].count == 1


def test_redacted_tables_name_nobody(
    spark: SparkSession, segments: Path, logged_run: PipelineRun, tmp_path: Path
) -> None:
    evidence = EvidenceSources(segments=(str(segments),), server_logs=(str(LOG),))
    found = run_evidence(spark, evidence, tmp_path, RunOptions(redact=True))
    names = {
        str(member[name])
        for row in logged_run.rows(GENERATIONS)
        for member in row["members"]
        for name in ("member_id", "client_id", "client_host", "group_instance_id")
        if member[name]
    }
    assert len(names) > 100
    tables = read_all_tables(found.out, TABLES)
    for row in tables[GROUPS.name]:
        for member in row["last_members"]:
            member["assigned"] = []  # a client's name may be like a partition's: orders-1
    shown = "\n".join(map(repr, tables.values()))
    shown = shown.replace(str(tmp_path.parent), "")  # the name of a folder may be like a member's
    # a client's name may be part of its group's, which is not hidden
    groups = " ".join({row["group"] for row in found.rows(GENERATIONS)})
    assert not [name for name in names if name not in groups and name in shown]
    costs = (
        "group",
        "to_generation",
        "cause",
        "moved",
        "moves_needed",
        "revoked",
        "members_after",
        "downtime_ms",
    )
    before, after = (
        [[row[name] for name in costs] for row in each.rows(REBALANCES)]
        for each in (logged_run, found)
    )
    assert after == before


def test_some_groups_and_some_time(
    spark: SparkSession, segments: Path, unlogged_run: PipelineRun, tmp_path: Path
) -> None:
    names = {"a-coop", "a-crash"}
    every = [row for row in unlogged_run.rows(REBALANCES) if row["group"] in names]
    pieces = [row for row in unlogged_run.rows(DOWNTIME) if row["group"] in names]
    times = sorted(row["at"] + timedelta(milliseconds=1) for row in every)
    # downtime that begins before is clipped (tests/local/pipeline/test_groups.py)
    begin = next(
        at
        for at in times[len(times) // 2 :]
        if not any(row["since"] < at <= row["until"] for row in pieces)
    )
    since = int(begin.timestamp() * 1000)
    options = RunOptions(groups=("a-c*",), since=since)
    found = run_evidence(spark, EvidenceSources(segments=(str(segments),)), tmp_path, options)
    wanted = [row for row in every if row["at"].timestamp() * 1000 >= since]
    assert found.rows(REBALANCES) == wanted
    assert wanted
    late = [row for row in pieces if row["ended"] and row["until"].timestamp() * 1000 >= since]
    assert [row for row in found.rows(DOWNTIME) if row["ended"]] == late  # others last to the end
    assert {row["group"] for row in found.rows(OWNERSHIP)} == names
