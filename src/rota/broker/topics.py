"""The topics of a broker: the catalogue, and an open log for each partition."""

from __future__ import annotations


class Topics:
    """Interface; see the module's issue."""
