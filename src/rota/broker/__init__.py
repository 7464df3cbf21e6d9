"""A Kafka-compatible broker of one node: sans-IO inside, asyncio around it."""

from __future__ import annotations

from rota import wire


def missing() -> str | None:
    """How to get what the broker needs and is not installed; None if all is there."""
    return wire.missing("broker", "broker")
