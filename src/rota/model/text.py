"""Texts that people give: what Kafka can carry, what is a pattern, and how a long one is shown."""

from __future__ import annotations

import re

from rota.errors import InputError

LONGEST_STRING = 2**15 - 1
"""In bytes: a string travels behind a 16-bit length."""
SHOWN = 40
"""How much of a text an error shows."""


def shortened(text: str) -> str:
    """The text in quotes, or how it begins."""
    return repr(text) if len(text) <= SHOWN else f"{text[:SHOWN]!r}..."


def misfit(text: str, most: int = LONGEST_STRING) -> str | None:
    """Why Kafka cannot carry a text, if so; ``most`` is how many bytes it may have."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        return f"has no UTF-8 form ({error.reason})"
    return f"takes {size} bytes, at most {most} fit" if size > most else None


def compiled(pattern: str) -> re.Pattern[str]:
    """A regular expression.

    :raises InputError: it is none
    """
    try:
        return re.compile(pattern)
    except (re.error, OverflowError) as error:
        problem = str(error)
    except RecursionError:
        problem = "nested too deeply"
    raise InputError(f"{shortened(pattern)} is not a pattern: {problem}")
