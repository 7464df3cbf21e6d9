"""Times as people read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment(milliseconds: int) -> str:
    """``2026-11-15 06:00:00Z``; a clock that was wrong by thousands of years: the bare number."""
    try:
        return f"{EPOCH + timedelta(milliseconds=milliseconds):%Y-%m-%d %H:%M:%S}Z"
    except OverflowError:
        return f"{milliseconds} ms after 1970"


def span(seconds: float) -> str:
    """``108 s``, ``45 min``, ``5 h``, ``3 d``: two figures or three are enough."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 120 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3_600:
        return f"{seconds / 3_600:.0f} h"
    return f"{seconds / 86_400:,.0f} d"
