"""The script's part on groups: every version of every API; members that come, stay and go."""

from __future__ import annotations

from functools import partial

from tests.support.differential_side import Message, Plain, Side, decode_frame, fill_request
from tests.system.kafka.differential.admin import create_topics, topic_request
from tests.system.kafka.differential.data import make_batch, produce_quietly

#: A subscription to the topic ``gt``.
PROTOCOL = {"name": "range", "metadata": b"\0\1\0\0\0\1\0\2gt\xff\xff\xff\xff"}
OTHER = {"name": "sticky", "metadata": PROTOCOL["metadata"]}
SESSION = 30_000


def coordinator(side: Side) -> None:
    """Where a group is; the first to ask has the journal made."""

    def ready() -> bool:
        found = side.quiet("FindCoordinator", 0, key="any")
        if found.error_code != 0:
            return False
        answer = side.quiet("DescribeGroups", 0, groups=["any"])
        return int(answer.groups[0].error_code) == 0

    side.eventually(ready, "a coordinator")
    for version in range(7):
        if version < 4:
            for key in ("any", "other", ""):
                side.ask("FindCoordinator", version, f"of {key!r}", key=key)
            if version >= 1:
                for kind in (1, 2, 9):
                    side.ask("FindCoordinator", version, f"kind {kind}", key="any", key_type=kind)
        else:
            for keys in (["any"], ["any", "other"], ["any", "any"], [""], []):
                side.ask(
                    "FindCoordinator", version, f"of {keys}", key_type=0, coordinator_keys=keys
                )
            side.ask("FindCoordinator", version, "kind 9", key_type=9, coordinator_keys=["a"])


def join(
    side: Side, version: int, case: str, group: str, member: str = "", **more: Plain
) -> Message:
    return side.ask("JoinGroup", version, case, **_join(version, group, member, **more))


def _join(version: int, group: str, member: str = "", **more: Plain) -> Plain:
    fields: Plain = {
        "group_id": group,
        "session_timeout_ms": more.get("session", SESSION),
        "member_id": member,
        "protocol_type": more.get("kind", "consumer"),
        "protocols": more.get("protocols", [PROTOCOL]),
    }
    if version >= 1:
        fields["rebalance_timeout_ms"] = more.get("rebalance", 60_000)
    if version >= 5:
        fields["group_instance_id"] = more.get("static")
    if version >= 8:
        fields["reason"] = "a test"
    return fields


def join_group(side: Side, version: int, group: str, **more: Plain) -> Message:
    """A member joins, by a second try where the first only gives it an id."""
    first = join(side, version, "joins", group, **more)
    if first.error_code == 79:
        return join(side, version, "joins with its id", group, first.member_id, **more)
    return first


def _sync(version: int, group: str, generation: int, member: str, **more: Plain) -> Plain:
    fields: Plain = {
        "group_id": group,
        "generation_id": generation,
        "member_id": member,
        "assignments": [
            {"member_id": each, "assignment": b"mine"} for each in more.get("assigned", [])
        ],
    }
    if version >= 3:
        fields["group_instance_id"] = more.get("static")
    if version >= 5:
        fields["protocol_type"] = more.get("kind", "consumer")
        fields["protocol_name"] = more.get("protocol", "range")
    return fields


def sync(
    side: Side, version: int, case: str, group: str, generation: int, member: str, **more: Plain
) -> Message:
    return side.ask("SyncGroup", version, case, **_sync(version, group, generation, member, **more))


def heartbeat(
    side: Side, version: int, case: str, group: str, generation: int, member: str, **more: Plain
) -> Message:
    fields: Plain = {"group_id": group, "generation_id": generation, "member_id": member}
    if version >= 3:
        fields["group_instance_id"] = more.get("static")
    return side.ask("Heartbeat", version, case, **fields)


def leave(side: Side, version: int, case: str, group: str, *members: Plain) -> Message:
    if version < 3:
        (member,) = members
        return side.ask("LeaveGroup", version, case, group_id=group, member_id=member["member_id"])
    reason = {"reason": "a test"} if version >= 5 else {}
    listed = [{"group_instance_id": None, **each, **reason} for each in members]
    return side.ask("LeaveGroup", version, case, group_id=group, members=listed)


def member_lifecycle(side: Side) -> None:
    """One member's life, in every version of joining, and what else may be asked on the way."""
    create_topics(side, topic_request("gt", 3))
    for version in range(10):
        group = f"life-{version}"
        syncing, beating, leaving = min(version, 5), min(version, 4), min(version, 5)
        describe(side, group, "before")
        joined = join_group(side, version, group)
        member, generation = joined.member_id, joined.generation_id
        heartbeat(side, beating, "before sync", group, generation, member)
        describe(side, group, "joined")
        sync(side, syncing, "as a stranger", group, generation, "stranger")
        sync(side, syncing, "of another generation", group, generation + 1, member)
        sync(side, syncing, "syncs", group, generation, member, assigned=[member])
        sync(side, syncing, "again", group, generation, member, assigned=[])
        describe(side, group, "stable")
        heartbeat(side, beating, "beats", group, generation, member)
        heartbeat(side, beating, "of another generation", group, generation + 1, member)
        heartbeat(side, beating, "as a stranger", group, generation, "stranger")
        heartbeat(side, beating, "of no group", "no such group", generation, member)
        heartbeat(side, beating, "without a group", "", generation, member)
        join(side, version, "joins again", group, member)
        sync(side, syncing, "syncs again", group, generation + 1, member, assigned=[member])
        side.ask("DeleteGroups", min(version, 2), "while it lives", groups_names=[group])
        leave(side, leaving, "as a stranger", group, {"member_id": "stranger"})
        leave(side, leaving, "of no group", "no such group", {"member_id": member})
        leave(side, leaving, "leaves", group, {"member_id": member})
        describe(side, group, "empty")
        heartbeat(side, beating, "beats on", group, generation, member)
        side.ask("DeleteGroups", min(version, 2), "", groups_names=[group, "no such group", ""])
        describe(side, group, "deleted")


def describe(side: Side, group: str, case: str) -> None:
    for version in range(7):
        side.ask("DescribeGroups", version, f"{group} {case}", groups=[group])


def refused_joins(side: Side) -> None:
    """Joins that no group takes."""
    for version in range(10):
        group = f"refused-{version}"
        join(side, version, "no group", "")
        join(side, version, "no protocols", f"{group}-a", protocols=[])
        join(side, version, "no kind", f"{group}-b", kind="")
        join(side, version, "short session", f"{group}-c", session=10)
        join(side, version, "long session", f"{group}-d", session=10_000_000)
        join(side, version, "stranger", f"{group}-e", "stranger")
        if version >= 5:
            join(side, version, "empty static id", f"{group}-f", static="")
            join(side, version, "bad static id", f"{group}-g", static="a/b")
            join(side, version, "static stranger", f"{group}-h", "stranger", static="s")
        first = join_group(side, version, group)
        join(side, version, "another kind", group, kind="connect")
        join(side, version, "another protocol", group, protocols=[OTHER])
        if first.member_id:
            leave(side, min(version, 5), "leaves", group, {"member_id": first.member_id})
    for version in range(1, 6):
        sync(side, version, "no group", "", 1, "m")
        sync(side, version, "unknown", "unknown", 1, "m")
    sync(side, 5, "without a protocol", "unknown", 1, "m", kind=None, protocol=None)
    for version in range(3, 6):
        leave(side, version, "nobody", "unknown")
        leave(side, version, "no group", "", {"member_id": "m"})
    side.ask("DescribeGroups", 5, "none", groups=[])
    side.ask("DescribeGroups", 5, "twice", groups=["a", "a"])
    side.ask("DescribeGroups", 5, "empty", groups=[""])
    side.ask(
        "DescribeGroups", 5, "operations", groups=["refused-9"], include_authorized_operations=True
    )


def static_members(side: Side) -> None:
    """A member with an id of its own: restarts, is doubled, is put out by an admin."""
    for version in range(5, 10):
        group = f"static-{version}"
        first = join_group(side, version, group, static="s1")
        sync(side, 5, "syncs", group, 1, first.member_id, static="s1", assigned=[first.member_id])
        again = join(side, version, "restarts", group, static="s1")
        heartbeat(side, 4, "the old one", group, again.generation_id, first.member_id, static="s1")
        heartbeat(side, 4, "the new one", group, again.generation_id, again.member_id, static="s1")
        heartbeat(side, 4, "without its static id", group, again.generation_id, again.member_id)
        sync(side, 5, "the new one", group, again.generation_id, again.member_id, static="s1")
        join(side, version, "with the old id", group, first.member_id, static="s1")
        describe(side, group, "static")
        leave(side, 5, "by a wrong static id", group, {"member_id": "", "group_instance_id": "s9"})
        leave(
            side,
            5,
            "by both, wrong",
            group,
            {"member_id": first.member_id, "group_instance_id": "s1"},
        )
        leave(side, 5, "by static id", group, {"member_id": "", "group_instance_id": "s1"})
        describe(side, group, "left")


def two_member_rebalances(side: Side) -> None:
    """Two members: a rebalance, in which the second waits on a connection of its own."""
    for version in (2, 5, 9):
        group = f"pair-{version}"
        first = join_group(side, version, group)
        syncing = min(version, 5)
        sync(side, syncing, "syncs", group, 1, first.member_id, assigned=[first.member_id])
        second = ""
        if version >= 4:
            second = join(side, version, "the second gets an id", group).member_id
        other = side.other()
        try:
            asked = fill_request("JoinGroup", version, **_join(version, group, second))
            other.send(asked)
            side.eventually(partial(is_rebalancing, side, group), f"{group} to rebalance")
            heartbeat(side, min(version, 4), "in a rebalance", group, 1, first.member_id)
            commit(side, 8, "in a rebalance", group, 1, first.member_id)
            joined = join(side, version, "the first joins again", group, first.member_id)
            frame = other.receive()
            assert frame
            answer = decode_frame(asked, frame)
            side.note(f"{group} | the second joined", side.plain(answer))
            everyone = [first.member_id, answer.member_id]
            waiting = fill_request(
                "SyncGroup",
                syncing,
                **_sync(syncing, group, joined.generation_id, answer.member_id),
            )
            other.send(waiting)
            sync(
                side,
                syncing,
                "the leader syncs",
                group,
                joined.generation_id,
                first.member_id,
                assigned=everyone,
            )
            frame = other.receive()
            assert frame
            side.note(f"{group} | the second synced", side.plain(decode_frame(waiting, frame)))
            describe(side, group, "both")
            leave(side, min(version, 5), "one leaves", group, {"member_id": answer.member_id})
            heartbeat(side, min(version, 4), "after one left", group, 2, first.member_id)
        finally:
            other.close()


def is_rebalancing(side: Side, group: str) -> bool:
    (found,) = side.quiet("DescribeGroups", 5, groups=[group]).groups
    return bool(found.group_state == "PreparingRebalance")


def commit(
    side: Side,
    version: int,
    case: str,
    group: str,
    generation: int = -1,
    member: str = "",
    **more: Plain,
) -> Message:
    partition: Plain = {
        "partition_index": more.get("partition", 0),
        "committed_offset": more.get("offset", 5),
        "committed_metadata": more.get("metadata", "note"),
    }
    if version >= 6:
        partition["committed_leader_epoch"] = more.get("epoch", -1)
    fields: Plain = {
        "group_id": group,
        "generation_id_or_member_epoch": generation,
        "member_id": member,
        "topics": more.get("topics", [{"name": more.get("name", "ct"), "partitions": [partition]}]),
    }
    if version <= 4:
        fields["retention_time_ms"] = -1
    if version >= 7:
        fields["group_instance_id"] = more.get("static")
    return side.ask("OffsetCommit", version, case, **fields)


def fetch_offsets(
    side: Side, version: int, case: str, group: str, topics: Plain, **more: Plain
) -> None:
    stable = {"require_stable": more.get("stable", False)} if version >= 7 else {}
    if version < 8:
        side.ask("OffsetFetch", version, case, group_id=group, topics=topics, **stable)
        return
    asked: Plain = {"group_id": group, "topics": topics}
    if version >= 9:
        asked |= {"member_id": more.get("member"), "member_epoch": more.get("epoch", -1)}
    side.ask("OffsetFetch", version, case, groups=[asked] * more.get("times", 1), **stable)


def commits(side: Side) -> None:
    create_topics(side, topic_request("ct", 2), topic_request("ct-2"))
    wanted = [
        {"name": "ct", "partition_indexes": [0, 1, 7]},
        {"name": "absent", "partition_indexes": [0]},
    ]
    for version in range(2, 10):
        group = f"commits-{version}"
        commit(side, version, "simple", group)
        commit(side, version, "no note", group, metadata=None, partition=1)
        commit(side, version, "empty note", group, metadata="", partition=1)
        commit(side, version, "long note", group, metadata="x" * 4097)
        commit(side, version, "absent", group, name="absent")
        commit(side, version, "no such partition", group, partition=7)
        commit(side, version, "negative offset", group, offset=-1, partition=1)
        commit(side, version, "of a generation", group, 3, "stranger")
        commit(side, version, "of a stranger", group, -1, "stranger")
        commit(side, version, "of no group", "", 1, "")
        commit(side, version, "nothing", group, topics=[])
        if version >= 6:
            commit(side, version, "with an epoch", group, epoch=4)
        if version >= 7:
            commit(side, version, "static", group, static="s")
    for version in range(1, 10):
        fetch_offsets(side, version, "some", "commits-9", wanted)
        fetch_offsets(side, version, "unknown group", "no such group", wanted)
        fetch_offsets(side, version, "no group", "", wanted)
        fetch_offsets(side, version, "nothing", "commits-9", [])
        if version >= 2:
            fetch_offsets(side, version, "all", "commits-9", None)
            fetch_offsets(side, version, "all of none", "no such group", None)
        if version >= 7:
            fetch_offsets(side, version, "stable", "commits-9", wanted, stable=True)
        if version >= 8:
            fetch_offsets(side, version, "twice", "commits-9", wanted, times=2)
        if version >= 9:
            fetch_offsets(side, version, "of a member", "commits-9", wanted, member="m", epoch=1)


def member_commits(side: Side) -> None:
    """Commits of members, and what they leave behind."""
    wanted = [{"name": "ct", "partition_indexes": [0, 1]}]
    for version in (2, 5, 7, 9):
        group = f"member-commits-{version}"
        joined = join_group(side, 7, group)
        member, generation = joined.member_id, joined.generation_id
        commit(side, version, "before sync", group, generation, member)
        sync(side, 5, "syncs", group, generation, member, assigned=[member])
        commit(side, version, "of its generation", group, generation, member)
        commit(side, version, "of another generation", group, generation + 1, member)
        commit(side, version, "from outside", group)
        commit(side, version, "of a stranger", group, generation, "stranger")
        delete_offset(side, "while it is read", group, "ct")
        leave(side, 5, "leaves", group, {"member_id": member})
        delete_offset(side, "left", group, "ct")
        delete_offset(side, "again", group, "ct")
        fetch_offsets(side, version, "after", group, wanted)
    delete_offset(side, "unknown group", "no such group", "ct")
    delete_offset(side, "no group", "", "ct")
    delete_offset(side, "absent topic", "commits-9", "absent")
    delete_offset(side, "no such partition", "commits-9", "ct", 7)
    side.ask("OffsetDelete", 0, "nothing", group_id="commits-9", topics=[])
    side.ask("DeleteGroups", 2, "with offsets", groups_names=["commits-8"])
    fetch_offsets(side, 7, "deleted", "commits-8", wanted)
    produce_quietly(side, "ct-2", 0, make_batch(b"v"))


def delete_offset(side: Side, case: str, group: str, name: str, partition: int = 0) -> None:
    topics = [{"name": name, "partitions": [{"partition_index": partition}]}]
    side.ask("OffsetDelete", 0, case, group_id=group, topics=topics)


def listing(side: Side) -> None:
    join_group(side, 7, "listed-1")
    commit(side, 8, "makes a group", "listed-2")
    for version in range(6):
        side.ask("ListGroups", version, "all")
        if version >= 4:
            for states in (["Empty"], ["stable", "Empty"], ["CompletingRebalance"], ["nonsense"]):
                side.ask("ListGroups", version, f"in {states}", states_filter=states)
        if version >= 5:
            for kinds in (["classic"], ["Classic", "consumer"], ["consumer"], ["nonsense"]):
                side.ask("ListGroups", version, f"of {kinds}", states_filter=[], types_filter=kinds)


SECTIONS = {
    "coordinator": coordinator,
    "lives": member_lifecycle,
    "refusals": refused_joins,
    "statics": static_members,
    "pairs": two_member_rebalances,
    "commits": commits,
    "member commits": member_commits,
    "listing": listing,
}
