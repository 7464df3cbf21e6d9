"""The syntax of Java's ``.properties`` files, in which Kafka's tools keep settings."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rota.errors import InputError

_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LINE_END = re.compile(r"\r\n|\r|\n")
_KEY = re.compile(r"(?:\\.|[^\\=: \t\f])*")
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.)|$)", re.DOTALL)
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def parse(text: str, place: str = "the settings") -> dict[str, str]:
    r"""The settings of a file; of a key that comes twice, the last. ``place`` is for errors.

    :raises InputError: a ``\u`` without its four digits; names the line
    """
    found = {}
    for number, line in _lines(text):
        key = _KEY.match(line)
        assert key is not None, "it matches the empty text"
        separator = _SEPARATOR.match(line, key.end())
        assert separator is not None, "it matches the empty text"
        where = f"{place}, line {number}"
        found[_unescaped(key[0], where)] = _unescaped(line[separator.end() :], where)
    return found


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Logical lines, with the numbers of the lines they begin in.

    Comments and empty lines are out. A line with an odd number of backslashes at its end goes on in
    the next, whose blanks at the start do not count.
    """
    begun: str | None = None
    first = 0
    for number, raw in enumerate(_LINE_END.split(text), 1):
        line = raw.lstrip(_BLANK)
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


def _unescaped(text: str, where: str) -> str:
    if "\\" not in text:
        return text

    def meant(escape: re.Match[str]) -> str:
        code, char = escape.groups()
        if code is not None:
            return chr(int(code, 16))
        if char == "u":
            raise InputError(f"{where}: \\u without four hexadecimal digits behind it")
        return _ESCAPES.get(char, char or "")

    # Java writes what is beyond 16 bits as two halves.
    return _PAIR.sub(
        lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"),
        _ESCAPE.sub(meant, text),
    )
