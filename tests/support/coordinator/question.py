"""Every request, rightly and wrongly put; each is asked in every state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rota.engine.model.request import (
    DeleteGroups,
    DescribeGroups,
    GroupRequest,
    LeaveGroup,
    LeavingMember,
    ListGroups,
    OffsetDelete,
    OffsetFetch,
)
from rota.engine.model.topic import OffsetAndMetadata, TopicPartition
from tests.support.coordinator.scripted_member import (
    CONFIG,
    OTHER,
    STRANGER,
    T0,
    T1,
    ScriptedMember,
    join_protocols,
)
from tests.support.coordinator.state import GroupMembers

Ask = Callable[[GroupMembers], object]
CHANGED = join_protocols("range", "roundrobin", topics=("t", "other"))
REORDERED = join_protocols("roundrobin", "range")
NARROWED = join_protocols("range")
ALIEN = join_protocols("sticky")
LIMIT = CONFIG.offset_metadata_max


def pending(group: GroupMembers) -> ScriptedMember:
    """One that was sent its id just now."""
    one = ScriptedMember(group.stage, "d")
    one.join()
    return one


def admin(make: Callable[[str], GroupRequest]) -> Ask:
    """A request about the group from nobody of it."""
    return lambda group: group.stage.send("admin", make(group.stage.group))


JOINS: dict[str, Ask] = {
    "newcomer": lambda g: g.newcomer.join(),
    "newcomer, old version": lambda g: g.newcomer.join(
        supports_member_id_required=False, supports_skip_assignment=False
    ),
    "newcomer with a given id": lambda g: pending(g).join(),
    "given id, static": lambda g: pending(g).join(group_instance_id="i9"),
    "leader, same": lambda g: g.a.join(),
    "leader, version 8": lambda g: g.a.join(supports_skip_assignment=False),
    "leader, changed": lambda g: g.a.join(protocols=CHANGED),
    "follower, same": lambda g: g.b.join(),
    "follower, changed": lambda g: g.b.join(protocols=CHANGED),
    "follower, reordered": lambda g: g.b.join(protocols=REORDERED),
    "follower, narrowed": lambda g: g.b.join(protocols=NARROWED),
    "follower, other timeouts": lambda g: g.b.join(session_timeout=9_000, rebalance_timeout=8_000),
    "stranger": lambda g: g.newcomer.join(member_id=STRANGER),
    "new static": lambda g: g.newcomer.join(group_instance_id="i9"),
    "leader's static id": lambda g: g.newcomer.join(group_instance_id="i1"),
    "leader's static id, version 8": lambda g: g.newcomer.join(
        group_instance_id="i1", supports_skip_assignment=False
    ),
    "leader's static id, changed": lambda g: g.newcomer.join(
        group_instance_id="i1", protocols=CHANGED
    ),
    "follower's static id": lambda g: g.newcomer.join(group_instance_id="i2"),
    "follower's static id, reordered": lambda g: g.newcomer.join(
        group_instance_id="i2", protocols=REORDERED
    ),
    "follower's static id, other strategies": lambda g: g.newcomer.join(
        group_instance_id="i2", protocols=ALIEN
    ),
    "stranger with leader's static id": lambda g: g.newcomer.join(
        member_id=STRANGER, group_instance_id="i1"
    ),
    "leader with an unknown static id": lambda g: g.a.join(group_instance_id="i7"),
    "leader with the follower's static id": lambda g: g.a.join(group_instance_id="i2"),
    "leader without static id": lambda g: g.a.join(group_instance_id=None),
    "newcomer, other type": lambda g: g.newcomer.join(protocol_type="other"),
    "leader, other type": lambda g: g.a.join(protocol_type="other"),
    "newcomer, no type": lambda g: g.newcomer.join(protocol_type=""),
    "newcomer, other strategies": lambda g: g.newcomer.join(protocols=ALIEN),
    "leader, other strategies": lambda g: g.a.join(protocols=ALIEN),
    "newcomer, no strategies": lambda g: g.newcomer.join(protocols=()),
    "newcomer, session too short": lambda g: g.newcomer.join(
        session_timeout=CONFIG.min_session_timeout - 1
    ),
    "leader, session too long": lambda g: g.a.join(session_timeout=CONFIG.max_session_timeout + 1),
    "newcomer, longest session": lambda g: g.newcomer.join(
        session_timeout=CONFIG.max_session_timeout
    ),
    "newcomer, no group": lambda g: g.newcomer.join(group=""),
    "newcomer, empty static id": lambda g: g.newcomer.join(group_instance_id=""),
    "newcomer, a strategy twice": lambda g: g.newcomer.join(
        protocols=join_protocols("range", "range")
    ),
}


def wrong_ways(ask: Callable[[ScriptedMember, dict[str, Any]], object]) -> dict[str, Ask]:
    """What can be wrong with a request that names member and generation."""

    def asked(who: str, **changes: Any) -> Ask:
        return lambda g: ask(getattr(g, who), changes)

    return {
        "earlier generation": lambda g: ask(g.a, {"generation": g.a.generation - 1}),
        "later generation": lambda g: ask(g.a, {"generation": g.a.generation + 1}),
        "stranger": asked("a", member_id=STRANGER, group_instance_id=None),
        "stranger, later generation": lambda g: ask(
            g.a,
            {"member_id": STRANGER, "group_instance_id": None, "generation": g.a.generation + 1},
        ),
        "no member": asked("a", member_id="", group_instance_id=None),
        "stranger with leader's static id": asked("a", member_id=STRANGER, group_instance_id="i1"),
        "no member, leader's static id": asked("a", member_id="", group_instance_id="i1"),
        "unknown static id": asked("a", group_instance_id="i7"),
        "follower's static id": asked("a", group_instance_id="i2"),
        "no group": asked("a", group=""),
        "with a given id": lambda g: ask(pending(g), {"generation": g.a.generation}),
    }


SYNCS: dict[str, Ask] = {
    "leader": lambda g: g.a.sync(g.a, g.b),
    "leader, old version": lambda g: g.a.sync(g.a, g.b, protocol=None, protocol_type=None),
    "leader, nothing for anybody": lambda g: g.a.sync(),
    "leader, nothing for the follower": lambda g: g.a.sync(g.a),
    "leader, something for a stranger": lambda g: g.a.sync(
        assignments=((STRANGER, b"for a stranger"),)
    ),
    "leader, twice for the follower": lambda g: g.a.sync(
        assignments=((g.b.member_id, b"first"), (g.b.member_id, b"second"))
    ),
    "follower": lambda g: g.b.sync(),
    "follower, with assignments": lambda g: g.b.sync(g.a, g.b),
    "leader, other strategy": lambda g: g.a.sync(g.a, g.b, protocol="roundrobin"),
    "follower, other type": lambda g: g.b.sync(protocol_type="other"),
    **wrong_ways(lambda who, changes: who.sync(**changes)),
}
HEARTBEATS: dict[str, Ask] = {
    "leader": lambda g: g.a.heartbeat(),
    "follower": lambda g: g.b.heartbeat(),
    **wrong_ways(lambda who, changes: who.heartbeat(**changes)),
}
LEAVES: dict[str, Ask] = {
    "leader": lambda g: g.a.leave(),
    "follower": lambda g: g.b.leave(),
    "both": lambda g: g.a.leave(*leavers(g.a, g.b)),
    "leader twice": lambda g: g.a.leave(*leavers(g.a, g.a)),
    "follower and stranger": lambda g: g.b.leave(*leavers(g.b), LeavingMember(member_id=STRANGER)),
    "stranger": lambda g: g.newcomer.leave(LeavingMember(member_id=STRANGER)),
    "nobody": lambda g: g.newcomer.leave(LeavingMember()),
    "empty list": admin(lambda name: LeaveGroup(group=name, members=())),
    "no group": admin(lambda _: LeaveGroup(group="", members=(LeavingMember(member_id=STRANGER),))),
    "given id": lambda g: pending(g).leave(),
    "leader by static id": lambda g: g.newcomer.leave(LeavingMember(group_instance_id="i1")),
    "both by static id": lambda g: g.newcomer.leave(
        LeavingMember(group_instance_id="i1"), LeavingMember(group_instance_id="i2")
    ),
    "unknown static id": lambda g: g.newcomer.leave(LeavingMember(group_instance_id="i7")),
    "stranger with leader's static id": lambda g: g.newcomer.leave(
        LeavingMember(member_id=STRANGER, group_instance_id="i1")
    ),
    "leader with the follower's static id": lambda g: g.a.leave(
        LeavingMember(member_id=g.a.member_id, group_instance_id="i2")
    ),
    "leader without static id": lambda g: g.a.leave(LeavingMember(member_id=g.a.member_id)),
}


def leavers(*actors: ScriptedMember) -> tuple[LeavingMember, ...]:
    """These, by id and static id."""
    return tuple(
        LeavingMember(member_id=each.member_id, group_instance_id=each.group_instance_id)
        for each in actors
    )


COMMITS: dict[str, Ask] = {
    "leader": lambda g: g.a.commit(8),
    "follower": lambda g: g.b.commit(8),
    "without joining": lambda g: g.newcomer.commit(8),
    "leader without generation": lambda g: g.a.commit(8, generation=-1),
    "stranger without generation": lambda g: g.newcomer.commit(8, member_id=STRANGER),
    "static id without generation": lambda g: g.newcomer.commit(8, group_instance_id="i1"),
    "leader, version 8": lambda g: g.a.commit(8, supports_group_id_not_found=False),
    "without joining, version 8": lambda g: g.newcomer.commit(8, supports_group_id_not_found=False),
    "longest metadata": lambda g: g.a.commit(8, "m" * LIMIT),
    "metadata too long": lambda g: g.a.commit(8, "m" * (LIMIT + 1)),
    "metadata in bytes too long": lambda g: g.a.commit(8, "é" * LIMIT),
    "one of two too long": lambda g: g.newcomer.commit(
        offsets={T0: OffsetAndMetadata(8), T1: OffsetAndMetadata(9, "m" * (LIMIT + 1))}
    ),
    "nothing": lambda g: g.a.commit(offsets={}),
    "nothing, without joining": lambda g: g.newcomer.commit(offsets={}),
    "with epoch": lambda g: g.a.commit(offsets={T1: OffsetAndMetadata(3, "note", 0)}),
    **wrong_ways(lambda who, changes: who.commit(8, **changes)),
}
NO_SUCH = TopicPartition("t", 9)
ADMINS: dict[str, Ask] = {
    "fetch all": admin(lambda name: OffsetFetch(group=name)),
    "fetch some": admin(lambda name: OffsetFetch(group=name, partitions=(T0, T1, OTHER))),
    "fetch none": admin(lambda name: OffsetFetch(group=name, partitions=())),
    "fetch, no group": admin(lambda _: OffsetFetch(group="")),
    "delete offset": admin(lambda name: OffsetDelete(group=name, partitions=(T0,))),
    "delete offset never committed": admin(
        lambda name: OffsetDelete(group=name, partitions=(T1, OTHER))
    ),
    "delete no offsets": admin(lambda name: OffsetDelete(group=name, partitions=())),
    "delete offset, no group": admin(lambda _: OffsetDelete(group="", partitions=(T0,))),
    "delete group": admin(lambda name: DeleteGroups(groups=(name,))),
    "delete group and another": admin(lambda name: DeleteGroups(groups=(name, "no such group"))),
    "delete group twice": admin(lambda name: DeleteGroups(groups=(name, name))),
    "delete group, no name": admin(lambda _: DeleteGroups(groups=("",))),
    "describe twice": admin(lambda name: DescribeGroups(groups=(name, name))),
    "describe": admin(lambda name: DescribeGroups(groups=(name,))),
    "describe, version 5": admin(
        lambda name: DescribeGroups(groups=(name,), supports_group_id_not_found=False)
    ),
    "describe, no group": admin(lambda _: DescribeGroups(groups=("",))),
    "list": admin(lambda _: ListGroups()),
    "list stable": admin(lambda _: ListGroups(states=("stable",))),
    "list rebalancing": admin(
        lambda _: ListGroups(states=("PreparingRebalance", "COMPLETINGREBALANCE"))
    ),
    "list empty": admin(lambda _: ListGroups(states=("Empty",))),
    "list in no such state": admin(lambda _: ListGroups(states=("Happy",))),
}
QUESTIONS: dict[str, Ask] = {
    f"{kind}: {name}": ask
    for kind, asks in {
        "join": JOINS,
        "sync": SYNCS,
        "heartbeat": HEARTBEATS,
        "leave": LEAVES,
        "commit": COMMITS,
        "admin": ADMINS,
    }.items()
    for name, ask in asks.items()
}
