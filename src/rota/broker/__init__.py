"""A Kafka-compatible broker of one node: sans-IO inside, asyncio around it."""

from __future__ import annotations

import importlib.util

NEEDED = {"kafka": "kafka-python", "cramjam": "cramjam", "crc32c": "crc32c"}
"""What ``rota[broker]`` brings: modules, and what they are installed by."""


def missing() -> str | None:
    """How to get what the broker needs and is not installed; None if all is there."""
    names = [NEEDED[name] for name in NEEDED if importlib.util.find_spec(name) is None]
    if not names:
        return None
    return (
        f"Rota's broker needs {' and '.join(names)}: "
        "pip install 'rota[broker]' ('.[broker]' in a clone)"
    )
