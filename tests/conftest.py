"""What holds for every test: Hypothesis profiles, folder rules, which run a test belongs to."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# pytest explains failed assertions of test modules alone; helpers and cases have some too.
pytest.register_assert_rewrite("tests.support", "tests.system")

pytest_plugins = ["tests.support.folder_rules", "tests.support.command"]

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

#: Seconds after which a run says which tests took the time.
LONG_RUN = 600
#: Tests that share a running broker, Spark or browser: one worker runs them all.
SHARED = ("spark/beside", "spark", "browser", "consumer")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave slow folders to ``make check``, and keep tests that share something together."""
    for item in items:
        parts = item.path.relative_to(Path(__file__).parent).parts
        if parts[0] == "system" and item.get_closest_marker("quick") is None:
            item.add_marker(pytest.mark.check)
        item.add_marker(pytest.mark.xdist_group(_group(item, parts)))


def _group(item: pytest.Item, parts: tuple[str, ...]) -> str:
    if parts[0] == "system":
        inside = "/".join(parts[1:])
        for folder in SHARED:
            if inside.startswith(f"{folder}/"):
                return folder
        if parts[1] == "kafka" and "broker" in getattr(item, "fixturenames", ()):
            return "kafka broker"
    return "/".join(parts)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what had to be repeated, and after a long run which tests took the time."""
    reports = [
        report
        for listed in terminalreporter.stats.values()
        for report in listed
        if isinstance(report, pytest.TestReport)
    ]
    for report in reports:
        for name, value in report.user_properties if report.when == "call" else ():
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
