"""A function's text while it is written, and for each of its lines the field it is about."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

_FIELDS = "FIELDS"


class Source:
    """Text of a function. It is one function a schema and version: no calls, few branches."""

    def __init__(self, head: str, **names: object) -> None:
        self._lines = [head]
        self._fields = [""]
        self._path: list[str] = []
        self._depth = 1
        self._count = 0
        self._names: dict[str, object] = names

    def line(self, text: str, field: str | None = None) -> None:
        """Another line, about the present field or this one."""
        self._lines.append("    " * self._depth + text)
        self._fields.append(self.path if field is None else field)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Lines within this one."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    @contextmanager
    def about(self, field: str) -> Iterator[None]:
        """Lines that are about a field of the present one."""
        self._path.append(field)
        yield
        self._path.pop()

    @property
    def path(self) -> str:
        """The present field, from the message on."""
        return ".".join(self._path)

    def variable(self, prefix: str) -> str:
        """A name not used yet."""
        self._count += 1
        return f"{prefix}{self._count}"

    def bind(self, prefix: str, value: object) -> str:
        """A name for a value that the function uses."""
        name = self.variable(prefix)
        self._names[name] = value
        return name

    def unpack(self, formats: str) -> str:
        """The name of a function that reads numbers."""
        return self._bound(f"unpack_{formats}", struct.Struct(f">{formats}").unpack_from)

    def pack(self, formats: str) -> str:
        """The name of a function that writes numbers."""
        return self._bound(f"pack_{formats}", struct.Struct(f">{formats}").pack)

    def _bound(self, name: str, value: object) -> str:
        name = name.replace("?", "t")
        self._names[name] = value
        return name

    def function(self, label: str) -> Callable[..., Any]:
        """The function."""
        names = {**self._names, _FIELDS: self._fields}
        code = compile("\n".join(self._lines), f"<{label}>", "exec")
        exec(code, names)  # noqa: S102 made of the schema's names alone
        made: Any = names[self._lines[0].removeprefix("def ").partition("(")[0]]
        return made  # type: ignore[no-any-return]


def field_at(trace: TracebackType | None) -> str:
    """The field that a function of a :class:`Source` was at when it raised."""
    found = ""
    while trace is not None:
        fields = trace.tb_frame.f_globals.get(_FIELDS)
        if fields is not None:
            found = fields[trace.tb_lineno - 1] or found
        trace = trace.tb_next
    return found
