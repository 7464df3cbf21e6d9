"""Waiting for what another thread, process or broker does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

PATIENCE = 60
"""Seconds; far more than anything takes on an idle machine."""


def until(
    what: str,
    look: Callable[[], Any],
    shown: Callable[[], Any] = str,
    *,
    seconds: float = PATIENCE,
) -> Any:
    """What `look` finds, once it finds something; what is `shown` goes into the complaint."""
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, f"not within {seconds} s: {what} {shown()}"
        time.sleep(0.01)
    return found
