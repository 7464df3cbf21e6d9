"""Structures of flexible records as tables: what is read and written, field after field."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rota.formats.primitive import UUID_SIZE, Reader, Writer


class Kind(NamedTuple):
    """How values of one kind are read and written, and the fewest bytes that one takes."""

    read: Callable[[Reader, str], Any]
    write: Callable[[Writer, Any], None]
    smallest: int


class Tag(NamedTuple):
    """A tagged field. It is not written where it has its default."""

    field: str
    kind: Kind
    default: object


INT8 = Kind(Reader.int8, Writer.int8, 1)
INT32 = Kind(Reader.int32, Writer.int32, 4)
INT64 = Kind(Reader.int64, Writer.int64, 8)
UUID = Kind(Reader.uuid, Writer.uuid, UUID_SIZE)
TEXT = Kind(Reader.compact_string, Writer.compact_string, 1)
NULLABLE_TEXT = Kind(Reader.nullable_compact_string, Writer.nullable_compact_string, 1)
BYTES = Kind(Reader.compact_bytes, Writer.compact_bytes, 1)


@dataclass(frozen=True, slots=True)
class Structure:
    """Fields in their order, then those with tags."""

    fields: Mapping[str, Kind]
    tags: Mapping[int, Tag] = field(default_factory=dict)

    def read(self, reader: Reader) -> dict[str, Any]:
        """The values of all fields, by name."""
        found = {name: kind.read(reader, shown(name)) for name, kind in self.fields.items()}
        found |= {tag.field: tag.default for tag in self.tags.values()}
        for number, end in reader.tags():
            tag = self.tags.get(number)
            if tag is None:
                reader.offset = end
            else:
                found[tag.field] = tag.kind.read(reader, shown(tag.field))
        return found

    def write(self, writer: Writer, value: object) -> None:
        """All fields; of those with tags only what is not the default."""
        for name, kind in self.fields.items():
            kind.write(writer, getattr(value, name))
        tagged = [
            (number, tag.kind, getattr(value, tag.field))
            for number, tag in self.tags.items()
            if getattr(value, tag.field) != tag.default
        ]
        writer.unsigned_varint(len(tagged))
        for number, kind, content in tagged:
            inner = Writer(writer.subject)
            kind.write(inner, content)
            writer.tag(number, inner.done())

    def of(self, made: Callable[..., Any]) -> Kind:
        """The structure inside of another, as values of a class."""
        smallest = 1 + sum(kind.smallest for kind in self.fields.values())
        return Kind(lambda reader, _: made(**self.read(reader)), self.write, smallest)


def nullable(kind: Kind) -> Kind:
    """A structure that may be null; a byte before it tells."""

    def read(reader: Reader, field: str) -> object:
        return kind.read(reader, field) if reader.unsigned_varint(field) else None

    def write(writer: Writer, value: object) -> None:
        writer.unsigned_varint(0 if value is None else 1)
        if value is not None:
            kind.write(writer, value)

    return Kind(read, write, 1)


def array(kind: Kind) -> Kind:
    """A compact array, as a tuple."""

    def read(reader: Reader, field: str) -> tuple[Any, ...]:
        count = reader.compact_count(field, kind.smallest)
        return tuple([kind.read(reader, field) for _ in range(count)])

    def write(writer: Writer, values: tuple[Any, ...]) -> None:
        writer.unsigned_varint(len(values) + 1)
        for value in values:
            kind.write(writer, value)

    return Kind(read, write, 1)


def _read_int32s(reader: Reader, field: str) -> tuple[int, ...]:
    return reader.int32s(reader.compact_count(field, 4), field)


def _read_nullable_int32s(reader: Reader, field: str) -> tuple[int, ...] | None:
    count = reader.nullable_compact_count(field, 4)
    return None if count is None else reader.int32s(count, field)


def _write_nullable_int32s(writer: Writer, values: tuple[int, ...] | None) -> None:
    if values is None:
        writer.unsigned_varint(0)
    else:
        writer.compact_int32s(values)


INT32S = Kind(_read_int32s, Writer.compact_int32s, 1)
NULLABLE_INT32S = Kind(_read_nullable_int32s, _write_nullable_int32s, 1)


def shown(field: str) -> str:
    """A field's name as errors give it."""
    return field.replace("_", " ")


def read_version(reader: Reader, highest: int) -> int:
    """A value's version. A newer one may have fields in between, so it cannot be read."""
    version = reader.int16("version")
    if not 0 <= version <= highest:
        raise reader.error("version", f"{version} is not one of 0 to {highest}", at=0)
    return version
