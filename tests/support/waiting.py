"""Waiting for what another thread, process or broker does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

#: Seconds; far more than anything takes on an idle machine.
PATIENCE = 60


def pause() -> None:
    """Let others work for a moment."""
    time.sleep(0.01)


def wait_until(
    what: str,
    look: Callable[[], Any],
    shown: Callable[[], Any] = str,
    *,
    seconds: float = PATIENCE,
    meanwhile: Callable[[], object] = pause,
) -> Any:
    """What `look` finds, once it finds something; what is `shown` goes into the complaint.

    `meanwhile` is called between two looks: a poll, if the test has to go on for it to happen.
    """
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, f"not within {seconds} s: {what} {shown()}"
        meanwhile()
    return found
