"""What could not be read: counted by kind, with examples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as fn

SHOWN = 20
"""Examples of each kind."""

OFFSETS = "records of offsets"
GROUPS = "records of groups"
BATCHES = "damaged batches"
BATCHES_REDACTED = f"{BATCHES}, and records that could not be redacted"
LINES = "log lines about a group, but not understood"
ENDS = "lines that are no samples of ends"
READ_ONCE = frozenset({BATCHES, BATCHES_REDACTED, LINES, ENDS})
"""Kinds that a later round of a run that follows does not meet again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """Something that could not be read."""

    what: str
    count: int
    examples: tuple[str, ...] = ()


def foreign(counts: Mapping[str, int]) -> list[Unread]:
    """Records of kinds that Rota names but does not decode."""
    return [
        Unread(what=f"records of a kind that is not decoded ({name})", count=count)
        for name, count in sorted(counts.items())
    ]


def place(partition: int, offset: int, problem: str) -> str:
    """An example: where in the journal, and what is wrong there."""
    return f"partition {partition} offset {offset}: {problem}"


def counting(where: str) -> dict[str, Column]:
    """Counts the problems of a table's rows while it is written, with two examples: nothing is
    read again for it.

    :param where: SQL, the place of a row
    """
    text = fn.when(fn.col("problem").isNotNull(), fn.concat_ws(" ", fn.expr(where), "problem"))
    return {"bad": fn.count("problem"), "least": fn.min(text), "most": fn.max(text)}


def counted(what: str, counts: Mapping[str, Any]) -> list[Unread]:
    """What :func:`counting` has counted."""
    if not counts["bad"]:
        return []
    examples = tuple(dict.fromkeys((counts["least"], counts["most"])))
    return [Unread(what=what, count=counts["bad"], examples=examples)]


def added(*several: Iterable[Unread]) -> list[Unread]:
    """All of them, those of one kind together."""
    found: dict[str, Unread] = {}
    for one in (one for each in several for one in each):
        before = found.get(one.what, Unread(what=one.what, count=0))
        examples = tuple(dict.fromkeys((*before.examples, *one.examples)))
        found[one.what] = Unread(
            what=one.what, count=before.count + one.count, examples=examples[:SHOWN]
        )
    return [one for one in found.values() if one.count]
