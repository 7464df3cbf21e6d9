"""Groups that are sampled: a broker is asked again and again, and what is seen is written down."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

import rota
from rota.errors import Unreachable
from rota.pipeline import poll as poll_module
from rota.pipeline.poll import PollResult, PollSettings, poll_groups, poll_log_path
from rota.pipeline.redaction import Redaction
from rota.pipeline.tables import COMMITS, ENDS, SAMPLES, Table
from tests.support.client import client, run
from tests.support.live_group import (
    WAITING,
    LiveMember,
    add_members,
    commit_offsets,
    join_in_background,
)
from tests.support.polling import Script, poll

EVERY = 0.01
#: A broker that is away is waited for so many seconds.
AWAY: dict[str, Any] = {"timeout": 1.0}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[rota.Broker]:
    with rota.Broker(tmp_path / "broker", config=WAITING) as running:
        running.create_topic("orders", 2)
        yield running


class PolledTables:
    """What was written down."""

    def __init__(self, polled: PollResult) -> None:
        self.polled = polled

    def rows(self, table: Table) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = parquet.read_table(
            poll_log_path(Path(self.polled.folder), table)
        ).to_pylist()
        return found

    @property
    def samples(self) -> list[tuple[str, str, list[str]]]:
        return [
            (row["group"], row["state"], [each["client_id"] for each in row["members"]])
            for row in self.rows(SAMPLES)
        ]


def run_poll(
    broker: rota.Broker,
    folder: Path,
    script: Script,
    redaction: Redaction | None = None,
    **fields: Any,
) -> PolledTables:
    plan = PollSettings(every=EVERY, **fields)
    return PolledTables(poll(broker.bootstrap_servers, plan, folder / "seen", script, redaction))


def add_billing_members(broker: rota.Broker, *names: str) -> list[str]:
    gets = {name: {"orders": [place]} for place, name in enumerate(names)}
    return add_members(
        broker, "billing", [LiveMember(name=name, gets=gets[name]) for name in names]
    )


def test_members_offsets_and_ends(broker: rota.Broker, tmp_path: Path) -> None:
    broker.produce("orders", "a", partition=0)
    commit_offsets(broker, "idle", {("orders", 0): 1})
    seen = run_poll(
        broker,
        tmp_path,
        Script(
            lambda: commit_offsets(broker, "billing", {("orders", 0): 1}),
            lambda: add_billing_members(broker, "one", "two"),
            lambda: commit_offsets(broker, "idle", {("orders", 0): 0}),
        ),
    )
    assert seen.samples == [
        ("idle", "Empty", []),
        ("billing", "Empty", []),
        ("billing", "Stable", ["one", "two"]),
    ]
    *_, last = seen.rows(SAMPLES)
    (one, two) = last["members"]
    assert (dict(one["assigned"]), one["topics"]) == ({"orders": [0]}, ["orders"])
    assert dict(two["assigned"]) == {"orders": [1]}
    assert one["session_timeout"] is last["epoch"] is None
    assert last["not_before"] < last["at"]
    commits = seen.rows(COMMITS)
    assert [(row["group"], row["offset"]) for row in commits] == [
        ("idle", 1),
        ("billing", 1),
        ("idle", 0),
    ]
    assert [row["not_before"] is None for row in commits] == [True, False, False]
    assert [row["journal_offset"] for row in commits] == [1, 2, 3]
    assert {row["committed_at"] for row in commits} == {None}
    assert {row["topic_id"] for row in commits} == {broker_topic_id(broker)}
    known = ("topic", "partition", "beginning", "end")
    ends = {tuple(row[name] for name in known) for row in seen.rows(ENDS)}
    assert ends == {("orders", 0, 0, 1), ("orders", 1, 0, 0)}
    assert (seen.polled.rounds, seen.polled.groups) == (4, {"idle", "billing"})


def broker_topic_id(broker: rota.Broker) -> bytes:
    async def ask() -> bytes:
        async with client(broker.bootstrap_servers) as asking:
            found = await asking.refresh(["orders"], deadline=asking.deadline_after(5))
            return found.topics["orders"].id

    return run(ask())


def test_a_rebalance_under_way_is_seen(broker: rota.Broker, tmp_path: Path) -> None:
    add_billing_members(broker, "one")
    with join_in_background(broker, "billing", "late"):
        seen = run_poll(broker, tmp_path, Script())
    assert [state for _, state, _ in seen.samples] == ["PreparingRebalance"]


def test_only_groups_that_are_meant_are_asked_for(broker: rota.Broker, tmp_path: Path) -> None:
    for group in ("billing-a", "billing-b", "other"):
        commit_offsets(broker, group, {("orders", 0): 1})
    seen = run_poll(broker, tmp_path, Script(), groups=("billing-*",))
    assert seen.polled.groups == {"billing-a", "billing-b"}


def test_names_are_hashed_before_they_are_written(broker: rota.Broker, tmp_path: Path) -> None:
    add_billing_members(broker, "secret-pod")
    seen = run_poll(broker, tmp_path, Script(), Redaction(b"key"))
    (row,) = seen.rows(SAMPLES)
    assert row["members"][0]["client_id"].startswith("client#")
    files = (tmp_path / "seen").iterdir()
    assert not any(b"secret-pod" in file.read_bytes() for file in files)


def test_one_group_that_may_not_be_looked_at(
    broker: rota.Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for group in ("a", "b"):
        commit_offsets(broker, group, {("orders", 0): 1})
    monkeypatch.setattr(poll_module, "GROUPS_PER_REQUEST", 1)
    broker.fail("DescribeGroups", "GROUP_AUTHORIZATION_FAILED", times=1)
    seen = run_poll(broker, tmp_path, Script(lambda: None))
    assert seen.polled.groups == {"a", "b"}
    (denied,) = seen.polled.denied
    assert denied in {"group a", "group b"}
    ((what, number, _),) = seen.polled.not_sampled()
    assert (what, number) == ("groups and topics without permission", 1)
    late = next(row for row in seen.rows(SAMPLES) if f"group {row['group']}" == denied)
    assert late["not_before"] is None  # it was there all the time


def test_a_topic_that_may_not_be_looked_at(broker: rota.Broker, tmp_path: Path) -> None:
    """Its ends are missing, and said."""
    commit_offsets(broker, "a", {("orders", 0): 1})
    broker.fail("ListOffsets", "TOPIC_AUTHORIZATION_FAILED", times=None)
    seen = run_poll(broker, tmp_path, Script())
    assert seen.rows(ENDS) == []
    assert len(seen.rows(COMMITS)) == 1
    (why,) = seen.polled.failures
    assert "orders" in why


def test_nothing_may_be_looked_at(broker: rota.Broker, tmp_path: Path) -> None:
    commit_offsets(broker, "a", {("orders", 0): 1})
    broker.fail("DescribeGroups", "GROUP_AUTHORIZATION_FAILED", times=None)
    with pytest.raises(
        Unreachable, match=r"describe group 'a': .* Describe on the cluster .* topics"
    ):
        run_poll(broker, tmp_path, Script())


def test_a_group_that_is_named_and_not_listed(broker: rota.Broker, tmp_path: Path) -> None:
    broker.fail("DescribeGroups", "GROUP_AUTHORIZATION_FAILED", times=None)
    with pytest.raises(Unreachable, match=r"describe group 'secret': .* Describe on the cluster"):
        run_poll(broker, tmp_path, Script(), groups=("secret",))


def test_groups_that_come_later(broker: rota.Broker, tmp_path: Path) -> None:
    seen = run_poll(
        broker, tmp_path, Script(lambda: commit_offsets(broker, "late", {("orders", 0): 1}))
    )
    (row,) = seen.rows(SAMPLES)
    assert row["not_before"] is not None  # it is known to be new


def test_a_broker_that_is_away_for_a_while(broker: rota.Broker, tmp_path: Path) -> None:
    commit_offsets(broker, "a", {("orders", 0): 1})
    script = Script(broker.stop, lost=broker.start)
    seen = run_poll(broker, tmp_path, script, **AWAY)
    assert [each.partition(":")[0] for each in script.told] == ["lost", "back"]
    (gap,) = seen.polled.gaps
    assert gap.end is not None
    assert gap.begin < gap.end
    assert seen.samples == [("a", "Empty", [])]  # nobody is gone because nobody answers


def test_a_broker_that_does_not_come_back(broker: rota.Broker, tmp_path: Path) -> None:
    commit_offsets(broker, "a", {("orders", 0): 1})
    interrupt = lambda: signal.raise_signal(signal.SIGINT)  # noqa: E731
    seen = run_poll(broker, tmp_path, Script(broker.stop, lost=interrupt), **AWAY)
    (gap,) = seen.polled.gaps
    assert gap.end is None


def test_interrupted_before_the_first_round(broker: rota.Broker, tmp_path: Path) -> None:
    broker.delay("ListGroups", 60)

    async def ask() -> None:
        asyncio.get_running_loop().call_later(0.05, signal.raise_signal, signal.SIGINT)
        async with client(broker.bootstrap_servers) as asking:
            await poll_groups(asking, PollSettings(every=EVERY), tmp_path / "seen", Script())

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(ask())
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_time_is_over(broker: rota.Broker, tmp_path: Path) -> None:
    seen = run_poll(broker, tmp_path, Script(*[lambda: None] * 1000), length=0.1)
    assert 1 <= seen.polled.rounds <= 11
