"""What ``tests/conftest.py`` does for a whole run, shown by runs of small suites."""

from __future__ import annotations

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

@pytest.mark.parametrize("slow", [0, 2, 3])
def test_streams(slow, tmp_path_factory):
    tries = tmp_path_factory.getbasetemp() / str(slow)
    with tries.open("a+") as file:
        file.write("x")
    assert len(tries.read_text()) > slow, "Python worker failed to connect back."
"""


@pytest.mark.parametrize(
    ("place", "repeated", "failed"),
    [("tests/system/spark", [2, 2, 3, 3], [3]), ("tests/system", [], [2, 3])],
)
def test_it_repeats_tests_of_spark_whose_python_started_too_late(
    tmp_path: Path, place: str, repeated: list[int], failed: list[int]
) -> None:
    done = run_tests(tmp_path, SPARK_TOO_SLOW, place=place)
    slow = "Python worker failed to connect back"
    assert [line.partition(" - ")[0] for line in done.lines if "::test_streams[" in line] == [
        *(
            f"REPEATED {place}/test_it.py::test_streams[{each}]: the test: {slow}"
            for each in repeated
        ),
        *(f"FAILED {place}/test_it.py::test_streams[{each}]" for each in failed),
    ]


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
