"""The driver against a broker: its thread, its timers, its connections, and what it survives."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import pytest

from rota import Broker
from rota.client.group_requests import decode_group_response
from rota.consumer import coordinator
from rota.engine.assignors.interface import Assignor
from rota.engine.assignors.registry import resolve_strategies
from rota.engine.member.events import (
    CallListener,
    FinishSyncCommit,
    ListenerMethod,
    PollBegan,
    PollEnded,
    RunCommitCallback,
)
from rota.engine.member.state import MemberState
from rota.engine.model.config import SaslConfig
from rota.engine.model.member import GroupAssignment, Subscription
from rota.engine.model.request import GroupRequest, OffsetFetch
from rota.engine.model.response import GroupResponse, OffsetFetchResult
from rota.engine.model.topic import Cluster, OffsetAndMetadata, TopicPartition
from rota.errors import (
    AuthenticationFailed,
    AuthorizationFailed,
    CommitFailed,
    Fenced,
    InconsistentProtocol,
    InputError,
    NotKafka,
    RetriableCommitFailed,
    RotaError,
    StrategyFailed,
    TimedOut,
)
from rota.protocol.messages import Message
from tests.support.client import count_open_sockets
from tests.support.consumer_driver import QUICK, Application, no_thread_left, quick_broker
from tests.support.waiting import pause, wait_until

P0 = TopicPartition("t", 0)
SEVEN, EIGHT = {P0: OffsetAndMetadata(7)}, {P0: OffsetAndMetadata(8)}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with quick_broker() as running:
        yield running


@pytest.fixture(autouse=True)
def check_threads() -> Iterator[None]:
    with no_thread_left():
        yield


def application(broker: Broker, **settings: object) -> Application:
    return Application(broker.bootstrap_servers, **settings)  # type: ignore[arg-type]


def fetch_committed(app: Application, timeout: float | None = None) -> OffsetFetchResult:
    request = OffsetFetch(group="g", partitions=(P0,), require_stable=True)
    reply = asyncio.run(app.driver.send_to_coordinator(request, timeout=timeout))
    assert isinstance(reply, OffsetFetchResult)
    return reply


# Life


def test_a_member_joins_commits_and_leaves(broker: Broker) -> None:
    with application(broker) as app:
        app.join()
        assert [one.partition for one in app.owned] == [0, 1, 2, 3]
        assert app.commit_and_wait(SEVEN) is None
        assert broker.committed("g") == {P0: 7}
        app.close()
        assert broker.wait_for_group("g", members=0).state == "Empty"


def test_a_members_life_is_told_at_info(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rota.consumer")
    with application(broker) as app:
        app.join()
        member_id = app.member_id
        app.close()
    assert [one.getMessage() for one in caplog.records if one.name == "rota.consumer"] == [
        f"group 'g': joined generation 1 under 'range' as {member_id}, leading 1 member "
        f"(need to re-join with the given member-id: {member_id})",
        "group 'g': assigned 4 partitions: t-0, t-1, t-2 and 1 more",
        "group 'g': revoked 4 partitions: t-0, t-1, t-2 and 1 more",
        "group 'g': left generation 1: the consumer is being closed",
    ]


def test_each_request_is_told_at_debug(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "rota.consumer")
    with application(broker) as app:
        app.join()
        assert app.commit_and_wait(SEVEN) is None
    messages = [one.getMessage() for one in caplog.records if one.levelno == logging.DEBUG]
    assert f"its coordinator is broker 1 at {broker.bootstrap_servers}" in messages[0]
    for kind in (
        "JoinGroup(",
        "JoinGroupResult(",
        "SyncGroup(",
        "SyncGroupResult(",
        "OffsetCommit(",
        "OffsetCommitResult(",
    ):
        assert any(f": {kind}" in text for text in messages), kind


def test_its_thread_has_a_name_and_ends_with_it(broker: Broker) -> None:
    before = count_open_sockets()
    with application(broker) as app:
        assert not [one for one in threading.enumerate() if one.name == "rota-g"], "not before"
        app.join()
        (thread,) = [one for one in threading.enumerate() if one.name == "rota-g"]
        assert thread.daemon
        app.close()
        assert not thread.is_alive()
        app.driver.stop()  # twice does no harm
    assert wait_until(
        "its sockets are closed", lambda: count_open_sockets() <= before, count_open_sockets
    )


def test_what_was_never_started_need_not_be_stopped(broker: Broker) -> None:
    app = application(broker)
    app.driver.handle_event(PollBegan())
    app.driver.handle_event(PollEnded())
    app.driver.stop()
    assert not app.driver.is_started
    assert "rota-g" not in thread_names()


def test_after_its_end_it_says_so(broker: Broker) -> None:
    with application(broker) as app:
        app.driver.stop()
        with pytest.raises(RotaError, match="closed"):
            asyncio.run(app.driver.send_to_coordinator(OffsetFetch(group="g")))


# Heartbeats


def advance_sessions(
    broker: Broker, caplog: pytest.LogCaptureFixture, work: Callable[[], object] = bool
) -> None:
    """Puts the broker's clock forward by five halves of a session, with a heartbeat in each."""

    def count() -> int:
        return sum(": HeartbeatResult(" in each.getMessage() for each in caplog.records)

    def has_more(before: int) -> bool:
        return count() > before

    def work_on() -> None:
        work()
        pause()

    broker.clock.freeze()
    for _ in range(5):
        # the first of two may have been on its way already
        wait_until("two heartbeats", partial(has_more, count() + 1), count, meanwhile=work_on)
        broker.clock.advance(0.5)
    broker.clock.resume()


def test_heartbeats_go_on_while_the_application_is_busy(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "rota.consumer")
    with application(broker, session_timeout=1_000, heartbeat_interval=20) as app:
        app.join()
        advance_sessions(broker, caplog)  # the application's work
        assert [one.id for one in broker.group("g").members] == [app.member_id]
        assert (app.state, app.generation) == (MemberState.STABLE, 1)
        assert app.commit_and_wait(SEVEN) is None


def test_they_go_on_inside_a_listener_that_blocks(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "rota.consumer")
    with application(broker, session_timeout=1_000, heartbeat_interval=20) as app:
        app.subscribe()
        app.listener = lambda _: advance_sessions(broker, caplog)
        app.poll(lambda: app.is_settled)
        assert app.generation == 1
        assert [one.id for one in broker.group("g").members] == [app.member_id]


def test_an_application_that_polls_too_late_is_out_and_its_commit_says_why(broker: Broker) -> None:
    with application(broker, max_poll_interval=150) as app:
        app.join()
        broker.wait_for_group("g", members=0)
        error = app.commit_and_wait(SEVEN)
        assert isinstance(error, CommitFailed)
        assert "longer than max.poll.interval.ms = 150 allows" in str(error)
        assert "max.poll.records" in str(error)
        app.poll(lambda: app.generation > 1 and app.is_settled)
        assert ListenerMethod.LOST in [
            one.method for one in app.log if isinstance(one, CallListener)
        ]
        assert app.commit_and_wait(SEVEN) is None


def test_one_that_is_expired_hears_of_it_by_its_heartbeat(broker: Broker) -> None:
    with application(broker, heartbeat_interval=20) as app:
        app.join()
        broker.expire(app.member_id)
        app.wait(lambda: app.state is MemberState.UNJOINED)
        error = app.commit_and_wait(SEVEN)
        assert isinstance(error, CommitFailed)
        assert "UNKNOWN_MEMBER_ID" in str(error)
        app.poll(lambda: app.is_settled)
        assert app.commit_and_wait(SEVEN) is None


# The coordinator


def test_the_coordinator_moves_without_a_rebalance(broker: Broker) -> None:
    with application(broker, heartbeat_interval=20) as app:
        app.join()
        broker.move_coordinator("g")
        assert app.commit_and_wait(SEVEN) is None
        broker.move_coordinator("g")
        assert fetch_committed(app).offsets == SEVEN
        assert (app.state, app.generation) == (MemberState.STABLE, 1)


def test_the_broker_stops_and_is_back_at_the_same_port(broker: Broker) -> None:
    with application(broker, heartbeat_interval=20) as app:
        app.join()
        broker.restart()
        assert app.commit_and_wait(SEVEN) is None
        assert broker.committed("g") == {P0: 7}
        assert (app.state, app.generation) == (MemberState.STABLE, 1)
        assert len(broker.wait_for_group("g", members=1).members) == 1


def test_a_cut_connection_is_replaced(broker: Broker) -> None:
    with application(broker, heartbeat_interval=20) as app:
        app.join()
        for offset in range(5):
            broker.disconnect("rota")
            assert app.commit_and_wait({P0: OffsetAndMetadata(offset)}) is None
        assert app.generation == 1
        assert broker.committed("g") == {P0: 4}


def test_the_join_is_cut_again_and_again(broker: Broker) -> None:
    for api in ("FindCoordinator", "JoinGroup", "JoinGroup", "SyncGroup"):
        broker.drop_response(api)
    # an id whose answer was lost is waited for by the coordinator until its session ends
    with application(broker, session_timeout=300, heartbeat_interval=50) as app:
        app.join()
        assert broker.clear_faults() == 0
        broker.wait_for_group("g", members=1)


def test_nobody_listens_at_first(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with Application(f"127.0.0.1:{port}", client={"request_timeout": 300}) as app:
        app.subscribe()
        app.poll(lambda: "no coordinator" in caplog.text)
        assert f"127.0.0.1:{port}" in caplog.text
        assert not app.raised, "it may come"
        with Broker(port=port, config=QUICK) as broker:
            broker.create_topic("t", 4)
            app.poll(lambda: app.is_settled)
            own = [one for one in caplog.records if one.name == "rota.consumer"]
            assert len(own) == 1, "told once, not at every attempt"
            app.close()


# Requests that take long, or are lost


def test_a_join_may_take_longer_than_other_requests(broker: Broker) -> None:
    broker.delay("JoinGroup", 1, times=2)
    with application(broker, client={"request_timeout": 700}) as app:
        app.join()
        assert app.generation == 1
        assert broker.clear_faults() == 0


def test_a_commit_that_is_not_answered_in_time_is_sent_again(broker: Broker) -> None:
    with application(broker, client={"request_timeout": 700}) as app:
        app.join()
        broker.delay("OffsetCommit", 60)
        assert app.commit_and_wait(SEVEN) is None
        assert broker.committed("g") == {P0: 7}
        assert app.generation == 1


def test_one_that_nobody_waits_for_is_not(broker: Broker) -> None:
    with application(broker, client={"request_timeout": 700}) as app:
        app.join()
        broker.delay("OffsetCommit", 60)
        number = app.commit_later(SEVEN)
        app.poll(lambda: number in app.returned)
        assert isinstance(app.returned[number], RetriableCommitFailed)
        assert broker.committed("g") == {}


def test_a_commit_whose_answer_is_lost_is_sent_again(broker: Broker) -> None:
    with application(broker) as app:
        app.join()
        broker.drop_response("OffsetCommit")
        assert app.commit_and_wait(EIGHT) is None
        assert broker.committed("g") == {P0: 8}


def test_a_commit_is_tried_until_its_time_is_over(broker: Broker) -> None:
    with application(broker) as app:
        app.join()
        broker.fail("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", times=None)
        error = app.commit_and_wait(SEVEN, wait=200)
        assert "COORDINATOR_LOAD_IN_PROGRESS" in str(error)
        broker.clear_faults()
        assert app.commit_and_wait(SEVEN) is None


def test_what_was_given_up_with_its_coordinator_is_told_once(broker: Broker) -> None:
    with application(broker) as app:
        app.join()
        broker.fail("OffsetCommit", "NOT_COORDINATOR")
        for seconds in (0.05, 60):  # the first is refused while the second is under way
            broker.delay("OffsetCommit", seconds)
        given_up = [app.commit_later(SEVEN) for _ in range(3)]
        app.poll(lambda: given_up == sorted(app.returned))
        assert {type(error) for error in app.returned.values()} == {RetriableCommitFailed}
        assert app.commit_and_wait(SEVEN) is None
        gc.collect()  # of errors that nobody looked at, the loop would tell now
        app.poll(lambda: True)
        assert not app.raised


def test_callbacks_come_before_a_commit_that_waits(broker: Broker) -> None:
    with application(broker) as app:
        app.join()
        first, second = app.commit_later(SEVEN), app.commit_later(EIGHT)
        broker.delay("OffsetCommit", 0.05)
        third = app.commit(SEVEN, 10_000)
        app.wait(lambda: third in app.returned)
        ends = [one for one in app.log if isinstance(one, RunCommitCallback | FinishSyncCommit)]
        assert [one.commit_id for one in ends] == [first, second, third]
        assert broker.committed("g") == {P0: 7}


def test_a_rebalance_between_a_commit_and_its_answer(broker: Broker) -> None:
    with application(broker, heartbeat_interval=20, client_id="one") as app:
        app.join()
        broker.delay("OffsetCommit", 0.3)
        number = app.commit_later(SEVEN)
        with application(broker, heartbeat_interval=20, client_id="two") as other:
            both = threading.Thread(target=other.join)
            both.start()
            app.poll(lambda: app.generation == 2 and app.is_settled)
            both.join()
            app.poll(lambda: number in app.returned)
            # it was sent first on its connection: the join waited behind it
            assert app.returned[number] is None
            assert broker.committed("g") == {P0: 7}
            assert (app.state, other.state) == (MemberState.STABLE, MemberState.STABLE)


# Questions


def test_committed_offsets_are_asked_for(broker: Broker) -> None:
    with application(broker) as app:
        assert fetch_committed(app).offsets == {P0: None}, "also by one who is no member"
        app.join()
        app.commit_and_wait({P0: OffsetAndMetadata(5, "note", 3)})
        assert fetch_committed(app).offsets == {P0: OffsetAndMetadata(5, "note", 3)}


@pytest.mark.parametrize(
    "code",
    ["COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "UNSTABLE_OFFSET_COMMIT"],
)
def test_a_question_is_asked_again_if_that_helps(broker: Broker, code: str) -> None:
    with application(broker) as app:
        broker.fail("OffsetFetch", code, times=3)
        assert fetch_committed(app).offsets == {P0: None}
        assert broker.clear_faults() == 0


def test_but_not_for_ever(broker: Broker) -> None:
    with application(broker) as app:
        broker.fail("OffsetFetch", "UNSTABLE_OFFSET_COMMIT", times=None)
        with pytest.raises(TimedOut, match="88 UNSTABLE_OFFSET_COMMIT"):
            fetch_committed(app, timeout=1.5)


def test_a_question_does_not_wait_for_the_join_of_others(broker: Broker) -> None:
    """Kafka reads nothing more from a connection whose join waits."""
    with application(broker, client_id="one") as app, application(broker, client_id="two") as other:
        app.join()
        other.subscribe()
        other.driver.handle_event(PollBegan())
        wait_until("they join", lambda: broker.groups["g"] == "PreparingRebalance")
        assert fetch_committed(other, timeout=5).offsets == {P0: None}
        assert (other.state, broker.groups["g"]) == (MemberState.JOINING, "PreparingRebalance")


def test_a_short_question_leaves_the_members_connection_alone(broker: Broker) -> None:
    with application(broker, heartbeat_interval=20) as app:
        app.join()
        broker.delay("OffsetFetch", 0.3)
        with pytest.raises(TimedOut):
            fetch_committed(app, timeout=0.1)
        assert app.commit_and_wait(SEVEN) is None
        assert app.generation == 1


def test_a_member_that_closes_does_not_wait_for_the_join_of_others(broker: Broker) -> None:
    with application(broker, client_id="one") as app, application(broker, client_id="two") as other:
        app.join()
        other.subscribe()
        other.driver.handle_event(PollBegan())
        wait_until("they join", lambda: broker.groups["g"] == "PreparingRebalance")
        wait_until("two are in", lambda: len(broker.group("g").members) == 2)
        begun = time.monotonic()
        other.close(wait=20_000)
        assert time.monotonic() - begun < 10, "half of what it may take, and far more than it needs"
        wait_until(
            "one is in", lambda: [one.id for one in broker.group("g").members] == [app.member_id]
        )


# What will not pass


def test_wrong_credentials_are_raised_by_poll_and_by_commits() -> None:
    login = SaslConfig(mechanism="PLAIN", username="ann", password="wrong")
    with Broker(config=QUICK, users={"ann": "right"}) as broker:
        with application(broker, client={"sasl": login}) as app:
            app.subscribe()
            app.poll(lambda: bool(app.raised))
            assert isinstance(app.raised[0], AuthenticationFailed)
            with pytest.raises(AuthenticationFailed):
                fetch_committed(app)
        with application(broker, client={"sasl": login}) as app:
            assert isinstance(app.commit_and_wait(SEVEN), AuthenticationFailed)


@pytest.mark.parametrize("api", ["FindCoordinator", "JoinGroup", "SyncGroup", "Heartbeat"])
def test_a_missing_permission_is_raised_by_poll(broker: Broker, api: str) -> None:
    broker.fail(api, "GROUP_AUTHORIZATION_FAILED", times=None)
    with application(broker, heartbeat_interval=20) as app:
        app.subscribe()
        app.poll(lambda: bool(app.raised))
        assert isinstance(app.raised[0], AuthorizationFailed)
        assert "'g'" in str(app.raised[0])
        broker.clear_faults()
        app.poll(lambda: app.is_settled)


def test_what_is_no_kafka_is_said_to_be_none() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = server.accept()
                    with client:
                        client.recv(100)
                        client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        serving = threading.Thread(target=serve, name="broker of pages", daemon=True)
        serving.start()
        with Application(f"{host}:{port}") as app:
            app.subscribe()
            app.poll(lambda: bool(app.raised))
            assert isinstance(app.raised[0], NotKafka)
            assert f"{host}:{port}" in str(app.raised[0])
        server.shutdown(socket.SHUT_RDWR)
        serving.join()


def test_without_a_common_strategy_both_are_named(broker: Broker) -> None:
    with (
        application(broker, strategies="cooperative-sticky", client_id="one") as app,
        application(broker, strategies="range,roundrobin", client_id="two") as other,
    ):
        app.join()
        broker.wait_for_group("g", members=1)
        other.subscribe()
        other.poll(lambda: bool(other.raised))
        (error,) = other.raised
        assert isinstance(error, InconsistentProtocol)
        assert "are range, roundrobin" in str(error)
        assert "the group's is cooperative-sticky" in str(error)


def test_who_has_the_static_id_last_fences_the_other(broker: Broker) -> None:
    with (
        application(broker, group_instance_id="s", heartbeat_interval=20, client_id="one") as app,
        application(broker, group_instance_id="s", heartbeat_interval=20, client_id="two") as other,
    ):
        app.join()
        other.join()
        app.wait(lambda: app.state is MemberState.FENCED)
        app.poll(lambda: bool(app.raised))
        assert isinstance(app.raised[0], Fenced)
        assert "group.instance.id = 's'" in str(app.raised[0])
        assert isinstance(app.commit_and_wait(SEVEN), Fenced)
        assert other.commit_and_wait(SEVEN) is None
        app.close()
        assert len(broker.wait_for_group("g", members=1).members) == 1


# Survival


def test_it_can_be_stopped_whatever_hangs(broker: Broker) -> None:
    with application(broker) as app:
        app.subscribe()
        begun, free = threading.Event(), threading.Event()
        thread = app.driver.start()
        thread.call(begun.set)
        thread.call(partial(free.wait, 30))
        assert begun.wait(10)
        before = time.monotonic()
        app.driver.stop(0.2)
        assert time.monotonic() - before < 5
        free.set()
        wait_until("its thread has ended", lambda: "rota-g" not in thread_names())


# A strategy at work


class StuckAssignor(Assignor):
    """A strategy that does not come to an end."""

    name = "stuck"

    def __init__(self, problem: BaseException | None = None) -> None:
        self.begun, self.free = threading.Event(), threading.Event()
        self.problem = problem
        self.runs = 0

    def assign(self, cluster: Cluster, group: Mapping[str, Subscription]) -> GroupAssignment:
        self.runs += 1
        self.begun.set()
        self.free.wait(30)
        if self.problem is not None:
            raise self.problem
        return resolve_strategies("range")[0].assign(cluster, group)


def test_heartbeats_and_polls_go_on_while_a_strategy_is_at_work(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "rota.consumer")
    strategy = StuckAssignor()
    with application(
        broker, strategies=(strategy,), session_timeout=1_000, heartbeat_interval=20
    ) as app:
        app.subscribe()
        app.poll(strategy.begun.is_set)
        advance_sessions(broker, caplog, lambda: app.poll(lambda: True))
        assert (app.state, app.generation) == (MemberState.SYNCING, 1)
        assert [one.id for one in broker.group("g").members] == [app.member_id]
        strategy.free.set()
        app.poll(lambda: app.is_settled)
        assert app.generation == 1
        wait_until("nobody assigns", is_assignment_over)


def test_closing_does_not_wait_for_a_strategy(broker: Broker) -> None:
    strategy = StuckAssignor()
    with application(broker, strategies=(strategy,)) as app:
        app.subscribe()
        app.poll(strategy.begun.is_set)
        app.close(wait=60_000)
        assert not broker.group("g").members
        strategy.free.set()
        wait_until("nobody assigns", is_assignment_over)
        assert not app.raised


def test_what_a_strategy_made_for_a_generation_that_is_over_is_dropped(broker: Broker) -> None:
    strategy = StuckAssignor()
    with application(broker, strategies=(strategy,), heartbeat_interval=20) as app:
        app.subscribe()
        app.poll(strategy.begun.is_set)
        broker.expire(app.member_id)
        app.poll(lambda: app.generation > 1)
        strategy.free.set()
        app.poll(lambda: app.is_settled)
        assert strategy.runs == 2
        wait_until("nobody assigns", is_assignment_over)


def test_a_strategy_that_takes_longer_than_a_rebalance_may_is_named(broker: Broker) -> None:
    strategy = StuckAssignor()
    with application(broker, strategies=(strategy,), max_poll_interval=300) as app:
        app.subscribe()
        app.poll(lambda: bool(app.raised))
        (error,) = app.raised
        assert isinstance(error, StrategyFailed)
        assert re.search(r"strategy 'stuck' has made no assignment for \d+\.\d s", str(error))
        assert "max.poll.interval.ms = 300" in str(error)
        wait_until("it has left", lambda: not broker.group("g").members)
        strategy.free.set()
        wait_until("nobody assigns", is_assignment_over)


@pytest.mark.parametrize("problem", [KeyboardInterrupt(), MemoryError()])
def test_whatever_a_strategy_raises_is_told(broker: Broker, problem: BaseException) -> None:
    strategy = StuckAssignor(problem)
    strategy.free.set()
    with application(broker, strategies=(strategy,)) as app:
        app.subscribe()
        app.poll(lambda: bool(app.raised))
        (error,) = app.raised
        assert isinstance(error, StrategyFailed)
        assert error.__cause__ is problem
        wait_until("nobody assigns", is_assignment_over)


def is_assignment_over() -> bool:
    return "rota-g-assign" not in thread_names()


def thread_names() -> list[str]:
    return [one.name for one in threading.enumerate()]


# What goes wrong inside


def test_an_error_inside_is_told_and_heartbeats_go_on(broker: Broker) -> None:
    with application(
        broker, auto_commit=True, session_timeout=2_000, heartbeat_interval=20, client_id="one"
    ) as app:
        app.join()
        app.failure = ValueError("positions are lost")
        with application(broker, heartbeat_interval=20, client_id="two") as other:
            joining = threading.Thread(target=other.join)
            joining.start()
            app.poll(lambda: bool(app.raised))
            assert app.raised == [app.failure]
            app.failure = None
            app.poll(lambda: app.generation == 2 and app.is_settled)
            joining.join()
            assert (app.state, other.state) == (MemberState.STABLE, MemberState.STABLE)


def test_an_answer_that_cannot_be_understood_is_told_and_asked_for_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with application(broker, heartbeat_interval=20) as app:
        app.join()
        problem, failures = ValueError("what is this?"), [True]

        def once(request: GroupRequest, response: Message) -> GroupResponse:
            if failures:
                failures.pop()
                raise problem
            return decode_group_response(request, response)

        monkeypatch.setattr(coordinator, "decode_group_response", once)
        app.wait(lambda: bool(app.raised))
        assert app.raised == [problem]
        assert app.commit_and_wait(SEVEN) is None
        assert app.generation == 1


def test_a_note_that_is_too_long_fails_its_commit_alone(broker: Broker) -> None:
    with application(broker) as app:
        app.join()
        long = app.commit({P0: OffsetAndMetadata(1, "x" * 40_000)}, 10_000)
        assert app.commit_and_wait(SEVEN) is None
        assert isinstance(app.returned[long], InputError)
        assert broker.committed("g") == {P0: 7}


def test_what_comes_after_the_end_does_nothing(broker: Broker) -> None:
    with application(broker) as app:
        app.join()
        app.close()
        app.driver.handle_event(PollBegan())
        app.driver.handle_event(PollEnded())
        assert not app.driver.inbox
        with pytest.raises(RotaError, match="closed"):
            fetch_committed(app)


def test_members_that_failed_together_do_not_come_back_together(broker: Broker) -> None:
    with application(broker, retry_backoff=1_000, retry_backoff_max=10_000) as app:
        session = app.driver.machine._session
        pauses = {session.retry_delay(1) for _ in range(200)}
        assert len(pauses) > 50
        assert min(pauses) >= 1_600
        assert max(pauses) <= 2_400


# Cost


def test_a_poll_wakes_nobody(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a poll does thousands of times a second must not cost the thread a turn each."""
    with application(broker) as app:
        app.join()
        app.poll(lambda: True)
        thread = app.driver.start()
        woken: list[object] = []
        monkeypatch.setattr(thread.loop, "call_soon_threadsafe", woken.append)
        for _ in range(1_000):
            app.driver.handle_event(PollBegan())
            app.driver.handle_event(PollEnded())
        monkeypatch.undo()
        assert not woken
