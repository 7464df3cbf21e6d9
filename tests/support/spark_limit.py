"""Repeats a Spark test in which a Python worker did not connect in Spark's time limit."""

from __future__ import annotations

from functools import partial

import pytest
from _pytest.runner import runtestprotocol

#: Spark's error when a Python worker that it started did not connect in ten seconds, as happens on
#: a busy machine. No setting changes the limit. A worker that fails in its start gives the same
#: error, but then it fails in each attempt.
TOO_SLOW = "Python worker failed to connect back"
ATTEMPTS = 3


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """The end of the run lists each repeat (REPEATED)."""
    if not item.nodeid.startswith("tests/system/spark/"):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for left in reversed(range(ATTEMPTS)):
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        seen = [_too_slow(report) for report in reports if report.failed]
        if not left or not seen or not all(seen):
            break
        # A repeat starts with new fixtures of every scope: pytest keeps the error of a shared one.
        end = pytest.CallInfo.from_call(
            partial(item.session._setupstate.teardown_exact, None), "teardown"
        )
        ended = item.ihook.pytest_runtest_makereport(item=item, call=end)
        if ended.failed:
            reports.append(ended)
            break
        item.user_properties.append(("repeated", seen[0]))
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _too_slow(report: pytest.TestReport) -> str:
    """The phase of the test that failed by Spark's limit, and Spark's words; else nothing."""
    said = [line for line in report.longreprtext.splitlines() if TOO_SLOW in line]
    return f"{report.when}: {said[-1].strip()}" if said else ""
