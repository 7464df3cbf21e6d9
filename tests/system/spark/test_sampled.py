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
    GENERATIONS,
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
from tests.support.polling import Script, entries, owners, poll
from tests.support.waiting import until
from tests.system.spark.played import Ran, Row, check_table, ran

JOURNALED, SAMPLED = "billing", "shop"
QUICK: dict[str, object] = {"group.initial.rebalance.delay.ms": 0}


class Shop:
    """Consumers of one group; they live in a thread of their own, beside the loop that asks."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._members: list[rota.Consumer] = []
        self._thread = ThreadPoolExecutor(1)

    def act(self, what: Callable[[Shop], None]) -> None:
        self._thread.submit(what, self).result(60)

    def joins(self) -> None:
        settings = {"bootstrap.servers": self._servers, "group.id": SAMPLED, "client.id": "till"}
        self._members.append(rota.Consumer(settings))
        self._members[-1].subscribe(["orders"])
        self._settle()

    def commits(self) -> None:
        self._members[0].commit(
            {place: OffsetAndMetadata(7) for place in self._members[0].assignment}
        )

    def leaves(self) -> None:
        self._members.pop(0).close()
        self._settle()

    def _settle(self) -> None:
        """Until each has its share of four partitions."""

        def poll_all() -> None:
            for each in self._members:
                each.poll(0.02)

        until(
            "each has its share",
            lambda: all(len(each.assignment) * len(self._members) == 4 for each in self._members),
            meanwhile=poll_all,
        )


STORY = (Shop.joins, Shop.joins, Shop.commits, Shop.leaves, Shop.leaves)


def watched(broker: rota.Broker, folder: Path) -> tuple[PollResult, list[int]]:
    """One group that is there all the time, and one of which the story is."""
    servers = broker.bootstrap_servers
    with rota.Consumer({"bootstrap.servers": servers, "group.id": JOURNALED}) as other:
        other.subscribe(["orders"])
        until("it has partitions", lambda: other.assignment, meanwhile=lambda: other.poll(0.02))
        shop = Shop(servers)
        script = Script(*(partial(shop.act, each) for each in STORY))
        return poll(servers, PollSettings(every=0.01), folder, script), script.times


@dataclass(frozen=True)
class Both:
    """A run over samples and the journal of one group, and the journal of the other."""

    ran: Ran
    expected: GroupHistory
    times: list[int]

    def rows(self, table: Table, group: str = SAMPLED) -> list[Row]:
        return [row for row in self.ran.rows(table) if row["group"] == group]


@pytest.fixture(scope="module")
def both(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Both:
    folder = tmp_path_factory.mktemp("sampled")
    data, copy = folder / "broker", folder / "copy"
    with rota.Broker(data, config=QUICK) as broker:
        broker.create_topic("orders", 4)
        for number in range(40):
            broker.produce("orders", str(number), partition=number % 4)
        polled, times = watched(broker, folder / "spool")
    shutil.copytree(data, copy)
    for partition in copy.glob("__consumer_offsets-*"):
        if any(entries(copy, SAMPLED, partition.name)):
            shutil.rmtree(partition)
    evidence = EvidenceSources(segments=(str(copy),), polled=polled)
    expected = read_history(SAMPLED, list(entries(data, SAMPLED)), {})
    return Both(ran(spark, evidence, folder / "out"), expected, times)


def milliseconds(row: Row, column: str) -> int:
    at: datetime = row[column]
    return round(at.timestamp() * 1000)


def test_owners_at_the_times_of_samples(both: Both) -> None:
    for time in both.times:
        told = {
            (row["topic"], row["partition"]): row["member_id"]
            for row in both.rows(OWNERSHIP)
            if milliseconds(row, "since") <= time
            and (row["until"] is None or time < milliseconds(row, "until"))
        }
        assert told == owners(both.expected.ownership, time)


def test_rebalances_are_those_of_the_journal(both: Both) -> None:
    """Each was seen: there was a sample after each."""
    expected = [
        (0 if step.before is None else len(step.before.members), len(step.after.members))
        for step in find_rebalances(both.expected.generations)
    ]
    told = both.rows(REBALANCES)
    assert [(row["members_before"], row["members_after"]) for row in told] == expected
    assert expected == [(0, 1), (1, 2), (2, 1), (1, 0)]
    assert {row["evidence"] for row in told} == {"sampled"}
    assert [(row["cause"], row["likely"]) for row in told] == [
        ("joined", None),
        ("unknown", "joined"),
        ("unknown", "left"),
        ("unknown", "left"),
    ]
    for row, step in zip(told, find_rebalances(both.expected.generations), strict=True):
        assert milliseconds(row, "earliest_start") <= step.after.at <= milliseconds(row, "at")
    members = {each.member_id for one in both.expected.generations for each in one.members}
    assert {name for row in told for name in row["joined"]} == members


def test_every_table_has_its_columns_and_its_keys_are_unique(both: Both) -> None:
    assert both.ran.rows(SERVERLOG) == []
    assert both.ran.rows(ADVISED) == []  # so short a story gives no advice
    for table in TABLES:
        if table not in {SERVERLOG, ADVISED}:
            check_table(both.ran, table)


def test_generations_are_marked(both: Both) -> None:
    told = both.rows(GENERATIONS)
    assert [row["generation"] for row in told] == [1, 2, 3, 4]
    assert {row["sampled"] for row in told} == {True}
    assert {row["leader"] for row in told} == {None}


def test_a_commit_lies_between_two_samples(both: Both) -> None:
    told = [row for row in both.rows(COMMITS) if row["offset"] == 7]
    assert {row["journal_partition"] for row in told} == {-1}
    assert len(told) == 2
    for row in told:
        assert row["committed_at"] is row["transactional"] is None
        assert row["not_before"] < row["at"]


def test_lag_is_what_was_measured(both: Both) -> None:
    told = {(row["offset"], row["end"], row["lag"]) for row in both.rows(LAG)}
    assert (7, 10, 3) in told
    assert {row["evidence"] for row in both.rows(LAG)} == {"sampled"}
    assert both.rows(STATUS)


def test_other_policies_and_advice(both: Both) -> None:
    actual = [row for row in both.rows(WHATIF) if row["actual"]]
    assert [row["to_generation"] for row in actual] == [1, 2, 3, 4]
    (advice,) = both.rows(ADVICE)
    assert advice["rebalances"] == 4
    assert advice["libraries"] == ["unknown"]


def test_a_group_of_the_journal_is_told_of_by_it_alone(both: Both) -> None:
    assert both.rows(SAMPLES, JOURNALED)
    told = both.rows(GENERATIONS, JOURNALED)
    assert told
    assert {row["sampled"] for row in told} == {False}
    assert {row["journal_partition"] >= 0 for row in both.rows(COMMITS, JOURNALED)} <= {True}


def test_the_summary_says_what_samples_do_not_tell(
    both: Both, capsys: pytest.CaptureFixture[str]
) -> None:
    found, page = (
        build_story(read_gold_tables(str(both.ran.out))),
        both.ran.out / "report.html",
    )
    report_summary.print_summary(found, page)
    printed = " ".join(capsys.readouterr().out.split())
    assert "sampled: 2 groups in 6 rounds" in printed
    assert "appear as one, or not at all" in printed
    assert report_summary.story_json(found, page)["polled"]["groups"] == [JOURNALED, SAMPLED]
