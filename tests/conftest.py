"""What holds for every test: Hypothesis profiles, folder rules, which run a test belongs to."""

from __future__ import annotations

import gc
import os
import time
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# pytest explains failed assertions of test modules alone; helpers and cases have some too.
pytest.register_assert_rewrite("tests.support", "tests.system")

pytest_plugins = [
    "tests.support.folder_rules",
    "tests.support.missing_tool",
    "tests.support.spark_limit",
    "tests.support.command",
    "tests.support.examples",
]

quiet = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("dev", max_examples=30, deadline=None, suppress_health_check=quiet)
settings.register_profile(
    "ci",
    max_examples=200,
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=quiet,
)
settings.register_profile(
    "nightly", max_examples=10_000, deadline=None, print_blob=True, suppress_health_check=quiet
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

#: What ``make test`` selects, and what ``make check`` adds to it.
TEST, REST = "not check and not nightly", "check and not nightly"
SYSTEM = Path(__file__).parent / "system"
#: The module whose decorators mark tests as ``check``.
EXAMPLES = "tests.support.examples"
#: Seconds after which a run says which tests took the time.
LONG_RUN = 600
#: Groups of tests/system that run in one worker each, the longest first: folders that share a
#: running Kafka, Spark or browser, and files that take long.
GROUPS = (
    "spark/",
    "kafka/",
    "spark/comparison/",
    "spark/source/",
    "browser/",
    "consumer/",
    "process/test_demo.py",
    "crash/test_kill.py",
)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import files that have no test for this run: it takes seconds in each worker.

    ``make test`` ignores files of tests/system that have no ``quick`` test, ``make rest`` those of
    tests/pure and tests/local that have no ``check`` test.
    """
    if not collection_path.match("test_*.py"):
        return None
    in_system = collection_path.is_relative_to(SYSTEM)
    if config.option.markexpr == (TEST if in_system else REST):
        return None if _may_have_other_tests(collection_path) else True
    return None


def _may_have_other_tests(file: Path) -> bool:
    """Whether a file of tests/system has quick tests, or one of the others has check tests."""
    text = file.read_text("utf-8")
    words = ("mark.quick",) if file.is_relative_to(SYSTEM) else ("mark.check", EXAMPLES)
    return any(word in text for word in words)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    """Leave tests/system to ``make check``, but for ``quick``; start the longest groups first."""
    for item in items:
        if not item.nodeid.startswith(("tests/pure/", "tests/local/", "tests/system/")):
            raise pytest.UsageError(f"{item.nodeid}: put it in tests/pure, local or system")
        other = "quick" if item.nodeid.startswith("tests/system/") else "check"
        if item.get_closest_marker(other) is None:
            if other == "quick":
                item.add_marker(pytest.mark.check)
        elif not _may_have_other_tests(item.path):  # see pytest_ignore_collect
            raise pytest.UsageError(f"{item.nodeid}: write pytest.mark.{other} in its own file")
    yield  # pytest selects by these marks, and orders by fixtures
    items.sort(key=lambda item: _turn(group_of(item.nodeid)))


@pytest.fixture(scope="session", autouse=True)
def collected_garbage() -> Generator[None]:
    """Let the last test of a worker fail for what was left open before it.

    pytest collects garbage once more at its end, when a worker of xdist reports no more.
    """
    yield
    gc.collect()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run the tests of one group in one worker, one after the other.

    xdist has this as ``--dist loadgroup``, which does nothing with pytest 9.2: it changes an
    attribute that pytest does not read any more.
    """
    from xdist.scheduler import LoadScopeScheduling

    class GroupScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return GroupScheduling(config, log)


def group_of(nodeid: str) -> str:
    """The folder whose tests share what they have started; else the test's own file."""
    file, _, _ = nodeid.partition("::")
    found = [group for group in GROUPS if file.startswith(f"tests/system/{group}")]
    return max(found, key=len, default=file)


def _turn(group: str) -> int:
    """Long groups start first, so that no worker is left with one of them at the end."""
    return GROUPS.index(group) if group in GROUPS else len(GROUPS)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what had to be repeated, and after a long run which tests took the time."""
    reports = [
        report
        for listed in terminalreporter.stats.values()
        for report in listed
        if isinstance(report, pytest.TestReport)
    ]
    for report in reports:
        for name, value in report.user_properties if report.when == "teardown" else ():
            if name == "repeated":
                terminalreporter.write_line(f"REPEATED {report.nodeid}: {value}")
    started = float(os.environ.get("ROTA_TEST_STARTED", "inf"))
    if time.time() - started < LONG_RUN:
        return
    spent: defaultdict[str, float] = defaultdict(float)
    for report in reports:
        spent[report.nodeid] += report.duration
    terminalreporter.section(f"this run took {(time.time() - started) / 60:.0f} minutes")
    for nodeid, seconds in sorted(spent.items(), key=lambda each: -each[1])[:25]:
        terminalreporter.write_line(f"{seconds:7.1f} s  {nodeid}")
