"""What holds for every test: Hypothesis profiles, folder rules, which run a test belongs to."""

from __future__ import annotations

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
    "tests.support.command",
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
#: Seconds after which a run says which tests took the time.
LONG_RUN = 600
#: Groups of tests/system that run in one worker each, the longest first: folders that share a
#: running Kafka, Spark or browser, and files that take long.
GROUPS = (
    "spark/",
    "kafka/",
    "spark/beside/",
    "spark/source/",
    "browser/",
    "consumer/",
    "process/test_demo.py",
    "crash/test_kill.py",
)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import files that have no test for this run: it takes seconds in each worker.

    Under ``make test`` those of tests/system without a quick test, under the rest of ``make check``
    those of tests/pure and tests/local without a test that is left to it.
    """
    if not collection_path.match("test_*.py"):
        return None
    text = collection_path.read_text("utf-8")
    system = collection_path.is_relative_to(Path(__file__).parent / "system")
    if config.option.markexpr == TEST and system and "mark.quick" not in text:
        return True
    if config.option.markexpr == REST and not system:
        return None if "mark.check" in text or "tests.support.examples" in text else True
    return None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    """Leave tests/system to ``make check``, and start the longest groups of tests first."""
    for item in items:
        if not item.nodeid.startswith(("tests/pure/", "tests/local/", "tests/system/")):
            raise pytest.UsageError(f"{item.nodeid}: put it in tests/pure, local or system")
        if item.nodeid.startswith("tests/system/") and item.get_closest_marker("quick") is None:
            item.add_marker(pytest.mark.check)
    yield  # pytest selects by these marks, and orders by fixtures
    items.sort(key=lambda item: _turn(group_of(item.nodeid)))


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
