"""What the gold tables tell: groups, lag, causes, evidence, and the sentences made of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from pyarrow import parquet  # noqa: E402

from rota.errors import InputError, Unreachable  # noqa: E402
from rota.pipeline import schema  # noqa: E402
from rota.report import basis, earlier, gold  # noqa: E402
from rota.report.gold import Gold  # noqa: E402
from rota.report.story import Group, Mark, tell  # noqa: E402
from rota.tables import COMMITS, ENDS, Table  # noqa: E402
from tests.support.gold_history import History  # noqa: E402
from tests.support.gold_tables import MORNING, Run, nothing, small, tables  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small(tmp_path_factory.mktemp("small"), Run(demo=True, polled=True, partial=["billing"]))


@pytest.fixture(scope="module")
def read(folder: Path) -> Gold:
    return gold.read(str(folder))


def table(kind: Table, rows: Iterable[Mapping[str, Any]]) -> Any:
    """Rows of a table; what they do not have is null."""
    names = schema.arrow(kind).names
    whole = [{name: row.get(name) for name in names} for row in rows]
    return pa.Table.from_batches([schema.batch(kind, whole)])


def group(**told: Any) -> Group:
    """A group that should change."""
    plain: dict[str, Any] = {
        "name": "orders",
        "verdict": "change",
        "policy": "range, static 45s",
        "policy_used": "range",
        "damage": 12.0,
        "rebalances": 10,
        "rebalances_after": 1,
        "moved": 5,
        "moved_after": 0,
        "moved_min": 1,
        "stopped": 12,
        "stopped_after": 0,
        "libraries": ("java",),
        "headline": "orders: 10 rebalances. Use static membership: 1 rebalance instead of 10.",
        "steps": (),
        "mark": Mark.INFERRED,
        "causes": (),
        "lag": None,
        "status": None,
        "complete_from": None,
        "whole": False,
    }
    return Group(**plain | told)


def test_a_group_is_wanted_by_its_very_name_whatever_is_in_it(tmp_path: Path) -> None:
    histories = [History(group=name, topics={"t": 2}) for name in ("jobs[1]", "jobs2")]
    for history in histories:
        history.join(["one"], MORNING)
    read = gold.read(str(tables(histories).write(tmp_path)))
    assert [group.name for group in tell(read, ["jobs[1]"]).groups] == ["jobs[1]"]


def test_a_run_in_which_nothing_happened(tmp_path: Path) -> None:
    told = tell(gold.read(str(nothing(tmp_path))))
    assert (told.groups, told.causes) == ((), ())
    assert basis.lines(told) == ["evidence: the journal is empty"]


def test_a_folder_without_tables_is_named(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(Unreachable) as said:
        gold.read(str(out))
    assert str(said.value) == f"{out}: no tables here; rota run --out {out} makes them"


def test_tables_of_another_version_are_named(tmp_path: Path) -> None:
    out = nothing(tmp_path)
    file = out / "gold" / "evidence" / "part-0.parquet"
    old = parquet.read_table(file).drop_columns(["demo"])
    parquet.write_table(old, file)
    with pytest.raises(InputError) as said:
        gold.read(str(out))
    assert str(said.value) == (
        f"{out}: gold/evidence is not as this version of Rota writes it (it has no column demo); "
        f"rota run --out {out} makes it anew"
    )
    file.unlink()
    file.parent.rmdir()
    with pytest.raises(InputError) as said:
        gold.read(str(out))
    assert str(said.value) == (
        f"{out}: gold/evidence is not as this version of Rota writes it (it is not there); "
        f"rota run --out {out} makes it anew"
    )


def test_a_table_that_is_damaged_is_named(tmp_path: Path) -> None:
    out = nothing(tmp_path)
    (out / "gold" / "lag" / "part-0.parquet").write_bytes(b"PAR1 is all there is of it, PAR1")
    with pytest.raises(InputError, match=r"gold/lag is not as this version of Rota writes it"):
        gold.read(str(out))


def test_deletions_of_offsets_are_read_and_commits_are_not(tmp_path: Path) -> None:
    made = tables([History(group="g", topics={"t": 1})])
    rows = [
        {"group": "g", "topic": "t", "partition": 0, "at": MORNING, "journal_offset": 7}
        | {"journal_partition": 0, "offset": offset}
        for offset in (5, None)
    ]
    made.add(COMMITS, table(COMMITS, rows).to_batches()[0])
    found = gold.read(str(made.write(tmp_path))).deletions
    assert found.num_rows == 1
    assert set(found.column_names) == {"group", "topic", "partition", "at", "journal_offset"}


def commit(order: int, at: int, partition: int, **told: Any) -> dict[str, Any]:
    row = {"group": "g", "topic": "t", "partition": partition, "at": MORNING + at}
    return row | {"journal_partition": 0, "journal_offset": order, "offset": order} | told


def earlier_commits(folder: Path, since: int | None) -> list[tuple[str, int, int, int]]:
    """Samples begin at 100 in partition 0 and at 900 in partition 1; 2 is never sampled."""
    rows = [
        commit(1, 50, 0),
        commit(2, 90, 0),
        commit(3, 80, 1),
        commit(4, 99, 0, offset=None),
        commit(5, 100, 0),
        commit(6, 400, 1),
        commit(7, 450, 2),
        commit(8, 500, 0),
        commit(9, 899, 1, group="h"),
        commit(10, 950, 1),
        commit(11, 10, 0, topic="u"),
    ]
    samples = [
        {"topic": "t", "partition": partition, "at": MORNING + at, "end": 9}
        for partition, at in ((0, 500), (0, 100), (1, 900))
    ]
    folder.mkdir()
    for number, part in enumerate((rows[6:], rows[:6])):
        parquet.write_table(table(COMMITS, part), folder / f"{number}.parquet", row_group_size=2)
    begin = None if since is None else MORNING + since
    found = earlier.commits(folder, table(ENDS, samples), begin)
    times = [at - MORNING for at in gold.milliseconds(found["at"]).to_pylist()]
    columns = (found[name].to_pylist() for name in ("group", "partition", "offset"))
    groups, partitions, offsets = columns
    return sorted(zip(groups, partitions, times, offsets, strict=True))


@pytest.mark.parametrize("piece", [1, 3, earlier.PIECE])
def test_the_last_commits_before_lag_is_told_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr(earlier, "PIECE", piece)
    first = [("g", 0, 90, 2), ("g", 1, 400, 6), ("h", 1, 899, 9)]
    assert earlier_commits(tmp_path / "all", None) == first
    asked = [("g", 0, 100, 5), ("g", 1, 400, 6), ("h", 1, 899, 9)]
    assert earlier_commits(tmp_path / "some", 200) == asked
    late = [("g", 0, 500, 8), ("g", 1, 950, 10), ("h", 1, 899, 9)]
    assert earlier_commits(tmp_path / "late", 1_000) == late


def test_a_partition_that_stood_still_all_the_time_is_told(tmp_path: Path) -> None:
    """Committed before the first sample and never again: gold/lag has no row."""
    history = History(group="g", topics={"t": 1})
    history.join(["a"], MORNING)
    history.join(["b"], MORNING + 3_600_000)
    made = tables([history])
    made.add(COMMITS, table(COMMITS, [commit(1, 5_000, 0, offset=50)]).to_batches()[0])
    samples = [
        {"topic": "t", "partition": 0, "at": MORNING + at, "end": 100 + at // 1000}
        for at in range(10_000, 3_600_001, 10_000)
    ]
    made.add(ENDS, table(ENDS, samples).to_batches()[0])
    (found,) = tell(gold.read(str(made.write(tmp_path)))).groups
    assert found.lag is not None
    assert (found.lag.most_seconds, found.lag.at_least, found.lag.most) == (3590, True, 3650)
