"""Checks that the packages are installed that a client or a broker needs."""

from __future__ import annotations

import importlib.util

#: What both sides need of others: modules, and what they are installed by.
REQUIRED_PACKAGES = {"kafka": "kafka-python", "cramjam": "cramjam", "crc32c": "crc32c"}


def explain_missing_packages(part: str, extra: str) -> str | None:
    """Returns how to install the packages that are missing; None if all are installed."""
    names = [
        REQUIRED_PACKAGES[name]
        for name in REQUIRED_PACKAGES
        if importlib.util.find_spec(name) is None
    ]
    if not names:
        return None
    return (
        f"Rota's {part} needs {' and '.join(names)}: "
        f"pip install 'rota[{extra}]' ('.[{extra}]' in a clone)"
    )
