"""A Kafka-compatible broker of one node: sans-IO inside, asyncio around it."""

from __future__ import annotations

import importlib.util

NEEDED = ("kafka", "cramjam", "crc32c")
"""What ``rota[broker]`` brings."""


def missing() -> str | None:
    """How to get what the broker needs and is not installed; None if all is there."""
    names = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if not names:
        return None
    return (
        f"Rota's broker needs {' and '.join(names)}: "
        "pip install 'rota[broker]' ('.[broker]' in a clone)"
    )
