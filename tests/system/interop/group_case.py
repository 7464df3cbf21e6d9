"""Cases of consumer groups: who owns what, and that each record is handled once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

from tests.support.clients.case import ClientCase, Drivers, plain_record, unique_name
from tests.support.clients.driver_process import ClientError, DriverAt
from tests.support.clients.registry import Client
from tests.support.waiting import wait_until

PARTITIONS = 6
SESSION = 3_000
#: Milliseconds: a member hears of a rebalance this soon, not after three seconds.
HEARTBEAT = 300


@dataclass(slots=True)
class Group:
    """A group, its members, and the records that were written for it."""

    client_case: ClientCase
    partitions: int = PARTITIONS
    name: str = field(default_factory=lambda: unique_name("g"))
    topic: str = ""
    written: int = 0
    members: dict[str, DriverAt] = field(default_factory=dict)
    _past: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.topic = self.client_case.topic(self.partitions)

    def join(self, link: DriverAt, **wanted: Any) -> str:
        """Start a member."""
        member = unique_name("m")
        own = {"group": self.name, "topic": self.topic, "heartbeat": HEARTBEAT, **wanted}
        link.ask("join", member=member, **own)
        self.members[member] = link
        return member

    def member_status(self, member: str) -> dict[str, Any]:
        """How it goes with a member."""
        found: dict[str, Any] = self.members[member].ask("member", member=member)
        assert found["error"] is None, found["error"]
        return found

    def leave(self, member: str) -> None:
        """Have a member leave."""
        self._past += self.member_status(member)["handled"]
        self.members.pop(member).ask("leave", member=member)

    def lose(self, member: str) -> None:
        """A member is about to be killed."""
        self._past += self.member_status(member)["handled"]
        del self.members[member]

    def settle(self, each: int | None = None) -> dict[str, list[int]]:
        """Wait until every member has partitions, and every partition one owner.

        That can also hold between two rebalances of a cooperative group. So give `each`, how many
        partitions a member has after the last one.
        """
        owned: dict[str, list[int]] = {}

        def settled() -> bool:
            owned.update(
                {member: self.member_status(member)["assigned"] for member in self.members}
            )
            mine = [owned[member] for member in self.members]
            if each is not None and {len(own) for own in mine} != {each}:
                return False
            return all(mine) and sorted(chain(*mine)) == list(range(self.partitions))

        shares = "" if each is None else f", each member has {each}"
        wait_until(f"every partition of {self.name} has one owner{shares};", settled, lambda: owned)
        return {member: owned[member] for member in self.members}

    def write(self, rounds: int = 10) -> None:
        """Write some records to each partition."""
        numbers = range(self.written, self.written + rounds * self.partitions)
        records = [plain_record(number, number % self.partitions) for number in numbers]
        self.client_case.steady.ask("produce", topic=self.topic, records=records)
        self.written = numbers.stop

    def handled(self) -> list[int]:
        """The numbers of all records that members have handled, ever."""
        now = [
            record for member in self.members for record in self.member_status(member)["handled"]
        ]
        return sorted(int(value) for _, _, value in self._past + now)

    def finish(self) -> None:
        """Wait until all that was written was handled, each record once."""
        want = list(range(self.written))
        wait_until(
            f"{self.name} handles {self.written}", lambda: len(set(self.handled())) == len(want)
        )
        again = {number: times for number, times in Counter(self.handled()).items() if times > 1}
        assert not again, f"handled more than once: {again}"

    def commit(self) -> None:
        """Have all members commit where they are."""
        for member, link in self.members.items():
            link.ask("commit", member=member, how="sync")

    def end(self) -> None:
        """All leave."""
        for member in list(self.members):
            self.leave(member)


def expected_share(name: str, count: int) -> int | None:
    """What to wait for: an eager group has its shares as soon as every partition has an owner.

    A cooperative group may need further rebalances. No test here limits their number.
    """
    return count if name == "cooperative-sticky" else None


def strategy(name: str, client_case: ClientCase) -> None:
    group = Group(client_case)
    _, _, last = [group.join(client_case.own, strategy=name) for _ in range(3)]
    assert {len(owned) for owned in group.settle(expected_share(name, 2)).values()} == {2}
    group.write()
    group.finish()
    group.leave(last)
    assert {len(owned) for owned in group.settle(expected_share(name, 3)).values()} == {3}
    group.write()
    group.finish()
    group.end()


def killed(client_case: ClientCase) -> None:
    """A member of each strategy, all in a process that is killed."""
    doomed = client_case.client.start()
    try:
        groups = [
            _with_doomed(client_case, DriverAt(doomed, client_case.own.servers), name)
            for name in client_case.client.strategies
        ]
        for (group, _), name in zip(groups, client_case.client.strategies, strict=True):
            assert {len(owned) for owned in group.settle(expected_share(name, 2)).values()} == {2}
            group.write()
        for group, member in groups:
            group.finish()
            wait_until("all commit", partial(_committed, group))
            group.lose(member)
    finally:
        doomed.kill()
    for (group, _), name in zip(groups, client_case.client.strategies, strict=True):
        assert {len(owned) for owned in group.settle(expected_share(name, 3)).values()} == {3}
        group.write()
        group.finish()
        group.end()


def _with_doomed(client_case: ClientCase, doomed: DriverAt, name: str) -> tuple[Group, str]:
    group = Group(client_case)
    for _ in range(2):
        group.join(client_case.own, strategy=name, session=SESSION)
    return group, group.join(doomed, strategy=name, session=SESSION)


def _committed(group: Group) -> bool:
    try:
        group.commit()
    except ClientError:  # a rebalance came between: the machine is slow
        return False
    return True


def static(client_case: ClientCase) -> None:
    """Nobody else notices a restart. Heartbeats are as rare as the library has them by itself."""
    group = Group(client_case)
    members = {}
    for instance in ("leader", "follower"):
        members[instance] = group.join(client_case.own, instance=instance, heartbeat=None)
        group.settle()
    group.write()
    group.finish()
    for instance in ("follower", "leader"):
        before = group.settle()
        (other,) = set(members.values()) - {members[instance]}
        rebalances = group.member_status(other)["rebalances"]
        owned = before[members[instance]]
        group.leave(members[instance])
        members[instance] = group.join(client_case.own, instance=instance, heartbeat=None)
        assert group.settle()[members[instance]] == owned
        group.write()
        group.finish()
        if instance == "follower" or not client_case.client.leader_rejoins:
            assert group.member_status(other)["rebalances"] == rebalances
    group.end()


def commit(how: str, client_case: ClientCase) -> None:
    group = Group(client_case)
    first = group.join(client_case.own, manual=True)
    group.write()
    group.finish()
    client_case.own.ask("commit", member=first, how=how)
    stored = dict(client_case.steady.ask("offsets", group=group.name, topic=group.topic))
    assert stored == dict.fromkeys(range(PARTITIONS), 10)
    group.write(1)
    group.finish()
    group.leave(first)  # without a commit: what came after the last one is read again
    again = Group(client_case, name=group.name)
    again.topic = group.topic
    member = again.join(client_case.own, manual=True)
    wait_until(
        "the rest is read", lambda: len(again.member_status(member)["handled"]) >= PARTITIONS
    )
    assert again.handled() == list(range(group.written - PARTITIONS, group.written))
    again.end()


def mixed_libraries(name: str, clients: Sequence[Client], drivers: Drivers) -> None:
    """One group with a member of each library."""
    group = Group(ClientCase(drivers, clients[0]), partitions=2 * len(clients))
    members = [group.join(drivers.link(client), strategy=name) for client in clients]
    assert {len(owned) for owned in group.settle(expected_share(name, 2)).values()} == {2}
    group.write()
    group.finish()
    for member in members[:2]:  # one of them has led the group
        group.leave(member)
        group.settle()
        group.write()
        group.finish()
    group.end()


def names(strategies: Iterable[str]) -> list[str]:
    """The cases of these strategies."""
    return [f"group, {name}" for name in strategies]


STRATEGIES = ("range", "roundrobin", "sticky", "cooperative-sticky")
CASES: dict[str, Callable[[ClientCase], None]] = {
    **{f"group, {name}": partial(strategy, name) for name in STRATEGIES},
    "group, a member is killed": killed,
    "static members restart": static,
    "commit, synchronous": partial(commit, "sync"),
    "commit, asynchronous": partial(commit, "async"),
}
