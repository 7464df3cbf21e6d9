"""Whether a member is there: heartbeats have a thread of their own, and polls a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import pytest

from rota.errors import CommitFailed
from tests.system.consumer.blocking_calls import (
    BlockingListener,
    open_consumer,
    poll_until,
    read_records,
)
from tests.system.consumer.client_drivers import ASYNC, BLOCKING, ConsumerKind
from tests.system.consumer.group import Group, GroupCase

SESSION = {"session.timeout.ms": 2_000, "heartbeat.interval.ms": 200}
#: Seconds; more than two sessions.
BLOCKED = 5.0


def handler_blocks(kind: ConsumerKind, group_case: GroupCase) -> None:
    """A record takes longer than the session: the member is still there, and nobody noticed."""
    group, recording_listener = Group(group_case), BlockingListener()
    settings = {"group.id": group.name, "auto.offset.reset": "earliest", **SESSION}
    with open_consumer(kind, group_case.servers, settings) as own:
        own.subscribe(group.topics, listener=recording_listener)
        poll_until(own, "it is there", lambda: own.assignment)
        other = group.join(BLOCKING)
        poll_until(own, "they share", lambda: len(own.assignment) == 3 and len(other.owned) == 3)
        before = own.group_metadata, other.rebalances, list(recording_listener.calls)
        group.write()
        found = read_records(own, 15)
        time.sleep(BLOCKED)
        own.commit()
        assert not own.poll(timeout=0.3)
        assert (own.group_metadata, other.rebalances, recording_listener.calls) == before
        assert {each.partition: each.offset for each in found} == {
            place.partition: offset - 1
            for place, offset in group.read_group_offsets().items()
            if place in own.assignment
        }


def assigned_blocks(kind: ConsumerKind, group_case: GroupCase) -> None:
    """The listener takes longer than the session when it hears of the assignment."""
    group, recording_listener = Group(group_case), BlockingListener(assigned=BLOCKED)
    settings = {"group.id": group.name, "auto.offset.reset": "earliest", **SESSION}
    group.write()
    with open_consumer(kind, group_case.servers, settings) as own:
        own.subscribe(group.topics, listener=recording_listener)
        read_records(own, 30)
        own.commit()
        assert [call for call, _ in recording_listener.calls] == ["assigned"]
        assert own.group_metadata.generation == 1
    assert group.read_group_offsets() == group.final_offsets()


def revoked_blocks(kind: ConsumerKind, group_case: GroupCase) -> None:
    """It takes longer than the session to give up what goes to another: that one waits."""
    group, recording_listener = Group(group_case), BlockingListener(revoked=BLOCKED)
    settings = {"group.id": group.name, "auto.offset.reset": "earliest", **SESSION}
    with open_consumer(kind, group_case.servers, settings) as own:
        own.subscribe(group.topics, listener=recording_listener)
        poll_until(own, "it is there", lambda: own.assignment)
        member = own.group_metadata.member_id
        other = group.join(BLOCKING)
        poll_until(own, "they share", lambda: len(own.assignment) == 3 and len(other.owned) == 3)
        assert own.group_metadata.member_id == member
        assert [call for call, _ in recording_listener.calls] == ["assigned", "revoked", "assigned"]


def too_slow(kind: ConsumerKind, group_case: GroupCase) -> None:
    """A poll comes too late: the others go on without it, and its commit says why it failed."""
    group, recording_listener = Group(group_case), BlockingListener()
    deadline = {"max.poll.interval.ms": 3_000}
    settings = {"group.id": group.name, "auto.offset.reset": "earliest", **SESSION, **deadline}
    with open_consumer(kind, group_case.servers, settings) as own:
        own.subscribe(group.topics, listener=recording_listener)
        poll_until(own, "it is there", lambda: own.assignment)
        other = group.join(BLOCKING)
        poll_until(own, "they share", lambda: len(own.assignment) == 3 and len(other.owned) == 3)
        mine = own.assignment
        group.write()
        read_records(own, 15)
        group.until("the other has all", lambda: len(other.owned) == 6)
        with pytest.raises(CommitFailed, match=r"max\.poll\.interval\.ms"):
            own.commit()
        group.finish()
        poll_until(own, "they share again", lambda: len(own.assignment) == len(other.owned) == 3)
        assert ("lost", mine) in recording_listener.calls
        group.check_history()


CASES: dict[str, Callable[[GroupCase], None]] = {
    f"{kind}: {what}": partial(case, kind)
    for kind in (ASYNC, BLOCKING)
    for what, case in {
        "a record takes longer than the session": handler_blocks,
        "a listener blocks when partitions are assigned": assigned_blocks,
        "a listener blocks when partitions are revoked": revoked_blocks,
        "a poll comes too late": too_slow,
    }.items()
}
