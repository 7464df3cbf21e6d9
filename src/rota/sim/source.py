"""A scenario's text as checked values: whatever is wrong is named by line and key."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from rota.errors import InputError
from rota.sim import duration

Path: TypeAlias = tuple[str | int, ...]
"""How to get to a value: ``("members", 2, "joins")``."""

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\]]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PARTS = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")
_SYNTAX = re.compile(r"(.*) \(at (?:line (\d+), column \d+|end of document)\)$")
"""How tomllib words its errors."""
_NOT_CODE = re.compile(r"""\"(?:\\.|[^"\\])*\"|'[^']*'|#.*""")


class Source:
    """Where values came from."""

    def __init__(self, name: str, text: str | None = None) -> None:
        self.name = name
        self._lines = {} if text is None else lines_of(text)

    def error(self, path: Path, problem: str) -> InputError:
        """An error that names the place."""
        line = self._line(path)
        where = self.name if line is None else f"{self.name}, line {line}"
        key = written(path)
        return InputError(f"{where}: {f'{key}: ' if key else ''}{problem}")

    def _line(self, path: Path) -> int | None:
        for end in range(len(path), 0, -1):
            if path[:end] in self._lines:
                return self._lines[path[:end]]
        return None

    def parse(self, text: str) -> Mapping[str, object]:
        """The values in a TOML text."""
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            found = _SYNTAX.match(str(error))
            if found is None:
                raise InputError(f"{self.name}: not TOML: {error}") from None
            line = found[2] or str(text.count("\n") + 1)
            raise InputError(f"{self.name}, line {line}: not TOML: {found[1]}") from None
        except RecursionError:
            raise InputError(f"{self.name}: not a scenario: nested too deeply") from None


def written(path: Path) -> str:
    """``members[2].joins``."""
    shown = ""
    for step in path:
        shown += f"[{step}]" if isinstance(step, int) else f".{step}" if shown else step
    return shown


def lines_of(text: str) -> dict[Path, int]:
    """The line of each key and table of a TOML text.

    tomllib tells lines of broken syntax only. This looks at headers and at keys that begin a line;
    what stands within a value is found by the key of that value.
    """
    found: dict[Path, int] = {}
    table: Path = ()
    counts: dict[str, int] = {}
    depth, quotes = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        if quotes:
            if quotes in line:
                quotes = ""
            continue
        if not depth:
            header = _HEADER.match(line)
            key = _KEY.match(line)
            if header is not None and "=" not in header[2]:
                table = _table(header, counts)
                found.setdefault(table, number)
                continue
            if key is not None:
                path = table + tuple(part.strip("\"'") for part in _PARTS.findall(key[1]))
                for end in range(len(table) + 1, len(path) + 1):
                    found.setdefault(path[:end], number)
        for mark in ('"""', "'''"):
            if line.count(mark) % 2:
                quotes = mark
        code = _NOT_CODE.sub("", line)
        depth += sum(code.count(c) for c in "[{") - sum(code.count(c) for c in "]}")
    return found


def _table(header: re.Match[str], counts: dict[str, int]) -> Path:
    parts = tuple(part.strip("\"'") for part in _PARTS.findall(header[2]))
    if header[1] == "[":
        return parts
    name = ".".join(parts)
    counts[name] = counts.get(name, -1) + 1
    return (*parts, counts[name])


class Table:
    """One table of a scenario; every value is checked when it is taken."""

    def __init__(self, source: Source, path: Path, value: object) -> None:
        self.source = source
        self.path = path
        if not isinstance(value, Mapping):
            raise source.error(path, f"must be a table, not {_kind(value)}")
        self.values: Mapping[str, object] = value

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def error(self, key: str | None, problem: str) -> InputError:
        """An error that names the place of a key, or of the table."""
        return self.source.error(self.path if key is None else (*self.path, key), problem)

    def only(self, known: Sequence[str]) -> None:
        """Refuses keys that nobody reads."""
        for key in self.values:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
                raise self.error(key, f"unknown key: {hint}")

    def needed(self, key: str) -> object:
        """The value of a key that must be there."""
        if key not in self.values:
            raise self.error(None, f"{key} is missing")
        return self.values[key]

    def text(self, key: str, default: str | None = None) -> str:
        """A text that is not empty."""
        value = self.values.get(key, default) if default is not None else self.needed(key)
        if not isinstance(value, str) or not value:
            raise self.error(key, f"must be a text, not {_kind(value)}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """One text, or a list of them."""
        value = self.needed(key)
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, list | tuple) or not listed:
            raise self.error(key, f"must be a name or a list of names, not {_kind(value)}")
        for one in listed:
            if not isinstance(one, str) or not one:
                raise self.error(key, f"must hold names only, not {_kind(one)}")
        return tuple(listed)

    def flag(self, key: str, default: bool = False) -> bool:
        """True or false."""
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise self.error(key, f"must be true or false, not {_kind(value)}")
        return value

    def count(self, key: str, default: int | None = None, least: int = 0) -> int:
        """A whole number."""
        value = self.values.get(key, default) if default is not None else self.needed(key)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.error(key, f"must be a whole number, not {_kind(value)}")
        if value < least:
            raise self.error(key, f"must be at least {least}, not {value}")
        return value

    def time(self, key: str, default: int | None = None, least: int = 0) -> int:
        """A time, in milliseconds."""
        if key not in self.values and default is not None:
            return default
        value = self.needed(key)
        if not isinstance(value, str):
            raise self.error(key, f'must be a time such as "90s" or "5m", not {_kind(value)}')
        try:
            time = duration.parse(value)
        except ValueError as error:
            raise self.error(key, str(error)) from None
        if time < least:
            raise self.error(key, f"must be at least {duration.written(least)}, not {value}")
        return time

    def table(self, key: str) -> Table:
        """A table within; an empty one where there is none."""
        return Table(self.source, (*self.path, key), self.values.get(key, {}))

    def tables(self, key: str) -> list[Table]:
        """A list of tables; an empty one where there is none."""
        value = self.values.get(key, [])
        if not isinstance(value, list | tuple):
            raise self.error(key, f"must be a list of tables ([[{key}]]), not {_kind(value)}")
        return [Table(self.source, (*self.path, key, n), one) for n, one in enumerate(value)]


def _kind(value: object) -> str:
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list | tuple):
        return "a list"
    return repr(value)
