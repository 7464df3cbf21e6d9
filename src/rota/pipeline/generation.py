"""Generations as rows of silver/generations, and back.

A group has the same members from one generation to the next, most of them with the same partitions.
What is equal is written to Arrow once and taken as often as it comes, and is read into one object.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa

from rota.pipeline import schema
from rota.replay.fact import Generation, GenerationMember, Held, Kind, Mark
from rota.tables import GENERATIONS

_ROWS = schema.arrow(GENERATIONS)
_MEMBER: pa.StructType = _ROWS.field("members").type.value_type
_HELD: pa.MapType = _MEMBER.field("assigned").type
_TOPICS: pa.ListType = _MEMBER.field("topics").type


def rows(generations: Sequence[Generation]) -> pa.RecordBatch:
    """Generations as rows of silver/generations."""
    columns = [
        members([each.members for each in generations])
        if column.name == "members"
        else schema.array(column, list(map(attrgetter(column.name), generations)))
        for column in GENERATIONS.columns
    ]
    return pa.record_batch(columns, schema=_ROWS)


def members(listed: Sequence[tuple[GenerationMember, ...]]) -> pa.ListArray:
    """The members of each generation, as a column."""
    distinct, places = _distinct([member for members in listed for member in members])
    columns = [_column(field, list(map(attrgetter(field.name), distinct))) for field in _MEMBER]
    found = pa.StructArray.from_arrays(columns, fields=list(_MEMBER))
    if len(distinct) < len(places):
        found = found.take(places)
    return pa.ListArray.from_arrays(_offsets(listed), found, type=_ROWS.field("members").type)


def _column(field: pa.Field, values: list[Any]) -> pa.Array:
    if field.type == _HELD:
        return _shared(values, _maps)
    if field.type == _TOPICS:
        return _shared(values, lambda distinct: pa.array(distinct, _TOPICS))
    return pa.array(values, field.type)


def _shared(values: list[Any], make: Callable[[list[Any]], pa.Array]) -> pa.Array:
    distinct, places = _distinct(values)
    return make(distinct).take(places)


def _distinct(values: list[Any]) -> tuple[list[Any], pa.Array]:
    """Each object once, and which of them stands where; by identity, which is quick to tell."""
    known: dict[int, int] = {}
    places = [known.setdefault(id(value), len(known)) for value in values]
    distinct = list({id(value): value for value in values}.values())
    return distinct, pa.array(places, pa.int32())


def _maps(helds: list[Held]) -> pa.MapArray:
    numbers = [listed for held in helds for listed in held.values()]
    values = pa.array([number for listed in numbers for number in listed], pa.int32())
    items = pa.ListArray.from_arrays(_offsets(numbers), values, type=_HELD.item_type)
    topics = pa.array([topic for held in helds for topic in held], pa.string())
    return pa.MapArray.from_arrays(_offsets(helds), topics, items, type=_HELD)


def _offsets(listed: Sequence[Any]) -> pa.Array:
    ends = np.zeros(len(listed) + 1, dtype=np.int32)
    np.cumsum([len(each) for each in listed], out=ends[1:])
    return pa.array(ends)


class Reader:
    """Reads generations of one group from rows of silver/generations."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._topics: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._helds: dict[tuple[Any, ...], tuple[int, Held]] = {}
        self._members: dict[tuple[Any, ...], GenerationMember] = {}

    def read(self, batch: pa.RecordBatch) -> list[Generation]:
        """The generations that rows hold."""
        columns = {
            name: values(batch.column(name)) for name in batch.schema.names if name != "members"
        }
        columns["kind"] = list(map(Kind, columns["kind"]))
        columns["mark"] = list(map(Mark, columns["mark"]))
        columns["members"] = self.members(batch.column("members"))
        return [
            Generation(**dict(zip(columns, row, strict=True)))
            for row in zip(*columns.values(), strict=True)
        ]

    def members(self, column: pa.ListArray) -> list[tuple[GenerationMember, ...]]:
        """The members of each row."""
        listed = self._listed(column.flatten())
        ends = column.offsets.to_numpy() - column.offsets[0].as_py()
        return [tuple(listed[a:b]) for a, b in pairwise(ends.tolist())]

    def _listed(self, members: pa.StructArray) -> list[GenerationMember]:
        """Every member; equal ones are the same object."""
        columns: list[list[Any]] = []
        keys: list[list[Any]] = []
        names = [field.name for field in members.type]
        for column in members.flatten():
            if column.type == _HELD:
                found = self._held(column)
                keys.append([number for number, _ in found])
                columns.append([held for _, held in found])
            else:
                keys.append(self._plain(column))
                columns.append(keys[-1])
        made = []
        for key, *values in zip(zip(*keys, strict=True), *columns, strict=True):
            member = self._members.get(key)
            if member is None:
                member = GenerationMember(**dict(zip(names, values, strict=True)))
                self._members[key] = member
            made.append(member)
        return made

    def _plain(self, column: pa.Array) -> list[Any]:
        if column.type == _TOPICS:
            texts = self._plain(column.flatten())
            ends = column.offsets.to_numpy() - column.offsets[0].as_py()
            found = (tuple(texts[a:b]) for a, b in pairwise(ends.tolist()))
            return [self._topics.setdefault(topics, topics) for topics in found]
        if column.type != pa.string():
            return values(column)
        coded = column.dictionary_encode()
        names = [self._texts.setdefault(text, text) for text in coded.dictionary.to_pylist()]
        places = coded.indices.fill_null(len(names)).to_numpy(zero_copy_only=False).tolist()
        texts = [*names, None]
        return [texts[place] for place in places]

    def _held(self, column: pa.MapArray) -> list[tuple[int, Held]]:
        """What each has, by topic, and a number that stands for it."""
        offsets = column.offsets.to_numpy()
        begin, size = int(offsets[0]), int(offsets[-1] - offsets[0])
        topics = self._plain(column.keys.slice(begin, size))
        items = column.items.slice(begin, size)
        places = items.offsets.to_numpy() - items.offsets[0].as_py()
        numbers = items.flatten().to_numpy(zero_copy_only=False).astype(np.int32)
        data, starts = numbers.tobytes(), places.tolist()
        found = []
        for a, b in pairwise((offsets - begin).tolist()):
            lengths = (0,) if b - a < 2 else tuple(np.diff(places[a : b + 1]).tolist())
            key = (*topics[a:b], *lengths, data[4 * starts[a] : 4 * starts[b]])
            held = self._helds.get(key)
            if held is None:
                each = zip(topics[a:b], pairwise(starts[a : b + 1]), strict=True)
                read = {topic: tuple(numbers[c:d].tolist()) for topic, (c, d) in each}
                held = self._helds[key] = len(self._helds), read
            found.append(held)
        return found


def values(column: pa.Array) -> list[Any]:
    """A column's values; times are milliseconds."""
    listed: list[Any] = (
        schema.milliseconds(column) if column.type == schema.TIME else column
    ).to_pylist()
    return listed
