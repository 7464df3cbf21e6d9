"""Kafka's message schemas as values: which field is where, in which version.

The schemas are Kafka's own, as kafka-python brings them; those that it lacks are in ``resource``.
Its classes are not imported: they would take a fifth of a second, and their decoders trust what
they read.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from rota.errors import Unreachable

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

Default: TypeAlias = "int | float | bool | str | bytes | list[Any] | None"

NO_ID = bytes(16)
"""The id of no topic."""
NUMBERS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""Kinds of one size, as :mod:`struct` writes them."""
TEXTS = ("string", "bytes", "records")
"""Kinds that bring their length."""


@dataclass(frozen=True, slots=True)
class Versions:
    """From one version to another, both included."""

    low: int
    high: int

    @classmethod
    def of(cls, text: str | None) -> Versions:
        """From how schemas write them: ``3``, ``1-4``, ``2+``, ``none``."""
        if text is None or text == "none":
            return cls(1, 0)
        low, _, high = text.removesuffix("+").partition("-")
        return cls(int(low), 2**15 - 1 if text.endswith("+") else int(high or low))

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field of a message or of a struct within one."""

    name: str
    """In snake case."""
    kind: str
    """``int32`` and the like, ``string``, ``bytes``, ``records``, or ``struct``."""
    struct: Struct | None
    array: bool
    """Many of that kind."""
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int
    default: Default

    def is_tagged(self, version: int) -> bool:
        """Is it among the tagged fields?"""
        return version in self.versions and version in self.tagged

    def is_plain(self, version: int) -> bool:
        """Is it where its place in the order says?"""
        return version in self.versions and version not in self.tagged


@dataclass(frozen=True, slots=True, kw_only=True)
class Struct:
    """Fields in their order."""

    name: str
    fields: tuple[Field, ...]

    def tags(self, version: int) -> list[Field]:
        """The tagged fields of a version, by their tags."""
        return sorted((f for f in self.fields if f.is_tagged(version)), key=lambda f: f.tag)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """A request or a response."""

    key: int
    versions: Versions
    flexible: Versions
    """Those with compact lengths and tagged fields (KIP-482)."""
    struct: Struct


@functools.cache
def own() -> Traversable:
    """Where Rota's own are: in a folder, or in the archive as which Spark brings Rota to others."""
    place = Path(__file__).parent / "resource"
    if place.is_dir():
        return place
    from importlib.resources import files  # noqa: PLC0415 (takes longer than all the rest)

    return files(__package__) / "resource"


def names() -> set[str]:
    """Of all schemas that there are."""
    places = (own(), folder())
    return {file.name.removesuffix(".json") for place in places for file in place.iterdir()}


def require(wanted: Iterable[str]) -> None:
    """Looks whether there are schemas of these names, without a look into them.

    :raises Unreachable: kafka-python is not there, or too old to know one
    """
    there = names()
    for name in wanted:
        if name not in there:
            raise Unreachable(
                f"kafka-python brings no schema of {name}; a newer one does: "
                "pip install -U 'rota[broker]'"
            )


def load(name: str) -> Schema:
    """A message's schema by its name, such as ``FetchRequest``."""
    file = own() / f"{name}.json"
    if not file.is_file():
        file = folder() / f"{name}.json"
    text = file.read_text(encoding="utf-8")
    found = json.loads(re.sub(r"(?m)^\s*//.*$", "", text))
    shared = {each["name"]: each["fields"] for each in found.get("commonStructs", ())}
    return Schema(
        key=found["apiKey"],
        versions=Versions.of(found["validVersions"]),
        flexible=Versions.of(found["flexibleVersions"]),
        struct=_struct(name, found["fields"], shared),
    )


_DEFAULTS: dict[str, Callable[[Any], Default]] = {
    **dict.fromkeys(NUMBERS, lambda given: int(str(given or 0), 0)),
    "float64": lambda given: float(given or 0),
    "bool": lambda given: str(given).lower() == "true",
    "uuid": lambda _: NO_ID,
    "string": str,
    "bytes": lambda _: b"",
    "array": lambda _: [],
}
"""From what a schema says."""


@functools.cache
def folder() -> Path:
    """Where the library keeps them.

    :raises Unreachable: it is not there
    """
    spec = importlib.util.find_spec("kafka")
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        folder = Path(place, "protocol", "schemas", "resources")
        if folder.is_dir():
            return folder
    raise Unreachable(
        "kafka-python 3, which brings the schemas of Kafka's messages, is not installed: "
        "pip install 'rota[broker]'"
    )


def _struct(name: str, fields: list[dict[str, Any]], shared: dict[str, Any]) -> Struct:
    return Struct(name=name, fields=tuple(_field(field, shared) for field in fields))


def _field(found: dict[str, Any], shared: dict[str, Any]) -> Field:
    array = found["type"].startswith("[]")
    kind = found["type"].removeprefix("[]")
    simple = kind in NUMBERS or kind in TEXTS
    fields = None if simple else found.get("fields") or shared[kind]
    return Field(
        name=re.sub(r"(?<!^)(?=[A-Z])", "_", found["name"]).lower(),
        kind=kind if fields is None else "struct",
        struct=None if fields is None else _struct(kind, fields, shared),
        array=array,
        versions=Versions.of(found["versions"]),
        nullable=Versions.of(found.get("nullableVersions")),
        tagged=Versions.of(found.get("taggedVersions")),
        tag=found.get("tag", -1),
        default=_default("array" if array else kind, found.get("default", "")),
    )


def _default(kind: str, given: Any) -> Default:  # noqa: ANN401 text or number, as the schema likes
    if given == "null" or kind not in _DEFAULTS:  # records, and structs: none
        return None
    return _DEFAULTS[kind](given)
