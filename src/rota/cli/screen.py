"""The terminal: how tables and names look on it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Collection, Iterable, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

WIDE = 10_000
NARROWEST = 100
LONG = 200
"""Rows of a table that is printed as it is."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leaves it to the command's own handler; rich would exit with 1, the code of a limit."""
        raise BrokenPipeError


def console() -> Console:
    """Names are printed as they are: no markup, no emoji codes; a pipe gets unbroken lines, and a
    narrow terminal wraps them itself rather than inside columns.
    """
    columns = shutil.get_terminal_size().columns
    return _Console(
        markup=False,
        highlight=False,
        emoji=False,
        soft_wrap=False,
        width=max(columns, NARROWEST) if sys.stdout.isatty() else WIDE,
    )


def plain(name: str) -> Text:
    """A name without characters that would move the cursor or colour the screen."""
    return Text("".join(c if c.isprintable() else ascii(c)[1:-1] for c in name))


def empty_table(*titles: str) -> Table:
    """A table without lines."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in titles:
        table.add_column(title, overflow="fold")
    return table


def print_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], numbers: Collection[str] = ()
) -> None:
    """A table without lines; columns with these titles are set right. A long one is not broken to
    fit the terminal: that takes a second for every few hundred rows.
    """
    if len(rows) <= LONG:
        table = empty_table(*titles)
        for column in table.columns:
            column.justify = "right" if column.header in numbers else "left"
        for row in rows:
            table.add_row(*map(plain, row))
        print_trimmed(table)
        return
    cells = [list(titles), *([plain(cell).plain for cell in row] for row in rows)]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        padded = [
            _padded(cell, width, right=title in numbers)
            for cell, width, title in zip(row, widths, titles, strict=True)
        ]
        print("  ".join(padded).rstrip())  # noqa: T201


def print_trimmed(table: Table) -> None:
    """Without the blanks that would fill the last column: they get in the way of who copies it."""
    screen = console()
    with screen.capture() as captured:
        screen.print(table)
    for line in captured.get().splitlines():
        print(line.rstrip())  # noqa: T201


def _padded(cell: str, width: int, *, right: bool) -> str:
    blank = " " * (width - cell_len(cell))
    return blank + cell if right else cell + blank


def count(number: int, noun: str) -> str:
    """``1 member``, ``2 members``."""
    return f"{number} {noun}" if number == 1 else f"{number:,} {noun}s"


def ranges(numbers: Iterable[int]) -> str:
    """``0-2, 5`` for 0, 1, 2, 5."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
