"""The files of a table that grows: whatever is put together, its rows are the same."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from rota.pipeline.store import EMPTY_FILE, MERGE_ADDED_FILES, MERGE_LEVEL_FILES, BucketFiles
from tests.support.examples import examples

SCHEMA = pa.schema([("group", pa.string()), ("number", pa.int64())])
GROUPS = tuple("abcdefghijklmnopqrstuvwxyzäöü")


def make_table(*pairs: tuple[str, int]) -> pa.Table:
    return pa.Table.from_pylist([{"group": g, "number": n} for g, n in pairs], schema=SCHEMA)


def group_numbers(found: pa.Table) -> list[tuple[str, int]]:
    return sorted((row["group"], row["number"]) for row in found.to_pylist())


def open_bucket_files(folder: Path) -> BucketFiles:
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


@examples(8)
@settings(max_examples=75)
@given(steps)
def test_rows_are_what_was_put_in(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, list[tuple[str, int]]]]
) -> None:
    top = tmp_path_factory.mktemp("rounds")
    layers, known = open_bucket_files(top / "1"), list[tuple[str, int]]()
    for number, (what, pairs) in enumerate(steps, 2):
        old = top / str(number - 1)
        layers = BucketFiles(top / str(number), SCHEMA, number)
        layers.link_files(old)
        if what == "append":
            layers.append(make_table(*pairs))
            known += pairs
        else:
            groups = {group for group, _ in pairs} | {"a"}
            layers.replace(groups, make_table(*pairs))
            known = [pair for pair in known if pair[0] not in groups] + pairs
        layers.merge_small_files(bucketed=True)
        assert group_numbers(layers.read()) == sorted(known)
    some = {"a", "ö"}
    assert group_numbers(layers.read(some)) == sorted(pair for pair in known if pair[0] in some)


def test_small_files_become_few(tmp_path: Path) -> None:
    layers = open_bucket_files(tmp_path)
    most = 0
    for number in range(MERGE_ADDED_FILES * MERGE_LEVEL_FILES + MERGE_ADDED_FILES):
        layers.append(make_table(("a", number), ("b", number)))
        layers.merge_small_files(bucketed=True)
        most = max(most, len(list(tmp_path.iterdir())))
    assert most < 1 + MERGE_ADDED_FILES + 2 * 2 * MERGE_LEVEL_FILES
    assert len(layers.read()) == 2 * (MERGE_ADDED_FILES * MERGE_LEVEL_FILES + MERGE_ADDED_FILES)


def test_a_round_leaves_the_files_of_the_last_alone(tmp_path: Path) -> None:
    first = open_bucket_files(tmp_path / "1")
    first.append(make_table(("a", 1), ("b", 2)))
    first.write_named_file("own", make_table(("c", 3)))
    second = BucketFiles(tmp_path / "2", SCHEMA, 2)
    second.link_files(tmp_path / "1")
    second.replace({"a"}, make_table())
    second.write_named_file("own", make_table())
    assert group_numbers(second.read()) == [("b", 2)]
    assert group_numbers(first.read()) == [("a", 1), ("b", 2)]
    assert (tmp_path / "1" / "own.parquet").stat().st_ino != (
        tmp_path / "2" / "own.parquet"
    ).stat().st_ino
    untouched = {(tmp_path / name / EMPTY_FILE).stat().st_ino for name in "12"}
    assert len(untouched) == 1


def test_without_links_files_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError

    first = open_bucket_files(tmp_path / "1")
    first.append(make_table(("a", 1)))
    monkeypatch.setattr("os.link", refused)
    second = BucketFiles(tmp_path / "2", SCHEMA, 2)
    second.link_files(tmp_path / "1")
    assert group_numbers(second.read()) == [("a", 1)]
