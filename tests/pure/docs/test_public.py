"""The package's own names."""

from __future__ import annotations

import inspect

import pytest

import rota
from rota.errors import MissingExtra, Unreachable


def test_names_that_cannot_be_loaded_are_not_shown_and_say_how_to_get_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(rota, "Consumer", raising=False)
    monkeypatch.setattr("rota.client.missing", lambda: "pip install 'rota[consumer]'")
    assert "Consumer" not in dir(rota)
    assert "Broker" in dir(rota)
    assert inspect.getmembers(rota, inspect.isclass)
    with pytest.raises(MissingExtra, match=r"rota\[consumer\]") as caught:
        rota.Consumer({})
    assert isinstance(caught.value, ImportError)
    assert isinstance(caught.value, Unreachable)
