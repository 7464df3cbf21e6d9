"""Tables out of samples, beside what the journal of the same broker says."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import rota
from rota.cli import report_summary
from rota.engine.history.generations import GroupHistory, read_history
from rota.engine.history.rebalances import find_rebalances
from rota.engine.model.topic import OffsetAndMetadata
from rota.pipeline.poll import PollResult, PollSettings
from rota.pipeline.stages import EvidenceSources
from rota.pipeline.tables import (
    ADVICE,
    ADVISED,
    COMMITS,
    DOWNTIME,
    GENERATIONS,
    HEALTH,
    LAG,
    OWNERSHIP,
    REBALANCES,
    SAMPLES,
    SERVERLOG,
    STATUS,
    TABLES,
    WHATIF,
    Table,
)
from rota.report.story import build_story, read_gold_tables
from tests.support.polling import Script, owners_at, poll, read_journal_records
from tests.support.waiting import wait_until
from tests.system.spark.pipeline_run import PipelineRun, Row, check_table, run_evidence

JOURNALED, SAMPLED = "billing", "shop"
QUICK: dict[str, object] = {"group.initial.rebalance.delay.ms": 0}


class SampledConsumers:
    """Consumers of one group; they live in a thread of their own, beside the loop that asks."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._members: list[rota.Consumer] = []
        self._thread = ThreadPoolExecutor(1)

    def call(self, what: Callable[[SampledConsumers], None]) -> None:
        self._thread.submit(what, self).result(60)

    def join(self) -> None:
        settings = {"bootstrap.servers": self._servers, "group.id": SAMPLED, "client.id": "till"}
        self._members.append(rota.Consumer(settings))
        self._members[-1].subscribe(["orders"])
        self._settle()

    def commit(self) -> None:
        self._members[0].commit(
            {place: OffsetAndMetadata(7) for place in self._members[0].assignment}
        )

    def leave(self) -> None:
        self._members.pop(0).close()
        self._settle()

    def _settle(self) -> None:
        """Until each has its share of four partitions."""

        def poll_all() -> None:
            for each in self._members:
                each.poll(0.02)

        wait_until(
            "each has its share",
            lambda: all(len(each.assignment) * len(self._members) == 4 for each in self._members),
            meanwhile=poll_all,
        )


STORY = (
    SampledConsumers.join,
    SampledConsumers.join,
    SampledConsumers.commit,
    SampledConsumers.leave,
    SampledConsumers.leave,
)


def poll_changes(broker: rota.Broker, folder: Path) -> tuple[PollResult, list[int]]:
    """One group that is there all the time, and one of which the story is."""
    servers = broker.bootstrap_servers
    with rota.Consumer({"bootstrap.servers": servers, "group.id": JOURNALED}) as other:
        other.subscribe(["orders"])
        wait_until(
            "it has partitions", lambda: other.assignment, meanwhile=lambda: other.poll(0.02)
        )
        consumers = SampledConsumers(servers)
        script = Script(*(partial(consumers.call, each) for each in STORY))
        return poll(servers, PollSettings(every=0.01), folder, script), script.times


@dataclass(frozen=True)
class SampledRun:
    """A run over samples and the journal of one group, and the journal of the other."""

    ran: PipelineRun
    expected: GroupHistory
    times: list[int]

    def rows(self, table: Table, group: str = SAMPLED) -> list[Row]:
        return [row for row in self.ran.rows(table) if row["group"] == group]


@pytest.fixture(scope="module")
def sampled_run(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SampledRun:
    folder = tmp_path_factory.mktemp("sampled")
    data, copy = folder / "broker", folder / "copy"
    with rota.Broker(data, config=QUICK) as broker:
        broker.create_topic("orders", 4)
        for number in range(40):
            broker.produce("orders", str(number), partition=number % 4)
        polled, times = poll_changes(broker, folder / "spool")
    shutil.copytree(data, copy)
    for partition in copy.glob("__consumer_offsets-*"):
        if any(read_journal_records(copy, SAMPLED, partition.name)):
            shutil.rmtree(partition)
    evidence = EvidenceSources(segments=(str(copy),), polled=polled)
    expected = read_history(SAMPLED, list(read_journal_records(data, SAMPLED)), {})
    return SampledRun(run_evidence(spark, evidence, folder / "out"), expected, times)


def to_milliseconds(row: Row, column: str) -> int:
    at: datetime = row[column]
    return round(at.timestamp() * 1000)


def test_owners_at_the_times_of_samples(sampled_run: SampledRun) -> None:
    for time in sampled_run.times:
        rows = {
            (row["topic"], row["partition"]): row["member_id"]
            for row in sampled_run.rows(OWNERSHIP)
            if to_milliseconds(row, "since") <= time
            and (row["until"] is None or time < to_milliseconds(row, "until"))
        }
        assert rows == owners_at(sampled_run.expected.ownership, time)


def test_rebalances_are_those_of_the_journal(sampled_run: SampledRun) -> None:
    """Each was seen: there was a sample after each."""
    expected = [
        (0 if step.before is None else len(step.before.members), len(step.after.members))
        for step in find_rebalances(sampled_run.expected.generations)
    ]
    rows = sampled_run.rows(REBALANCES)
    assert [(row["members_before"], row["members_after"]) for row in rows] == expected
    assert expected == [(0, 1), (1, 2), (2, 1), (1, 0)]
    assert {row["evidence"] for row in rows} == {"sampled"}
    assert [(row["cause"], row["likely"]) for row in rows] == [
        ("joined", None),
        ("unknown", "joined"),
        ("unknown", "left"),
        ("unknown", "left"),
    ]
    for row, step in zip(rows, find_rebalances(sampled_run.expected.generations), strict=True):
        assert to_milliseconds(row, "earliest_start") <= step.after.at <= to_milliseconds(row, "at")
    members = {each.member_id for one in sampled_run.expected.generations for each in one.members}
    assert {name for row in rows for name in row["joined"]} == members


def test_every_table_has_its_columns_and_its_keys_are_unique(sampled_run: SampledRun) -> None:
    assert sampled_run.ran.rows(SERVERLOG) == []
    assert sampled_run.ran.rows(ADVISED) == []  # so short a story gives no advice
    for table in TABLES:
        if table not in {SERVERLOG, ADVISED}:
            check_table(sampled_run.ran, table)


def test_generations_are_marked(sampled_run: SampledRun) -> None:
    rows = sampled_run.rows(GENERATIONS)
    assert [row["generation"] for row in rows] == [1, 2, 3, 4]
    assert {row["sampled"] for row in rows} == {True}
    assert {row["leader"] for row in rows} == {None}


def test_a_commit_lies_between_two_samples(sampled_run: SampledRun) -> None:
    rows = [row for row in sampled_run.rows(COMMITS) if row["offset"] == 7]
    assert {row["journal_partition"] for row in rows} == {-1}
    assert len(rows) == 2
    for row in rows:
        assert row["committed_at"] is row["transactional"] is None
        assert row["not_before"] < row["at"]


def test_downtime_lies_between_samples(sampled_run: SampledRun) -> None:
    rows = sampled_run.rows(DOWNTIME)
    assert {row["evidence"] for row in rows} <= {"sampled", "bounded"}
    for row in rows:
        length = to_milliseconds(row, "until") - to_milliseconds(row, "since")
        assert row["at_least_ms"] <= length <= row["at_most_ms"]
    (health,) = sampled_run.rows(HEALTH)
    assert health["health"] == "OK"


def test_lag_is_what_was_measured(sampled_run: SampledRun) -> None:
    rows = {(row["offset"], row["end"], row["lag"]) for row in sampled_run.rows(LAG)}
    assert (7, 10, 3) in rows
    assert {row["evidence"] for row in sampled_run.rows(LAG)} == {"sampled"}
    assert sampled_run.rows(STATUS)


def test_other_policies_and_advice(sampled_run: SampledRun) -> None:
    actual = [row for row in sampled_run.rows(WHATIF) if row["actual"]]
    assert [row["to_generation"] for row in actual if row["happens"]] == [1, 2, 3, 4]
    (empty,) = (row for row in actual if not row["happens"])  # until the last sample
    assert empty["downtime_ms"] > 0
    (advice,) = sampled_run.rows(ADVICE)
    assert advice["rebalances"] == 4
    assert advice["libraries"] == ["unknown"]


def test_a_group_of_the_journal_is_told_of_by_it_alone(sampled_run: SampledRun) -> None:
    assert sampled_run.rows(SAMPLES, JOURNALED)
    rows = sampled_run.rows(GENERATIONS, JOURNALED)
    assert rows
    assert {row["sampled"] for row in rows} == {False}
    assert {row["journal_partition"] >= 0 for row in sampled_run.rows(COMMITS, JOURNALED)} <= {True}


def test_the_summary_says_what_samples_do_not_tell(
    sampled_run: SampledRun, capsys: pytest.CaptureFixture[str]
) -> None:
    found, page = (
        build_story(read_gold_tables(str(sampled_run.ran.out))),
        sampled_run.ran.out / "report.html",
    )
    report_summary.print_summary(found, page)
    printed = " ".join(capsys.readouterr().out.split())
    assert "; sampled every " in printed
    assert report_summary.story_json(found, page)["polled"]["groups"] == [JOURNALED, SAMPLED]
