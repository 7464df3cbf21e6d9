"""Durations as Java writes them: ``PT1H``, ``P7D``, ``PT0.5S``."""

from __future__ import annotations

import re

from rota.errors import InputError
from rota.model.config import LONG
from rota.model.text import shortened

_FORM = re.compile(
    r"(?P<sign>[-+]?)P(?:(?P<D>[-+]?\d+)D)?"
    r"(?:T(?=[-+\d])(?:(?P<H>[-+]?\d+)H)?(?:(?P<M>[-+]?\d+)M)?"
    r"(?:(?P<S>[-+]?\d+)(?:[.,](?P<part>\d{0,9}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)


_SECONDS = {"D": 86_400, "H": 3_600, "M": 60, "S": 1}


def milliseconds(text: str, key: str) -> int:
    """As long as Java's ``Duration.parse`` takes it to be, rounded up; ``key`` is for errors.

    :raises InputError: it is no duration, negative, or too long
    """
    found = _FORM.fullmatch(text)
    if found is None or not any(found[unit] for unit in _SECONDS):
        raise InputError(
            f"{key}: {shortened(text)} is not a duration of the form PnDTnHnMn.nS, "
            "such as PT1H, P7D or PT0.5S"
        )
    seconds = sum(int(found[unit] or 0) * size for unit, size in _SECONDS.items())
    part = int((found["part"] or "").ljust(9, "0"))
    nanoseconds = seconds * 10**9 + (-part if (found["S"] or "").startswith("-") else part)
    if found["sign"] == "-":
        nanoseconds = -nanoseconds
    if not 0 <= nanoseconds <= LONG * 10**6:
        raise InputError(f"{key}: the duration {shortened(text)} is negative or too long")
    return -(-nanoseconds // 10**6)
