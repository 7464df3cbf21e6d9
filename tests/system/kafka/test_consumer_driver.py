"""The consumer's driver in groups of a real broker."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Mapping
from functools import partial

import pytest

from rota.engine.member.events import PollBegan
from rota.engine.member.state import MemberState
from rota.engine.model.request import DescribeGroups, OffsetFetch
from rota.engine.model.response import DescribedGroup, DescribeGroupsResult, OffsetFetchResult
from rota.engine.model.topic import OffsetAndMetadata, TopicPartition
from rota.errors import CommitFailed, Fenced, InconsistentProtocol
from tests.support.consumer_driver import Application
from tests.support.coordinator.scripted_member import CONFIG, TOPICS
from tests.support.kafka import KafkaBroker

TOPIC = min(TOPICS)
P0 = TopicPartition(TOPIC, 0)
SEVEN: Mapping[TopicPartition, OffsetAndMetadata] = {P0: OffsetAndMetadata(7, "note", 0)}
SESSION = CONFIG.min_session_timeout


@pytest.fixture
def group() -> str:
    return f"driver-{uuid.uuid4()}"


def application(broker: KafkaBroker, group: str, **settings: object) -> Application:
    topics = {TOPIC: TOPICS[TOPIC]}
    where = f"127.0.0.1:{broker.port}"
    return Application(where, topics=topics, group=group, **settings)  # type: ignore[arg-type]


def describe_group(app: Application, group: str) -> DescribedGroup:
    reply = asyncio.run(app.driver.send_to_coordinator(DescribeGroups(groups=(group,))))
    assert isinstance(reply, DescribeGroupsResult)
    return reply.groups[0]


def test_join_commit_ask_and_leave(broker: KafkaBroker, group: str) -> None:
    with application(broker, group) as app:
        app.join()
        assert app.commit_and_wait(SEVEN) is None
        request = OffsetFetch(
            group=group, partitions=(P0, TopicPartition(TOPIC, 1)), require_stable=True
        )
        reply = asyncio.run(app.driver.send_to_coordinator(request))
        assert reply == OffsetFetchResult(offsets={**SEVEN, TopicPartition(TOPIC, 1): None})
        everything = asyncio.run(app.driver.send_to_coordinator(OffsetFetch(group=group)))
        assert everything == OffsetFetchResult(offsets=SEVEN)
        app.close()
    with application(broker, group) as other:
        assert describe_group(other, group).state == "Empty"


def test_who_is_busy_for_longer_than_a_session_stays_a_member(
    broker: KafkaBroker, group: str
) -> None:
    beats = {"session_timeout": SESSION, "heartbeat_interval": SESSION // 5}
    with application(broker, group, **beats) as app:
        app.join()
        time.sleep(SESSION * 2.5 / 1000)  # the application's work
        assert app.generation == 1
        assert app.commit_and_wait(SEVEN) is None
        assert [one.member_id for one in describe_group(app, group).members] == [app.member_id]


def test_who_polls_too_late_hears_why(broker: KafkaBroker, group: str) -> None:
    with application(broker, group, max_poll_interval=500) as app:
        app.join()
        app.wait(lambda: app.state is MemberState.UNJOINED)
        error = app.commit_and_wait(SEVEN)
        assert isinstance(error, CommitFailed)
        assert "max.poll.interval.ms = 500" in str(error)
        app.poll(lambda: app.is_settled)
        assert app.commit_and_wait(SEVEN) is None


def test_without_a_common_strategy_both_are_named(broker: KafkaBroker, group: str) -> None:
    made = partial(application, broker, group)
    with made(strategies="cooperative-sticky", client_id="one") as app, made() as other:
        app.join()
        app.wait(lambda: describe_group(app, group).state == "Stable")
        other.subscribe()
        other.poll(lambda: bool(other.raised))
        (error,) = other.raised
        assert isinstance(error, InconsistentProtocol)
        assert "are range; the group's is cooperative-sticky, of 1 member (one)" in str(error)


def test_who_closes_does_not_wait_for_the_join_of_others(broker: KafkaBroker, group: str) -> None:
    with application(broker, group) as app, application(broker, group) as other:
        app.join()
        other.subscribe()
        other.driver.handle_event(PollBegan())
        app.wait(lambda: len(describe_group(app, group).members) == 2)
        other.close(wait=30_000)
        assert [one.member_id for one in describe_group(app, group).members] == [app.member_id]


def test_who_has_the_static_id_last_fences_the_other(broker: KafkaBroker, group: str) -> None:
    made = partial(application, broker, group, group_instance_id="s", heartbeat_interval=100)
    with made() as app, made() as other:
        app.join()
        other.join()
        app.wait(lambda: app.state is MemberState.FENCED)
        assert isinstance(app.commit_and_wait(SEVEN), Fenced)
        assert other.commit_and_wait(SEVEN) is None
