"""One network client for all who need one: connections, metadata, leaders, offsets, raw fetches."""

from __future__ import annotations

from rota import wire


def missing() -> str | None:
    """How to get what a client needs and is not installed; None if all is there."""
    return wire.missing("consumer", "consumer")
