"""How much of a long test runs under ``make test``, ``make check`` and ``make nightly``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest
from hypothesis import settings

Test = TypeVar("Test", bound=Callable[..., None])
#: Where Hypothesis keeps the settings of a test that has ``@given``.
SETTINGS = "_hypothesis_internal_use_settings"


#: Whether this is a run of ``make nightly``.
NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
#: ``make check`` divides a test's own ``max_examples`` by this.
CHECKED = 3


def examples(quick: int = 25) -> Callable[[Test], Test]:
    """Runs a Hypothesis test twice: ``[quick]`` with few examples, ``[full]`` with more.

    ``make test`` runs ``[quick]`` only. ``make check`` adds ``[full]`` with a third of the test's
    own ``max_examples``, but at least twice as many as ``[quick]``; ``make nightly`` adds it with
    all. Goes above ``@given`` and ``@settings``.
    """
    sizes = pytest.mark.parametrize(
        "max_examples",
        [
            pytest.param((quick, quick), id="quick"),
            pytest.param((2 * quick, None), id="full", marks=pytest.mark.check),
        ],
        indirect=True,
    )
    return lambda test: pytest.mark.usefixtures("max_examples")(sizes(test))


def checked_examples(own: int) -> int:
    """How many examples of a test's own ``max_examples`` this run takes for ``[full]``."""
    return own if NIGHTLY else own // CHECKED


@pytest.fixture
def max_examples(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits the Hypothesis examples of the test that runs now.

    The parameter: the fewest and the most, if the test has as many of its own.
    """
    fewest, most = request.param
    own: settings = getattr(request.function, SETTINGS)
    wanted = max(fewest, checked_examples(own.max_examples) if most is None else most)
    limited = settings(parent=own, max_examples=min(wanted, own.max_examples))
    monkeypatch.setattr(request.function, SETTINGS, limited)


def first(quick: int, values: Iterable[Any]) -> list[Any]:
    """Values for ``pytest.mark.parametrize``: ``make test`` takes only the first ``quick``."""
    return [
        value if number < quick else pytest.param(value, marks=pytest.mark.check)
        for number, value in enumerate(values)
    ]
