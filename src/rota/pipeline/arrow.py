"""Arrow and Spark schemas of the tables, and conversions of rows.

Three parts: schemas and rows of any table; Arrow columns from positions in a buffer, and back;
generations as rows of silver/generations, and back. A group keeps most members and partitions from
one generation to the next: equal values are written to Arrow once and are read into one object.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rota.engine.formats.buffer import BoolArray, ByteBuffer, Int64Array
from rota.engine.formats.journal import Slices
from rota.engine.history.facts import (
    Generation,
    GenerationChange,
    GenerationMember,
    GroupType,
    PartitionsByTopic,
)
from rota.pipeline.tables import MEMBER, Column, Table

if TYPE_CHECKING:
    from rota.engine.history.samples import GroupSample

T = TypeVar("T")
TableRow: TypeAlias = Mapping[str, Any]  # values by column; times are milliseconds
TIME_TYPE = pa.timestamp("us", tz="UTC")

_SIMPLE_TYPES = {
    "boolean": pa.bool_(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "timestamp": TIME_TYPE,
}

_NESTED_TYPE = re.compile(r"(array|map|struct)<(.*)>", re.DOTALL)
_MICROS_PER_MILLI = 1_000
_MILLISECOND_TYPE = pa.timestamp("ms", tz="UTC")


def spark_ddl(table: Table) -> str:
    """Returns the columns as DDL, as Spark's functions take a schema."""
    return ", ".join(f"`{column.name}` {column.type}" for column in table.columns)


def struct_ddl(table: Table) -> str:
    return f"struct<{', '.join(f'`{each.name}`: {each.type}' for each in table.columns)}>"


@cache
def arrow_schema(table: Table) -> pa.Schema:
    return pa.schema([(column.name, arrow_type(column.type)) for column in table.columns])


@cache
def arrow_type(name: str) -> pa.DataType:
    nested = _NESTED_TYPE.fullmatch(name.strip())
    if nested is None:
        return _SIMPLE_TYPES[name.strip()]
    fields_text = _split_fields(nested[2])
    match nested[1]:
        case "array":
            return pa.list_(arrow_type(fields_text[0]))
        case "map":
            return pa.map_(arrow_type(fields_text[0]), arrow_type(fields_text[1]))
        case _:
            fields = (field_text.split(":", 1) for field_text in fields_text)
            return pa.struct([(field.strip(" `"), arrow_type(kind)) for field, kind in fields])


def _split_fields(text: str) -> list[str]:
    parts, depth, begin = [], 0, 0
    for place, sign in enumerate(text):
        depth += (sign == "<") - (sign == ">")
        if sign == "," and depth == 0:
            parts.append(text[begin:place])
            begin = place + 1
    return [*parts, text[begin:]]


def with_problem(table: Table, *columns: Column) -> Table:
    """Returns a table's columns, and ``problem`` and more columns; all of them may be null."""
    problem = Column("problem", "string", "why the row could not be read")
    every = (*table.columns, problem, *columns)
    return replace(table, columns=tuple(replace(column, required=False) for column in every))


def rows_to_batch(table: Table, rows: Iterable[TableRow]) -> pa.RecordBatch:
    """Returns rows of a table; a column that may be null may be missing in a row."""
    listed = list(rows)
    values = (
        [row[column.name] if column.required else row.get(column.name) for row in listed]
        for column in table.columns
    )
    return pa.record_batch(
        list(map(_column_array, table.columns, values)), schema=arrow_schema(table)
    )


def facts_to_batch(table: Table, facts: Sequence[object]) -> pa.RecordBatch:
    """Returns rows of a table, whose columns are fields of the facts."""
    values = (list(map(attrgetter(column.name), facts)) for column in table.columns)
    return pa.record_batch(
        list(map(_column_array, table.columns, values)), schema=arrow_schema(table)
    )


def _column_array(column: Column, values: list[Any]) -> pa.Array:
    """Returns a column; times are given in milliseconds."""
    kind = arrow_type(column.type)
    if kind == _MEMBERS_TYPE:
        return _members_array(values)
    if kind == TIME_TYPE:
        values = [None if value is None else value * _MICROS_PER_MILLI for value in values]
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, _with_times(kind, _MILLISECOND_TYPE)).cast(kind)


def table_to_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Returns rows as Python values; times are in milliseconds."""
    for time in (_MILLISECOND_TYPE, pa.int64()):
        fields = [(each.name, _with_times(each.type, time)) for each in table.schema]
        table = table.cast(pa.schema(fields), safe=False)
    rows: list[dict[str, Any]] = table.to_pylist(maps_as_pydicts="strict")
    return rows


def batch_to_rows(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    return table_to_rows(pa.Table.from_batches([rows]))


def _with_times(kind: pa.DataType, time: pa.DataType) -> pa.DataType:
    """Returns a type in which all times have another type."""
    if pa.types.is_timestamp(kind):
        return time
    if pa.types.is_list(kind):
        return pa.list_(_with_times(kind.value_type, time))
    if pa.types.is_struct(kind):
        return pa.struct([(each.name, _with_times(each.type, time)) for each in kind])
    return kind


def as_struct_column(kinds: Mapping[str, str], name: str, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Puts rows into one of several struct columns, for a pass that makes several tables."""
    return null_filled_batch(kinds, rows.num_rows, {name: rows.to_struct_array()})


def null_filled_batch(
    kinds: Mapping[str, str], rows: int, known: Mapping[str, Any]
) -> pa.RecordBatch:
    """Returns a batch with columns of these types; all columns but the known ones are null."""
    types = {name: arrow_type(kind) for name, kind in kinds.items()}
    return pa.record_batch(
        {
            name: pa.array(known[name], kind) if name in known else pa.nulls(rows, kind)
            for name, kind in types.items()
        }
    )


def to_milliseconds(column: pa.Array) -> pa.Array:
    return column.cast(_MILLISECOND_TYPE, safe=False).cast(pa.int64())


#: The years 1 to 9999, which every reader of Parquet understands.
EARLIEST_TIME, LATEST_TIME = -62_135_596_800_000, 253_402_300_799_999

UUID_SIZE = 16


def time_array(milliseconds: Int64Array, null: BoolArray | None = None) -> pa.Array:
    """Converts milliseconds since 1970 to times; impossible ones become the nearest possible."""
    return pa.array(np.clip(milliseconds, EARLIEST_TIME, LATEST_TIME) * 1000, mask=null).cast(
        TIME_TYPE
    )


def name_array(codes: npt.NDArray[np.int32], names: Sequence[str]) -> pa.Array:
    listed = pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(names, pa.string()))
    return listed.cast(pa.string())


def slice_arrays(data: bytes, columns: Sequence[Slices], kind: pa.DataType) -> list[pa.Array]:
    """Converts slices of a buffer to columns; a size below zero is null. Each row's slices follow
    each other. So the whole buffer becomes one column of byte strings, of which every second is a
    slice and the others are what is between; Arrow then copies the wanted ones.
    """
    if not len(columns[0].start):
        return [pa.array([], kind) for _ in columns]
    order = np.argsort(columns[0].start, kind="stable")
    bounds: list[Int64Array] = []
    for each in columns:
        start = np.where(each.size < 0, bounds[-1] if bounds else each.start, each.start)
        bounds += [start, start + np.maximum(each.size, 0)]
    flat = np.stack(bounds, axis=1)[order].ravel()
    offsets = np.append(flat, flat[-1]).astype(np.int32)
    whole = pa.Array.from_buffers(
        kind, len(flat), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order)) * len(bounds)
    return [
        whole.take(pa.array(place + 2 * number, mask=each.size < 0))
        for number, each in enumerate(columns)
    ]


def uuid_array(buffer: ByteBuffer, starts: Int64Array) -> pa.Array:
    """Returns the 16 bytes at each position; a negative position is null."""
    present = starts >= 0
    uuids = buffer.uint8[starts[present][:, None] + np.arange(UUID_SIZE)]
    offsets = np.concatenate([[0], np.cumsum(present)]).astype(np.int32) * UUID_SIZE
    valid = pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(
        pa.binary(), len(starts), [valid, pa.py_buffer(offsets), pa.py_buffer(uuids.tobytes())]
    )


def arrays_to_buffer(*columns: pa.Array) -> tuple[ByteBuffer, list[Slices]]:
    """Joins columns of byte strings into one buffer, and returns the slices of the rows."""
    buffers, slices, before = [], [], 0
    for column in columns:
        _, offset_bytes, data = column.buffers()
        every = np.frombuffer(offset_bytes, np.int32)
        offsets = every[column.offset : column.offset + len(column) + 1].astype(np.int64)
        sizes = np.diff(offsets)
        null = column.is_null().to_numpy(zero_copy_only=False)
        slices.append(Slices(offsets[:-1] + before, np.where(null, -1, sizes)))
        buffers.append(memoryview(data) if data is not None else b"")
        before += len(buffers[-1])
    return ByteBuffer(buffers), slices


_MEMBERS_TYPE: pa.ListType = arrow_type(f"array<{MEMBER}>")
_MEMBER_TYPE: pa.StructType = _MEMBERS_TYPE.value_type
_PARTITIONS_TYPE: pa.MapType = _MEMBER_TYPE.field("assigned").type
_TOPICS_TYPE: pa.ListType = _MEMBER_TYPE.field("topics").type
_ENUM_COLUMNS = {"kind": GroupType, "change": GenerationChange}


def _members_array(listed: Sequence[tuple[GenerationMember, ...]]) -> pa.ListArray:
    distinct, places = _distinct_objects([member for members in listed for member in members])
    columns = [
        _member_field_array(field.type, list(map(attrgetter(field.name), distinct)))
        for field in _MEMBER_TYPE
    ]
    members = pa.StructArray.from_arrays(columns, fields=list(_MEMBER_TYPE))
    if len(distinct) < len(places):
        members = members.take(places)
    return pa.ListArray.from_arrays(_list_offsets(listed), members, type=_MEMBERS_TYPE)


def _member_field_array(kind: pa.DataType, values: list[Any]) -> pa.Array:
    if kind not in {_PARTITIONS_TYPE, _TOPICS_TYPE}:
        return pa.array(values, kind)
    distinct, places = _distinct_objects(values)
    maps = kind == _PARTITIONS_TYPE
    return (_partition_maps(distinct) if maps else pa.array(distinct, kind)).take(places)


def _distinct_objects(values: list[Any]) -> tuple[list[Any], pa.Array]:
    """Returns each object (by identity) once, and the position of each value's object."""
    number_of_object: dict[int, int] = {}
    places = [number_of_object.setdefault(id(value), len(number_of_object)) for value in values]
    distinct = list({id(value): value for value in values}.values())
    return distinct, pa.array(places, pa.int32())


def _partition_maps(assignments: list[PartitionsByTopic]) -> pa.MapArray:
    numbers = [listed for assignment in assignments for listed in assignment.values()]
    values = pa.array([number for listed in numbers for number in listed], pa.int32())
    items = pa.ListArray.from_arrays(
        _list_offsets(numbers), values, type=_PARTITIONS_TYPE.item_type
    )
    topics = pa.array([topic for assignment in assignments for topic in assignment], pa.string())
    return pa.MapArray.from_arrays(_list_offsets(assignments), topics, items, type=_PARTITIONS_TYPE)


def _list_offsets(listed: Sequence[Any]) -> pa.Array:
    ends = np.zeros(len(listed) + 1, dtype=np.int32)
    np.cumsum([len(each) for each in listed], out=ends[1:])
    return pa.array(ends)


class GenerationReader:
    """Reads the generations or the samples of one group from rows of a table."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._topics: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._assignments: dict[tuple[Any, ...], tuple[int, PartitionsByTopic]] = {}
        self._members: dict[tuple[Any, ...], GenerationMember] = {}

    def read(self, batch: pa.RecordBatch) -> list[Generation]:
        return self._read_rows(batch, Generation)

    def read_samples(self, batch: pa.RecordBatch) -> list[GroupSample]:
        from rota.engine.history.samples import GroupSample  # noqa: PLC0415 (slow, and rarely used)

        return self._read_rows(batch, GroupSample)

    def _read_rows(self, batch: pa.RecordBatch, make: Callable[..., T]) -> list[T]:
        columns = {name: self._read_column(name, batch.column(name)) for name in batch.schema.names}
        return [
            make(**dict(zip(columns, row, strict=True)))
            for row in zip(*columns.values(), strict=True)
        ]

    def _read_column(self, name: str, column: pa.Array) -> list[Any]:
        if name in _ENUM_COLUMNS:
            return list(map(_ENUM_COLUMNS[name], column.to_pylist()))
        if name != "members":
            return _column_values(column)
        listed = self._read_members(column.flatten())
        ends = column.offsets.to_numpy() - column.offsets[0].as_py()
        return [tuple(listed[a:b]) for a, b in pairwise(ends.tolist())]

    def _read_members(self, members: pa.StructArray) -> list[GenerationMember]:
        """Returns the members; equal members are one object."""
        columns: list[list[Any]] = []
        keys: list[list[Any]] = []
        names = [field.name for field in members.type]
        for column in members.flatten():
            if column.type == _PARTITIONS_TYPE:
                assignments = self._read_assignments(column)
                keys.append([number for number, _ in assignments])
                columns.append([assignment for _, assignment in assignments])
            else:
                keys.append(self._plain(column))
                columns.append(keys[-1])
        result = []
        for key, *values in zip(zip(*keys, strict=True), *columns, strict=True):
            member = self._members.get(key)
            if member is None:
                member = GenerationMember(**dict(zip(names, values, strict=True)))
                self._members[key] = member
            result.append(member)
        return result

    def _plain(self, column: pa.Array) -> list[Any]:
        if column.type == _TOPICS_TYPE:
            texts = self._plain(column.flatten())
            ends = column.offsets.to_numpy() - column.offsets[0].as_py()
            values_of_rows = (tuple(texts[a:b]) for a, b in pairwise(ends.tolist()))
            return [self._topics.setdefault(topics, topics) for topics in values_of_rows]
        if column.type != pa.string():
            return _column_values(column)
        coded = column.dictionary_encode()
        names = [self._texts.setdefault(text, text) for text in coded.dictionary.to_pylist()]
        places = coded.indices.fill_null(len(names)).to_numpy(zero_copy_only=False).tolist()
        texts = [*names, None]
        return [texts[place] for place in places]

    def _read_assignments(self, column: pa.MapArray) -> list[tuple[int, PartitionsByTopic]]:
        """Returns partitions by topic, each with a number for the same value."""
        offsets = column.offsets.to_numpy()
        begin, size = int(offsets[0]), int(offsets[-1] - offsets[0])
        topics = self._plain(column.keys.slice(begin, size))
        items = column.items.slice(begin, size)
        places = items.offsets.to_numpy() - items.offsets[0].as_py()
        numbers = items.flatten().to_numpy(zero_copy_only=False).astype(np.int32)
        data, starts = numbers.tobytes(), places.tolist()
        assignments = []
        for a, b in pairwise((offsets - begin).tolist()):
            lengths = (0,) if b - a < 2 else tuple(np.diff(places[a : b + 1]).tolist())
            key = (*topics[a:b], *lengths, data[4 * starts[a] : 4 * starts[b]])
            assignment = self._assignments.get(key)
            if assignment is None:
                each = zip(topics[a:b], pairwise(starts[a : b + 1]), strict=True)
                partitions = {topic: tuple(numbers[c:d].tolist()) for topic, (c, d) in each}
                assignment = self._assignments[key] = len(self._assignments), partitions
            assignments.append(assignment)
        return assignments


def _column_values(column: pa.Array) -> list[Any]:
    times = column.type == TIME_TYPE
    listed: list[Any] = (to_milliseconds(column) if times else column).to_pylist()
    return listed
