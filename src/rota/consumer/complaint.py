"""Warnings about a trouble that lasts, at a rate that a person can bear."""

from __future__ import annotations

import logging
import time

LOGGER = logging.getLogger("rota.consumer")
INTERVAL = 30.0
"""Seconds between two warnings of the same trouble."""


class Complaint:
    """The first failure is told at once, then once in a while, then that it is over."""

    def __init__(self, about: str) -> None:
        self.about = about
        self._since: float | None = None
        self._last_told = 0.0
        self._failures = 0

    def make(self, error: Exception) -> None:
        """It happened, maybe again."""
        now = time.monotonic()
        self._failures += 1
        if self._since is None:
            self._since = self._last_told = now
            LOGGER.warning("%s: %s; trying on", self.about, error)
        elif now - self._last_told >= INTERVAL:
            self._last_told = now
            LOGGER.warning(
                "%s for %.0f s, %d attempts: %s; trying on",
                self.about,
                now - self._since,
                self._failures,
                error,
            )

    def settle(self) -> None:
        """It is over."""
        if self._since is not None:
            LOGGER.info("%s for %.1f s, now over", self.about, time.monotonic() - self._since)
        self._since = None
        self._failures = 0
