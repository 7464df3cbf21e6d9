"""Kafka strings, topic names, patterns, and text for messages.

To keep imports fast, this module imports neither numpy nor the formats.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rota.errors import InputError

MAX_STRING_BYTES = 2**15 - 1  # Kafka sends the length of a string in 16 bits
MAX_SHOWN_CHARACTERS = 40


def quote_shortened(text: str) -> str:
    """Returns the text in quotes, cut after 40 characters."""
    dots = "..." if len(text) > MAX_SHOWN_CHARACTERS else ""
    return f"{text[:MAX_SHOWN_CHARACTERS]!r}{dots}"


def shorten_middle(text: str, most: int) -> str:
    """Returns at most ``most`` characters; keeps both ends: many names differ at the end."""
    if len(text) <= most:
        return text
    back = (most - 1) // 2
    return f"{text[: most - 1 - back]}…{text[-back:]}"


def find_string_problem(text: str, most: int = MAX_STRING_BYTES) -> str | None:
    """Returns why a text cannot be a Kafka string of at most ``most`` bytes; None if it can."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        return f"cannot be encoded in UTF-8 ({error.reason})"
    return f"has {size} bytes, at most {most} are allowed" if size > most else None


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compiles a regular expression; raises InputError if it is not valid."""
    try:
        return re.compile(pattern)
    except (re.error, OverflowError) as error:
        problem = str(error)
    except RecursionError:
        problem = "nested too deeply"
    raise InputError(f"{quote_shortened(pattern)} is not a pattern: {problem}")


def suggest_names(name: str, names: Iterable[str]) -> str:
    """Returns ``; did you mean a or b?`` with names similar to an unknown one, or an empty text."""
    import difflib  # noqa: PLC0415 (only after a mistake)

    near = difflib.get_close_matches(name, names, 2, 0.6)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def suggest_or_list_names(unknown: Iterable[str], names: Iterable[str]) -> str:
    """Returns names similar to one of the unknown ones, or ``; known are a, b, c and 7 more``."""
    known = sorted(names)
    near = next(filter(None, (suggest_names(name, known) for name in unknown)), "")
    return near or (f"; known are {list_first_names(known)}" if known else "")


CONSUMER_OFFSETS_TOPIC = "__consumer_offsets"
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS_TOPIC, "__transaction_state", "__share_group_state"})
CLUSTER_METADATA_TOPIC = "__cluster_metadata"  # Kafka's own state; no user topic has this name
MAX_TOPIC_NAME_LENGTH = 249  # a partition's folder: topic name and partition number


def find_topic_name_problem(name: str) -> str | None:
    """Returns why a topic cannot have this name, or None if it can."""
    if not name:
        return "the name of a topic may not be empty"
    if name in {".", ".."}:
        return f"a topic may not have the name {name!r}"
    shown = quote_shortened(name)
    if len(name) > MAX_TOPIC_NAME_LENGTH:
        return f"{shown} has {len(name)} characters; at most {MAX_TOPIC_NAME_LENGTH} are allowed"
    if re.fullmatch(r"[a-zA-Z0-9._-]+", name) is None:
        return f"{shown} has other characters than ASCII letters, digits, '.', '_' and '-'"
    return None


def unify_collision_characters(name: str) -> str:
    """Replaces dots with underscores, as Kafka's metrics do; equal results collide."""
    return name.replace(".", "_")


MAX_LISTED_NAMES = 3  # the names that a message lists before it counts the rest


def list_first_names(names: Sequence[str]) -> str:
    """Returns ``a, b, c and 7 more``."""
    more = f" and {len(names) - MAX_LISTED_NAMES} more" if len(names) > MAX_LISTED_NAMES else ""
    return ", ".join(names[:MAX_LISTED_NAMES]) + more


def count_noun(number: int, noun: str) -> str:
    """Returns ``1 member`` or ``2 members``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.1f} s"
