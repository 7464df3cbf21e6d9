"""Durations as people write them: ``250ms``, ``90s``, ``1h30m``."""

from __future__ import annotations

import operator
import re
from fractions import Fraction

from rota.engine.model.config import MAX_LONG
from rota.engine.model.text import quote_shortened
from rota.errors import InputError

_UNITS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
LONGEST_DURATION = 366 * _UNITS["d"]  # longer times in a scenario are probably a mistake
_DURATION = re.compile("".join(rf"(?:(\d+(?:\.\d+)?)\s*{unit}(?![a-z])\s*)?" for unit in _UNITS))


def parse_duration(text: str) -> int:
    """Returns milliseconds; raises ValueError if the text is not a time."""
    found = _DURATION.fullmatch(text.strip())
    numbers = found.groups("0") if found else ()
    total = sum(map(operator.mul, map(Fraction, numbers), _UNITS.values()), Fraction())
    if found is None or not any(found.groups()) or total.denominator != 1:
        raise ValueError(f'{text!r} is not a time such as "90s", "5m", "1h30m" or "250ms"')
    if total > LONGEST_DURATION:
        raise ValueError(f"{text!r} is more than a year")
    return int(total)


def format_duration(milliseconds: int) -> str:
    """Returns the shortest exact form: ``1h30m``, ``2.5s``, ``250ms``."""
    if milliseconds < 1_000:
        return f"{milliseconds}ms" if milliseconds else "0s"
    text, rest = "", milliseconds
    for unit in ("d", "h", "m"):
        count, rest = divmod(rest, _UNITS[unit])
        text += f"{count}{unit}" if count else ""
    return text + (f"{rest / 1000:.3f}".rstrip("0").rstrip(".") + "s" if rest else "")


def format_rounded_duration(milliseconds: int) -> str:
    """Returns ``0.4 s``, ``3 min 47 s``, ``2 h 38 min``, ``3 d 4 h``: as base.js of the report."""
    if milliseconds < 9_950:
        return f"{milliseconds / 1_000:.1f} s" if milliseconds >= 50 else "0 s"
    seconds, minutes = (round(milliseconds / _UNITS[unit]) for unit in ("s", "m"))
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 600:
        return _format_two_units(seconds, 60, "min", "s")
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return _format_two_units(minutes, 60, "h", "min")
    return _format_two_units(round(milliseconds / _UNITS["h"]), 24, "d", "h")


def _format_two_units(amount: int, size: int, large: str, small: str) -> str:
    whole, rest = divmod(amount, size)
    return f"{whole:,} {large} {rest} {small}" if rest else f"{whole:,} {large}"


def format_clock(milliseconds: int) -> str:
    """Returns a time as on a clock: ``0:05:00``, or with milliseconds: ``0:05:00.250``."""
    seconds, rest = divmod(milliseconds, 1_000)
    shown = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{shown}.{rest:03}" if rest else shown


_ISO_DURATION = re.compile(
    r"(?P<sign>[-+]?)P(?:(?P<D>[-+]?\d+)D)?"
    r"(?:T(?=[-+\d])(?:(?P<H>[-+]?\d+)H)?(?:(?P<M>[-+]?\d+)M)?"
    r"(?:(?P<S>[-+]?\d+)(?:[.,](?P<fraction>\d{0,9}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)

_UNIT_SECONDS = {"D": 86_400, "H": 3_600, "M": 60, "S": 1}


def parse_iso_duration(text: str, key: str) -> int:
    """Parses a ``Duration`` of Java (ISO 8601) from 0 up, rounded up to milliseconds."""
    found = _ISO_DURATION.fullmatch(text)
    if found is None or not any(found[unit] for unit in _UNIT_SECONDS):
        raise InputError(
            f"{key}: {quote_shortened(text)} is not a duration of the form PnDTnHnMn.nS, "
            "such as PT1H, P7D or PT0.5S"
        )
    seconds = sum(int(found[unit] or 0) * size for unit, size in _UNIT_SECONDS.items())
    fraction = int((found["fraction"] or "").ljust(9, "0"))
    is_negative = (found["S"] or "").startswith("-")
    nanoseconds = seconds * 10**9 + (-fraction if is_negative else fraction)
    if found["sign"] == "-":
        nanoseconds = -nanoseconds
    if not 0 <= nanoseconds <= MAX_LONG * 10**6:
        raise InputError(f"{key}: the duration {quote_shortened(text)} is negative or too long")
    return -(-nanoseconds // 10**6)
