"""Times as people write them: ``250ms``, ``90s``, ``1h30m``."""

from __future__ import annotations

import re
from fractions import Fraction

UNITS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
LONGEST = 366 * UNITS["d"]
"""Beyond this a time in a scenario is a slip."""

_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|[dhms])\s*")


def parse(text: str) -> int:
    """Milliseconds; ValueError if the text is not a time."""
    total, position, last = Fraction(0), 0, LONGEST + 1
    stripped = text.strip()
    while position < len(stripped):
        found = _PART.match(stripped, position)
        if found is None or UNITS[found[2]] >= last:
            position = -1
            break
        last = UNITS[found[2]]
        total += Fraction(found[1]) * last
        position = found.end()
    if position <= 0 or total.denominator != 1:
        raise ValueError(f'{text!r} is not a time such as "90s", "5m", "1h30m" or "250ms"')
    if total > LONGEST:
        raise ValueError(f"{text!r} is more than a year")
    return int(total)


def written(milliseconds: int) -> str:
    """The shortest exact form: ``1h30m``, ``2.5s``, ``250ms``."""
    if milliseconds < 1_000:
        return f"{milliseconds}ms" if milliseconds else "0s"
    parts = []
    rest = milliseconds
    for unit in ("d", "h", "m"):
        count, rest = divmod(rest, UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    if rest:
        parts.append(f"{rest / 1000:.3f}".rstrip("0").rstrip(".") + "s")
    return "".join(parts)


def clock(milliseconds: int) -> str:
    """As on a clock: ``0:05:00``, with milliseconds where there are any: ``0:05:00.250``."""
    seconds, rest = divmod(milliseconds, 1_000)
    shown = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{shown}.{rest:03}" if rest else shown
