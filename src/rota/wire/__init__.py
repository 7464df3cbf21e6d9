"""Frames and messages of Kafka's protocol, for both sides."""

from __future__ import annotations

import importlib.util

NEEDED = {"kafka": "kafka-python", "cramjam": "cramjam", "crc32c": "crc32c"}
"""What both sides need of others: modules, and what they are installed by."""


def missing(part: str, extra: str) -> str | None:
    """How to get what a part needs and is not installed; None if all is there."""
    names = [NEEDED[name] for name in NEEDED if importlib.util.find_spec(name) is None]
    if not names:
        return None
    return (
        f"Rota's {part} needs {' and '.join(names)}: "
        f"pip install 'rota[{extra}]' ('.[{extra}]' in a clone)"
    )
