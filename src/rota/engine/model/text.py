"""Rules and helpers for text: Kafka strings, topic names, patterns, and text for messages.

Light on purpose: this module imports neither numpy nor any format.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rota.errors import InputError

#: In bytes: a string travels behind a 16-bit length.
MAX_STRING_BYTES = 2**15 - 1

#: How much of a text an error shows.
MAX_SHOWN_CHARACTERS = 40


def quote_shortened(text: str) -> str:
    """Returns the text in quotes, cut after 40 characters."""
    return (
        repr(text) if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[:MAX_SHOWN_CHARACTERS]!r}..."
    )


def find_string_problem(text: str, most: int = MAX_STRING_BYTES) -> str | None:
    """Returns why a text cannot be sent as a Kafka string of at most ``most`` bytes, or None
    if it can.
    """
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        return f"has no UTF-8 form ({error.reason})"
    return f"takes {size} bytes, at most {most} fit" if size > most else None


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compiles a regular expression.

    :raises InputError: the pattern is not valid
    """
    try:
        return re.compile(pattern)
    except (re.error, OverflowError) as error:
        problem = str(error)
    except RecursionError:
        problem = "nested too deeply"
    raise InputError(f"{quote_shortened(pattern)} is not a pattern: {problem}")


def suggest_names(name: str, names: Iterable[str]) -> str:
    """Returns ``; did you mean a or b?`` with known names similar to an unknown one, or an
    empty text.
    """
    import difflib  # noqa: PLC0415 (for a mistake only)

    near = difflib.get_close_matches(name, names, 2, 0.6)
    return f"; did you mean {' or '.join(near)}?" if near else ""


#: The topic in which groups are kept.
CONSUMER_OFFSETS_TOPIC = "__consumer_offsets"

#: Topics of the broker itself; clients may read them.
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS_TOPIC, "__transaction_state", "__share_group_state"})

#: Kafka keeps its own state under this name; no topic may have it.
CLUSTER_METADATA_TOPIC = "__cluster_metadata"

#: Characters of a name: with a partition's number behind it, it is the name of a folder.
MAX_TOPIC_NAME_LENGTH = 249

_LEGAL_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def find_topic_name_problem(name: str) -> str | None:
    """Returns why a topic cannot have this name, or None if it can."""
    if not name:
        return "a topic's name may not be empty"
    if name in {".", ".."}:
        return f"a topic may not be called {name!r}"
    if len(name) > MAX_TOPIC_NAME_LENGTH:
        return (
            f"{quote_shortened(name)} has {len(name)} characters; a topic's name has "
            f"{MAX_TOPIC_NAME_LENGTH} at most"
        )
    if _LEGAL_TOPIC_NAME.fullmatch(name) is None:
        return (
            f"{quote_shortened(name)} has other characters than ASCII letters, digits, "
            "'.', '_' and '-'"
        )
    return None


def unify_collision_characters(name: str) -> str:
    """Replaces dots with underscores, as Kafka's metrics do: two topics whose names are then
    equal collide.
    """
    return name.replace(".", "_")


#: How many names a note or an error lists before it counts the rest.
MAX_LISTED_NAMES = 3


def list_first_names(names: Sequence[str]) -> str:
    """Returns ``a, b, c and 7 more``."""
    more = f" and {len(names) - MAX_LISTED_NAMES} more" if len(names) > MAX_LISTED_NAMES else ""
    return ", ".join(names[:MAX_LISTED_NAMES]) + more


def format_seconds(milliseconds: int) -> str:
    """Formats milliseconds as seconds: ``12.3 s``."""
    return f"{milliseconds / 1000:.1f} s"
