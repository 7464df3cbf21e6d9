"""Kafka's message schemas, and the Python classes made from them.

A schema says which field is where, in which version. The JSON files are Kafka's own, as
kafka-python ships them; the two that it lacks are in ``resource``. kafka-python's classes are not
imported: that takes a fifth of a second, and their decoders trust what they read.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from rota.errors import Unreachable

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

DefaultValue: TypeAlias = "int | float | bool | str | bytes | list[Any] | None"

#: The id of no topic.
ZERO_UUID = bytes(16)

#: Kinds of one size, as :mod:`struct` writes them.
FIXED_SIZE_FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}

#: Kinds that bring their length.
LENGTH_PREFIXED_TYPES = ("string", "bytes", "records")


@dataclass(frozen=True, slots=True)
class Versions:
    """A range of versions, both ends included."""

    low: int
    high: int

    @classmethod
    def parse(cls, text: str | None) -> Versions:
        """From how schemas write them: ``3``, ``1-4``, ``2+``, ``none``."""
        if text is None or text == "none":
            return cls(1, 0)
        low, _, high = text.removesuffix("+").partition("-")
        return cls(int(low), 2**15 - 1 if text.endswith("+") else int(high or low))

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSpec:
    """A field of a message or of a struct within one."""

    #: In snake case.
    name: str
    #: ``int32`` and the like, ``string``, ``bytes``, ``records``, or ``struct``.
    kind: str
    struct: StructSpec | None
    #: Many of that kind.
    is_array: bool
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int
    default: DefaultValue

    def is_tagged(self, version: int) -> bool:
        """Is it among the tagged fields?"""
        return version in self.versions and version in self.tagged

    def is_untagged(self, version: int) -> bool:
        """Whether the field is at its place in the order, not among the tagged fields."""
        return version in self.versions and version not in self.tagged


@dataclass(frozen=True, slots=True, kw_only=True)
class StructSpec:
    """Fields in their order."""

    name: str
    fields: tuple[FieldSpec, ...]

    def tagged_fields(self, version: int) -> list[FieldSpec]:
        """The tagged fields of a version, by their tags."""
        return sorted((f for f in self.fields if f.is_tagged(version)), key=lambda f: f.tag)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSpec:
    """A request or a response."""

    api_key: int
    versions: Versions
    #: Those with compact lengths and tagged fields (KIP-482).
    flexible: Versions
    struct: StructSpec


@functools.cache
def own_schema_folder() -> Traversable:
    """The folder of Rota's own schemas, on disk or in the archive that Spark ships."""
    place = Path(__file__).parent / "resource"
    if place.is_dir():
        return place
    from importlib.resources import files  # noqa: PLC0415 (takes longer than all the rest)

    return files(__package__) / "resource"


def list_schema_names() -> set[str]:
    """Of all schemas that there are."""
    places = (own_schema_folder(), kafka_python_schema_folder())
    return {file.name.removesuffix(".json") for place in places for file in place.iterdir()}


def require_schemas(wanted: Iterable[str]) -> None:
    """Checks that these schemas exist, without reading them.

    :raises Unreachable: kafka-python is not installed, or too old to have one of them
    """
    there = list_schema_names()
    for name in wanted:
        if name not in there:
            raise Unreachable(
                f"kafka-python brings no schema of {name}; a newer one does: "
                "pip install -U 'rota[broker]'"
            )


def load_schema(name: str) -> MessageSpec:
    """A message's schema by its name, such as ``FetchRequest``."""
    file = own_schema_folder() / f"{name}.json"
    if not file.is_file():
        file = kafka_python_schema_folder() / f"{name}.json"
    text = file.read_text(encoding="utf-8")
    found = json.loads(re.sub(r"(?m)^\s*//.*$", "", text))
    shared = {each["name"]: each["fields"] for each in found.get("commonStructs", ())}
    return MessageSpec(
        api_key=found["apiKey"],
        versions=Versions.parse(found["validVersions"]),
        flexible=Versions.parse(found["flexibleVersions"]),
        struct=_parse_struct(name, found["fields"], shared),
    )


#: From what a schema says.
_DEFAULT_PARSERS: dict[str, Callable[[Any], DefaultValue]] = {
    **dict.fromkeys(FIXED_SIZE_FORMATS, lambda given: int(str(given or 0), 0)),
    "float64": lambda given: float(given or 0),
    "bool": lambda given: str(given).lower() == "true",
    "uuid": lambda _: ZERO_UUID,
    "string": str,
    "bytes": lambda _: b"",
    "array": lambda _: [],
}


@functools.cache
def kafka_python_schema_folder() -> Path:
    """The folder of kafka-python's schemas.

    :raises Unreachable: kafka-python 3 is not installed
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


def _parse_struct(name: str, fields: list[dict[str, Any]], shared: dict[str, Any]) -> StructSpec:
    return StructSpec(name=name, fields=tuple(_parse_field(field, shared) for field in fields))


def _parse_field(found: dict[str, Any], shared: dict[str, Any]) -> FieldSpec:
    array = found["type"].startswith("[]")
    kind = found["type"].removeprefix("[]")
    simple = kind in FIXED_SIZE_FORMATS or kind in LENGTH_PREFIXED_TYPES
    fields = None if simple else found.get("fields") or shared[kind]
    return FieldSpec(
        name=re.sub(r"(?<!^)(?=[A-Z])", "_", found["name"]).lower(),
        kind=kind if fields is None else "struct",
        struct=None if fields is None else _parse_struct(kind, fields, shared),
        is_array=array,
        versions=Versions.parse(found["versions"]),
        nullable=Versions.parse(found.get("nullableVersions")),
        tagged=Versions.parse(found.get("taggedVersions")),
        tag=found.get("tag", -1),
        default=_parse_default("array" if array else kind, found.get("default", "")),
    )


def _parse_default(kind: str, given: Any) -> DefaultValue:  # noqa: ANN401 text or number, as the schema likes
    if given == "null" or kind not in _DEFAULT_PARSERS:  # records, and structs: none
        return None
    return _DEFAULT_PARSERS[kind](given)


class MessageBase:
    """Base class of messages and of the structs in them.

    A field that is not given has the schema's default.
    """

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # its fields change
    SCHEMA: ClassVar[MessageSpec]
    STRUCT: ClassVar[StructSpec]

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(other, name) == value for name, value in self._items())

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self._items())
        return f"{type(self).__name__}({fields})"

    def _items(self) -> Iterator[tuple[str, Any]]:
        return ((field.name, getattr(self, field.name)) for field in self.STRUCT.fields)


class LazyMessageClass:
    """The class of a message, made from its schema when it is first used.

    There are sixty, and a broker needs few of them to start: the others would take a tenth of that
    time.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    @functools.cached_property
    def message_class(self) -> type[MessageBase]:
        """The class itself."""
        return make_message_class(load_schema(self.name))

    def __call__(self, **fields: Any) -> Any:  # noqa: ANN401 what the schema says
        """A message of it."""
        return self.message_class(**fields)

    def __instancecheck__(self, thing: object) -> bool:
        return isinstance(thing, self.message_class)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 a struct's class, mostly
        found = self.__dict__[name] = getattr(self.message_class, name)
        return found


def make_message_class(schema: MessageSpec) -> type[MessageBase]:
    """The class of a message. Those of the structs within it are its attributes."""
    classes: dict[str, type[MessageBase]] = {}
    top = _make_struct_class(schema.struct, classes)
    top.SCHEMA = schema
    for name, inner in classes.items():
        setattr(top, name, inner)
    return top


def _make_struct_class(
    struct: StructSpec, classes: dict[str, type[MessageBase]]
) -> type[MessageBase]:
    inner: dict[str, type[MessageBase]] = {}
    for field in struct.fields:
        if field.struct is not None:
            name = field.struct.name
            if name not in classes:
                _make_struct_class(field.struct, classes)
            inner[name] = classes[name]
    slots = tuple(field.name for field in struct.fields)
    made = type(
        struct.name,
        (MessageBase,),
        {"__slots__": slots, "__init__": _make_init(struct), "STRUCT": struct, **inner},
    )
    classes[struct.name] = made
    return made


def _make_init(struct: StructSpec) -> Any:  # noqa: ANN401 a function whose arguments the schema names
    """Written out, as a dataclass's is: responses of many partitions are made of thousands."""
    defaults = {f"_{field.name}": field.default for field in struct.fields}
    arguments, lines = [], []
    for field in struct.fields:
        name = field.name
        arguments.append(f"{name}=_{name}")
        fresh = f"[] if {name} is _{name} else {name}" if field.default == [] else name
        lines.append(f"    self.{name} = {fresh}")
    text = "\n".join([f"def __init__(self, *, {', '.join(arguments)}):", *lines])
    exec(text, defaults)  # noqa: S102 made of the schema's names alone
    return defaults["__init__"]
