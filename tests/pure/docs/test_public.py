"""The package's own names."""

from __future__ import annotations

import collections.abc
import inspect
import pickle
import typing
from collections.abc import Iterator

import pyarrow
import pytest

import rota
from rota.engine import plan
from rota.engine.assignors import registry
from rota.errors import MissingExtra, Unreachable


def test_names_that_cannot_be_loaded_are_not_shown_and_say_how_to_get_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(rota, "Consumer", raising=False)
    monkeypatch.setattr(
        "rota.client.explain_missing_packages", lambda: "pip install 'rota[consumer]'"
    )
    assert "Consumer" not in dir(rota)
    assert "Broker" in dir(rota)
    assert inspect.getmembers(rota, inspect.isclass)
    with pytest.raises(MissingExtra, match=r"rota\[consumer\]") as caught:
        rota.Consumer({})
    assert isinstance(caught.value, ImportError)
    assert isinstance(caught.value, Unreachable)


#: Names in annotations that are imported for type checkers only.
TYPES = {**vars(plan), **vars(registry), **vars(collections.abc), "pa": pyarrow}


def public_callables() -> Iterator[tuple[str, object]]:
    """Public functions and the public methods and properties of public classes, by name."""
    for name in rota.__all__:
        value = getattr(rota, name)
        if inspect.isfunction(value):
            yield name, value
        if not inspect.isclass(value):
            continue
        for attribute in dir(value):
            member = inspect.getattr_static(value, attribute)
            member = member.fget if isinstance(member, property) else member
            member = getattr(member, "__func__", member)  # of class methods and static methods
            if inspect.isfunction(member) and not attribute.startswith("_"):
                yield f"{name}.{attribute}", member


def classes_in(hint: object) -> Iterator[type]:
    """The classes that an annotation names."""
    if isinstance(hint, list):  # the parameters of a Callable
        yield from (each for one in hint for each in classes_in(one))
    elif not typing.get_args(hint) and isinstance(hint, type):
        yield hint
    for argument in typing.get_args(hint):
        yield from classes_in(argument)


@pytest.mark.parametrize(("name", "function"), list(public_callables()))
def test_a_public_callable_is_documented_and_its_types_can_be_imported(
    name: str, function: object
) -> None:
    owner, _, attribute = name.partition(".")
    target = getattr(rota, owner)
    assert inspect.getdoc(getattr(target, attribute) if attribute else target), name
    for hint in typing.get_type_hints(function, localns=TYPES).values():
        for each in classes_in(hint):
            if each.__module__.startswith("rota."):
                home = rota.errors if each.__module__ == "rota.errors" else rota
                assert getattr(home, each.__name__, None) is each, f"{name} has {each}"


@pytest.mark.parametrize("name", rota.__all__)
def test_a_public_name_is_documented(name: str) -> None:
    value = getattr(rota, name)
    text = inspect.getdoc(value) or ""
    assert text, name
    assert not text.startswith(f"{name}("), "a dataclass without a docstring"


@pytest.mark.parametrize("public", [rota.Consumer, rota.AsyncConsumer, rota.Broker])
def test_public_objects_show_no_internals(public: type) -> None:
    for name, parameter in inspect.signature(public).parameters.items():
        assert not name.startswith("_")
        assert parameter.kind is not parameter.VAR_KEYWORD
    assert not {"core", "loop", "node", "server"} & set(dir(public))


@pytest.mark.parametrize(
    "error",
    [
        rota.errors.Refused(rota.errors.Code.INVALID_RECORD, "refused", records=((1, "no key"),)),
        rota.errors.RecordError("t", 0, 17, "broken", next_offset=18),
        rota.errors.GroupError("out", 22),
        rota.errors.DiskError("full", full=True),
        MissingExtra("pip install"),
    ],
)
def test_errors_can_be_pickled(error: rota.errors.RotaError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
