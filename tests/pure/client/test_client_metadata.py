"""What a client knows of a cluster, and when it asks again."""

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.client.metadata import (
    REBOOTSTRAP_REQUIRED,
    BrokerMetadata,
    ClusterMetadata,
    MetadataRefresher,
    PartitionMetadata,
    TopicMetadata,
    merge_response,
    without_topics,
)
from rota.client.retry import JITTER, Backoff
from rota.engine.model.topic import TopicPartition
from rota.errors import AuthenticationFailed, Code, RotaError, TimedOut, Unreachable
from rota.protocol.messages import MetadataRequest, MetadataResponse
from tests.support.client import config, new_deadline, run

ID, OTHER = b"1" * 16, b"2" * 16
ORDERS = TopicPartition("orders", 0)

Topic: TypeAlias = "MetadataResponse.MetadataResponseTopic"


def topic(name: str, *partitions: tuple[int, int], id: bytes = ID, error: int = 0) -> Topic:  # noqa: A002
    """A topic whose partitions have these leaders and epochs."""
    made = MetadataResponse.MetadataResponseTopic
    part = MetadataResponse.MetadataResponsePartition
    return made(
        name=name,
        topic_id=id,
        error_code=error,
        partitions=[
            part(
                partition_index=number,
                leader_id=leader,
                leader_epoch=epoch,
                replica_nodes=[leader],
                isr_nodes=[leader],
            )
            for number, (leader, epoch) in enumerate(partitions)
        ],
    )


def metadata_response(*topics: Topic, brokers: int = 3, **fields: Any) -> MetadataResponse:
    made = MetadataResponse.MetadataResponseBroker
    return MetadataResponse(
        cluster_id="c",
        controller_id=1,
        topics=list(topics),
        brokers=[
            made(node_id=id, host=f"b{id}", port=9092, rack=f"r{id % 2}")
            for id in range(1, brokers + 1)  # noqa: A001
        ],
        **fields,
    )


def known_metadata(*answers: MetadataResponse, whole: bool = False) -> ClusterMetadata:
    found = ClusterMetadata()
    for each in answers:
        found = merge_response(found, each, whole=whole)
    return found


# A snapshot


def test_leaders_brokers_and_racks() -> None:
    found = known_metadata(metadata_response(topic("orders", (1, 5), (2, 6), (9, 7))))
    assert found.brokers[2] == BrokerMetadata(2, "b2", 9092, "r0")
    assert found.topics["orders"].partitions[0] == PartitionMetadata(1, 5, (1,))
    assert found.leader(ORDERS) == 1
    assert found.leader(TopicPartition("orders", 2)) is None, "broker 9 is not there"
    assert found.partition(TopicPartition("orders", 3)) is None
    assert found.partition(TopicPartition("orders", -1)) is None
    assert found.leader(TopicPartition("other", 0)) is None
    cluster = found.cluster()
    assert cluster.partitions == {"orders": 3}
    assert cluster.racks["orders"] == (frozenset({"r1"}), frozenset({"r0"}), frozenset())


def test_an_older_leader_does_not_come_back() -> None:
    found = known_metadata(
        metadata_response(topic("orders", (1, 5), (1, 5))),
        metadata_response(topic("orders", (2, 4), (3, 6))),
    )
    assert [each.leader for each in found.topics["orders"].partitions] == [1, 3]


def test_the_same_epoch_may_bring_news() -> None:
    found = known_metadata(
        metadata_response(topic("orders", (1, 5))), metadata_response(topic("orders", (-1, 5)))
    )
    assert found.leader(ORDERS) is None


def test_a_topic_made_anew_begins_anew() -> None:
    found = known_metadata(
        metadata_response(topic("orders", (1, 5))),
        metadata_response(topic("orders", (2, 0), id=OTHER)),
    )
    assert found.topics["orders"].id == OTHER
    assert found.leader(ORDERS) == 2


def test_a_broker_without_epochs_is_believed() -> None:
    assert (
        known_metadata(
            metadata_response(topic("orders", (1, 5))), metadata_response(topic("orders", (2, -1)))
        ).leader(ORDERS)
        == 2
    )


@pytest.mark.parametrize("code", [3, 5, 17, 29, 999])
def test_a_topics_error_is_kept(code: int) -> None:
    found = known_metadata(metadata_response(topic("orders", (1, 5)), topic("bad", error=code)))
    assert found.topics["bad"] == TopicMetadata("bad", ID, error=code)
    assert found.cluster().partitions == {"orders": 1}


def test_topics_that_were_not_asked_for_stay_and_those_of_all_go() -> None:
    first, then = (
        metadata_response(topic("a", (1, 0)), topic("b", (1, 0))),
        metadata_response(topic("b", (2, 1))),
    )
    assert known_metadata(first, then).topics.keys() == {"a", "b"}
    assert known_metadata(first, then, whole=True).topics.keys() == {"b"}
    assert without_topics(known_metadata(first), frozenset({"a"})).topics.keys() == {"b"}


def test_a_broker_that_knows_no_brokers_takes_none_away() -> None:
    assert known_metadata(metadata_response(), metadata_response(brokers=0)).brokers.keys() == {
        1,
        2,
        3,
    }


def test_numbers_that_no_kafka_gives_are_left_out() -> None:
    odd = topic("orders", (1, 0))
    odd.partitions[0].partition_index = 2**31 - 1
    found = known_metadata(metadata_response(odd)).topics["orders"].partitions
    assert found == (PartitionMetadata(-1, error=Code.LEADER_NOT_AVAILABLE),)


# Asking again


class Cluster:
    """Answers when it is told to, and counts what it is asked."""

    def __init__(self, **fields: Any) -> None:
        self.asked: list[list[str] | None] = []
        self.creates: list[bool] = []
        self.go = asyncio.Event()
        self.go.set()
        self.error: RotaError | None = None
        self.code = 0
        self.anew = 0
        settings = config("127.0.0.1:1", **fields)
        self.refresher = MetadataRefresher(self.ask, settings, lambda: ": dead", self.begin_again)

    async def ask(self, request: MetadataRequest, /, *, deadline: float) -> MetadataResponse:
        topics = request.topics
        names = None if topics is None else [each.name or "" for each in topics]
        self.asked.append(names)
        self.creates.append(request.allow_auto_topic_creation)
        await self.go.wait()
        if self.error is not None:
            raise self.error
        return metadata_response(
            *(topic(name, (1, 0)) for name in names or ["all"]), error_code=self.code
        )

    def begin_again(self) -> None:
        self.anew += 1

    async def refresh(
        self, *topics: str, create: bool = False, seconds: float = 10
    ) -> ClusterMetadata:
        return await self.refresher.refresh(frozenset(topics), new_deadline(seconds), create=create)


def test_who_asks_at_the_same_time_shares_the_answer() -> None:
    async def main() -> None:
        cluster = Cluster()
        many = await asyncio.gather(*(cluster.refresh("a") for _ in range(100)))
        assert cluster.asked == [["a"]]
        assert all(each is many[0] for each in many)
        await cluster.refresher.close()

    run(main())


def test_who_asks_for_more_waits_for_the_next() -> None:
    async def main() -> None:
        cluster = Cluster()
        wanted = ["a", "b", "c", "a", "b", "c"]
        found = await asyncio.gather(*(cluster.refresh(each) for each in wanted))
        assert cluster.asked == [["a"], ["a", "b", "c"]]
        for name, each in zip(wanted, found, strict=True):
            assert name in each.topics
        await cluster.refresher.refresh(None, new_deadline(), create=False)
        assert cluster.asked[-1] is None
        assert cluster.refresher.metadata.topics.keys() == {"all"}
        await cluster.refresh("a")
        assert cluster.asked[-1] == ["a", "b", "c"], "those asked for before are watched"
        cluster.refresher.watch_topics(frozenset({"b"}))
        assert "a" not in cluster.refresher.metadata.topics
        await cluster.refresh()
        assert cluster.asked[-1] == ["b"]
        cluster.refresher.watch_topics(None)
        await cluster.refresh("z")
        assert cluster.asked[-1] is None
        await cluster.refresher.close()

    run(main())


def test_topics_are_made_only_for_who_wants_it_and_may() -> None:
    async def main() -> None:
        for may in (True, False):
            cluster = Cluster(create_topics=may)
            await asyncio.gather(cluster.refresh("a"), cluster.refresh("a", create=True))
            assert cluster.creates == ([False, True] if may else [False])
            await cluster.refresher.close()

    run(main())


def test_requests_are_gathered_and_kept_apart_by_a_pause() -> None:
    async def main() -> None:
        cluster = Cluster(retry_backoff=20, retry_backoff_max=20)
        await cluster.refresh("a")
        before = asyncio.get_running_loop().time()
        news = asyncio.Event()
        cluster.refresher.listeners.append(lambda _: news.set())
        for _ in range(50):
            cluster.refresher.request_refresh()
        await news.wait()
        assert asyncio.get_running_loop().time() - before >= 0.02
        assert cluster.asked == [["a"], ["a"]]
        await cluster.refresher.close()

    run(main())


def test_what_is_old_is_asked_for_again() -> None:
    async def main() -> None:
        cluster = Cluster(metadata_max_age=10, retry_backoff=1)
        news: asyncio.Queue[ClusterMetadata] = asyncio.Queue()
        cluster.refresher.listeners.append(news.put_nowait)
        await cluster.refresh("a")
        for _ in range(3):
            await news.get()
        assert cluster.asked[:3] == [["a"]] * 3
        await cluster.refresher.close()

    run(main())


def test_a_listener_that_fails_does_not_keep_the_others_from_the_news(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        cluster = Cluster()
        heard: list[ClusterMetadata] = []

        def fail(_: ClusterMetadata) -> None:
            raise ValueError("odd")

        cluster.refresher.listeners += [fail, heard.append]
        assert await cluster.refresh("a") is heard[0]
        await cluster.refresher.close()

    run(main())
    assert "a metadata listener has failed" in caplog.text


def test_in_the_background_it_is_tried_again_until_it_works() -> None:
    async def main() -> None:
        cluster = Cluster(retry_backoff=1, retry_backoff_max=2)
        await cluster.refresh("a")
        cluster.error = Unreachable("gone")
        cluster.refresher.request_refresh()
        while len(cluster.asked) < 4:
            await asyncio.sleep(0.001)
        cluster.error = None
        news = asyncio.Event()
        cluster.refresher.listeners.append(lambda _: news.set())
        await news.wait()
        await cluster.refresher.close()

    run(main())


def test_a_refused_login_is_not_tried_again_in_the_background() -> None:
    async def main() -> None:
        cluster = Cluster(retry_backoff=1, retry_backoff_max=1)
        cluster.error = AuthenticationFailed(Code.SASL_AUTHENTICATION_FAILED, "no")
        cluster.refresher.request_refresh()
        while not cluster.asked:
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert len(cluster.asked) == 1
        with pytest.raises(AuthenticationFailed):
            await cluster.refresh("a")
        await cluster.refresher.close()

    run(main())


def test_who_has_less_time_gives_up_alone() -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.go.clear()
        patient = asyncio.ensure_future(cluster.refresh("a"))
        await asyncio.sleep(0)
        with pytest.raises(TimedOut, match="no broker returns metadata .*: dead"):
            await cluster.refresh("a", seconds=0.01)
        cluster.go.set()
        assert "a" in (await patient).topics
        assert cluster.asked == [["a"]]
        await cluster.refresher.close()

    run(main())


def test_who_waits_when_it_is_closed_is_told() -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.go.clear()
        waiting = asyncio.ensure_future(cluster.refresh("a"))
        await asyncio.sleep(0.001)
        await cluster.refresher.close()
        with pytest.raises(Unreachable, match="this client is closed"):
            await waiting

    run(main())


@pytest.mark.parametrize("recovery", ["rebootstrap", "none"])
def test_a_cluster_that_is_silent_for_long_is_looked_for_anew(recovery: str) -> None:
    async def main() -> None:
        cluster = Cluster(rebootstrap_trigger=0, metadata_recovery_strategy=recovery)
        await cluster.refresh("a")
        cluster.error = Unreachable("gone")
        with pytest.raises(Unreachable):
            await cluster.refresh("a")
        anew = recovery == "rebootstrap"
        assert cluster.anew == anew
        assert bool(cluster.refresher.metadata.brokers) != anew
        await cluster.refresher.close()

    run(main())


def test_a_broker_may_want_that_too() -> None:
    async def main() -> None:
        cluster = Cluster(rebootstrap_trigger=2**31 - 1)  # longer than this machine is up
        cluster.code = REBOOTSTRAP_REQUIRED
        await cluster.refresh("a")
        assert cluster.anew == 1
        await cluster.refresher.close()

    run(main())


# Pauses


@given(
    first=st.integers(0, 5_000),
    most=st.integers(0, 5_000),
    failures=st.integers(1, 10_000),
)
def test_a_pause_doubles_up_to_the_longest(first: int, most: int, failures: int) -> None:
    pause = Backoff.from_milliseconds(first, most).pause_after(failures) * 1000
    planned = min(most, first * 2.0 ** min(failures - 1, 60))
    assert planned * (1 - JITTER) - 1e-6 <= pause <= min(most, planned * (1 + JITTER)) + 1e-6
    assert Backoff.from_milliseconds(first, most).pause_after(0) == 0


def test_clients_that_fail_together_do_not_come_back_together() -> None:
    pauses = {Backoff.from_milliseconds(100, 1000).pause_after(2) for _ in range(50)}
    assert len(pauses) > 40
    assert max(pauses) - min(pauses) > 0.02
