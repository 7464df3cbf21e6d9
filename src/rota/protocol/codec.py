"""Encodes and decodes messages, and the frames around them.

A decoder and an encoder are generated for each message and version, as Python source. A message can
come from anyone: a decoder trusts no length or count before it has checked that the rest of the
frame can hold it. The array elements of a request are counted too: an empty struct is cheap to send
and costs memory.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from struct import calcsize, pack, unpack_from
from types import MappingProxyType, TracebackType
from typing import Any, NamedTuple, NoReturn, TypeVar

from rota.engine.formats.buffer import Bytes
from rota.engine.formats.primitive import encode_unsigned_varint
from rota.engine.model.text import MAX_STRING_BYTES
from rota.errors import FormatError
from rota.protocol.messages import Api, Message, classes_by_api
from rota.protocol.schemas import FIXED_SIZE_FORMATS, ZERO_UUID, FieldSpec, StructSpec, Versions

_FIELD_OF_LINE = "FIELDS"


class SourceBuilder:
    """Builds the source of one generated function, and the field that each line belongs to."""

    def __init__(self, head: str, **names: object) -> None:
        self._lines = [head]
        self._fields = [""]
        self._path: list[str] = []
        self._depth = 1
        self._count = 0
        self._names: dict[str, object] = names

    def add_line(self, text: str, field: str | None = None) -> None:
        """Adds a line for the current field, or for another one."""
        self._lines.append("    " * self._depth + text)
        self._fields.append(self.field_path if field is None else field)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Indents the lines that follow."""
        self.add_line(head)
        self._depth += 1
        yield
        self._depth -= 1

    @contextmanager
    def for_field(self, field: str) -> Iterator[None]:
        """The lines that follow belong to this field of the current one."""
        self._path.append(field)
        yield
        self._path.pop()

    @property
    def field_path(self) -> str:
        return ".".join(self._path)

    def new_variable(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def bind_value(self, prefix: str, value: object) -> str:
        """Returns a name under which the function can use a value."""
        name = self.new_variable(prefix)
        self._names[name] = value
        return name

    def bind_struct(self, method: str, formats: str) -> str:
        """Returns a name for ``pack`` or ``unpack_from`` of numbers in these formats."""
        name = f"{method}_{formats}".replace("?", "t")
        self._names[name] = getattr(struct.Struct(f">{formats}"), method)
        return name

    def compile_function(self, label: str) -> Callable[..., Any]:
        names = {**self._names, _FIELD_OF_LINE: self._fields}
        code = compile("\n".join(self._lines), f"<{label}>", "exec")
        exec(code, names)  # noqa: S102 made of the schema's names alone
        function: Any = names[self._lines[0].removeprefix("def ").partition("(")[0]]
        return function  # type: ignore[no-any-return]


def field_of_traceback(trace: TracebackType | None) -> str:
    """Returns the field at which a generated function raised."""
    field = ""
    while trace is not None:
        fields = trace.tb_frame.f_globals.get(_FIELD_OF_LINE)
        if fields is not None:
            field = fields[trace.tb_lineno - 1] or field
        trace = trace.tb_next
    return field


MAX_REQUEST_ELEMENTS = 250_000  # elements in all arrays of a request; responses may have more


class _FunctionWriter:
    """Writes the source of a decoder or an encoder. Adjacent numbers are handled together."""

    def __init__(self, head: str, version: int, top: type[Message], **names: object) -> None:
        self._out = SourceBuilder(head, **names)
        self._version = version
        self._top = top
        self._flexible = version in top.SCHEMA.flexible
        #: The next numbers: format, variable and field.
        self._numbers: list[tuple[str, str, str]] = []

    def _number(self, kind: str, variable: str) -> None:
        self._numbers.append((kind, variable, self._out.field_path))

    def _take_numbers(self) -> tuple[str, str, str]:
        """Removes the next numbers; returns their formats, their variables and their fields."""
        formats = "".join(kind for kind, _, _ in self._numbers)
        variables = ", ".join(variable for _, variable, _ in self._numbers)
        first, last = self._numbers[0][2], self._numbers[-1][2]
        self._numbers.clear()
        return formats, variables, first if first == last else f"{first} to {last}"

    def _path_of_tag(self, field: FieldSpec) -> str:
        return f"{self._out.field_path}.{field.name}".lstrip(".")


Decoder = Callable[[Bytes, int, int], Any]  # decodes from a position to an end


def make_decoder(message_class: type[Message], version: int) -> Decoder:
    return _DecoderWriter(version, message_class).make_decoder()


class _DecoderWriter(_FunctionWriter):
    def __init__(self, version: int, top: type[Message]) -> None:
        super().__init__(
            "def decode(data, pos, end):",
            version,
            top,
            new=object.__new__,
            unpack_from=unpack_from,
            varint=_read_varint_rest,
            read_tags=read_tags,
            refuse=_raise_bad_length,
            refuse_end=_raise_bad_end,
            refuse_count=_raise_bad_count,
            NO_ID=ZERO_UUID,
        )
        is_request = top.__name__.endswith("Request")
        self._out.add_line(f"room = {MAX_REQUEST_ELEMENTS if is_request else 'end'}")

    def make_decoder(self) -> Decoder:
        """Bytes after the message are skipped, as in Kafka: librdkafka sends three too many."""
        return self._compile(self._struct(self._top.STRUCT), ">", self._top.__name__)

    def make_tag_decoder(self, field: FieldSpec, path: str) -> Decoder:
        """Makes the decoder of a tagged field, which has an exact size."""
        with self._out.for_field(path):
            self._field(field, "found")
            return self._compile("found", "!=", f"tag {field.name}")

    def _compile(self, found: str, beyond: str, label: str) -> Decoder:
        self._flush()
        with self._out.block(f"if pos {beyond} end:"):
            self._out.add_line("refuse_end(end - pos)")
        self._out.add_line(f"return {found}")
        return self._out.compile_function(f"decode {label} v{self._version}")

    def _struct(self, struct: StructSpec) -> str:
        """Decodes a struct; returns the variable that has it."""
        out = self._out
        self._flush()
        top = self._top
        struct_class = top if struct is top.STRUCT else getattr(top, struct.name)
        name = out.new_variable("o")
        out.add_line(f"{name} = new({out.bind_value('Class', struct_class)})")
        for field in struct.fields:
            with out.for_field(field.name):
                if field.is_untagged(self._version):
                    self._field(field, f"{name}.{field.name}")
                else:
                    default = "NO_ID" if field.default == ZERO_UUID else repr(field.default)
                    out.add_line(f"{name}.{field.name} = {default}")
        if self._flexible:
            self._tags(struct, name)
        self._flush()
        return name

    def _field(self, field: FieldSpec, target: str) -> None:
        nullable = self._version in field.nullable
        if field.is_array:
            self._array(field, target, nullable=nullable)
        elif field.kind in FIXED_SIZE_FORMATS:
            self._number(FIXED_SIZE_FORMATS[field.kind], target)
        elif field.struct is None:
            self._text(field.kind, target, nullable=nullable)
        elif nullable:
            self._null_or_struct(field.struct, target)
        else:
            self._out.add_line(f"{target} = {self._struct(field.struct)}")

    def _null_or_struct(self, struct: StructSpec, target: str) -> None:
        """Reads a nullable struct: its first byte is negative for null (KIP-893)."""
        out = self._out
        self._number("b", "n")
        self._flush()
        with out.block("if n < 0:"):
            out.add_line(f"{target} = None")
        with out.block("else:"):
            out.add_line(f"{target} = {self._struct(struct)}")

    def _text(self, kind: str, target: str, *, nullable: bool) -> None:
        out = self._out
        self._length("n", wide=kind != "string")
        self._null("n", target, "refuse", nullable=nullable)
        longest = f" or n > {MAX_STRING_BYTES}" if kind == "string" and self._flexible else ""
        with out.block(f"elif n > end - pos{longest}:"):
            out.add_line("refuse(n, end - pos)")
        with out.block("else:"):
            out.add_line("pos += n")
            if kind == "string":
                # invalid UTF-8 becomes replacement characters, as in Kafka
                out.add_line(f'{target} = str(data[pos - n:pos], "utf-8", "replace")')
            elif kind == "records":
                out.add_line(f"{target} = memoryview(data)[pos - n:pos]")
            else:
                out.add_line(f"{target} = bytes(data[pos - n:pos])")

    def _array(self, field: FieldSpec, target: str, *, nullable: bool) -> None:
        out = self._out
        count = out.new_variable("n")
        self._length(count, wide=True)
        self._null(count, target, "refuse_count", nullable=nullable)
        least = min_element_size(field, self._version, flexible=self._flexible)
        with out.block(f"elif {count} > (end - pos) // {least} or {count} > room:"):
            out.add_line(f"refuse_count({count}, end - pos, room)")
        with out.block("else:"):
            out.add_line(f"room -= {count}")
            if field.kind in FIXED_SIZE_FORMATS and field.kind != "uuid":
                kind = FIXED_SIZE_FORMATS[field.kind]
                out.add_line(f"{target} = list(unpack_from(f'>{{{count}}}{kind}', data, pos))")
                out.add_line(f"pos += {calcsize('>' + kind)} * {count}")
            else:
                self._elements(field, count, target)

    def _elements(self, field: FieldSpec, count: str, target: str) -> None:
        out = self._out
        add = out.new_variable("add")
        out.add_line(f"{target} = []")
        out.add_line(f"{add} = {target}.append")
        with out.block(f"for _ in range({count}):"):
            if field.struct is not None:
                item = self._struct(field.struct)
            else:
                item = out.new_variable("item")
                if field.kind in FIXED_SIZE_FORMATS:
                    self._number(FIXED_SIZE_FORMATS[field.kind], item)
                    self._flush()
                else:
                    self._text(field.kind, item, nullable=False)
            out.add_line(f"{add}({item})")

    def _length(self, name: str, *, wide: bool) -> None:
        """A length or count, -1 for null: in four bytes or two, or a varint of one more."""
        out = self._out
        if not self._flexible:
            self._number("i" if wide else "h", name)
            self._flush()
            return
        self._flush()
        out.add_line(f"{name} = data[pos]")
        out.add_line("pos += 1")
        with out.block(f"if {name} > 127:"):
            out.add_line(f"{name}, pos = varint(data, pos, {name})")
        out.add_line(f"{name} -= 1")

    def _null(self, name: str, target: str, refuse: str, *, nullable: bool) -> None:
        """The next line must be an ``elif`` or ``else``."""
        out = self._out
        with out.block(f"if {name} < 0:"):
            if not nullable:
                out.add_line(f"{refuse}({name}, end - pos)")
                return
            with out.block(f"if {name} < -1:"):
                out.add_line(f"{refuse}({name}, end - pos)")
            out.add_line(f"{target} = None")

    def _tags(self, struct: StructSpec, name: str) -> None:
        out = self._out
        with out.for_field("tagged fields"):
            self._number("B", "n")
        self._flush()
        known: dict[int, tuple[str, Decoder]] = {}
        for field in struct.fields:
            if field.is_tagged(self._version):
                inner = _DecoderWriter(self._version, self._top)
                known[field.tag] = (
                    field.name,
                    inner.make_tag_decoder(field, self._path_of_tag(field)),
                )
            elif field.tag >= 0:
                known[field.tag] = field.name, _raise_unexpected_tag
        with out.block("if n:"):
            known_name = out.bind_value("known", known)
            out.add_line(f"pos = read_tags(data, pos, end, n, known={known_name}, target={name})")

    def _flush(self) -> None:
        if self._numbers:
            formats, targets, fields = self._take_numbers()
            unpack = self._out.bind_struct("unpack_from", formats)
            self._out.add_line(f"{targets}, = {unpack}(data, pos)", fields)
            self._out.add_line(f"pos += {calcsize('>' + formats)}")


def min_element_size(field: FieldSpec, version: int, *, flexible: bool) -> int:
    if field.struct is None:
        return _min_field_size(field.kind, flexible=flexible)
    size = int(flexible)  # the count of its tagged fields
    for each in field.struct.fields:
        if not each.is_untagged(version):
            continue
        if each.struct is not None and not each.is_array:
            nullable = version in each.nullable
            size += 1 if nullable else min_element_size(each, version, flexible=flexible)
        else:
            size += _min_field_size("array" if each.is_array else each.kind, flexible=flexible)
    assert size > 0, f"{field.name} has elements of no bytes"
    return size


def _min_field_size(kind: str, *, flexible: bool) -> int:
    if kind in FIXED_SIZE_FORMATS:
        return calcsize(">" + FIXED_SIZE_FORMATS[kind])
    return 1 if flexible else 2 if kind == "string" else 4


def _raise_bad_length(number: int, left: int, what: str = "bytes") -> NoReturn:
    if number == -1:
        raise FormatError("is null")
    raise FormatError(f"declares {number} {what}, but {max(left, 0)} bytes are left")


def _raise_bad_count(count: int, left: int, room: int = MAX_REQUEST_ELEMENTS) -> NoReturn:
    if room < count <= left:
        raise FormatError(f"has {count} elements: a message may have {MAX_REQUEST_ELEMENTS} in all")
    _raise_bad_length(count, left, "elements")


def _raise_bad_end(left: int) -> NoReturn:
    if left > 0:
        raise FormatError(f"is followed by {left} bytes too many")
    raise FormatError(f"goes {-left} bytes beyond its end")


def _raise_unexpected_tag(data: Bytes, pos: int, end: int) -> NoReturn:  # noqa: ARG001
    """Kafka skips unknown tags, but not tags that belong to other versions of the message."""
    raise FormatError("has a tag of another version")


def _read_varint_rest(data: Bytes, pos: int, first: int) -> tuple[int, int]:
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
    return (first, pos + 1) if first < 0x80 else _read_varint_rest(data, pos + 1, first)


def read_tags(  # noqa: PLR0913, a position and a struct
    data: Bytes,
    pos: int,
    end: int,
    count: int,
    *,
    known: Mapping[int, tuple[str, Decoder]] = MappingProxyType({}),
    target: Message | None = None,
) -> int:
    """Reads known tagged fields, skips others, returns their end; ``count``: its first byte."""
    if count > 127:
        count, pos = _read_varint_rest(data, pos, count)
    for _ in range(count):  # two bytes each at least: no count can make this long
        tag, pos = _read_varint(data, pos)
        size, pos = _read_varint(data, pos)
        if size > end - pos:
            left = max(end - pos, 0)
            raise FormatError(f"has {size} bytes in its tag {tag}, of {left} that are left")
        if tag in known:
            name, decode = known[tag]
            setattr(target, name, decode(data, pos, pos + size))
        pos += size
    return pos


Encoder = Callable[[Any, bytearray], None]  # appends an encoded message to the bytes


def make_encoder(message_class: type[Message], version: int) -> Encoder:
    return _EncoderWriter(version, message_class).make_encoder()


class _EncoderWriter(_FunctionWriter):
    def __init__(self, version: int, top: type[Message]) -> None:
        super().__init__(
            "def encode(value, out):",
            version,
            top,
            varint=encode_unsigned_varint,
            checked_id=_check_uuid,
            refuse_text=_raise_string_too_long,
            pack=pack,
        )

    def make_encoder(self) -> Encoder:
        self._struct(self._top.STRUCT, "value")
        self._out.add_line("return")
        return self._out.compile_function(f"encode {self._top.__name__} v{self._version}")

    def make_tag_encoder(self, field: FieldSpec, path: str) -> Encoder:
        """Makes the encoder of a tagged field, with its tag and size."""
        with self._out.for_field(path):
            self._field(field, "value")
            self._flush()
        encode = self._out.compile_function(f"encode tag {field.name} v{self._version}")

        def write(value: Any, out: bytearray) -> None:  # noqa: ANN401
            body = bytearray()
            encode(value, body)
            out += encode_unsigned_varint(field.tag) + encode_unsigned_varint(len(body)) + body

        return write

    def _struct(self, struct: StructSpec, name: str) -> None:
        for field in struct.fields:
            if field.is_untagged(self._version):
                with self._out.for_field(field.name):
                    self._field(field, f"{name}.{field.name}")
        if self._flexible:
            self._tags(struct, name)
        self._flush()

    def _field(self, field: FieldSpec, value: str) -> None:
        nullable = self._version in field.nullable
        if field.is_array:
            self._array(field, value, nullable=nullable)
        elif field.kind in FIXED_SIZE_FORMATS:
            checked = f"checked_id({value})" if field.kind == "uuid" else value
            self._number(FIXED_SIZE_FORMATS[field.kind], checked)
        elif field.struct is None:
            self._text(field.kind, value, nullable=nullable)
        else:
            self._inner_struct(field.struct, value, nullable=nullable)

    def _inner_struct(self, struct: StructSpec, value: str, *, nullable: bool) -> None:
        out = self._out
        self._flush()
        name = out.new_variable("o")
        out.add_line(f"{name} = {value}")
        if not nullable:
            self._struct(struct, name)
            return
        with out.block(f"if {name} is None:"):
            out.add_line("out.append(255)")
        with out.block("else:"):
            out.add_line("out.append(1)")
            self._struct(struct, name)

    def _text(self, kind: str, value: str, *, nullable: bool) -> None:
        out = self._out
        text, size = out.new_variable("text"), out.new_variable("size")
        out.add_line(f"{text} = {value}")
        if kind == "string":
            guard = f" if {text} is not None else None" if nullable else ""
            out.add_line(f"{text} = {text}.encode(){guard}")
        null = f"-1 if {text} is None else " if nullable else ""
        out.add_line(f"{size} = {null}len({text})")
        if kind == "string":
            with out.block(f"if {size} > {MAX_STRING_BYTES}:"):
                out.add_line(f"refuse_text({size})")
        self._length(size, wide=kind != "string")
        with out.block(f"if {size} > 0:"):
            out.add_line(f"out += {text}")

    def _array(self, field: FieldSpec, value: str, *, nullable: bool) -> None:
        out = self._out
        items, size = out.new_variable("items"), out.new_variable("size")
        out.add_line(f"{items} = {value}")
        null = f"-1 if {items} is None else " if nullable else ""
        out.add_line(f"{size} = {null}len({items})")
        self._length(size, wide=True)
        with out.block(f"if {size} > 0:"):
            if field.kind in FIXED_SIZE_FORMATS and field.kind != "uuid":
                kind = FIXED_SIZE_FORMATS[field.kind]
                out.add_line(f"out += pack(f'>{{{size}}}{kind}', *{items})")
            else:
                self._elements(field, items)

    def _elements(self, field: FieldSpec, items: str) -> None:
        item = self._out.new_variable("o")
        with self._out.block(f"for {item} in {items}:"):
            if field.struct is not None:
                self._struct(field.struct, item)
            elif field.kind == "uuid":
                self._number("16s", f"checked_id({item})")
                self._flush()
            else:
                self._text(field.kind, item, nullable=False)

    def _length(self, size: str, *, wide: bool) -> None:
        out = self._out
        if not self._flexible:
            self._number("i" if wide else "h", size)
            self._flush()
            return
        self._flush()
        with out.block(f"if {size} < 127:"):
            out.add_line(f"out.append({size} + 1)")
        with out.block("else:"):
            out.add_line(f"out += varint({size} + 1)")

    def _tags(self, struct: StructSpec, name: str) -> None:
        out = self._out
        tags = struct.tagged_fields(self._version)
        if not tags:
            self._number("B", "0")
            return
        self._flush()
        absent = [self._absent(field, f"{name}.{field.name}") for field in tags]
        with out.block(f"if {' and '.join(absent)}:"):
            out.add_line("out.append(0)")
        with out.block("else:"):
            out.add_line("count, tags = 0, bytearray()")
            for field, gone in zip(tags, absent, strict=True):
                inner = _EncoderWriter(self._version, self._top)
                write = inner.make_tag_encoder(field, self._path_of_tag(field))
                with out.block(f"if not ({gone}):"):
                    out.add_line("count += 1")
                    out.add_line(f"{out.bind_value('tag', write)}({name}.{field.name}, tags)")
            out.add_line("out += varint(count)")
            out.add_line("out += tags")

    def _absent(self, field: FieldSpec, value: str) -> str:
        """A condition that is true if a tagged field has its default."""
        if field.struct is not None and not field.is_array:
            empty = getattr(self._top, field.struct.name)()
            return f"({value} is None or {value} == {self._out.bind_value('empty', empty)})"
        if field.default is None:
            return f"{value} is None"
        if field.is_array:
            return f"({value} is not None and not len({value}))"
        return f"{value} == {field.default!r}"

    def _flush(self) -> None:
        if self._numbers:
            formats, values, fields = self._take_numbers()
            pack_all = self._out.bind_struct("pack", formats)
            self._out.add_line(f"out += {pack_all}({values})", fields)


def _check_uuid(value: bytes) -> bytes:
    if len(value) != len(ZERO_UUID):
        raise TypeError(f"an id of {len(value)} bytes")
    return value


def _raise_string_too_long(size: int) -> NoReturn:
    raise ValueError(f"a text of {size} bytes; {MAX_STRING_BYTES} are the most")


_REQUEST_HEADER = struct.Struct(">hhih")

_decoders: dict[tuple[type[Message], int], Decoder] = {}

_encoders: dict[tuple[type[Message], int], Encoder] = {}

MessageT = TypeVar("MessageT", bound=Message)


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    size: int  # bytes of the frame before the body


def supported_versions(api: Api) -> Versions:
    return classes_by_api[api][0].SCHEMA.versions


def read_request_header(frame: Bytes) -> RequestHeader:
    """Reads the header of a request of any API and version; raises FormatError if it is cut."""
    if len(frame) < _REQUEST_HEADER.size:
        raise FormatError(
            f"a request's header has {_REQUEST_HEADER.size} bytes at least, not {len(frame)}"
        )
    api, version, correlation_id, length = _REQUEST_HEADER.unpack_from(frame)
    size = _REQUEST_HEADER.size + max(length, 0)
    if length < -1 or size > len(frame):
        raise FormatError(f"its client id declares {length} bytes")
    client_id = None if length < 0 else str(frame[_REQUEST_HEADER.size : size], "utf-8", "replace")
    if api in classes_by_api and version in _flexible_versions(api):
        try:
            tags = frame[size]
            size = read_tags(frame, size + 1, len(frame), tags) if tags else size + 1
        except (FormatError, IndexError):
            raise FormatError("the tagged fields of its header are cut") from None
    return RequestHeader(api, version, correlation_id, client_id, size)


def read_request(request_class: type[MessageT], version: int, frame: Bytes, start: int) -> MessageT:
    """Decodes the body that starts here; raises FormatError if it does not follow its schema."""
    return _decode_message(request_class, version, frame, start)


def read_response(
    response_class: type[MessageT], version: int, frame: Bytes
) -> tuple[int, MessageT]:
    """Returns correlation id and body; raises FormatError if they do not follow the schema."""
    try:
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        start = (
            read_tags(frame, 5, len(frame), frame[4])
            if _has_tagged_response_header(response_class.API, version)
            else 4
        )
    except (FormatError, IndexError):
        raise FormatError("a response's header is cut") from None
    return correlation_id, _decode_message(response_class, version, frame, start)


def write_request(header: RequestHeader, request: Message) -> bytearray:
    """Encodes a whole frame, with its length and header. ``header.size`` is not used."""
    name = header.client_id
    encoded = b"" if name is None else name.encode()
    size = -1 if name is None else len(encoded)
    out = (
        bytearray(4)
        + _REQUEST_HEADER.pack(header.api_key, header.api_version, header.correlation_id, size)
        + encoded
    )
    if header.api_version in _flexible_versions(header.api_key):
        out.append(0)
    return _encode_message(request, header.api_version, out)


def write_response(api: Api, version: int, correlation_id: int, response: Message) -> bytearray:
    """Encodes a whole frame, with its length and header."""
    out = bytearray(struct.pack(">ii", 0, correlation_id))
    if _has_tagged_response_header(api, version):
        out.append(0)
    return _encode_message(response, version, out)


@functools.cache
def _flexible_versions(api: int) -> Versions:
    return classes_by_api[api][0].SCHEMA.flexible


def _has_tagged_response_header(api: Api, version: int) -> bool:
    """The header of ApiVersions never has tagged fields, so that every client can read it."""
    return version in _flexible_versions(api) and api != Api.API_VERSIONS


def _decode_message(
    message_class: type[MessageT], version: int, frame: Bytes, start: int
) -> MessageT:
    decode = _decoders.get((message_class, version))
    if decode is None:
        made = message_class.message_class
        if version not in made.SCHEMA.versions:
            raise FormatError(f"there is no {made.__name__} of version {version}")
        decode = _decoders[message_class, version] = make_decoder(made, version)
    try:
        message: MessageT = decode(frame, start, len(frame))
    except (FormatError, struct.error, IndexError) as error:
        text = str(error) if isinstance(error, FormatError) else "is cut"
        place = field_of_traceback(error.__traceback__) or "its body"
        name = message_class.message_class.__name__
        raise FormatError(f"{name} v{version}: {place} {text}") from None
    return message


def _encode_message(message: Message, version: int, out: bytearray) -> bytearray:
    message_class = type(message)
    encode = _encoders.get((message_class, version))
    if encode is None:
        if version not in message_class.SCHEMA.versions:
            raise TypeError(f"there is no {message_class.__name__} of version {version}")
        encode = _encoders[message_class, version] = make_encoder(message_class, version)
    try:
        encode(message, out)
    except (TypeError, ValueError, AttributeError, struct.error) as error:
        place = field_of_traceback(error.__traceback__)
        raise TypeError(f"{message_class.__name__} v{version}: {place}: {error}") from error
    struct.pack_into(">i", out, 0, len(out) - 4)
    return out
