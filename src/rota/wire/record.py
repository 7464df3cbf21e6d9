"""The classes of messages, and of the structs within them, made from their schemas."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, ClassVar

from rota.wire.schema import Schema, Struct, load


class Record:
    """Fields by their names. What is not given has the schema's default."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # its fields change
    SCHEMA: ClassVar[Schema]
    STRUCT: ClassVar[Struct]

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(other, name) == value for name, value in self._items())

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self._items())
        return f"{type(self).__name__}({fields})"

    def _items(self) -> Iterator[tuple[str, Any]]:
        return ((field.name, getattr(self, field.name)) for field in self.STRUCT.fields)


class MessageClass:
    """The class of a message, made from its schema when it is first used.

    There are sixty, and a broker that starts needs few: the others would be a tenth of its start.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    @functools.cached_property
    def made(self) -> type[Record]:
        """The class itself."""
        return message_class(load(self.name))

    def __call__(self, **fields: Any) -> Any:  # noqa: ANN401 what the schema says
        """A message of it."""
        return self.made(**fields)

    def __instancecheck__(self, thing: object) -> bool:
        return isinstance(thing, self.made)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 a struct's class, mostly
        found = self.__dict__[name] = getattr(self.made, name)
        return found


def message_class(schema: Schema) -> type[Record]:
    """The class of a message. Those of the structs within it are its attributes."""
    classes: dict[str, type[Record]] = {}
    top = _class(schema.struct, classes)
    top.SCHEMA = schema
    for name, inner in classes.items():
        setattr(top, name, inner)
    return top


def _class(struct: Struct, classes: dict[str, type[Record]]) -> type[Record]:
    inner: dict[str, type[Record]] = {}
    for field in struct.fields:
        if field.struct is not None:
            name = field.struct.name
            if name not in classes:
                _class(field.struct, classes)
            inner[name] = classes[name]
    slots = tuple(field.name for field in struct.fields)
    made = type(
        struct.name,
        (Record,),
        {"__slots__": slots, "__init__": _init(struct), "STRUCT": struct, **inner},
    )
    classes[struct.name] = made
    return made


def _init(struct: Struct) -> Any:  # noqa: ANN401 a function whose arguments the schema names
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
