"""What a setting of a consumer may be, and what becomes of it."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rota.errors import InputError
from rota.model.config import INT, LONG
from rota.model.text import nearest, shortened

REQUIRED = "(required)"
"""Instead of a default."""


class Kind(enum.Enum):
    """The type of a setting, as Kafka calls it."""

    BOOLEAN = "boolean"
    STRING = "string"
    SHORT = "short"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    LIST = "list"
    CLASS = "class"
    PASSWORD = "password"  # noqa: S105 (a kind of setting)


class Fate(enum.Enum):
    """What becomes of a setting."""

    HONOURED = "honoured"
    IDLE = "without effect"
    REFUSED = "refused"


_SPAN: Mapping[Kind, tuple[float, float]] = {
    Kind.SHORT: (-(2**15), 2**15 - 1),
    Kind.INT: (-INT - 1, INT),
    Kind.LONG: (-LONG - 1, LONG),
    Kind.DOUBLE: (float("-inf"), float("inf")),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A setting: what it is called, what it may be, and what becomes of it."""

    name: str
    kind: Kind
    default: object = None
    fate: Fate = Fate.HONOURED
    about: str
    """What it does; or why it is without effect or refused, and what to do instead."""
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    any_case: bool = False
    """The case of letters does not count in ``choices``."""
    reason: str = ""
    """Why ``choices`` are fewer than Kafka's."""
    asks_nothing: tuple[object, ...] = ()
    """Values that ask for what Rota does anyway."""

    def parse(self, value: object) -> object:
        """The value that is meant: texts are read as Kafka reads them.

        :raises InputError: it is none, or out of bounds; names the key, and shows no password
        """
        if isinstance(value, str):
            value = value.strip()
        match self.kind:
            case Kind.BOOLEAN:
                return self._boolean(value)
            case Kind.LIST:
                return self._list(value)
            case Kind.STRING:
                return self._string(value)
            case Kind.PASSWORD:
                if not isinstance(value, str):
                    raise InputError(f"{self.name}: is text, not {_kind(value)}")
                return value
            case Kind.CLASS:
                return value
            case _:
                return self._number(value)

    def _boolean(self, value: object) -> bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in {"true", "false"}:
            return value.lower() == "true"
        raise InputError(f"{self.name}: {_shown(value)} is neither true nor false")

    def _number(self, value: object) -> float:
        number: float | None = None
        if isinstance(value, str) and "_" not in value:
            try:
                if self.kind is not Kind.DOUBLE:
                    number = int(value)
                elif value.isascii():
                    number = float(value)
            except ValueError:
                number = None
        elif type(value) is int or (type(value) is float and self.kind is Kind.DOUBLE):
            number = value
        least, most = self.bounds
        if number is None or not least <= number <= most:
            kind = "a" if self.kind is Kind.DOUBLE else "a whole"
            raise InputError(
                f"{self.name}: {_shown(value)} is not {kind} number from {least} to {most}"
            )
        return number

    @property
    def bounds(self) -> tuple[float, float]:
        """The lowest and the highest that a number may be."""
        least, most = _SPAN[self.kind]
        return least if self.least is None else self.least, most if self.most is None else self.most

    def _string(self, value: object) -> str:
        if not isinstance(value, str):
            raise InputError(f"{self.name}: {_shown(value)} is not text but {_kind(value)}")
        if not self.choices:
            return value
        for each in self.choices:
            if value == each or (self.any_case and value.lower() == each.lower()):
                return each
        known = ", ".join(map(repr, self.choices))
        why = f" ({self.reason})" if self.reason else ""
        meant = value.upper().replace("TLS", "SSL")  # SSL is what Kafka calls TLS
        near = meant if meant in self.choices else value.upper() if self.any_case else value
        hint = "" if self.reason else nearest(near, self.choices)
        raise InputError(f"{self.name}: {_shown(value)} is not one of {known}{why}{hint}")

    def _list(self, value: object) -> tuple[object, ...]:
        """Of text, what is between the commas; of one thing, that."""
        if isinstance(value, str):
            items: list[object] = [each.strip() for each in value.split(",")] if value else []
        elif isinstance(value, Iterable) and not isinstance(value, (bytes, Mapping, type)):
            items = [each.strip() if isinstance(each, str) else each for each in value]
        else:
            items = [value]
        for at, item in enumerate(items):
            if item == "":
                raise InputError(f"{self.name}: the list has an empty item")
            if item in items[:at]:
                raise InputError(f"{self.name}: {_shown(item)} is in the list twice")
        return tuple(items)


def _shown(value: object) -> str:
    return shortened(value) if isinstance(value, str) else shortened(repr(value))[1:-1]


def _kind(value: object) -> str:
    return type(value).__name__
