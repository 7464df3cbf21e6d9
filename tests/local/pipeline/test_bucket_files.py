"""The files of a table that grows: whatever is put together, its rows are the same."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from rota.pipeline.store import EMPTY_FILE, MERGE_ADDED_FILES, MERGE_LEVEL_FILES, BucketFiles

SCHEMA = pa.schema([("group", pa.string()), ("number", pa.int64())])
GROUPS = tuple("abcdefghijklmnopqrstuvwxyzäöü")


def rows(*pairs: tuple[str, int]) -> pa.Table:
    return pa.Table.from_pylist([{"group": g, "number": n} for g, n in pairs], schema=SCHEMA)


def numbers(found: pa.Table) -> list[tuple[str, int]]:
    return sorted((row["group"], row["number"]) for row in found.to_pylist())


def begun(folder: Path) -> BucketFiles:
    layers = BucketFiles(folder, SCHEMA, 1)
    layers.rename_spark_files(bucketed=True)
    return layers


steps = st.lists(
    st.tuples(
        st.sampled_from(["append", "replace"]),
        st.lists(st.tuples(st.sampled_from(GROUPS), st.integers(0, 9)), max_size=5),
    ),
    max_size=2 * MERGE_ADDED_FILES,
)


@settings(max_examples=25)
@given(steps)
def test_rows_are_what_was_put_in(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, list[tuple[str, int]]]]
) -> None:
    top = tmp_path_factory.mktemp("rounds")
    layers, known = begun(top / "1"), list[tuple[str, int]]()
    for number, (what, pairs) in enumerate(steps, 2):
        old = top / str(number - 1)
        layers = BucketFiles(top / str(number), SCHEMA, number)
        layers.link_files(old)
        if what == "append":
            layers.append(rows(*pairs))
            known += pairs
        else:
            groups = {group for group, _ in pairs} | {"a"}
            layers.replace(groups, rows(*pairs))
            known = [pair for pair in known if pair[0] not in groups] + pairs
        layers.merge_small_files(bucketed=True)
        assert numbers(layers.read()) == sorted(known)
    some = {"a", "ö"}
    assert numbers(layers.read(some)) == sorted(pair for pair in known if pair[0] in some)


def test_small_files_become_few(tmp_path: Path) -> None:
    layers = begun(tmp_path)
    most = 0
    for number in range(MERGE_ADDED_FILES * MERGE_LEVEL_FILES + MERGE_ADDED_FILES):
        layers.append(rows(("a", number), ("b", number)))
        layers.merge_small_files(bucketed=True)
        most = max(most, len(list(tmp_path.iterdir())))
    assert most < 1 + MERGE_ADDED_FILES + 2 * 2 * MERGE_LEVEL_FILES
    assert len(layers.read()) == 2 * (MERGE_ADDED_FILES * MERGE_LEVEL_FILES + MERGE_ADDED_FILES)


def test_a_round_leaves_the_files_of_the_last_alone(tmp_path: Path) -> None:
    first = begun(tmp_path / "1")
    first.append(rows(("a", 1), ("b", 2)))
    first.write_named_file("own", rows(("c", 3)))
    second = BucketFiles(tmp_path / "2", SCHEMA, 2)
    second.link_files(tmp_path / "1")
    second.replace({"a"}, rows())
    second.write_named_file("own", rows())
    assert numbers(second.read()) == [("b", 2)]
    assert numbers(first.read()) == [("a", 1), ("b", 2)]
    assert (tmp_path / "1" / "own.parquet").stat().st_ino != (
        tmp_path / "2" / "own.parquet"
    ).stat().st_ino
    untouched = {(tmp_path / name / EMPTY_FILE).stat().st_ino for name in "12"}
    assert len(untouched) == 1


def test_without_links_files_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError

    first = begun(tmp_path / "1")
    first.append(rows(("a", 1)))
    monkeypatch.setattr("os.link", refused)
    second = BucketFiles(tmp_path / "2", SCHEMA, 2)
    second.link_files(tmp_path / "1")
    assert numbers(second.read()) == [("a", 1)]
