"""The network client: configuration, connections, cluster metadata, Fetch, offsets, groups."""

from __future__ import annotations

from rota import protocol


def explain_missing_packages() -> str | None:
    """Returns how to install what the client needs; None if everything is installed."""
    return protocol.explain_missing_packages("consumer", "consumer")
