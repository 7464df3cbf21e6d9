"""Decoders of messages, written out for each schema and version.

What is read was sent by anyone. So no length and no count is believed before what is left of the
frame has been seen to hold it; an array costs no more than its elements' bytes allow; and the
elements of one message are counted, because an empty struct is dear in memory and cheap to send.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import calcsize, unpack_from
from typing import Any, NoReturn

from rota.errors import FormatError
from rota.formats.buffer import Bytes
from rota.wire.record import Record
from rota.wire.schema import NO_ID, NUMBERS, Default, Field, Struct
from rota.wire.source import Source

MOST_ELEMENTS = 250_000
"""Of all arrays of a request: anybody may send one. A broker's response may have as many as its
bytes are enough for: the metadata of a large cluster has millions."""
LONGEST_TEXT = 2**15 - 1

Decode = Callable[[Bytes, int], Any]
"""Reads from a position to the end of the bytes."""


def decoder(made: type[Record], version: int) -> Decode:
    """The function that reads a message of this version."""
    schema = made.SCHEMA
    struct = schema.struct
    source = _source("def decode(data, pos):")
    source.line("end = len(data)")
    writer = _Writer(source, version, made, flexible=version in schema.flexible)
    writer.begin()
    found = writer.struct(struct, made)
    writer.end(found)
    return source.function(f"decode {struct.name} v{version}")


def _source(head: str) -> Source:
    return Source(
        head,
        new=object.__new__,
        varint=_varint,
        skip_tags=skip_tags,
        refuse=_refuse,
        refuse_end=_refuse_end,
        refuse_count=_refuse_count,
        NO_ID=NO_ID,
    )


class _Writer:
    """Writes the text of a decoder. Numbers that follow each other are read in one go."""

    def __init__(self, source: Source, version: int, top: type[Record], *, flexible: bool) -> None:
        self._out = source
        self._version = version
        self._top = top
        self._flexible = flexible
        self._numbers: list[tuple[str, str, str]] = []
        """Numbers not yet read: format, target, and the field they are for."""

    def begin(self) -> None:
        asked = self._top.__name__.endswith("Request")
        self._out.line(f"room = {MOST_ELEMENTS if asked else 'end'}")

    def end(self, found: str, *, exact: bool = False) -> None:
        """The end of a message, or of a tagged field, which must have the size that it says.

        What comes after a message is skipped, as in Kafka: librdkafka's request for the metadata
        of all topics ends with three bytes too many.
        """
        self._flush()
        with self._out.block(f"if pos {'!=' if exact else '>'} end:"):
            self._out.line("refuse_end(end - pos)")
        self._out.line(f"return {found}")

    def struct(self, struct: Struct, made: type[Record]) -> str:
        out = self._out
        name = out.variable("o")
        out.line(f"{name} = new({out.bind('Class', made)})")
        for field in struct.fields:
            with out.about(field.name):
                if field.is_plain(self._version):
                    self.field(field, f"{name}.{field.name}")
                else:
                    out.line(f"{name}.{field.name} = {_default(field.default)}")
        if self._flexible:
            self._tags(struct, name)
        self._flush()
        return name

    def field(self, field: Field, target: str) -> None:
        nullable = self._version in field.nullable
        if field.array:
            self._array(field, target, nullable=nullable)
        elif field.kind in NUMBERS:
            self._number(NUMBERS[field.kind], target)
        elif field.struct is None:
            self._text(field.kind, target, nullable=nullable)
        elif nullable:
            self._null_or_struct(field.struct, target)
        else:
            self._flush()
            self._out.line(f"{target} = {self.struct(field.struct, self._class(field.struct))}")

    def _null_or_struct(self, struct: Struct, target: str) -> None:
        """One byte, negative for null (KIP-893)."""
        out = self._out
        self._number("b", "n")
        self._flush()
        with out.block("if n < 0:"):
            out.line(f"{target} = None")
        with out.block("else:"):
            out.line(f"{target} = {self.struct(struct, self._class(struct))}")

    def _class(self, struct: Struct) -> type[Record]:
        made: type[Record] = getattr(self._top, struct.name)
        return made

    def _text(self, kind: str, target: str, *, nullable: bool) -> None:
        """Text or bytes, behind their length."""
        out = self._out
        self._length("n", wide=kind != "string")
        self._null("n", target, "refuse", nullable=nullable)
        longest = f" or n > {LONGEST_TEXT}" if kind == "string" and self._flexible else ""
        with out.block(f"elif n > end - pos{longest}:"):
            out.line("refuse(n, end - pos)")
        with out.block("else:"):
            out.line("pos += n")
            if kind == "string":
                # what is no UTF-8 gets replacement characters, as in Kafka
                out.line(f'{target} = str(data[pos - n:pos], "utf-8", "replace")')
            elif kind == "records":
                out.line(f"{target} = memoryview(data)[pos - n:pos]")
            else:
                out.line(f"{target} = bytes(data[pos - n:pos])")

    def _array(self, field: Field, target: str, *, nullable: bool) -> None:
        out = self._out
        count = out.variable("n")
        self._length(count, wide=True)
        self._null(count, target, "refuse_count", nullable=nullable)
        least = least_size(field, self._version, flexible=self._flexible)
        with out.block(f"elif {count} > (end - pos) // {least} or {count} > room:"):
            out.line(f"refuse_count({count}, end - pos, room)")
        with out.block("else:"):
            out.line(f"room -= {count}")
            if field.kind in NUMBERS and field.kind != "uuid":
                self._numbers_of(field.kind, count, target)
            else:
                self._elements(field, count, target)

    def _numbers_of(self, kind: str, count: str, target: str) -> None:
        many = self._out.bind("many", _many(NUMBERS[kind]))
        self._out.line(f"{target}, pos = {many}(data, pos, {count})")

    def _elements(self, field: Field, count: str, target: str) -> None:
        out = self._out
        add = out.variable("add")
        out.line(f"{target} = []")
        out.line(f"{add} = {target}.append")
        with out.block(f"for _ in range({count}):"):
            if field.kind in NUMBERS:
                item = out.variable("item")
                self._number(NUMBERS[field.kind], item)
                self._flush()
            elif field.struct is None:
                item = out.variable("item")
                self._text(field.kind, item, nullable=False)
            else:
                item = self.struct(field.struct, self._class(field.struct))
            out.line(f"{add}({item})")

    def _length(self, name: str, *, wide: bool) -> None:
        """A length or count, -1 for null: in four bytes or two, or a varint of one more."""
        out = self._out
        if not self._flexible:
            self._number("i" if wide else "h", name)
            self._flush()
            return
        self._flush()
        self._varint(name)
        out.line(f"{name} -= 1")

    def _varint(self, name: str) -> None:
        out = self._out
        out.line(f"{name} = data[pos]")
        out.line("pos += 1")
        with out.block(f"if {name} > 127:"):
            out.line(f"{name}, pos = varint(data, pos, {name})")

    def _null(self, name: str, target: str, refuse: str, *, nullable: bool) -> None:
        """What follows must be an ``elif`` or ``else``."""
        out = self._out
        with out.block(f"if {name} < 0:"):
            if not nullable:
                out.line(f"{refuse}({name}, end - pos)")
                return
            with out.block(f"if {name} < -1:"):
                out.line(f"{refuse}({name}, end - pos)")
            out.line(f"{target} = None")

    def _tags(self, struct: Struct, name: str) -> None:
        out = self._out
        with out.about("tagged fields"):
            self._number("B", "n")
        self._flush()
        known = {field.tag: self._tag(field) for field in struct.fields if field.tag >= 0}
        with out.block("if n:"):
            if known:
                out.line(f"pos = {out.bind('tags', _tag_reader(known))}(data, pos, end, n, {name})")
            else:
                out.line("pos = skip_tags(data, pos, end, n)")

    def _tag(self, field: Field) -> tuple[str, Callable[..., Any]]:
        """A function that reads a tagged field, which has an end of its own."""
        if not field.is_tagged(self._version):
            return field.name, _refuse_tag
        source = _source("def decode(data, pos, end):")
        inner = _Writer(source, self._version, self._top, flexible=True)
        inner.begin()
        with source.about(f"{self._out.path}.{field.name}".lstrip(".")):
            inner.field(field, "found")
            inner.end("found", exact=True)
        return field.name, source.function(f"decode tag {field.name} v{self._version}")

    def _number(self, one: str, target: str) -> None:
        self._numbers.append((one, target, self._out.path))

    def _flush(self) -> None:
        if not self._numbers:
            return
        formats = "".join(one for one, _, _ in self._numbers)
        targets = ", ".join(target for _, target, _ in self._numbers)
        first, last = self._numbers[0][2], self._numbers[-1][2]
        self._numbers.clear()
        text = f"{targets}, = {self._out.unpack(formats)}(data, pos)"
        self._out.line(text, first if first == last else f"{first} to {last}")
        self._out.line(f"pos += {calcsize('>' + formats)}")


def _default(default: Default) -> str:
    return "NO_ID" if default == NO_ID else repr(default)


def least_size(field: Field, version: int, *, flexible: bool) -> int:
    """The bytes that an element of an array has at least."""
    if field.struct is None:
        return _least(field.kind, flexible=flexible)
    plain = [each for each in field.struct.fields if each.is_plain(version)]
    found = int(flexible)  # the count of its tagged fields
    for each in plain:
        if each.struct is not None and not each.array:
            nullable = version in each.nullable
            found += 1 if nullable else least_size(each, version, flexible=flexible)
        else:
            found += _least("array" if each.array else each.kind, flexible=flexible)
    assert found > 0, f"{field.name} has elements of no bytes"
    return found


def _least(kind: str, *, flexible: bool) -> int:
    if kind in NUMBERS:
        return calcsize(">" + NUMBERS[kind])
    return 1 if flexible else 2 if kind == "string" else 4


# What decoders call where the rare happens


def _refuse(length: int, left: int) -> NoReturn:
    raise FormatError(_claim(length, "bytes", left))


def _refuse_count(count: int, left: int, room: int = MOST_ELEMENTS) -> NoReturn:
    if room < count <= left:
        raise FormatError(f"has {count} elements: a message may have {MOST_ELEMENTS} in all")
    raise FormatError(_claim(count, "elements", left))


def _claim(number: int, what: str, left: int) -> str:
    if number == -1:
        return "is null"
    return f"is said to have {number} {what}, in {max(left, 0)} bytes that are left"


def _refuse_end(left: int) -> NoReturn:
    if left > 0:
        raise FormatError(f"is followed by {left} bytes too many")
    raise FormatError(f"goes {-left} bytes beyond its end")


def _refuse_tag(data: Bytes, pos: int, end: int) -> NoReturn:  # noqa: ARG001 as those that read one
    """Kafka skips tags that it does not know, but not those that it knows of other versions."""
    raise FormatError("has a tag of another version")


def _varint(data: Bytes, pos: int, first: int) -> tuple[int, int]:
    """The rest of an unsigned varint whose first byte has been read and says that more follow."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
    raise FormatError("has a varint of more than five bytes")


def _read_varint(data: Bytes, pos: int) -> tuple[int, int]:
    first = data[pos]
    return (first, pos + 1) if first < 0x80 else _varint(data, pos + 1, first)


def _tags(data: Bytes, pos: int, end: int, count: int) -> Iterator[tuple[int, int, int]]:
    """Each tagged field: its tag, where it starts and where it ends.

    :param count: the first byte of how many there are
    """
    if count > 127:
        count, pos = _varint(data, pos, count)
    for _ in range(count):  # two bytes each at least: no count can make this long
        tag, pos = _read_varint(data, pos)
        size, pos = _read_varint(data, pos)
        if size > end - pos:
            left = max(end - pos, 0)
            raise FormatError(f"has {size} bytes in its tag {tag}, of {left} that are left")
        yield tag, pos, pos + size
        pos += size
    yield -1, pos, pos


def skip_tags(data: Bytes, pos: int, end: int, count: int) -> int:
    """Where the tagged fields end of which the first byte of their count has been read."""
    for _, _, stop in _tags(data, pos, end, count):
        pos = stop
    return pos


def _tag_reader(known: dict[int, tuple[str, Callable[..., Any]]]) -> Callable[..., int]:
    def read(data: Bytes, pos: int, end: int, count: int, record: Record) -> int:
        for tag, start, stop in _tags(data, pos, end, count):
            if tag in known:
                name, decode = known[tag]
                setattr(record, name, decode(data, start, stop))
            pos = stop
        return pos

    return read


def _many(one: str) -> Callable[[Bytes, int, int], tuple[list[Any], int]]:
    size = calcsize(f">{one}")

    def unpack(data: Bytes, pos: int, count: int) -> tuple[list[Any], int]:
        return list(unpack_from(f">{count}{one}", data, pos)), pos + count * size

    return unpack
