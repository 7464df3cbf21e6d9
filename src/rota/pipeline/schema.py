"""Tables as Spark and Arrow know them, and facts as their rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, TypeAlias

import pyarrow as pa

from rota.tables import Column, Table

Row: TypeAlias = Mapping[str, Any]
"""Values by column; times are milliseconds."""

TIME = pa.timestamp("us", tz="UTC")
_SIMPLE = {
    "boolean": pa.bool_(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "timestamp": TIME,
}
_NESTED = re.compile(r"(array|map|struct)<(.*)>", re.DOTALL)
_MICROSECONDS = 1_000
_MILLISECONDS = pa.timestamp("ms", tz="UTC")


def ddl(table: Table) -> str:
    """The columns as Spark's functions take a schema."""
    return ", ".join(f"`{column.name}` {column.type}" for column in table.columns)


def struct(table: Table) -> str:
    """A row as the type of one column."""
    return f"struct<{', '.join(f'`{each.name}`: {each.type}' for each in table.columns)}>"


@cache
def arrow(table: Table) -> pa.Schema:
    """The columns as Arrow's."""
    return pa.schema([(column.name, arrow_type(column.type)) for column in table.columns])


@cache
def arrow_type(name: str) -> pa.DataType:
    """The Arrow type of a type of Spark's DDL."""
    nested = _NESTED.fullmatch(name.strip())
    if nested is None:
        return _SIMPLE[name.strip()]
    parts = _split(nested[2])
    match nested[1]:
        case "array":
            return pa.list_(arrow_type(parts[0]))
        case "map":
            return pa.map_(arrow_type(parts[0]), arrow_type(parts[1]))
        case _:
            fields = (part.split(":", 1) for part in parts)
            return pa.struct([(field.strip(" `"), arrow_type(kind)) for field, kind in fields])


def _split(text: str) -> list[str]:
    """The parts between commas that are in no brackets."""
    parts, depth, begin = [], 0, 0
    for place, sign in enumerate(text):
        depth += (sign == "<") - (sign == ">")
        if sign == "," and depth == 0:
            parts.append(text[begin:place])
            begin = place + 1
    return [*parts, text[begin:]]


def batch(table: Table, rows: Iterable[Row]) -> pa.RecordBatch:
    """Rows as Arrow's columns. Values may be objects or mappings; times are milliseconds."""
    listed = list(rows)
    return pa.record_batch(
        [array(column, [row[column.name] for row in listed]) for column in table.columns],
        schema=arrow(table),
    )


def fact_batch(table: Table, facts: Sequence[object]) -> pa.RecordBatch:
    """Facts whose fields are a table's columns, as rows of it."""
    return pa.record_batch(
        [array(column, list(map(attrgetter(column.name), facts))) for column in table.columns],
        schema=arrow(table),
    )


def array(column: Column, values: list[Any]) -> pa.Array:
    """A column; times are milliseconds."""
    kind = arrow_type(column.type)
    if kind == TIME:
        values = [None if value is None else value * _MICROSECONDS for value in values]
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, _with_times(kind, _MILLISECONDS)).cast(kind)


def rows(table: pa.Table) -> list[dict[str, Any]]:
    """Rows as Python's values; times are milliseconds."""
    for time in (_MILLISECONDS, pa.int64()):
        fields = [(each.name, _with_times(each.type, time)) for each in table.schema]
        table = table.cast(pa.schema(fields), safe=False)
    found: list[dict[str, Any]] = table.to_pylist(maps_as_pydicts="strict")
    return found


def _with_times(kind: pa.DataType, time: pa.DataType) -> pa.DataType:
    """A type with another one for the times in it."""
    if pa.types.is_timestamp(kind):
        return time
    if pa.types.is_list(kind):
        return pa.list_(_with_times(kind.value_type, time))
    if pa.types.is_struct(kind):
        return pa.struct([(each.name, _with_times(each.type, time)) for each in kind])
    return kind


def one_of(kinds: Mapping[str, str], name: str, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows as one of several columns, the others null: a pass that makes several tables."""
    return pa.record_batch(
        {
            each: rows.to_struct_array()
            if each == name
            else pa.nulls(rows.num_rows, arrow_type(kind))
            for each, kind in kinds.items()
        }
    )


def milliseconds(column: pa.Array) -> pa.Array:
    """Times as numbers: milliseconds since 1970."""
    return column.cast(_MILLISECONDS, safe=False).cast(pa.int64())
