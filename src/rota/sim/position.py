"""Where the keys of a TOML text stand: tomllib tells the lines of broken syntax only."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import TypeAlias

Path: TypeAlias = tuple[str | int, ...]
"""How to get to a value: ``("members", 2, "joins")``."""

_TOKEN = re.compile(
    r'''
    """(?:\\.|[^\\])*?"{3,5} | \'{3}.*?\'{3,5}  # texts of several lines, with quotes at their end
    | "(?:\\.|[^"\\])*" | '[^']*'
    | \#[^\n]*
    | [\[\]{}=,.\n]
    | [^\[\]{}=,.\s\#"']+
    ''',
    re.DOTALL | re.VERBOSE,
)
_DEPTH = {"[": 1, "{": 1, "]": -1, "}": -1}


def lines_of(text: str) -> dict[Path, int]:
    """The line of each key and table of a text that tomllib has read.

    What stands within a value is found by the key of that value.
    """
    found: dict[Path, int] = {}
    last: dict[Path, int] = {}
    table: Path = ()
    for line, tokens in _statements(text):
        if tokens[0] == "[":
            path = table = _table(tokens, last)
        else:
            path = table + _key(tokens)
        for end in range(1, len(path) + 1):
            found.setdefault(path[:end], line)
    return found


def _statements(text: str) -> Iterator[tuple[int, list[str]]]:
    """Headers and pairs of key and value, each with the line where it begins."""
    line = begun = 1
    depth = 0
    tokens: list[str] = []
    for token in _TOKEN.findall(text + "\n"):
        if depth == 0 and token.isspace():
            if tokens:
                yield begun, tokens
            tokens = []
        elif token[0] not in "#\n":
            begun = begun if tokens else line
            tokens.append(token)
            depth += _DEPTH.get(token, 0)
        line += token.count("\n")


def _key(tokens: Iterable[str]) -> tuple[str, ...]:
    parts = takewhile(lambda token: token not in {"=", "]"}, tokens)
    return tuple(_part(part) for part in parts if part != ".")


def _part(token: str) -> str:
    """A part of a key, without its quotes and escapes."""
    return str(tomllib.loads(f"part = {token}")["part"]) if token[0] in "\"'" else token


def _table(header: list[str], last: dict[Path, int]) -> Path:
    """``last`` has the number of the last table of each list: a header within one means that."""
    is_list = header[1] == "["
    path: Path = ()
    parts = _key(header[1 + is_list :])
    for number, part in enumerate(parts, 1):
        path = (*path, part)
        if is_list and number == len(parts):
            last[path] = last.get(path, -1) + 1
        if path in last:
            path = (*path, last[path])
    return path
