"""How much of a long test runs under ``make test``; all of it runs under ``make check``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest
from hypothesis import settings

Test = TypeVar("Test", bound=Callable[..., None])
#: Where Hypothesis keeps the settings of a test that has ``@given``.
SETTINGS = "_hypothesis_internal_use_settings"


def examples(quick: int = 25) -> Callable[[Test], Test]:
    """Runs a Hypothesis test twice: ``[quick]`` with few examples, ``[full]`` with all of its own.

    ``make test`` runs ``[quick]`` only. Goes above ``@given`` and ``@settings``.
    """
    sizes = pytest.mark.parametrize(
        "max_examples",
        [
            pytest.param(quick, id="quick"),
            pytest.param(None, id="full", marks=pytest.mark.check),
        ],
        indirect=True,
    )
    return lambda test: pytest.mark.usefixtures("max_examples")(sizes(test))


@pytest.fixture
def max_examples(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int | None:
    """Limits the Hypothesis examples of the test that runs now; None leaves its own settings."""
    most: int | None = request.param
    if most is not None:
        own: settings = getattr(request.function, SETTINGS)
        limited = settings(parent=own, max_examples=min(most, own.max_examples))
        monkeypatch.setattr(request.function, SETTINGS, limited)
    return most


def first(quick: int, values: Iterable[Any]) -> list[Any]:
    """Values for ``pytest.mark.parametrize``: ``make test`` takes only the first ``quick``."""
    return [
        value if number < quick else pytest.param(value, marks=pytest.mark.check)
        for number, value in enumerate(values)
    ]
