"""Skips a test whose tool is missing: Java, Maven, Go, a Chromium, a package index.

Code that needs a tool raises :class:`Unavailable`; tests and fixtures do not catch it. With
``ROTA_REQUIRE_TOOLS=1`` such a test fails instead. CI sets it: it installs every tool, and a skip
would hide that one is missing.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

REQUIRED = "ROTA_REQUIRE_TOOLS"


class Unavailable(Exception):
    """Why a tool cannot be used on this machine."""


def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> None:
    """Report an Unavailable that left a test or a fixture as a skip, or as a failure.

    pytest calls it before its own of this name, because it is registered later.
    """
    import pytest  # here: benchmarks import this module, and would measure pytest's memory

    if call.excinfo is None or not isinstance(call.excinfo.value, Unavailable):
        return
    reason = str(call.excinfo.value)

    def end() -> None:
        if os.environ.get(REQUIRED):
            pytest.fail(f"{REQUIRED} is set, and {reason}", pytrace=False)
        pytest.skip(reason)

    call.excinfo = pytest.CallInfo.from_call(end, call.when).excinfo
