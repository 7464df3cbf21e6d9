"""What ``tests/conftest.py`` does for a whole run, shown by runs of small suites."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.process import CommandResult, environment, run_command

pytestmark = pytest.mark.quick


def run_tests(
    folder: Path, text: str, *options: str, place: str = "tests/system", **env: str
) -> CommandResult:
    """Run the tests of one file of tests/system with this project's settings."""
    file = folder / place / "test_it.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    command = (sys.executable, "-m", "pytest", "-p", "tests.conftest", "-q")
    more = ("-c", ROOT / "pyproject.toml", "-p", "no:cacheprovider", "--rootdir", folder, *options)
    return run_command(*command, *more, file, env=environment(**env), folder=folder)


REPEATS = """
def test_repeats(record_property):
    record_property("repeated", "a request: too slow")
"""


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["one process", "workers"])
def test_it_says_what_was_repeated_and_what_took_the_time(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    begun = time.time() - 660
    done = run_tests(tmp_path, REPEATS, *options, ROTA_TEST_STARTED=str(begun))
    assert done.code == 0, done.out
    assert "REPEATED tests/system/test_it.py::test_repeats: a request: too slow" in done.lines
    assert "this run took 11 minutes" in done.out
    assert any(line.endswith(" s  tests/system/test_it.py::test_repeats") for line in done.lines)


SPARK_TOO_SLOW = """
import pytest

SLOW = "Python worker failed to connect back."

@pytest.fixture(scope="session")
def counted(tmp_path_factory):
    file = tmp_path_factory.getbasetemp() / "attempts"
    def attempt(name):
        with file.open("a+") as attempts:
            attempts.write(name + "\\n")
        return file.read_text().split().count(name)
    return attempt

@pytest.mark.parametrize("slow", [0, 2, 3])
def test_query(slow, counted):
    assert counted(f"query{slow}") > slow, SLOW

@pytest.fixture(scope="module")
def shared(counted):
    assert counted("shared") > 1, SLOW

def test_setup(shared):
    pass

def test_other(counted):
    assert counted("other") > 1, "something else"

@pytest.fixture
def leaves_a_socket(counted):
    yield
    assert counted("leaves") > 1, "unclosed socket"

def test_two(leaves_a_socket, counted):
    assert counted("two") > 1, SLOW
"""


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["one process", "workers"])
def test_it_repeats_a_spark_test_only_for_sparks_limit(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    done = run_tests(tmp_path, SPARK_TOO_SLOW, *options, place="tests/system/spark")
    message = "Python worker failed to connect back."
    assert outcome_lines(done) == [
        f"REPEATED query[2]: call: E       AssertionError: {message}",
        f"REPEATED query[2]: call: E       AssertionError: {message}",
        f"REPEATED query[3]: call: E       AssertionError: {message}",
        f"REPEATED query[3]: call: E       AssertionError: {message}",
        f"REPEATED setup: setup: E       AssertionError: {message}",
        "ERROR two",
        "FAILED query[3]",
        "FAILED other",
        "FAILED two",
    ]


def test_it_repeats_no_other_test(tmp_path: Path) -> None:
    done = run_tests(tmp_path, SPARK_TOO_SLOW)
    assert outcome_lines(done) == [
        "ERROR setup",
        "ERROR two",
        "FAILED query[2]",
        "FAILED query[3]",
        "FAILED other",
        "FAILED two",
    ]


def outcome_lines(done: CommandResult) -> list[str]:
    """The lines on single tests at the end of a run, with a test's name alone."""
    lines = [re.sub(r"tests/\S*::test_", "", line) for line in done.lines if "::test_" in line]
    return [line.partition(" - ")[0] for line in lines if line.startswith(("REP", "FAI", "ERR"))]


def test_a_short_run_lists_no_times(tmp_path: Path) -> None:
    done = run_tests(tmp_path, REPEATS, ROTA_TEST_STARTED=str(time.time()))
    assert "this run took" not in done.out


LEAVES_A_SOCKET = """
import gc, socket

def test_leaves_a_socket_for_the_collector():
    gc.disable()
    open_socket = socket.socket()
    cycle = [open_socket]
    cycle.append(cycle)
"""


def test_the_last_test_of_a_worker_may_leave_no_socket_open(tmp_path: Path) -> None:
    done = run_tests(tmp_path, LEAVES_A_SOCKET, "-n", "1")
    assert done.code == pytest.ExitCode.TESTS_FAILED, done.out
    assert "unclosed <socket.socket" in done.out


HANGS = """
import threading

def test_waits_for_ever():
    threading.Event().wait()
"""


def test_a_test_that_hangs_ends_the_run_and_is_named(tmp_path: Path) -> None:
    """xdist would start a worker anew, and have it run the same test."""
    assert "--max-worker-restart 0" in (ROOT / "Makefile").read_text()
    options = ("-n", "1", "--max-worker-restart", "0", "-o", "faulthandler_timeout=0.5")
    done = run_tests(tmp_path, HANGS, *options)
    assert done.code not in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}, done.out
    assert "crashed while running 'tests/system/test_it.py::test_waits_for_ever'" in done.out
    assert "in test_waits_for_ever" in done.err


HIDDEN_MARK = """
import pytest

@getattr(pytest.mark, "qui" + "ck")
def test_that_make_test_would_not_see(): pass
"""


def test_a_mark_that_is_not_in_the_file_is_refused(tmp_path: Path) -> None:
    """Nobody would run the test: ``make test`` does not import the file."""
    done = run_tests(tmp_path, HIDDEN_MARK)
    assert done.code == pytest.ExitCode.USAGE_ERROR, done.out
    assert "write pytest.mark.quick in its own file" in done.err
