"""Durations as people write them: ``250ms``, ``90s``, ``1h30m``."""

from __future__ import annotations

import re
from fractions import Fraction

from rota.engine.model.config import MAX_LONG
from rota.engine.model.text import quote_shortened
from rota.errors import InputError

UNIT_MILLISECONDS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}

#: Beyond this a time in a scenario is a slip.
LONGEST_DURATION = 366 * UNIT_MILLISECONDS["d"]

_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|[dhms])\s*")


def parse_duration(text: str) -> int:
    """Milliseconds; ValueError if the text is not a time."""
    total, position, last = Fraction(0), 0, LONGEST_DURATION + 1
    stripped = text.strip()
    while position < len(stripped):
        found = _PART.match(stripped, position)
        if found is None or UNIT_MILLISECONDS[found[2]] >= last:
            position = -1
            break
        last = UNIT_MILLISECONDS[found[2]]
        total += Fraction(found[1]) * last
        position = found.end()
    if position <= 0 or total.denominator != 1:
        raise ValueError(f'{text!r} is not a time such as "90s", "5m", "1h30m" or "250ms"')
    if total > LONGEST_DURATION:
        raise ValueError(f"{text!r} is more than a year")
    return int(total)


def format_duration(milliseconds: int) -> str:
    """The shortest exact form: ``1h30m``, ``2.5s``, ``250ms``."""
    if milliseconds < 1_000:
        return f"{milliseconds}ms" if milliseconds else "0s"
    parts = []
    rest = milliseconds
    for unit in ("d", "h", "m"):
        count, rest = divmod(rest, UNIT_MILLISECONDS[unit])
        if count:
            parts.append(f"{count}{unit}")
    if rest:
        parts.append(f"{rest / 1000:.3f}".rstrip("0").rstrip(".") + "s")
    return "".join(parts)


def format_clock(milliseconds: int) -> str:
    """As on a clock: ``0:05:00``, with milliseconds where there are any: ``0:05:00.250``."""
    seconds, rest = divmod(milliseconds, 1_000)
    shown = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{shown}.{rest:03}" if rest else shown


_DURATION_FORM = re.compile(
    r"(?P<sign>[-+]?)P(?:(?P<D>[-+]?\d+)D)?"
    r"(?:T(?=[-+\d])(?:(?P<H>[-+]?\d+)H)?(?:(?P<M>[-+]?\d+)M)?"
    r"(?:(?P<S>[-+]?\d+)(?:[.,](?P<part>\d{0,9}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)

_UNIT_SECONDS = {"D": 86_400, "H": 3_600, "M": 60, "S": 1}


def parse_iso_duration(text: str, key: str) -> int:
    """Parses an ISO 8601 duration like Java's ``Duration.parse``, rounded up to milliseconds.

    :param key: the setting, for errors
    :raises InputError: it is not a duration, is negative, or is too long
    """
    found = _DURATION_FORM.fullmatch(text)
    if found is None or not any(found[unit] for unit in _UNIT_SECONDS):
        raise InputError(
            f"{key}: {quote_shortened(text)} is not a duration of the form PnDTnHnMn.nS, "
            "such as PT1H, P7D or PT0.5S"
        )
    seconds = sum(int(found[unit] or 0) * size for unit, size in _UNIT_SECONDS.items())
    part = int((found["part"] or "").ljust(9, "0"))
    nanoseconds = seconds * 10**9 + (-part if (found["S"] or "").startswith("-") else part)
    if found["sign"] == "-":
        nanoseconds = -nanoseconds
    if not 0 <= nanoseconds <= MAX_LONG * 10**6:
        raise InputError(f"{key}: the duration {quote_shortened(text)} is negative or too long")
    return -(-nanoseconds // 10**6)
