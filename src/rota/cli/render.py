"""Output on a terminal: tables, names, wrapped text, JSON, and notices on stderr."""

from __future__ import annotations

import json
import re
import shutil
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rota.engine.model.topic import Partitions

NOTICE_AFTER = 2.0  # seconds without output after which a notice shows the current step


def print_json(value: object) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))  # noqa: T201


def select_attributes(value: object, *names: str) -> dict[str, Any]:
    """Returns attributes under their names, for JSON."""
    return {name: getattr(value, name) for name in names}


def print_notice(text: str) -> None:
    """Prints a line on stderr, so that it does not get into a file or a pipe."""
    print(f"rota: {printable_text(' '.join(text.split())).plain}", file=sys.stderr)  # noqa: T201


UNLIMITED_WIDTH = 10_000
MIN_CONSOLE_WIDTH = 100
MAX_FITTED_ROWS = 200  # maximum number of rows of a table that is fitted to the terminal


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raises BrokenPipeError for main(); rich would exit with 1, the exit code of a limit."""
        raise BrokenPipeError


def make_console() -> Console:
    columns = shutil.get_terminal_size().columns
    width = max(columns, MIN_CONSOLE_WIDTH) if sys.stdout.isatty() else UNLIMITED_WIDTH
    return _Console(markup=False, highlight=False, emoji=False, soft_wrap=False, width=width)


def printable_text(name: str) -> Text:
    """Escapes control characters, which could move the cursor or colour the screen."""
    return Text("".join(c if c.isprintable() else ascii(c)[1:-1] for c in name))


def print_lines(*lines: str) -> None:
    """Prints lines of text, with control characters escaped."""
    console = make_console()
    for line in lines:
        console.print(printable_text(line))


def print_table(
    titles: Sequence[str], rows: Iterable[Sequence[object]], numbers: Collection[str] = ()
) -> None:
    """Prints a table without borders and trailing blanks, so that it can be copied; None is ``-``.
    A long table is not fitted to the terminal: rich needs a second for every few hundred rows.

    :param numbers: the titles of columns that are right-aligned
    """
    cells = [["-" if c is None else printable_text(str(c)).plain for c in row] for row in rows]
    if len(cells) <= MAX_FITTED_ROWS:
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        for title in titles:
            is_number = title in numbers
            table.add_column(title, overflow="fold", justify="right" if is_number else "left")
        for row in cells:
            table.add_row(*row)
        console = make_console()
        with console.capture() as captured:
            console.print(table)
        lines = captured.get().splitlines()
    else:
        cells.insert(0, list(titles))
        widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join(
                pad_cell(cell, width, right=title in numbers)
                for cell, width, title in zip(row, widths, titles, strict=True)
            )
            for row in cells
        ]
    for line in lines:
        print(line.rstrip())  # noqa: T201


def pad_cell(cell: str, width: int, *, right: bool) -> str:
    blank = " " * (width - cell_len(cell))
    return blank + cell if right else cell + blank


def format_loads(loads: Mapping[str, int]) -> str:
    """Returns ``3``, or ``3 to 5`` if members have different loads."""
    fewest, most = min(loads.values(), default=0), max(loads.values(), default=0)
    return str(fewest) if fewest == most else f"{fewest} to {most}"


def format_ranges(numbers: Iterable[int]) -> str:
    """Formats 0, 1, 2, 5 as ``0-2, 5``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def format_partitions(partitions: Partitions) -> str:
    """Formats partitions as ``orders 0-2; payments 5``."""
    listed = sorted(partitions.by_topic().items())
    shown = [f"{topic} {format_ranges(sorted(numbers))}" for topic, numbers in listed]
    return "; ".join(shown) or "nothing"


TEXT_WIDTH = 80
ELLIPSIS = "…"
_WORD = re.compile(r"\S+")
_UNBREAKABLE = re.compile(r"[=/]")  # characters of paths, and of settings in most languages
_SETTING = re.compile(r"\S+(?: [=*] \S+)*")  # Go has spaces: ``Timeout = 45 * time.Second``
_UNBREAKABLE_SETTING = re.compile(r"[=/\[\]{}]")


def wrap_text(
    text: str, first: str = "", rest: str = "", *, has_settings: bool = False
) -> list[str]:
    """Returns lines of at most 80 columns. A setting or a path is never broken, so that it can be
    copied: a wider one has a line of its own.

    :param first: beginning of the first line; ``rest``: beginning of the others
    :param has_settings: the text has settings of any language, and no names
    """
    room = TEXT_WIDTH - max(cell_len(first), cell_len(rest))
    lines: list[str] = []
    line, empty = first, True
    for word in _split_words(printable_text(text).plain, room, has_settings=has_settings):
        if not empty and cell_len(line) + 1 + cell_len(word) > TEXT_WIDTH:
            lines.append(line)
            line, empty = rest, True
        line, empty = line + (word if empty else f" {word}"), False
    return [*lines, line.rstrip()]


CLIPPED_WORD_WIDTH = 40  # width of a word in a clipped text: its two ends tell enough


def clip_text(text: str, first: str = "", rest: str = "", *, lines: int) -> list[str]:
    """Wraps a text to at most so many lines of 80 columns; shortens long words and cuts the end."""
    words = (shorten_name(word, CLIPPED_WORD_WIDTH) for word in _WORD.findall(text))
    wrapped = wrap_text(" ".join(words), first, rest)
    if len(wrapped) > lines:
        cut = set_cell_size(wrapped[lines - 1], TEXT_WIDTH - 1).rstrip()
        wrapped[lines - 1 :] = [cut + ELLIPSIS]
    return wrapped


def _split_words(text: str, room: int, *, has_settings: bool) -> Iterator[str]:
    """Yields words; breaks a word that is wider than a line, unless it is a setting or a path."""
    pattern, unbreakable = _WORD, _UNBREAKABLE
    if has_settings:
        pattern, unbreakable = _SETTING, _UNBREAKABLE_SETTING
    for word in pattern.findall(text):
        rest = word
        while cell_len(rest) > room and not unbreakable.search(word):
            head = set_cell_size(rest, room).rstrip()
            yield head
            rest = rest[len(head) :]
        yield rest


def shorten_name(name: str, width: int) -> str:
    """Shortens a name to a width; keeps both ends, because many names differ at the end."""
    name = printable_text(name).plain
    if cell_len(name) <= width:
        return name
    back = (width - 1) // 2
    tail = name[-back:] if back else ""
    while cell_len(tail) > back:
        tail = tail[1:]
    head = set_cell_size(name, width - 1 - cell_len(tail)).rstrip()
    return head + ELLIPSIS + tail


ProgressCallback: TypeAlias = Callable[[str], None]


@contextmanager
def report_progress() -> Iterator[ProgressCallback]:
    """Yields a function that prints each step on stderr once NOTICE_AFTER seconds passed."""
    lock = threading.Lock()
    current: str | None = None
    is_late = False

    def update(text: str | None = None, *, late: bool = False) -> None:
        nonlocal current, is_late
        with lock:
            current, is_late = text or current, is_late or late
            if is_late and current is not None:
                print_notice(f"{current} ...")

    with run_after(NOTICE_AFTER, partial(update, late=True)):
        yield update


@contextmanager
def run_after(seconds: float, function: Callable[[], None]) -> Iterator[None]:
    """Calls the function in a thread after some seconds, unless the block ends before."""
    timer = threading.Timer(seconds, function)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
