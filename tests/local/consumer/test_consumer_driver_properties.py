"""Whatever a broker and a network do to them: two drivers stay sound, and recover."""

from __future__ import annotations

import contextlib
import gc
import random
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota import Broker
from rota.engine.member.events import PollBegan, PollEnded
from rota.engine.member.state import MemberState
from rota.engine.model.topic import OffsetAndMetadata, TopicPartition
from rota.errors import (
    AuthorizationFailed,
    Code,
    CommitFailed,
    GroupError,
    InputError,
    RebalanceInProgress,
)
from tests.support.consumer_driver import Application

APIS = ("FindCoordinator", "JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit", "LeaveGroup")
CODES = (
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "REBALANCE_IN_PROGRESS",
    "UNKNOWN_MEMBER_ID",
    "ILLEGAL_GENERATION",
    "GROUP_AUTHORIZATION_FAILED",
    "UNKNOWN",
)
CONFIG = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 100}


class FaultInjection:
    """Two applications, and random faults that are injected."""

    def __init__(self, broker: Broker, seed: int) -> None:
        self.random = random.Random(seed)
        self.broker = broker
        strategies = self.random.choice(("range", "sticky", "cooperative-sticky"))
        self.apps = [
            Application(
                broker.bootstrap_servers,
                strategies=strategies,
                client={"request_timeout": 250, "reconnect_backoff": 5},
                client_id=name,
                session_timeout=600,
                heartbeat_interval=30,
                max_poll_interval=1_000,
            )
            for name in ("one", "two")
        ]
        self.polls = dict.fromkeys(self.apps, False)

    def run(self, steps: int) -> None:
        for app in self.apps:
            app.subscribe()
            self.poll(app)
        for _ in range(steps):
            with contextlib.suppress(InputError):  # there is no such group or client just now
                self.random.choice(self.possible_actions())()
            self.handle_inbox()
            time.sleep(self.random.choice((0, 0.002, 0.02)))

    def possible_actions(self) -> list[Callable[[], object]]:
        app = self.random.choice(self.apps)
        broker, choose = self.broker, self.random.choice
        return [
            *[lambda: self.poll(app)] * 4,
            *[lambda: self.commit(app)] * 2,
            lambda: broker.fail(choose(APIS), choose(CODES), times=choose((1, 2))),
            lambda: broker.drop_response(choose(APIS)),
            lambda: broker.delay(choose(APIS), choose((0.05, 0.4))),
            lambda: broker.move_coordinator("g"),
            lambda: broker.disconnect(choose(("one", "two"))),
            self.expire,
        ]

    def poll(self, app: Application) -> None:
        self.polls[app] = not self.polls[app]
        app.driver.handle_event(PollBegan() if self.polls[app] else PollEnded())

    def commit(self, app: Application) -> None:
        offsets = {TopicPartition("t", 0): OffsetAndMetadata(self.random.randrange(100))}
        if self.random.random() < 0.5:
            app.commit_later(offsets)
        else:
            app.commit(offsets, self.random.choice((10, 2_000)))

    def expire(self) -> None:
        members = self.broker.group("g").members
        if members:
            self.broker.expire(self.random.choice(members).id)

    def handle_inbox(self) -> None:
        for app in self.apps:
            app.handle_inbox()
            with app.driver.lock:
                app.driver.machine.check_invariants()

    def recover(self) -> None:
        """Faults end; both get into their group, commit, and leave."""
        self.broker.clear_faults()
        end = time.monotonic() + 15
        # what was late already may still set off a rebalance
        while not (self.is_settled() and all(map(self.can_commit, self.apps))):
            assert time.monotonic() < end, [
                (app.state, app.owned, app.raised[-2:]) for app in self.apps
            ]
            for app in self.apps:
                self.poll(app)
            self.handle_inbox()
            time.sleep(0.01)
        for app in self.apps:
            app.close()
        self.broker.wait_for_group("g", members=0)
        gc.collect()  # of errors that nobody looked at, the loop would tell now
        odd = [error for app in self.apps for error in app.raised if not is_injected_error(error)]
        assert not odd, odd

    def can_commit(self, app: Application) -> bool:
        error = app.commit_and_wait({app.owned[0]: OffsetAndMetadata(200)})
        passes = isinstance(error, CommitFailed | RebalanceInProgress)
        assert error is None or passes or is_injected_error(error), error
        return error is None

    def is_settled(self) -> bool:
        owned = [one for app in self.apps for one in app.owned]
        stable = all(app.is_settled and app.state is MemberState.STABLE for app in self.apps)
        return (
            stable
            and len({app.generation for app in self.apps}) == 1
            and sorted(owned) == [TopicPartition("t", number) for number in range(4)]
            and all(app.owned for app in self.apps)
        )

    def stop(self) -> None:
        for app in self.apps:
            app.driver.stop()


def is_injected_error(error: Exception) -> bool:
    """What the broker was ordered to answer, where that does not pass by itself."""
    return isinstance(error, GroupError | AuthorizationFailed) and Code(error.code).name in CODES


def run_faults(seed: int, steps: int) -> None:
    with Broker(config=CONFIG) as broker:
        broker.create_topic("t", 4)
        chaos = FaultInjection(broker, seed)
        try:
            chaos.run(steps)
            chaos.recover()
        finally:
            chaos.stop()


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_two_members_get_through_anything(seed: int) -> None:
    run_faults(seed, 60)


@pytest.mark.nightly
@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_two_members_get_through_anything_for_long(seed: int) -> None:
    run_faults(seed, 300)
