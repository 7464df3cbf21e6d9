"""Texts that people give: what Kafka can carry, what is a pattern, and how a long one is shown."""

from __future__ import annotations

import re
from collections.abc import Iterable

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


def nearest(name: str, names: Iterable[str]) -> str:
    """What somebody may have meant by a name that is not known, as the end of a message."""
    import difflib  # noqa: PLC0415 (for a mistake only)

    near = difflib.get_close_matches(name, names, 2, 0.6)
    return f"; did you mean {' or '.join(near)}?" if near else ""
