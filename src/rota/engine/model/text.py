"""Rules and helpers for text: Kafka strings, topic names, patterns, Java's ``.properties`` files,
and text for messages.

Light on purpose: this module imports neither numpy nor any format.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from rota.errors import InputError

#: Kafka sends the length of a string in 16 bits.
MAX_STRING_BYTES = 2**15 - 1

MAX_SHOWN_CHARACTERS = 40


def quote_shortened(text: str) -> str:
    """Returns the text in quotes, cut after 40 characters."""
    dots = "..." if len(text) > MAX_SHOWN_CHARACTERS else ""
    return f"{text[:MAX_SHOWN_CHARACTERS]!r}{dots}"


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


CONSUMER_OFFSETS_TOPIC = "__consumer_offsets"

INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS_TOPIC, "__transaction_state", "__share_group_state"})

#: The topic of Kafka's own state; no user topic may have this name.
CLUSTER_METADATA_TOPIC = "__cluster_metadata"

#: The name of a partition's folder is the topic name and the partition number.
MAX_TOPIC_NAME_LENGTH = 249


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


#: The names that a message lists before it counts the rest.
MAX_LISTED_NAMES = 3


def list_first_names(names: Sequence[str]) -> str:
    """Returns ``a, b, c and 7 more``."""
    more = f" and {len(names) - MAX_LISTED_NAMES} more" if len(names) > MAX_LISTED_NAMES else ""
    return ", ".join(names[:MAX_LISTED_NAMES]) + more


def format_seconds(milliseconds: int) -> str:
    """Formats milliseconds as seconds: ``12.3 s``."""
    return f"{milliseconds / 1000:.1f} s"


_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LINE_END = re.compile(r"\r\n|\r|\n")
_PROPERTY_KEY = re.compile(r"(?:\\.|[^\\=: \t\f])*")
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.)|$)", re.DOTALL)
_SURROGATE_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def parse_properties(text: str, place: str = "the settings") -> dict[str, str]:
    r"""Parses a ``.properties`` file as Java does; a later line wins over an earlier one.

    :param place: name of the file, for errors
    :raises InputError: a ``\u`` without its four digits; names the line
    """
    found = {}
    for number, line in _logical_lines(text):
        key = _PROPERTY_KEY.match(line)
        assert key is not None, "the pattern matches the empty text"
        separator = _SEPARATOR.match(line, key.end())
        assert separator is not None, "the pattern matches the empty text"
        where = f"{place}, line {number}"
        found[_unescape(key[0], where)] = _unescape(line[separator.end() :], where)
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields logical lines without comments and empty lines, each with its first line number.

    A line with an odd number of backslashes at its end continues on the next line, without that
    line's leading blanks.
    """
    begun: str | None = None
    first = 0
    for number, raw in enumerate(_LINE_END.split(text), 1):
        line = raw.lstrip(_BLANKS)
        if begun is None:
            if not line or line[0] in "#!":
                continue
            begun, first = "", number
        if (len(line) - len(line.rstrip("\\"))) % 2:
            begun = begun + line[:-1] or None  # nothing yet: the next line may be a comment
        else:
            yield first, begun + line
            begun = None
    if begun is not None:
        yield first, begun


def _unescape(text: str, where: str) -> str:
    if "\\" not in text:
        return text

    def unescape_match(escape: re.Match[str]) -> str:
        code, char = escape.groups()
        if code is not None:
            return chr(int(code, 16))
        if char == "u":
            raise InputError(f"{where}: \\u without four hexadecimal digits after it")
        return _ESCAPES.get(char, char or "")

    # Java writes a character beyond 16 bits as a surrogate pair.
    return _SURROGATE_PAIR.sub(
        lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"),
        _ESCAPE.sub(unescape_match, text),
    )
