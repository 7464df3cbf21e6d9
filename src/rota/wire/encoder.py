"""Encoders of messages, written out for each schema and version."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack
from typing import Any, NoReturn

from rota.wire.decoder import LONGEST_TEXT
from rota.wire.record import Record
from rota.wire.schema import NO_ID, NUMBERS, Field, Struct
from rota.wire.source import Source

Encode = Callable[[Any, bytearray], None]
"""Writes a message behind the bytes that are there."""


def encoder(made: type[Record], version: int) -> Encode:
    """The function that writes a message of this version."""
    schema = made.SCHEMA
    source = _source("def encode(o, out):")
    writer = _Writer(source, version, made, flexible=version in schema.flexible)
    writer.struct(schema.struct, "o")
    source.line("return")
    return source.function(f"encode {schema.struct.name} v{version}")


def _source(head: str) -> Source:
    return Source(head, varint=varint, checked_id=_checked_id, refuse_text=_refuse_text, pack=pack)


class _Writer:
    """Writes the text of an encoder. Numbers that follow each other are written in one go."""

    def __init__(self, source: Source, version: int, top: type[Record], *, flexible: bool) -> None:
        self._out = source
        self._version = version
        self._top = top
        self._flexible = flexible
        self._numbers: list[tuple[str, str, str]] = []
        """Numbers not yet written: format, value, and the field they are of."""

    def struct(self, struct: Struct, name: str) -> None:
        for field in struct.fields:
            if field.is_plain(self._version):
                with self._out.about(field.name):
                    self.field(field, f"{name}.{field.name}")
        if self._flexible:
            self._tags(struct, name)
        self._flush()

    def field(self, field: Field, value: str) -> None:
        nullable = self._version in field.nullable
        if field.array:
            self._array(field, value, nullable=nullable)
        elif field.kind in NUMBERS:
            self._number(field.kind, value)
        elif field.struct is None:
            self._text(field.kind, value, nullable=nullable)
        else:
            self._struct(field.struct, value, nullable=nullable)

    def _struct(self, struct: Struct, value: str, *, nullable: bool) -> None:
        out = self._out
        self._flush()
        name = out.variable("o")
        out.line(f"{name} = {value}")
        if not nullable:
            self.struct(struct, name)
            return
        with out.block(f"if {name} is None:"):
            out.line("out.append(255)")
        with out.block("else:"):
            out.line("out.append(1)")
            self.struct(struct, name)

    def _number(self, kind: str, value: str) -> None:
        value = f"checked_id({value})" if kind == "uuid" else value
        self._numbers.append((NUMBERS[kind], value, self._out.path))

    def _text(self, kind: str, value: str, *, nullable: bool) -> None:
        out = self._out
        text, size = out.variable("text"), out.variable("size")
        out.line(f"{text} = {value}")
        if kind == "string":
            guard = f" if {text} is not None else None" if nullable else ""
            out.line(f"{text} = {text}.encode(){guard}")
        null = f"-1 if {text} is None else " if nullable else ""
        out.line(f"{size} = {null}len({text})")
        if kind == "string":
            with out.block(f"if {size} > {LONGEST_TEXT}:"):
                out.line(f"refuse_text({size})")
        self._length(size, wide=kind != "string")
        with out.block(f"if {size} > 0:"):
            out.line(f"out += {text}")

    def _array(self, field: Field, value: str, *, nullable: bool) -> None:
        out = self._out
        items, size = out.variable("items"), out.variable("size")
        out.line(f"{items} = {value}")
        null = f"-1 if {items} is None else " if nullable else ""
        out.line(f"{size} = {null}len({items})")
        self._length(size, wide=True)
        with out.block(f"if {size} > 0:"):
            if field.kind in NUMBERS and field.kind != "uuid":
                out.line(f"out += pack(f'>{{{size}}}{NUMBERS[field.kind]}', *{items})")
            else:
                self._elements(field, items)

    def _elements(self, field: Field, items: str) -> None:
        out = self._out
        item = out.variable("o")
        with out.block(f"for {item} in {items}:"):
            if field.struct is not None:
                self.struct(field.struct, item)
            elif field.kind == "uuid":
                self._number(field.kind, item)
                self._flush()
            else:
                self._text(field.kind, item, nullable=False)

    def _length(self, size: str, *, wide: bool) -> None:
        out = self._out
        if not self._flexible:
            self._numbers.append(("i" if wide else "h", size, out.path))
            self._flush()
            return
        self._flush()
        with out.block(f"if {size} < 127:"):
            out.line(f"out.append({size} + 1)")
        with out.block("else:"):
            out.line(f"out += varint({size} + 1)")

    def _tags(self, struct: Struct, name: str) -> None:
        """Tagged fields are written where they differ from their default."""
        out = self._out
        tags = struct.tags(self._version)
        if not tags:
            self._numbers.append(("B", "0", out.path))
            return
        self._flush()
        absent = [self._absent(field, f"{name}.{field.name}") for field in tags]
        with out.block(f"if {' and '.join(absent)}:"):
            out.line("out.append(0)")
        with out.block("else:"):
            out.line("count, tags = 0, bytearray()")
            for field, gone in zip(tags, absent, strict=True):
                with out.block(f"if not ({gone}):"):
                    out.line("count += 1")
                    out.line(f"{out.bind('tag', self._tag(field))}({name}.{field.name}, tags)")
            out.line("out += varint(count)")
            out.line("out += tags")

    def _absent(self, field: Field, value: str) -> str:
        """Asks whether a tagged field has its default."""
        if field.struct is not None and not field.array:
            empty = getattr(self._top, field.struct.name)()
            return f"({value} is None or {value} == {self._out.bind('empty', empty)})"
        if field.default is None:
            return f"{value} is None"
        if field.array:
            return f"({value} is not None and not len({value}))"
        return f"{value} == {field.default!r}"

    def _tag(self, field: Field) -> Encode:
        """A function that writes a tagged field, with its tag and size."""
        source = _source("def encode(value, out):")
        inner = _Writer(source, self._version, self._top, flexible=True)
        with source.about(f"{self._out.path}.{field.name}".lstrip(".")):
            inner.field(field, "value")
            inner.finish()
        encode = source.function(f"encode tag {field.name} v{self._version}")

        def write(value: Any, out: bytearray) -> None:  # noqa: ANN401 whatever the field holds
            body = bytearray()
            encode(value, body)
            out += varint(field.tag) + varint(len(body)) + body

        return write

    def finish(self) -> None:
        """Writes what is still to be written."""
        self._flush()

    def _flush(self) -> None:
        if not self._numbers:
            return
        formats = "".join(one for one, _, _ in self._numbers)
        values = ", ".join(value for _, value, _ in self._numbers)
        first, last = self._numbers[0][2], self._numbers[-1][2]
        self._numbers.clear()
        text = f"out += {self._out.pack(formats)}({values})"
        self._out.line(text, first if first == last else f"{first} to {last}")


def varint(value: int) -> bytes:
    """An unsigned varint."""
    found = bytearray()
    while value > 127:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _checked_id(value: bytes) -> bytes:
    if len(value) != len(NO_ID):
        raise TypeError(f"an id of {len(value)} bytes")
    return value


def _refuse_text(size: int) -> NoReturn:
    raise ValueError(f"a text of {size} bytes; {LONGEST_TEXT} are the most")
