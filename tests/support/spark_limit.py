"""Repeats a test of Spark that failed by Spark's time limit for a Python, and says so."""

from __future__ import annotations

import pytest
from _pytest.runner import runtestprotocol

TOO_SLOW = "Python worker failed to connect back"
"""Spark gives a Python that it starts for a query ten seconds to connect, whatever else the machine
does. The query has read nothing then. No setting changes that limit."""
ATTEMPTS = 3


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Each repeat is in the list at the end of the run."""
    if not item.nodeid.startswith("tests/system/spark/"):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for _ in range(ATTEMPTS):
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        if not any(each.failed and TOO_SLOW in each.longreprtext for each in reports):
            break
        item.user_properties.append(("repeated", f"the test: {TOO_SLOW}"))
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
