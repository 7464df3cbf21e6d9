"""What a topic may be called."""

from __future__ import annotations

import re

from rota.model.text import shortened

JOURNAL = "__consumer_offsets"
"""The topic in which groups are kept."""
INTERNAL = frozenset({JOURNAL, "__transaction_state", "__share_group_state"})
"""Topics of the broker itself; clients may read them."""
FORBIDDEN = "__cluster_metadata"
"""Kafka keeps its own state under this name; no topic may have it."""
LONGEST = 249
"""Characters of a name: with a partition's number behind it, it is the name of a folder."""

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def misname(name: str) -> str | None:
    """Why a topic cannot be called this, if so."""
    if not name:
        return "a topic's name may not be empty"
    if name in {".", ".."}:
        return f"a topic may not be called {name!r}"
    if len(name) > LONGEST:
        return f"{shortened(name)} has {len(name)} characters; a topic's name has {LONGEST} at most"
    if _LEGAL.fullmatch(name) is None:
        return (
            f"{shortened(name)} has other characters than ASCII letters, digits, '.', '_' and '-'"
        )
    return None


def unified(name: str) -> str:
    """Names that are equal here collide: Kafka's metrics cannot tell them apart."""
    return name.replace(".", "_")
