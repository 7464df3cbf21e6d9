"""A group is kept as it should be, over a real broker that refuses, hangs or is gone."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

import rota
from rota.client import config
from rota.client.group_requests import encode_group_request
from rota.client.retry import Backoff
from rota.engine.model.topic import TopicPartition
from rota.spark import commit
from rota.spark.commit import GroupCommitter
from tests.support.waiting import wait_until

PARTITIONS = [TopicPartition("orders", number) for number in range(3)]
OpenCommits = Callable[..., AbstractContextManager[GroupCommitter]]

HOUR = 3600.0


@pytest.fixture
def broker() -> Iterator[rota.Broker]:
    with rota.Broker() as running:
        running.create_topic("orders", partitions=3)
        yield running


@pytest.fixture
def open_commits(broker: rota.Broker, monkeypatch: pytest.MonkeyPatch) -> OpenCommits:
    monkeypatch.setattr(commit, "COMMIT_BACKOFF", Backoff(0.01, 0.05))
    address = broker.bootstrap_servers

    @contextmanager
    def make(group: str = "billing", **settings: Any) -> Iterator[GroupCommitter]:
        given = {"bootstrap.servers": address, **settings}
        made = GroupCommitter(group, config.read_settings(given).client, lambda: True)
        try:
            yield made
        finally:
            made.stop()
            assert not any(group in each.name for each in threading.enumerate())

    return make


def offsets(*offsets: int) -> Mapping[TopicPartition, int]:
    return dict(zip(PARTITIONS, offsets, strict=False))


def count_journal_records(broker: rota.Broker) -> int:
    """How many records it has."""
    return len(list(broker.read("__consumer_offsets")))


def test_the_group_gets_what_it_is_to_have(broker: rota.Broker, open_commits: OpenCommits) -> None:
    with open_commits() as kept:
        assert kept.flush(10)
        assert "billing" not in broker.groups
        kept.set_target(offsets(5, 6))
        assert kept.flush(10)
        assert broker.committed("billing") == offsets(5, 6)
        kept.set_target(offsets(3, 9, 1))
        assert kept.flush(10)
        assert broker.committed("billing") == offsets(3, 9, 1)
        assert not kept.pending


def test_what_has_not_changed_is_not_committed_again_but_anew(
    broker: rota.Broker, open_commits: OpenCommits
) -> None:
    def journal() -> int:
        return len(list(broker.read("__consumer_offsets")))

    with open_commits() as kept:
        kept.set_target(offsets(5, 6, 7))
        assert kept.flush(10)
        before = journal()
        kept.set_target(offsets(5, 6, 8))
        assert kept.flush(10)
        assert journal() == before + 1
        kept.set_target(offsets(5, 6, 8), anew=True)
        assert kept.flush(10)
        assert journal() == before + 4


def test_offsets_are_renewed_before_the_broker_forgets_them(
    broker: rota.Broker, open_commits: OpenCommits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "RENEWAL_INTERVAL", 0.02)
    with open_commits() as kept:
        kept.set_target(offsets(5))
        assert kept.flush(10)
        written = count_journal_records(broker)
        wait_until(
            "another commit is in the journal", lambda: count_journal_records(broker) > written
        )


def test_a_broker_that_is_down_is_named_and_gets_only_the_newest(
    broker: rota.Broker, open_commits: OpenCommits, caplog: pytest.LogCaptureFixture
) -> None:
    address = broker.bootstrap_servers
    broker.stop()
    quick = {"default.api.timeout.ms": 200, "request.timeout.ms": 100}
    with caplog.at_level(logging.INFO, "rota.spark"), open_commits(**quick) as kept:
        assert kept.last_failure == f"no answer yet from {address}"
        kept.set_target(offsets(1))
        wait_until("trouble is logged", lambda: "the commit failed" in caplog.text)
        assert address in caplog.text
        assert "refused" in kept.last_failure
        assert not kept.flush(0.1)
        assert kept.pending == offsets(1)
        kept.set_target(offsets(7))
        broker.start()
        broker.create_topic("orders", partitions=3)
        assert kept.flush(20)
        assert broker.committed("billing") == offsets(7)
        assert "committed again" in caplog.text
    assert {record.levelname for record in caplog.records} == {"WARNING", "INFO"}


def test_a_group_with_members_is_left_alone_until_they_are_gone(
    broker: rota.Broker, open_commits: OpenCommits, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "billing"}
    with open_commits() as kept:
        with rota.Consumer(settings) as member:
            member.subscribe(["orders"])
            while not member.assignment:
                member.poll(0.1)
            kept.set_target(offsets(5))
            wait_until("trouble is logged", lambda: "the group has members" in caplog.text)
            assert broker.committed("billing") != offsets(5)
            member.poll(0)
        assert kept.flush(20)
    assert broker.committed("billing")[PARTITIONS[0]] == 5


def test_what_is_refused_holds_nothing_else_up(
    broker: rota.Broker, open_commits: OpenCommits, caplog: pytest.LogCaptureFixture
) -> None:
    gone = TopicPartition("gone", 0)
    with open_commits() as kept:
        kept.set_target({**offsets(5), gone: 1})
        wait_until("trouble is logged", lambda: "gone-0: there is no such partition" in caplog.text)
        assert not kept.flush(0.1)
        kept.set_target({**offsets(6), gone: 1})
        wait_until("what can be committed is", lambda: broker.committed("billing") == offsets(6))
        wait_until("the committer knows it", lambda: kept.pending == {gone: 1})
        assert caplog.text.count("gone-0") == 1
        broker.create_topic("gone", partitions=1)
        assert kept.flush(10)
        assert broker.committed("billing") == {**offsets(6), gone: 1}


@pytest.mark.parametrize("code", ["GROUP_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED"])
def test_a_missing_permission_is_said_once_and_tried_again(
    broker: rota.Broker, open_commits: OpenCommits, caplog: pytest.LogCaptureFixture, code: str
) -> None:
    broker.fail("OffsetCommit", code, times=5)
    with open_commits() as kept:
        kept.set_target(offsets(5))
        assert kept.flush(20)
    assert broker.committed("billing") == offsets(5)
    assert caplog.text.count("no permission") == 1


def test_a_broker_that_does_not_answer_does_not_hold_up_the_end(
    broker: rota.Broker, open_commits: OpenCommits
) -> None:
    broker.delay("OffsetCommit", 3600)
    with open_commits() as kept:
        kept.set_target(offsets(5))
        assert not kept.flush(0.2)
        began = time.monotonic()
    assert time.monotonic() - began < commit.CLOSE_TIMEOUT * 2
    assert kept.pending == offsets(5)
    kept.set_target(offsets(6))
    assert not kept.flush(1)


def test_a_coordinator_may_move(broker: rota.Broker, open_commits: OpenCommits) -> None:
    with open_commits() as kept:
        kept.set_target(offsets(5))
        assert kept.flush(10)
        broker.move_coordinator("billing")
        kept.set_target(offsets(6))
        assert kept.flush(20)
    assert broker.committed("billing") == offsets(6)


def test_an_error_that_nobody_thought_of_is_logged_and_survived(
    broker: rota.Broker,
    open_commits: OpenCommits,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    errors = iter([ZeroDivisionError("nobody")])

    def broken(request: Any) -> Any:
        for error in errors:
            raise error
        return encode_group_request(request)

    monkeypatch.setattr("rota.spark.commit.encode_group_request", broken)
    with open_commits() as kept:
        kept.set_target(offsets(5))
        assert kept.flush(10)
    assert "ZeroDivisionError: nobody" in caplog.text
    assert broker.committed("billing") == offsets(5)


def test_a_commit_that_is_carried_out_late_does_not_stay(
    broker: rota.Broker, open_commits: OpenCommits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "RECOMMIT_DELAY", 4.0)
    quick = {"default.api.timeout.ms": 400, "request.timeout.ms": 200}
    with open_commits(**quick) as kept:
        kept.set_target(offsets(40))
        assert kept.flush(10)
        broker.delay("OffsetCommit", HOUR, times=1)
        kept.set_target(offsets(50))
        wait_until("the late one is heard of", lambda: kept.pending == offsets(50))
        kept.set_target(offsets(40), anew=True)
        assert kept.flush(10)
        broker.clock.advance(HOUR)
        wait_until("the late one is there", lambda: broker.committed("billing") == offsets(50))
        wait_until("the new aim is there", lambda: broker.committed("billing") == offsets(40))
