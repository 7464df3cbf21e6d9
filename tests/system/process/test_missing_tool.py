"""A test whose tool is missing is skipped; with ``ROTA_REQUIRE_TOOLS=1`` it fails."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.missing_tool import REQUIRED
from tests.support.process import CommandResult, environment, run_command

pytestmark = pytest.mark.quick

TESTS = """
from concurrent.futures import ThreadPoolExecutor
import pytest
from tests.support.missing_tool import Unavailable

def java():
    raise Unavailable("no java on the path")

@pytest.fixture(scope="module")
def kafka():
    java()
    yield

@pytest.fixture(scope="package")
def browser():
    raise Unavailable("no Chromium here")

def test_calls(): java()
def test_asks_a_thread():
    with ThreadPoolExecutor() as pool:
        pool.submit(java).result()
def test_has_a_broker(kafka): pass
def test_shares_that_broker(kafka): pass
def test_has_a_browser(browser): pass
def test_expects_it():
    with pytest.raises(Unavailable):
        java()
def test_fails(): raise RuntimeError("no java on the path")
"""


def run_tests(folder: Path, env: dict[str, str]) -> CommandResult:
    (folder / "test_it.py").write_text(TESTS)
    command = (sys.executable, "-m", "pytest", "-p", "tests.support.missing_tool", "-rA", "-q")
    options = ("-p", "no:cacheprovider", "--import-mode=importlib", "--rootdir", folder)
    return run_command(*command, *options, folder, env={**env, "COLUMNS": "250"}, folder=folder)


def outcome_lines(done: CommandResult, kind: str) -> list[str]:
    """The lines of pytest's summary about one kind of outcome."""
    return sorted(line for line in done.lines if line.startswith(f"{kind} "))


def test_a_missing_tool_skips_a_test(tmp_path: Path) -> None:
    done = run_tests(tmp_path, environment(**{REQUIRED: ""}))
    lines = [18, 19, 22, 23]  # of the tests themselves
    assert outcome_lines(done, "SKIPPED") == [
        *(f"SKIPPED [1] test_it.py:{line}: no java on the path" for line in lines),
        "SKIPPED [1] test_it.py:24: no Chromium here",
    ]
    assert outcome_lines(done, "PASSED") == ["PASSED test_it.py::test_expects_it"]
    assert outcome_lines(done, "FAILED") == [
        "FAILED test_it.py::test_fails - RuntimeError: no java on the path"
    ]
    assert outcome_lines(done, "ERROR") == []


def test_a_required_tool_that_is_missing_fails_a_test(tmp_path: Path) -> None:
    done = run_tests(tmp_path, environment(**{REQUIRED: "1"}))
    java = "ROTA_REQUIRE_TOOLS is set, and no java on the path"
    assert outcome_lines(done, "FAILED") == [
        f"FAILED test_it.py::test_asks_a_thread - Failed: {java}",
        f"FAILED test_it.py::test_calls - Failed: {java}",
        "FAILED test_it.py::test_fails - RuntimeError: no java on the path",
    ]
    assert outcome_lines(done, "ERROR") == [
        "ERROR test_it.py::test_has_a_broker - Failed: " + java,
        "ERROR test_it.py::test_has_a_browser - Failed: "
        "ROTA_REQUIRE_TOOLS is set, and no Chromium here",
        "ERROR test_it.py::test_shares_that_broker - Failed: " + java,
    ]
    assert outcome_lines(done, "SKIPPED") == []
