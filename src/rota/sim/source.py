"""A scenario's text as checked values: whatever is wrong is named by line and key."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping, Sequence

from rota.errors import InputError
from rota.model.text import SHOWN, misfit, shortened
from rota.sim import duration
from rota.sim.position import Path, lines_of

_SYNTAX = re.compile(r"(.*) \(at (?:line (\d+), column \d+|end of document)\)$")
"""How tomllib words its errors."""
_BARE = re.compile(r"[\w-]+")
LONGEST_NUMBER = 64
"""In bits: beyond that nobody wants to read it."""
MOST_BYTES = 30_000
"""Of a name: it gets more put to it, a number for one, and must still fit Kafka's strings."""


class Source:
    """Where values came from."""

    def __init__(self, name: str, text: str | None = None) -> None:
        self.name = name
        self._text = text

    def error(self, path: Path, problem: str) -> InputError:
        """An error that names the place."""
        line = self._line(path)
        where = self.name if line is None else f"{self.name}, line {line}"
        key = written(path)
        return InputError(f"{where}: {f'{key}: ' if key else ''}{problem}")

    def _line(self, path: Path) -> int | None:
        lines = {} if self._text is None else lines_of(self._text)
        while path and path not in lines:
            path = path[:-1]
        return lines.get(path)

    def parse(self, text: str) -> Mapping[str, object]:
        """The values in a TOML text."""
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            found = _SYNTAX.match(str(error))
            if found is None:
                raise InputError(f"{self.name}: not TOML: {error}") from None
            line = found[2] or str(text.count("\n") + 1)
            raise InputError(f"{self.name}, line {line}: not TOML: {found[1]}") from None
        except ValueError:  # of int: it reads only so many digits
            raise InputError(f"{self.name}: not a scenario: a number is too long") from None
        except RecursionError:
            raise InputError(f"{self.name}: not a scenario: nested too deeply") from None


def written(path: Path) -> str:
    """``members[2].joins``."""
    shown = ""
    for step in path:
        if isinstance(step, int):
            shown += f"[{step}]"
        else:
            is_plain = _BARE.fullmatch(step) and len(step) <= SHOWN
            shown += f"{'.' if shown else ''}{step if is_plain else shortened(step)}"
    return shown


class Table:
    """One table of a scenario; every value is checked when it is taken."""

    def __init__(self, source: Source, path: Path, value: object) -> None:
        self.source = source
        self.path = path
        if not isinstance(value, Mapping):
            raise source.error(path, f"must be a table, not {_kind(value)}")
        for key in value:
            if not isinstance(key, str):
                raise source.error(path, f"keys must be texts, not {_kind(key)}")
            problem = misfit(key, MOST_BYTES)
            if problem is not None:
                raise source.error((*path, key), problem)
        self.values: Mapping[str, object] = value

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def error(self, key: str | None, problem: str) -> InputError:
        """An error that names the place of a key, or of the table."""
        return self.source.error(self.path if key is None else (*self.path, key), problem)

    def only(self, known: Sequence[str]) -> None:
        """Refuses keys that nobody reads."""
        for key in self.values:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
                raise self.error(key, f"unknown key: {hint}")

    def needed(self, key: str) -> object:
        """The value of a key that must be there."""
        if key not in self.values:
            raise self.error(None, f"{key} is missing")
        return self.values[key]

    def text(self, key: str, default: str | None = None) -> str:
        """A text that is not empty."""
        value = self.values.get(key, default) if default is not None else self.needed(key)
        if not isinstance(value, str) or not value:
            raise self.error(key, f"must be a text, not {_kind(value)}")
        return self._carried(key, value)

    def texts(self, key: str) -> tuple[str, ...]:
        """One text, or a list of them."""
        value = self.needed(key)
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, list | tuple):
            raise self.error(key, f"must be a name or a list of names, not {_kind(value)}")
        if not listed:
            raise self.error(key, "must be a name or a list of names; the list is empty")
        for one in listed:
            if not isinstance(one, str) or not one:
                raise self.error(key, f"must hold names only, not {_kind(one)}")
        return tuple(self._carried(key, one) for one in listed)

    def _carried(self, key: str, text: str) -> str:
        problem = misfit(text, MOST_BYTES)
        if problem is not None:
            raise self.error(key, f"{shortened(text)} {problem}")
        return text

    def flag(self, key: str, default: bool = False) -> bool:
        """True or false."""
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise self.error(key, f"must be true or false, not {_kind(value)}")
        return value

    def count(self, key: str, default: int | None = None, least: int = 0) -> int:
        """A whole number."""
        value = self.values.get(key, default) if default is not None else self.needed(key)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.error(key, f"must be a whole number, not {_kind(value)}")
        if value < least:
            raise self.error(key, f"must be at least {least}, not {_kind(value)}")
        return value

    def time(
        self, key: str, default: int | None = None, least: int = 0, most: int = duration.LONGEST
    ) -> int:
        """A time, in milliseconds."""
        if key not in self.values and default is not None:
            return default
        value = self.needed(key)
        if not isinstance(value, str):
            raise self.error(key, f'must be a time such as "90s" or "5m", not {_kind(value)}')
        try:
            time = duration.parse(value)
        except ValueError as error:
            raise self.error(key, str(error)) from None
        if time < least:
            raise self.error(key, f"must be at least {duration.written(least)}, not {value}")
        if time > most:
            raise self.error(key, f"must be at most {duration.written(most)}, not {value}")
        return time

    def table(self, key: str) -> Table:
        """A table within; an empty one where there is none."""
        return Table(self.source, (*self.path, key), self.values.get(key, {}))

    def tables(self, key: str) -> list[Table]:
        """A list of tables; an empty one where there is none."""
        value = self.values.get(key, [])
        if not isinstance(value, list | tuple):
            raise self.error(key, f"must be a list of tables ([[{key}]]), not {_kind(value)}")
        return [Table(self.source, (*self.path, key, n), one) for n, one in enumerate(value)]


def _kind(value: object) -> str:
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, str):
        return shortened(value)
    if isinstance(value, int) and value.bit_length() > LONGEST_NUMBER:
        return "so large a number"  # repr refuses thousands of digits
    return repr(value)
