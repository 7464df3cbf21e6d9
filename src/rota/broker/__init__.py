"""A Kafka-compatible broker of one node.

The node is pure: events in, commands out. The server around it moves bytes with asyncio.
"""

from __future__ import annotations

from rota import protocol


def explain_missing_packages() -> str | None:
    """Returns how to install the packages that the broker lacks; None if it lacks none."""
    return protocol.explain_missing_packages("broker", "broker")
