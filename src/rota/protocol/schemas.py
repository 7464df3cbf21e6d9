"""Kafka's message schemas, and the Python classes made from them.

The JSON files are Kafka's own, as kafka-python ships them; the two that it lacks are in
``resource``. kafka-python's classes are not imported: importing takes a fifth of a second, and they
trust their input.
"""

from __future__ import annotations

import enum
import functools
import importlib.util
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Generic,
    TypeAlias,
    TypeVar,
    dataclass_transform,
)

from rota.errors import Unreachable

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

DefaultValue: TypeAlias = "int | float | bool | str | bytes | list[Any] | None"
ZERO_UUID: Final = bytes(16)


class Api(enum.IntEnum):
    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    INCREMENTAL_ALTER_CONFIGS = 44
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLUSTER = 60
    CONSUMER_GROUP_DESCRIBE = 69
    DESCRIBE_TOPIC_PARTITIONS = 75


def api_name(api: Api) -> str:
    """Returns Kafka's name, such as ``JoinGroup``."""
    return api.name.title().replace("_", "")


#: APIs that Rota's client uses and Rota's broker does not serve.
CLIENT_ONLY_APIS: Final = frozenset({Api.CONSUMER_GROUP_DESCRIBE, Api.DESCRIBE_LOG_DIRS})

#: Types of a fixed size, with their :mod:`struct` formats.
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


@dataclass(frozen=True, slots=True)
class Versions:
    """Both ends are included."""

    low: int
    high: int

    @classmethod
    def parse(cls, text: str | None) -> Versions:
        """Parses a schema's range: ``3``, ``1-4``, ``2+``, ``none``."""
        if text is None or text == "none":
            return cls(1, 0)
        low, _, high = text.removesuffix("+").partition("-")
        return cls(int(low), 2**15 - 1 if text.endswith("+") else int(high or low))

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSpec:
    name: str  # in snake case
    kind: str  # ``int32`` and the like, ``string``, ``bytes``, ``records``, or ``struct``
    struct: StructSpec | None
    is_array: bool
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int
    default: DefaultValue

    def is_tagged(self, version: int) -> bool:
        return version in self.versions and version in self.tagged

    def is_untagged(self, version: int) -> bool:
        return version in self.versions and version not in self.tagged


@dataclass(frozen=True, slots=True, kw_only=True)
class StructSpec:
    name: str
    fields: tuple[FieldSpec, ...]

    def tagged_fields(self, version: int) -> list[FieldSpec]:
        return sorted((f for f in self.fields if f.is_tagged(version)), key=lambda f: f.tag)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSpec:
    api_key: int
    versions: Versions
    flexible: Versions  # versions with compact lengths and tagged fields (KIP-482)
    struct: StructSpec

    def structs(self) -> Iterator[StructSpec]:
        """The structs inside the message, at any depth, each once."""
        structs: dict[str, StructSpec] = {}
        open_structs = [self.struct]
        while open_structs:
            inner = [each.struct for each in open_structs.pop(0).fields if each.struct is not None]
            open_structs += [each for each in inner if each.name not in structs]
            structs.update((each.name, each) for each in inner)
        return iter(structs.values())


@functools.cache
def own_schema_folder() -> Traversable:
    """The folder of Rota's own schemas, on disk or in an archive that Spark ships."""
    place = Path(__file__).parent / "resource"
    if place.is_dir():
        return place
    from importlib.resources import files  # noqa: PLC0415 (a slow import)

    return files(__package__) / "resource"


def list_schema_names() -> set[str]:
    places = (own_schema_folder(), kafka_python_schema_folder())
    return {file.name.removesuffix(".json") for place in places for file in place.iterdir()}


def require_schemas(wanted: Iterable[str]) -> None:
    """Raises Unreachable if kafka-python is not installed, or lacks one of these schemas."""
    existing = list_schema_names()
    for name in wanted:
        if name not in existing:
            raise Unreachable(
                f"kafka-python brings no schema of {name}; a newer one does: "
                "pip install -U 'rota[broker]'"
            )


def load_schema(name: str) -> MessageSpec:
    """Loads the schema of a message, such as ``FetchRequest``."""
    file = own_schema_folder() / f"{name}.json"
    if not file.is_file():
        file = kafka_python_schema_folder() / f"{name}.json"
    text = file.read_text(encoding="utf-8")
    schema = json.loads(re.sub(r"(?m)^\s*//.*$", "", text))
    shared = {each["name"]: each["fields"] for each in schema.get("commonStructs", ())}
    return MessageSpec(
        api_key=schema["apiKey"],
        versions=Versions.parse(schema["validVersions"]),
        flexible=Versions.parse(schema["flexibleVersions"]),
        struct=_parse_struct(name, schema["fields"], shared),
    )


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
    """The folder of kafka-python's schemas; raises Unreachable if version 3 is not installed."""
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


def _parse_field(field: dict[str, Any], shared: dict[str, Any]) -> FieldSpec:
    array = field["type"].startswith("[]")
    kind = field["type"].removeprefix("[]")
    simple = kind in {*FIXED_SIZE_FORMATS, "string", "bytes", "records"}
    fields = None if simple else field.get("fields") or shared[kind]
    return FieldSpec(
        name=re.sub(r"(?<!^)(?=[A-Z])", "_", field["name"]).lower(),
        kind=kind if fields is None else "struct",
        struct=None if fields is None else _parse_struct(kind, fields, shared),
        is_array=array,
        versions=Versions.parse(field["versions"]),
        nullable=Versions.parse(field.get("nullableVersions")),
        tagged=Versions.parse(field.get("taggedVersions")),
        tag=field.get("tag", -1),
        default=_parse_default("array" if array else kind, field.get("default", "")),
    )


def _parse_default(kind: str, given: Any) -> DefaultValue:  # noqa: ANN401 text or number
    if given == "null" or kind not in _DEFAULT_PARSERS:  # records and structs
        return None
    return _DEFAULT_PARSERS[kind](given)


@dataclass_transform(kw_only_default=True, eq_default=False)
class Message:
    """Base class of requests, responses and structs. Omitted fields have the schema's default."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # messages are mutable
    API: ClassVar[Api]
    SCHEMA: ClassVar[MessageSpec]
    STRUCT: ClassVar[StructSpec]
    message_class: ClassVar[type[Message]]  # also where a :class:`LazyMessageClass` stands

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(other, name) == value for name, value in self._items())

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self._items())
        return f"{type(self).__name__}({fields})"

    def _items(self) -> Iterator[tuple[str, Any]]:
        return ((field.name, getattr(self, field.name)) for field in self.STRUCT.fields)


ResponseT = TypeVar("ResponseT", bound=Message)


class Request(Message, Generic[ResponseT]):
    """Base class of requests. Its parameter is the class of their responses."""

    __slots__ = ()


class LazyMessageClass:
    """Makes a message's class on first use: all sixty take a tenth of a broker's start time."""

    def __init__(self, api: Api, name: str) -> None:
        self.API = api
        self.name = name

    @functools.cached_property
    def message_class(self) -> type[Message]:
        return make_message_class(load_schema(self.name))

    def __call__(self, **fields: object) -> Message:
        return self.message_class(**fields)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, self.message_class)

    def __getattr__(self, name: str) -> object:  # the class of a struct, mostly
        found = self.__dict__[name] = getattr(self.message_class, name)
        return found


def make_message_class(schema: MessageSpec) -> type[Message]:
    """Makes the class of a message. The classes of its structs are its attributes."""
    base = Request if schema.struct.name.endswith("Request") else Message
    top = _make_struct_class(schema.struct, base)
    top.SCHEMA = schema
    top.API = Api(schema.api_key)
    top.message_class = top
    for struct in schema.structs():
        setattr(top, struct.name, _make_struct_class(struct, Message))
    return top


def _make_struct_class(struct: StructSpec, base: type[Message]) -> type[Message]:
    slots = tuple(field.name for field in struct.fields)
    return type(
        struct.name,
        (base,),
        {"__slots__": slots, "__init__": _make_init(struct), "STRUCT": struct},
    )


def _make_init(struct: StructSpec) -> Callable[..., None]:
    """Generates the constructor's source, as dataclasses do, for responses with many structs."""
    names: dict[str, Any] = {f"_{field.name}": field.default for field in struct.fields}
    arguments, lines = [], []
    for field in struct.fields:
        name = field.name
        arguments.append(f"{name}=_{name}")
        value = f"[] if {name} is _{name} else {name}" if field.default == [] else name
        lines.append(f"    self.{name} = {value}")
    text = "\n".join([f"def __init__(self, *, {', '.join(arguments)}):", *lines])
    exec(text, names)  # noqa: S102 made of the schema's names alone
    init: Callable[..., None] = names["__init__"]
    return init
