"""Lag in rounds: commits and samples in pieces give what they give at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

pytest.importorskip("pyspark")

from rota.engine.history.causes import CommitTimes
from rota.engine.history.facts import Generation, GenerationChange
from rota.engine.history.lag import MAX_SAMPLE_AGE
from rota.pipeline import arrow, incremental, lag
from rota.pipeline.incremental import (
    GroupMemory,
    IncrementalGroups,
    IncrementalLag,
    LagInput,
    split_by_group,
)
from rota.pipeline.rebalances import GROUP_TABLES, GroupOptions
from rota.pipeline.store import TableStore
from rota.pipeline.tables import (
    COMMITS,
    ENDS,
    GENERATIONS,
    HEALTH,
    JOURNAL,
    LAG,
    OWNERSHIP,
    SERVERLOG,
    STATUS,
    Table,
)
from tests.support.example_history import generation, member
from tests.support.examples import examples
from tests.support.group_rows import Row, compute_rows, list_parts

TABLES = (
    COMMITS,
    ENDS,
    GENERATIONS,
    OWNERSHIP,
    LAG,
    STATUS,
    HEALTH,
    SERVERLOG,
    *GROUP_TABLES.values(),
)
START = 1_800_000_000_000
SECOND = 1_000

#: Group, partition, how much later than the round, offset.
commits = st.tuples(
    st.sampled_from(["one", "two"]),
    st.integers(0, 2),
    st.integers(-40, 60).map(lambda seconds: seconds * SECOND),
    st.none() | st.integers(0, 300),
)
#: Partition, seconds later than the round, end.
samples = st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(0, 300))
rounds = st.lists(
    st.tuples(st.lists(commits, max_size=6), st.lists(samples, max_size=4)), max_size=6
)


@pytest.fixture(scope="module", autouse=True)
def fresh_health() -> Iterator[None]:
    """Computes the health of all groups in every micro-batch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(incremental, "HEALTH_INTERVAL", 0)
        yield


def commit_rows(number: int, rows: list[tuple[str, int, int, int | None]]) -> pa.Table:
    listed = []
    for place, (group, partition, later, offset) in enumerate(rows):
        row: dict[str, Any] = dict.fromkeys(arrow.arrow_schema(COMMITS).names)
        row |= {"journal_partition": 0, "journal_offset": 100 * number + place}
        row |= {"at": START + 30 * SECOND * number + later, "group": group, "topic": "t"}
        listed.append(row | {"partition": partition, "offset": offset, "transactional": False})
    return pa.Table.from_batches([arrow.rows_to_batch(COMMITS, listed)])


def sample_rows(number: int, rows: list[tuple[int, int, int]], before: dict[int, int]) -> pa.Table:
    listed = []
    for partition, later, end in rows:
        at = START + 30 * SECOND * number + SECOND * later
        if at > before.get(partition, 0):  # a clock that stands still gives no sample
            before[partition] = at
            row = {"topic": "t", "partition": partition, "at": at, "beginning": 0, "end": end}
            listed.append(row)
    return pa.Table.from_batches([arrow.rows_to_batch(ENDS, listed)])


def compute_lag(committed: pa.Table, sampled: pa.Table, as_of: int) -> dict[Table, list[Any]]:
    """As a whole run computes it."""
    found: dict[Table, list[Any]] = {LAG: [], STATUS: [], HEALTH: []}
    for group, batches in split_by_group(committed).items():
        known = [("samples", rows) for rows in sampled.to_batches()]
        batches_by_kind = [*known, *(("commits", rows) for rows in batches)]
        for rows in lag.compute_group_lag(group, batches_by_kind, as_of):
            for table, name in ((LAG, "lag"), (STATUS, "status"), (HEALTH, "health")):
                found[table] += [row for row in rows.column(name).to_pylist() if row]
    return found


def sort_rows(rows: list[Any]) -> list[str]:
    return sorted(map(repr, rows))


@examples(25)
@settings(max_examples=300)
@given(rounds, st.integers(0, 6))
def test_in_pieces_as_at_once(
    tmp_path_factory: pytest.TempPathFactory,
    rounds: list[tuple[list[Any], list[Any]]],
    restart: int,
) -> None:
    top = tmp_path_factory.mktemp("runs")
    tables = TableStore(top, top / "0", layered=True)
    tables.write_empty(*TABLES)
    known, lagging, before = GroupMemory(), IncrementalLag(), dict[int, int]()
    last = 0
    for number, (told, seen) in enumerate(rounds, 1):
        old, tables = tables, TableStore(top, top / str(number), layered=True)
        for table in TABLES:
            tables.bucket_files(table).link_files(old.path / table.name)
        new = commit_rows(number, told)
        last = max([last, *arrow.to_milliseconds(new.column("at")).to_pylist()])
        if number == restart:
            lagging = IncrementalLag.load(old, last)
        tables.bucket_files(COMMITS).append(new)
        known.add_commits(new)
        sampled = sample_rows(number, seen, before)
        news = LagInput(commits=new, changed=frozenset(), samples=sampled, last=last)
        lagging.add_micro_batch(tables, known, news, None)
    if not before:
        return
    newest = max(before.values())
    as_of = min(max(last, newest), newest + MAX_SAMPLE_AGE)
    wanted = compute_lag(
        tables.bucket_files(COMMITS).read(), tables.bucket_files(ENDS).read(), as_of
    )
    for table, rows in wanted.items():
        folder = tables.path / table.name
        found = pa.concat_tables(
            parquet.read_table(file).cast(arrow.arrow_schema(table)) for file in folder.iterdir()
        )
        assert sort_rows(found.to_pylist()) == sort_rows(rows), table.name


def test_nothing_is_known_without_samples(tmp_path: Path) -> None:
    tables = TableStore(tmp_path, tmp_path / "1", layered=True)
    tables.write_empty(*TABLES)
    new = commit_rows(1, [("one", 0, 0, 5)])
    tables.bucket_files(COMMITS).append(new)
    empty = sample_rows(1, [], {})
    news = LagInput(commits=new, changed=frozenset(), samples=empty, last=START)
    IncrementalLag().add_micro_batch(tables, GroupMemory(), news, None)
    assert not len(tables.bucket_files(LAG).read())
    assert tables.bucket_files(GENERATIONS).read().num_rows == 0
    (health,) = parquet.read_table(tables.path / HEALTH.name).to_pylist()
    assert (health["group"], health["health"]) == ("one", "unknown")


def test_health_is_computed_once_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incremental, "HEALTH_INTERVAL", 60 * SECOND)
    tables = TableStore(tmp_path, tmp_path / "1", layered=True)
    tables.write_empty(*TABLES)
    known, lagging = GroupMemory(), IncrementalLag()
    lags = []
    for number, second in enumerate((0, 30, 60)):
        new = commit_rows(number, [("one", 0, 0, 5)] if not number else [])
        tables.bucket_files(COMMITS).append(new)
        known.add_commits(new)
        row = {"topic": "t", "partition": 0, "at": START + SECOND * second, "beginning": 0}
        samples = pa.Table.from_batches([arrow.rows_to_batch(ENDS, [row | {"end": 10 + second}])])
        last = START + SECOND * second
        news = LagInput(commits=new, changed=frozenset(), samples=samples, last=last)
        lagging.add_micro_batch(tables, known, news, None)
        (health,) = parquet.read_table(tables.path / HEALTH.name).to_pylist()
        lags.append(health["lag"])
    assert lags == [None, None, 65]


class MicroBatches:
    """Feeds a group's generations and commits to the tables in micro-batches."""

    def __init__(self, folder: Path, generations: list[Generation], commits: CommitTimes) -> None:
        self._folder = folder
        self._generations = generations
        self._commits = sorted(
            (at, *pair) for pair, times in commits.items() for at in times.tolist()
        )
        self._memory, self._lag = GroupMemory(), IncrementalLag()
        self._tables = TableStore(folder, folder / "0", layered=True)
        self._tables.write_empty(*TABLES)
        self._last = 0

    def add_until(self, last: int) -> None:
        """Adds a micro-batch with everything up to a time."""
        old, tables = self._tables, TableStore(self._folder, self._folder / str(last), layered=True)
        for table in TABLES:
            tables.bucket_files(table).link_files(old.path / table.name)
        changed = set()
        if any(self._last < one.at <= last for one in self._generations):
            rows = arrow.facts_to_batch(GENERATIONS, self._until(last)[0])
            tables.bucket_files(GENERATIONS).replace({"g"}, pa.Table.from_batches([rows]))
            self._memory.replace_generations("g", [rows])
            changed = {"g"}
        new = self._commit_rows(last)
        tables.bucket_files(COMMITS).append(new)
        self._memory.add_commits(new)
        samples = arrow.arrow_schema(ENDS).empty_table()
        news = LagInput(commits=new, changed=frozenset(changed), samples=samples, last=last)
        self._lag.add_micro_batch(tables, self._memory, news, None)
        groups = IncrementalGroups(tables, self._memory, None)
        groups.compute_groups(changed, self._lag, GroupOptions(until=last))
        self._tables, self._last = tables, last

    def restart(self) -> None:
        """Loads the state from the tables, as after a restart of the command."""
        self._lag = IncrementalLag.load(self._tables, self._last)
        empty = arrow.arrow_schema(JOURNAL).empty_table()
        self._memory = GroupMemory.load(self._tables, {}, empty, self._lag)

    def rows(self) -> dict[str, list[Row]]:
        """Returns the rows of the gold tables."""
        return {
            name: arrow.table_to_rows(self._tables.bucket_files(table).read())
            for name, table in GROUP_TABLES.items()
        }

    def rows_of_one_run(self) -> dict[str, list[Row]]:
        """Returns the rows that a single run over the same evidence computes."""
        generations, commits = self._until(self._last)
        *parts, committed = list_parts(generations, (), commits)
        health = [("health", rows) for rows in self._lag.health_of("g")]
        return compute_rows([*parts, *health, committed], GroupOptions(until=self._last))

    def _until(self, last: int) -> tuple[list[Generation], CommitTimes]:
        known: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        for at, topic, partition in self._commits:
            if at <= last:
                known[topic, partition].append(at)
        commits = {pair: np.array(times) for pair, times in known.items()}
        return [one for one in self._generations if one.at <= last], commits

    def _commit_rows(self, last: int) -> pa.Table:
        listed = []
        for number, (at, topic, partition) in enumerate(self._commits):
            if self._last < at <= last:
                row: Row = dict.fromkeys(arrow.arrow_schema(COMMITS).names)
                row |= {"journal_partition": 0, "journal_offset": number, "offset": number}
                row |= {"at": at, "committed_at": at, "group": "g", "topic": topic}
                listed.append(row | {"partition": partition, "transactional": False})
        return pa.Table.from_batches([arrow.rows_to_batch(COMMITS, listed)])


#: A static member commits every five seconds, once more when it closes after 102.3 seconds, and is
#: back after 140. After 200 seconds a dynamic member joins; it crashes and is removed after 300.
FIRST, SECOND_ONE = member("s1!a", {"t": (0,)}), member("s2!b", {"t": (1,)})
RETURNED = member("s2!c", {"t": (1,)})
GENERATIONS_OF_STATIC_MEMBERS = [
    generation(number, members, at=START + at * SECOND, state_at=START + at * SECOND, **fields)
    for number, at, members, fields in (
        (1, 0, [FIRST, SECOND_ONE], {"offset": 1}),
        (1, 140, [FIRST, RETURNED], {"offset": 2, "change": GenerationChange.REPLACED}),
        (2, 200, [FIRST, RETURNED, member("d", {"u": (0,)}, topics=("u",))], {"offset": 3}),
        (3, 300, [FIRST, RETURNED], {"offset": 4}),
    )
]
COMMITS_OF_STATIC_MEMBERS = {
    ("t", 0): np.arange(START + 5 * SECOND, START + 400 * SECOND, 5 * SECOND),
    ("t", 1): np.array(
        [
            *range(START + 5 * SECOND, START + 102 * SECOND, 5 * SECOND),
            START + 102_300,
            *range(START + 145 * SECOND, START + 400 * SECOND, 5 * SECOND),
        ]
    ),
}


def test_a_static_member_that_is_away_has_downtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incremental, "HEALTH_INTERVAL", 60 * SECOND)
    fed = MicroBatches(tmp_path, GENERATIONS_OF_STATIC_MEMBERS, COMMITS_OF_STATIC_MEMBERS)
    found = []
    for second in (100, 115, 130, 145):
        fed.add_until(START + second * SECOND)
        assert fed.rows() == fed.rows_of_one_run()
        rows = fed.rows()["downtime"]
        found.append([(row["partition"], row["reason"], row["ended"]) for row in rows])
    assert found == [[], [], [(1, "restarted", False)], [(1, "restarted", True)]]


@examples(5)
@settings(max_examples=60)
@given(st.sets(st.integers(1, 400), min_size=1, max_size=12), st.integers(0, 12))
def test_groups_in_pieces_as_at_once(
    tmp_path_factory: pytest.TempPathFactory, seconds: set[int], restart: int
) -> None:
    folder = tmp_path_factory.mktemp("groups")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(incremental, "STATIC_HEALTH_INTERVAL", 0)
        fed = MicroBatches(folder, GENERATIONS_OF_STATIC_MEMBERS, COMMITS_OF_STATIC_MEMBERS)
        for number, second in enumerate(sorted(seconds)):
            if number == restart:
                fed.restart()
            fed.add_until(START + second * SECOND)
            assert fed.rows() == fed.rows_of_one_run()


def test_a_job_that_stays_was_not_shut_down_on_a_schedule(tmp_path: Path) -> None:
    """Four runs of a minute, 100 seconds apart; the fifth one does not end."""
    job = member("job", {"t": (0,)})
    times = [(160 * run + at, at == 0) for run in range(5) for at in (0, 60)][:-1]
    generations = [
        generation(number, [job] if runs else [], at=START + at * SECOND, offset=number)
        for number, (at, runs) in enumerate(times, 1)
    ]
    fed = MicroBatches(tmp_path, generations, {})
    reasons = []
    for second in (700, 900):
        fed.add_until(START + second * SECOND)
        assert fed.rows() == fed.rows_of_one_run()
        absences = (row for row in fed.rows()["downtime"] if row["until"] > row["since"])
        reasons.append({row["reason"] for row in absences})
    assert reasons == [{"shut down"}, {"empty"}]
