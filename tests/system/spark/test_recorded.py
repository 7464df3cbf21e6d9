"""The recorded run of a real Kafka, through the whole pipeline, beside what truly happened."""

from __future__ import annotations

import base64
import gzip
import json
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from rota.engine.formats import journal
from rota.engine.history import generations, rebalances
from rota.engine.history.facts import JournalRecord, RebalanceCause
from rota.engine.model.journal_entry import OffsetCommitEntry
from rota.pipeline.tables import (
    ADVICE,
    COMMITS,
    DOWNTIME,
    GENERATIONS,
    GROUPS,
    HEALTH,
    LAG,
    OWNERSHIP,
    REBALANCES,
    SAMPLES,
    STATUS,
    TABLES,
    WHATIF,
)
from tests.support.recorded_segment import RECORDED
from tests.system.spark.pipeline_run import (
    PipelineRun,
    Row,
    check_table,
    read_all_tables,
    run_recorded,
)

PARTITIONS_OF_A_TRANSACTION = 6
KEY = ("group", "incarnation", "to_generation")


def row_key(row: Row) -> tuple[object, ...]:
    return tuple(row[name] for name in KEY)


def read_recorded() -> dict[str, list[JournalRecord]]:
    """What a consumer of the journal saw, by group."""
    found: dict[str, list[JournalRecord]] = {}
    with gzip.open(RECORDED / "offsets.jsonl.gz", "rt") as lines:
        for line in lines:
            fields = json.loads(line)
            entry = journal.decode_record(
                decode_bytes(fields["k"]) or b"", decode_bytes(fields["v"])
            )
            group = getattr(entry, "group", None)
            if group is not None:
                found.setdefault(group, []).append(JournalRecord(fields["o"], fields["ts"], entry))
    return found


def decode_bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def test_spark_finds_the_rebalances_that_one_process_finds(logged_run: PipelineRun) -> None:
    names = {
        entry.topic_id: entry.topic
        for records in read_recorded().values()
        for _, _, entry in records
        if isinstance(entry, OffsetCommitEntry) and entry.topic_id is not None
    }
    alone = Counter(
        (
            step.after.group,
            step.after.incarnation,
            step.after.generation,
            len(step.rounds),
            step.unseen,
        )
        for group, records in read_recorded().items()
        for step in rebalances.find_rebalances(generations.read_generations(group, records, names))
    )
    ours = Counter(
        (*row_key(row), row["rounds"], row["unseen"]) for row in logged_run.rows(REBALANCES)
    )
    assert ours == alone
    assert sum(ours.values()) > 100


def test_every_cause_is_stated_by_the_log(logged_run: PipelineRun) -> None:
    found = logged_run.rows(REBALANCES)
    assert {row["evidence"] for row in found} == {"stated"}
    assert RebalanceCause.UNKNOWN not in {row["cause"] for row in found}


def test_without_the_log_a_cause_is_right_or_unknown(
    logged_run: PipelineRun, unlogged_run: PipelineRun
) -> None:
    stated = {row_key(row): row["cause"] for row in logged_run.rows(REBALANCES)}
    found = unlogged_run.rows(REBALANCES)
    assert {row_key(row) for row in found} == set(stated)
    wrong = [
        (row_key(row), row["cause"], stated[row_key(row)])
        for row in found
        if row["cause"] not in {RebalanceCause.UNKNOWN, stated[row_key(row)]}
    ]
    assert not wrong
    known = sum(row["cause"] != RebalanceCause.UNKNOWN for row in found)
    assert known > len(found) / 2


def test_owners_are_those_that_the_clients_saw(logged_run: PipelineRun) -> None:
    """Of classic groups: members of consumer groups take over in steps within an epoch."""
    consumer = {row["group"] for row in logged_run.rows(GENERATIONS) if row["kind"] == "consumer"}
    held: dict[tuple[str, str], list[Row]] = {}
    for row in logged_run.rows(OWNERSHIP):
        held.setdefault((row["group"], row["member_id"]), []).append(row)
    checked = 0
    with gzip.open(RECORDED / "truth.jsonl.gz", "rt") as lines:
        for line in lines:
            event = json.loads(line)
            if event["event"] != "assigned" or event["group"] in consumer:
                continue
            number = event["generation"]
            ours = {
                f"{row['topic']}:{row['partition']}"
                for row in held.get((event["group"], event["member"]), [])
                if row["from_generation"] <= number <= row["to_generation"]
            }
            assert ours == set(event["assignment"]), event
            checked += 1
    assert checked > 200


def test_aborted_commits_do_not_count(logged_run: PipelineRun) -> None:
    with gzip.open(RECORDED / "truth.jsonl.gz", "rt") as lines:
        events = Counter(json.loads(line)["event"] for line in lines)
    assert events["tx_aborted"]
    found = [row for row in logged_run.rows(COMMITS) if row["transactional"]]
    assert len(found) == events["tx_committed"] * PARTITIONS_OF_A_TRANSACTION


def test_every_table_has_its_columns_and_its_keys_are_unique(logged_run: PipelineRun) -> None:
    assert logged_run.rows(SAMPLES) == []  # nobody polled
    for table in TABLES:
        if table is not SAMPLES:
            check_table(logged_run, table)


def test_the_policy_in_use_comes_out_as_it_was(logged_run: PipelineRun) -> None:
    costs = ("moved", "moves_needed", "revoked", "idle_members", "downtime_ms")
    owning = [row for row in logged_run.rows(REBALANCES) if row["kind"] != "share"]
    history = {row_key(row): [row[name] for name in costs] for row in owning}
    actual = [row for row in logged_run.rows(WHATIF) if row["actual"]]
    found = {row_key(row): [row[name] for name in costs] for row in actual if row["happens"]}
    assert found == history
    others = [row for row in actual if not row["happens"]]
    # restarts of static members, and downtime that has not ended; a restart in a consumer group
    # belongs to the row of its epoch
    static = {"a-roll-static", "a-static"}
    lasting = {
        row["group"]
        for row in logged_run.rows(DOWNTIME)
        if not row["ended"] and row["until"] > row["since"] and row["reason"] != "shut down"
    }
    assert "a-crash" in lasting
    assert {row["group"] for row in others} == lasting | static
    assert all(row["downtime_ms"] > 0 for row in others)


def test_sums_are_those_of_the_downtime(logged_run: PipelineRun) -> None:
    sums: Counter[tuple[object, ...]] = Counter()
    by_reason: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in logged_run.rows(DOWNTIME):
        length = round((row["until"] - row["since"]).total_seconds() * 1000)
        by_reason[row["group"]][row["reason"]] += length
        if row["reason"] not in {"not polled", "shut down"}:
            sums[row_key(row)] += length
    for row in logged_run.rows(REBALANCES):
        assert row["downtime_ms"] == (None if row["kind"] == "share" else sums[row_key(row)])
    for row in logged_run.rows(ADVICE):
        wanted = {name: time for name, time in by_reason[row["group"]].items() if time}
        assert dict(row["downtime_by_reason"]) == wanted
    assert any(row["delayed_records"] for row in logged_run.rows(DOWNTIME))
    groups = {row["group"] for row in logged_run.rows(GENERATIONS)}
    assert groups <= {row["group"] for row in logged_run.rows(HEALTH)}


def test_lag_is_told_with_its_owner(logged_run: PipelineRun) -> None:
    found = logged_run.rows(LAG)
    assert all(row["lag"] == row["end"] - row["offset"] or not row["lag"] for row in found)
    assert sum(row["member_id"] is not None for row in found) > len(found) * 0.9
    assert {row["verdict"] for row in logged_run.rows(STATUS)} >= {"OK"}


def test_a_second_run_gives_the_same_tables(
    spark: SparkSession, segments: Path, logged_run: PipelineRun
) -> None:
    before = read_all_tables(logged_run.out)
    run_recorded(spark, segments, logged_run.out, log=True, ends=True)
    assert read_all_tables(logged_run.out) == before


def test_the_window_and_what_is_not_read_are_said(logged_run: PipelineRun) -> None:
    summary = logged_run.summary
    assert summary.first is not None
    assert summary.last is not None
    assert summary.last - summary.first > 200_000
    assert all(whole for _, _, whole in summary.windows)
    assert summary.unread == []


def test_every_group_of_the_journal_has_a_row(logged_run: PipelineRun) -> None:
    rows = {row["group"]: row for row in logged_run.rows(GROUPS)}
    assert rows.keys() == read_recorded().keys()
    kinds = Counter(row["kind"] for row in rows.values())
    assert kinds == {"classic": 29, "consumer": 4, "share": 1, "commits only": 1}
    for group, records in read_recorded().items():
        times = [datetime.fromtimestamp(record.at / 1000, UTC) for record in records]
        assert rows[group]["first"] == min(times), group
        # the segments have some commits more
        assert rows[group]["last"] - max(times) < timedelta(seconds=3), group
    share = rows["a-share"]
    assert (share["state"], share["epoch"], share["epochs"]) == ("Empty", 4, 3)
    assert [one["assigned"] for one in share["last_members"]] == [["audit-0", "audit-1"]]
    assert (rows["a-assign"]["topics"], rows["a-assign"]["partitions"]) == (["payments"], 2)
    assert all(row["text"].endswith(".") for row in rows.values())


def test_a_share_group_has_rebalances_without_downtime(logged_run: PipelineRun) -> None:
    rows = [row for row in logged_run.rows(REBALANCES) if row["group"] == "a-share"]
    assert [(row["cause"], row["members_before"], row["members_after"]) for row in rows] == [
        ("joined", 0, 1),
        ("partitions added", 1, 1),
        ("left", 1, 0),
    ]
    assert all(row["downtime_ms"] is row["protocol"] is row["moved"] is None for row in rows)
    for table in (DOWNTIME, OWNERSHIP, WHATIF):
        assert not any(row["group"] == "a-share" for row in logged_run.rows(table))
    (advice,) = [row for row in logged_run.rows(ADVICE) if row["group"] == "a-share"]
    assert advice["verdict"] == "cannot tell"
    (health,) = [row for row in logged_run.rows(HEALTH) if row["group"] == "a-share"]
    assert health["health"] == "unknown"
