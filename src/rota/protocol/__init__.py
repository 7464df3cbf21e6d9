"""Kafka's protocol for clients and brokers: schemas, messages, frames and SASL logins.

Start with ``schemas`` (what a message looks like), then ``messages`` (requests and responses by
name). ``codec`` encodes and decodes them, ``frames`` splits a connection's bytes into messages,
``sasl`` is the server's side of a login.
"""

from __future__ import annotations

import importlib.util

#: Module names, and the names of the packages that install them.
REQUIRED_PACKAGES = {"kafka": "kafka-python", "cramjam": "cramjam", "crc32c": "crc32c"}


def explain_missing_packages(part: str, extra: str) -> str | None:
    """Returns how to install the packages that are missing; None if all are installed."""
    find = importlib.util.find_spec
    names = [package for module, package in REQUIRED_PACKAGES.items() if find(module) is None]
    if not names:
        return None
    return (
        f"Rota's {part} needs {' and '.join(names)}: "
        f"pip install 'rota[{extra}]' ('.[{extra}]' in a clone)"
    )
