"""The worlds around a broker are worth something: each of these faults in it is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest

from rota.broker import groups
from rota.broker.groups import CoordinatorShard, GroupCoordinatorService
from rota.broker.storage.log import Log
from rota.broker.timers import Timers
from rota.engine.coordinator.events import AppendEntries
from rota.engine.formats.buffer import Int64Array
from rota.engine.formats.journal import EntryColumns
from rota.errors import Code
from tests.support.simulation import broker
from tests.support.simulation.run_seed import Failure, run_seed

#: So many seeds are enough, from the first on that found it when this was written.
WITHIN = 40


def a_failed_append_counts() -> Any:
    write = GroupCoordinatorService._append

    def ignore_error(
        self: GroupCoordinatorService, shard: CoordinatorShard, append: AppendEntries, now: int
    ) -> Code:
        write(self, shard, append, now)
        return Code.NONE

    return mock.patch.object(GroupCoordinatorService, "_append", ignore_error)


def a_write_waits_for_the_next() -> Any:
    write = GroupCoordinatorService._append
    held: list[tuple[CoordinatorShard, AppendEntries]] = []

    def late(
        groups: GroupCoordinatorService, shard: CoordinatorShard, append: AppendEntries, now: int
    ) -> Code:
        held.append((shard, append))
        return write(groups, *held.pop(0), now) if len(held) > 1 else Code.NONE

    return mock.patch.object(GroupCoordinatorService, "_append", late)


def an_alarm_is_not_stopped() -> Any:
    return mock.patch.object(Timers, "stop", return_value=None)


def a_replay_drops_tombstones() -> Any:
    def eager(entries: EntryColumns) -> Int64Array:
        return entries.commits.row[np.flatnonzero(entries.commits.tombstone)]

    return mock.patch.object(groups, "_find_superseded_commits", eager)


def a_torn_append_is_not_cut() -> Any:
    return mock.patch.object(Log, "_undo_append", return_value=None)


@pytest.mark.parametrize(
    ("broken", "first", "rules"),
    [
        (a_failed_append_counts, 2, {"appended means written"}),
        (a_write_waits_for_the_next, 0, {"appended means written"}),
        (an_alarm_is_not_stopped, 4, {"no timer is left over", "answered once"}),
        (a_replay_drops_tombstones, 14, {"a restart is a replay"}),
        (a_torn_append_is_not_cut, 2, {"all or nothing is written", "a restart is a replay"}),
    ],
)
def test_a_broken_broker_is_found(broken: Callable[[], Any], first: int, rules: set[str]) -> None:
    with broken():
        found = (broken_rule(seed) for seed in range(first, first + WITHIN))
        assert next(filter(None, found)) in rules


def broken_rule(seed: int) -> str | None:
    try:
        run_seed(seed, broker.create_checked_world)
    except Failure as failure:
        return failure.rule
    return None
