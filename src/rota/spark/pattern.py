"""``subscribePattern``: a regular expression of Java's, as far as Python's mean the same."""

from __future__ import annotations

import re

from rota.errors import InputError
from rota.model import text
from rota.model.text import shortened

_PARTS = re.compile(r"\\Q|\\.|\[\^?\]?|\]|&&|\(\?<[a-zA-Z]", re.DOTALL)


def compiled(option: str, given: str) -> re.Pattern[str]:
    """The expression; it is searched for, as Java's ``find`` does.

    :raises InputError: it is none, or one that Python would read otherwise than Java does
    """
    if what := _java_only(given):
        raise InputError(
            f"{option}: {shortened(given)}: {what} is Java's alone; write it in a form that Python "
            "has, too"
        )
    try:
        return text.compiled(given)
    except InputError as error:
        raise InputError(f"{option}: {error}") from None


def _java_only(given: str) -> str:
    """What Python has not, or what is there something else: names of topics are ASCII, so most
    differences (of ``$`` and the classes of letters, say) do not matter.
    """
    inside = False
    for part in _PARTS.finditer(given):
        match part[0]:
            case "&&" | "[" | "[^" | "[]" | "[^]" if inside:
                return f"{part[0][:2]} within [...]"
            case "&&":
                pass
            case "]":
                inside = False
            case "\\Q" | "\\p" | "\\P" | "\\h" | "\\H" | "\\R" | "\\X" | "\\G" | "\\z" as escape:
                return escape
            case found if found.startswith("["):
                inside = True
            case found if found.startswith("(?<") and not inside:
                return "(?<name>...)"
    return ""
