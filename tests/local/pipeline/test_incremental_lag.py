"""Lag in rounds: commits and samples in pieces give what they give at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

pytest.importorskip("pyspark")

from rota.engine.history.lag import MAX_SAMPLE_AGE
from rota.pipeline import arrow, incremental, lag
from rota.pipeline.incremental import GroupMemory, IncrementalLag, LagInput, split_by_group
from rota.pipeline.store import TableStore
from rota.pipeline.tables import COMMITS, ENDS, GENERATIONS, HEALTH, LAG, OWNERSHIP, STATUS, Table

TABLES = (COMMITS, ENDS, GENERATIONS, OWNERSHIP, LAG, STATUS, HEALTH)
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


@settings(max_examples=100)
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
