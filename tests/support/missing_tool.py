"""Skips a test whose tool is missing: Java, Maven, Go, a Chromium, a package index.

Code that needs a tool raises :class:`Unavailable`, and its test is skipped. With
``ROTA_REQUIRE_TOOLS=1`` the test fails instead. The workflow of GitHub Actions sets it: it installs
every tool, and a skip would hide that one is missing.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import pytest

REQUIRED = "ROTA_REQUIRE_TOOLS"
T = TypeVar("T")


class Unavailable(Exception):
    """Why a tool cannot be used on this machine."""


def tools_required() -> bool:
    """Whether a missing tool is a failure."""
    return bool(os.environ.get(REQUIRED))


def cache_outcome(look: Callable[[], T]) -> Callable[[], T]:
    """A function that looks for a tool once, also if it is not there: a look may take minutes."""

    @functools.cache
    def found() -> T | Unavailable:
        try:
            return look()
        except Unavailable as reason:
            return reason

    @functools.wraps(look)
    def again() -> T:
        outcome = found()
        if isinstance(outcome, Unavailable):
            raise Unavailable(*outcome.args)
        return outcome

    return again


def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> None:
    """Report an Unavailable that left a test or a fixture as a skip, or as a failure.

    pytest calls it before its own of this name, because it is registered later.
    """
    import pytest  # here: benchmarks import this module, and would measure pytest's memory

    if call.excinfo is None or not isinstance(call.excinfo.value, Unavailable):
        return
    reason = str(call.excinfo.value)

    def end() -> None:
        if tools_required():
            pytest.fail(f"{REQUIRED} is set, and {reason}", pytrace=False)
        raise pytest.skip.Exception(reason, _use_item_location=True)

    call.excinfo = pytest.CallInfo.from_call(end, call.when).excinfo
