"""A follower hears of queries in any order, and outlives the main thread."""

from __future__ import annotations

import logging
import time
import uuid
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from rota.spark.progress import QueryFilter, QueryFollower


class FakeStreams:
    """Of a session in which a query ends while the active ones are listed."""

    def __init__(self) -> None:
        self.listener: Any = None
        self.query = SimpleNamespace(
            id=uuid.uuid4(), runId=uuid.uuid4(), name="bills", lastProgress=None
        )
        self._ended = False

    def addListener(self, listener: Any) -> None:  # noqa: N802 Spark's names
        self.listener = listener

    def removeListener(self, listener: Any) -> None:  # noqa: N802
        assert listener is self.listener

    def get(self, query: str) -> None:
        return None

    @property
    def active(self) -> list[Any]:
        if self._ended:
            return []
        self._ended = True
        self.listener.onQueryTerminated(
            SimpleNamespace(id=self.query.id, runId=self.query.runId, exception=None)
        )
        return [self.query]


def test_a_query_that_ends_while_it_is_listed_has_ended() -> None:
    session: Any = SimpleNamespace(streams=FakeStreams())
    follower = QueryFollower(
        session, QueryFilter(), lambda offsets, anew: None, about="group 'billing'"
    )
    follower.start()
    assert follower.catch_up(time.monotonic() + 10)
    assert not follower.has_running_query
    assert follower.stop(time.monotonic() + 10)


def test_a_name_that_no_query_had_is_said(caplog: pytest.LogCaptureFixture) -> None:
    streams = FakeStreams()
    session: Any = SimpleNamespace(streams=streams)
    wanted = QueryFilter(name="billz")
    follower = QueryFollower(session, wanted, lambda offsets, anew: None, about="group 'billing'")
    follower.start()
    streams.listener.onQueryStarted(streams.query)
    with caplog.at_level(logging.WARNING, "rota.spark"):
        assert follower.stop(time.monotonic() + 10)
    assert "no query is named 'billz'; these queries ran: bills" in caplog.text
