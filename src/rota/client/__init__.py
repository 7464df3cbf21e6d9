"""One network client for all who need one: connections, metadata, leaders, offsets, raw fetches."""

from __future__ import annotations

import importlib.util

NEEDED = {"kafka": "kafka-python", "cramjam": "cramjam", "crc32c": "crc32c"}
"""What ``rota[consumer]`` brings: modules, and what they are installed by."""


def missing() -> str | None:
    """How to get what a client needs and is not installed; None if all is there."""
    names = [NEEDED[name] for name in NEEDED if importlib.util.find_spec(name) is None]
    if not names:
        return None
    return (
        f"Rota's consumer needs {' and '.join(names)}: "
        "pip install 'rota[consumer]' ('.[consumer]' in a clone)"
    )
