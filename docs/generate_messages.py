"""Writes src/rota/protocol/messages.pyi, the types of messages, from the schemas: ``make docs``.

The stub has one class for each request, response and struct, and one line for each field.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from rota.protocol.messages import classes_by_api
from rota.protocol.schemas import FieldSpec, MessageSpec, StructSpec

STUB = Path(__file__).parents[1] / "src" / "rota" / "protocol" / "messages.pyi"

HEAD = """\
# Made by `make docs` from the schemas of kafka-python {version}. Do not edit.

from collections.abc import Mapping
from typing import Any

from rota.engine.formats.buffer import Bytes
from rota.protocol.schemas import CLIENT_ONLY_APIS as CLIENT_ONLY_APIS
from rota.protocol.schemas import ZERO_UUID as ZERO_UUID
from rota.protocol.schemas import Api as Api
from rota.protocol.schemas import Message as Message
from rota.protocol.schemas import Request as Request

classes_by_api: Mapping[int, tuple[type[Request[Any]], type[Message]]]
"""

PYTHON_TYPES = {
    "bool": "bool",
    "float64": "float",
    "uuid": "bytes",
    "string": "str",
    "bytes": "bytes",
    "records": "Bytes",
}


def stub() -> str:
    """The text of the stub."""
    lines = [HEAD.format(version=version("kafka-python"))]
    for request, response in classes_by_api.values():
        lines += _message_lines(response.SCHEMA, "Message")
        lines += _message_lines(request.SCHEMA, f"Request[{response.SCHEMA.struct.name}]")
    return "\n".join(lines)


def _message_lines(schema: MessageSpec, base: str) -> Iterator[str]:
    yield from _struct_lines(schema, schema.struct, base, indent="")
    for struct in schema.structs():
        yield ""
        yield from _struct_lines(schema, struct, "Message", indent="    ")
    yield ""


def _struct_lines(schema: MessageSpec, struct: StructSpec, base: str, indent: str) -> Iterator[str]:
    yield f"{indent}class {struct.name}({base}):{'' if struct.fields else ' ...'}"
    indent += "    "
    for field in struct.fields:
        kind, default = _field_type(schema, field), _default(field)
        line = f"{indent}{field.name}: {kind} = {default}"
        if len(line) <= 100:
            yield line
        else:  # as ruff formats it
            element = kind.removeprefix("list[").removesuffix("]")
            yield from (f"{indent}{field.name}: list[", f"{indent}    {element}")
            yield f"{indent}] = {default}"


def _default(field: FieldSpec) -> str:
    if field.kind == "uuid" or field.default == [] or field.struct is not None:
        return "..."
    return repr(field.default).replace("'", '"')


def _field_type(schema: MessageSpec, field: FieldSpec) -> str:
    found = PYTHON_TYPES.get(field.kind, "int")
    if field.struct is not None:
        found = f"{schema.struct.name}.{field.struct.name}"
    if field.is_array:
        found = f"list[{found}]"
    return f"{found} | None" if _may_be_none(schema, field) else found


def _may_be_none(schema: MessageSpec, field: FieldSpec) -> bool:
    """True if a version allows null, or if the default is None and a version lacks the field.

    Structs have the default None. Still, a decoded message contains a struct if each of its
    versions does.
    """
    versions = range(schema.versions.low, schema.versions.high + 1)
    nullable = any(version in field.nullable and version in field.versions for version in versions)
    can_lack = any(not field.is_untagged(version) for version in versions)
    return nullable or (field.default is None and can_lack)


if __name__ == "__main__":
    STUB.write_text(stub(), encoding="utf-8")
