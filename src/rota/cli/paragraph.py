"""Text for a terminal of 80 columns."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rich.cells import cell_len, set_cell_size

from rota.cli.screen import plain

WIDTH = 80
MORE = "…"
_WORD = re.compile(r"\S+")
_WHOLE = re.compile(r"[=/]")
"""What a path has, and a setting in most languages."""
_SETTING = re.compile(r"\S+(?: [=*] \S+)*")
"""One of Go's has spaces: ``Timeout = 45 * time.Second``."""
_WHOLE_SETTING = re.compile(r"[=/\[\]{}]")


def wrapped(text: str, first: str = "", rest: str = "", *, has_settings: bool = False) -> list[str]:
    """Lines of at most 80 columns. A setting or a path is never broken, so that it can be copied:
    one that is wider has a line of its own.

    :param first: what the first line begins with; ``rest``: the others
    :param has_settings: there are settings in it, as any language writes them, and no names
    """
    room = WIDTH - max(cell_len(first), cell_len(rest))
    lines: list[str] = []
    line, empty = first, True
    for word in _words(plain(text).plain, room, has_settings=has_settings):
        if not empty and cell_len(line) + 1 + cell_len(word) > WIDTH:
            lines.append(line)
            line, empty = rest, True
        line, empty = line + (word if empty else f" {word}"), False
    return [*lines, line.rstrip()]


def _words(text: str, room: int, *, has_settings: bool) -> Iterator[str]:
    """What may not be broken; other words that are wider than a line are, into such as fit."""
    one, whole = (_SETTING, _WHOLE_SETTING) if has_settings else (_WORD, _WHOLE)
    for word in one.findall(text):
        piece = word
        while cell_len(piece) > room and not whole.search(word):
            head = set_cell_size(piece, room).rstrip()
            yield head
            piece = piece[len(head) :]
        yield piece


def cut(name: str, width: int) -> str:
    """A name in so many columns: both of its ends, as many names differ in their last letters."""
    name = plain(name).plain
    if cell_len(name) <= width:
        return name
    back = (width - 1) // 2
    tail = name[-back:] if back else ""
    while cell_len(tail) > back:
        tail = tail[1:]
    head = set_cell_size(name, width - 1 - cell_len(tail)).rstrip()
    return head + MORE + tail
