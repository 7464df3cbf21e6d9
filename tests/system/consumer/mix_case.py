"""Groups mixed of several libraries: every strategy, each library as the leader, and the way from
one strategy to another.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.system.consumer.client_drivers import (
    ASYNC,
    BLOCKING,
    CONFLUENT,
    JAVA,
    KAFKA_PYTHON,
    ConsumerKind,
)
from tests.system.consumer.group import Group, GroupCase
from tests.system.interop.security_case import login_settings

EVERYONE = (ASYNC, JAVA, BLOCKING, KAFKA_PYTHON, CONFLUENT)
#: Who has each strategy.
MIXES: dict[str, tuple[ConsumerKind, ...]] = {
    "range": EVERYONE,
    "roundrobin": EVERYONE,
    "cooperative-sticky": EVERYONE,
    "sticky": (BLOCKING, JAVA, ASYNC),
}


def mixed(strategy: str, case: GroupCase) -> None:
    """All come, and leave one by one."""
    kinds = MIXES[strategy]
    group = Group(case, partitions=2 * len(kinds))
    for kind in kinds:
        group.join(kind, strategy)
    group.write()
    group.settle()
    group.finish()
    for member in list(group.members.values())[:-1]:
        group.leave(member)
        group.write(2)
        group.settle()
        group.finish()
    group.check_history()


def led(strategy: str, leader: ConsumerKind, case: GroupCase) -> None:
    """The first to come leads the group, as long as it stays."""
    others = [kind for kind in (ASYNC, JAVA, BLOCKING) if kind is not leader][:2]
    group = Group(case)
    first = group.join(leader, strategy)
    group.settle()
    group.write()
    for kind in others:
        group.join(kind, strategy)
    cooperative = strategy == "cooperative-sticky"
    group.settle(*([2, 2, 2] if cooperative else []))
    assert {len(member.owned) for member in group.members.values()} == {2}
    group.write()
    group.finish()
    group.leave(first)
    group.settle(*([3, 3] if cooperative else []))
    assert {len(member.owned) for member in group.members.values()} == {3}
    group.write()
    group.finish()
    group.check_history()


OWN = "tests.system.consumer.strategy:FirstMemberTwice"


def own_strategy(case: GroupCase) -> None:
    """A class of the application's, which both of Rota's consumers have."""
    group = Group(case, partitions=8)
    for kind in (BLOCKING, ASYNC, ASYNC):
        group.join(kind, OWN)
    group.settle()
    assert sorted(len(member.owned) for member in group.members.values()) == [2, 2, 4]
    group.write()
    group.finish()
    group.check_history()


def own_strategy_beside_another(case: GroupCase) -> None:
    """A Java member does not have it: the group takes what all have."""
    group = Group(case)
    for kind, *strategies in ((BLOCKING, OWN, "range"), (ASYNC, OWN, "range"), (JAVA, "range")):
        group.join(kind, *strategies)
    group.write()
    group.settle()
    assert {len(member.owned) for member in group.members.values()} == {2}
    group.finish()
    group.check_history()


def migrated(case: GroupCase) -> None:
    """From eager to cooperative by two rolling bounces, with records all the way."""
    group = Group(case)
    members = [group.join(kind, "range") for kind in (JAVA, ASYNC, BLOCKING)]
    group.settle()
    for strategies in (["cooperative-sticky", "range"], ["cooperative-sticky"]):
        for number, member in enumerate(members):
            group.write(2)
            group.leave(member)
            members[number] = group.join(member.kind, *strategies)
            group.settle(2, 2, 2)
            group.finish()
    before = {member.name: set(member.owned) for member in members}
    since = len(group.history.events)
    group.join(ASYNC, "cooperative-sticky")
    group.settle(2, 2, 1, 1)
    for member in members:  # nobody gives up what it keeps
        assert member.owned <= before[member.name]
        assert not group.revoked_since(member, since) & member.owned
    group.write()
    group.finish()
    group.check_history()


def secured(case: GroupCase) -> None:
    """All over TLS, logged in with SCRAM."""
    cluster = case.cluster
    security = {**login_settings("SCRAM-SHA-512"), "protocol": "SASL_SSL", "ca": str(cluster.ca)}
    with GroupCase(cluster, case.drivers, cluster.secure, security) as guarded:
        group = Group(guarded)
        for kind in (BLOCKING, JAVA, ASYNC):
            group.join(kind, "cooperative-sticky")
        group.write()
        group.settle()
        group.finish()
        group.check_history()


def _cases() -> dict[str, Callable[[GroupCase], None]]:
    cases: dict[str, Callable[[GroupCase], None]] = {}
    for strategy, kinds in MIXES.items():
        cases[f"{strategy}, mixed"] = partial(mixed, strategy)
        for kind in kinds:
            cases[f"{strategy}, {kind} leads"] = partial(led, strategy, kind)
    return cases


CASES: dict[str, Callable[[GroupCase], None]] = {
    **_cases(),
    "a strategy of one's own": own_strategy,
    "a strategy of one's own, beside members without it": own_strategy_beside_another,
    "from eager to cooperative by two rolling bounces": migrated,
    "TLS and SASL": secured,
}
