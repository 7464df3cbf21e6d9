"""Rows by group, and columns that can be computed with: a table is gone through once."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyarrow import compute

PLACE = "place"
"""The column that says which of the groups asked for a row is of."""


def placed(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """The rows of these groups, each with its group's place among them."""
    places = compute.index_in(table["group"], value_set=pa.array(names, pa.string()))
    return table.append_column(PLACE, places).filter(compute.is_valid(places))


def by_group(table: pa.Table, names: Sequence[str], order: Sequence[str]) -> list[pa.Table]:
    """A table's rows of each of these groups, ordered by some columns."""
    by = [(column, "ascending") for column in (PLACE, *order)]
    ordered = placed(table, names).sort_by(by)
    counted = ordered.group_by(PLACE).aggregate([([], "count_all")])
    many = dict(zip(counted[PLACE].to_pylist(), counted["count_all"].to_pylist(), strict=True))
    slices, begin = [], 0
    for place in range(len(names)):
        number = many.get(place, 0)
        slices.append(ordered.slice(begin, number))
        begin += number
    return slices


def whole(column: pa.ChunkedArray) -> pa.Array:
    """In one piece, as columns that are computed with each other have to be."""
    return column.combine_chunks()
