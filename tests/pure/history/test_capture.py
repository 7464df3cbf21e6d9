"""The timeline of the recorded run against what its broker said and its clients saw."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from rota.engine.history.facts import (
    Generation,
    GenerationChange,
    GroupType,
    PartitionOwnership,
    PartitionsByTopic,
    Rebalance,
)
from rota.engine.history.rebalances import find_rebalances
from tests.support import first_recording

#: As the script that made the run noted them down.
GENERATIONS = {
    "a-range": "0(0) 1(1) 2(2) 3(3) 4(2) 5(3) 6(2)",
    "a-roundrobin": "0(0) 1(2) 2(3) 3(2) 4(1)",
    "a-sticky": "0(0) 1(1) 2(2) 3(3) 4(2) 5(3) 6(2)",
    "a-coop": "0(0) 1(1) 2(2) 3(2) 4(3) 5(3) 6(4) 7(4) 8(4) 9(3) 10(2) 11(3) 12(3)",
    "a-vote": "0(0) 1(1) 2(2) 3(3) 4(2) 5(1) 6(2)",
    "a-upgrade": "0(0) 1(3) 2(3) 4(3) 5(3) 6(2) 7(3) 8(2) 9(3) 10(3) 11(3)",
    "a-crash": "0(0) 1(2) 2(3) 3(2) 4(1) 5(2) 6(0)",
    "a-slow": "0(0) 1(2) 2(1) 3(2) 4(1) 5(2) 6(1) 7(0) 8(1)",
    "a-heldback": "0(0) 1(1) 2(2) 3(3) 4(2)",
    "a-subs": "0(0) 1(2) 2(2) 3(2) 4(2) 5(2) 6(2)",
    "a-pattern": "0(0) 1(2) 2(2) 3(2)",
    "a-grow": "0(0) 1(2) 2(2)",
    "a-static": "0(0) 1(3) 1(3) 1(3) 2(2) 3(3) 3(3) 4(2)",
    "a-roll-static": "0(0) 1(4) 1(4) 1(4) 1(4) 1(4)",
    "a-roll-dyn": "0(0) 1(4) 2(3) 3(4) 4(3) 5(4) 6(3) 7(4) 8(3) 9(4)",
    "a-flap": "0(0) 1(1) 2(2) 3(1) 4(2) 5(1) 6(2) 7(1) 8(2) 9(1) 10(2) 11(1) 12(2) 13(1)",
    "a-burst": "0(0) 1(10) 2(5)",
    "a-deloff": "0(0) 1(1) 2(1) 3(0)",
    "a-deleted": "0(0) 1(1) 2(0) T 0(0) 1(1) 2(0) T",
    "a-kicked": "0(0) 1(2) 2(1)",
    "a-next": "e2 e3 e4 e5 e6 e7 e8",
    "a-next-range": "e2 e3 e4 e5 e6 e8",  # e7 was overtaken: the last member left
    "a-next-regex": "e2 e3 e4",
    "a-next-static": "e2 e3 e3 e4 e5",  # a member came back in e3
    "a-migrate": "0(0) 1(2) 2(1) e2 e3 e4 e5 e6 e7 7(1) 8(1) 9(2)",
    "a-protoswitch": "0(0) 1(1) 2(0) e2 e3 0(0) 1(1)",
    "a-meta": "0(0) 1(1)",
    "a-rewind": "0(0) 1(1) 2(0) 3(1)",
    "a-stall": "0(0) 1(1)",
    "a-poison": "0(0) 1(1)",
    "a-eos": "0(0) 1(1)",
    "a-early": "0(0) 1(1) 2(0)",
    "a-prime": "0(0) 1(1) 2(0)",
    "a-share": "e2 e3 e4",
}


def _generations(group: str) -> list[Generation]:
    return first_recording.read_histories()[group].generations


def _shown(generation: Generation) -> str:
    if generation.change is GenerationChange.DELETED:
        return "T"
    if generation.kind is not GroupType.CLASSIC:
        return f"e{generation.generation}"
    return f"{generation.generation}({len(generation.members)})"


def test_every_generation_of_every_group_is_there() -> None:
    found = {group: one.generations for group, one in first_recording.read_histories().items()}

    shown = {group: " ".join(map(_shown, ones)) for group, ones in found.items()}

    assert shown == GENERATIONS


def test_all_of_the_run_is_in_the_evidence() -> None:
    windows = {group: one.window for group, one in first_recording.read_histories().items()}

    assert all(one is not None and one.is_whole for one in windows.values())


def test_every_byte_was_understood() -> None:
    members = [
        member
        for one in first_recording.read_histories().values()
        for generation in one.generations
        for member in generation.members
    ]

    assert {member.problem for member in members} == {None}
    assert all(member.topics for member in members if member.client_id != "subs-2")


def _by_topic(partitions: Iterable[str]) -> PartitionsByTopic:
    found: dict[str, list[int]] = {}
    for text in partitions:
        topic, _, number = text.rpartition(":")
        found.setdefault(topic, []).append(int(number))
    return {topic: tuple(sorted(numbers)) for topic, numbers in found.items()}


def _callbacks(kind: GroupType) -> Iterator[Mapping[str, Any]]:
    """What listeners of this kind of member were told, in order."""
    protocols = {
        (event["group"], event["client"]): event["protocol"]
        for event in first_recording.read_expected()
        if event["event"] == "start"
    }
    for event in first_recording.read_expected():
        if event["event"] in {"assigned", "revoked", "lost"} and event["group"] != "a-share":
            protocol = protocols[event["group"], event["client"]]
            yield from [event] if protocol == kind else []


def test_what_classic_members_were_given_is_in_their_generation() -> None:
    missing = []
    for event in _callbacks(GroupType.CLASSIC):
        if event["event"] != "assigned":
            continue
        given = [
            member.assigned
            for generation in _generations(event["group"])
            if generation.kind is GroupType.CLASSIC and generation.generation == event["generation"]
            for member in generation.members
            if member.member_id == event["member"]
        ]
        if _by_topic(event["assignment"]) not in given:
            missing.append(event["group"])

    # while that group was of the consumer kind, its classic members saw epochs as generations
    assert missing == ["a-migrate", "a-migrate"]


def _owned_at(group: str, member_id: str, at: int) -> set[str]:
    return {
        f"{row.topic}:{row.partition}"
        for row in first_recording.read_histories()[group].ownership
        if row.member_id == member_id and row.since <= at and (row.until is None or at < row.until)
    }


def test_classic_members_own_what_their_callbacks_said() -> None:
    for event in _callbacks(GroupType.CLASSIC):
        if event["event"] != "assigned":
            continue
        owned = _owned_at(event["group"], event["member"], event["t"])

        assert owned == set(event["assignment"]), event


def test_consumer_members_own_what_their_callbacks_said() -> None:
    revoked: dict[str, set[str]] = {}
    for event in _callbacks(GroupType.CONSUMER):
        member_id = event["member"]
        if event["event"] != "assigned":
            revoked[member_id] = set(event["partitions"])
            continue
        owned = _owned_at(event["group"], member_id, event["t"])

        # what it has just given up is still its own until the broker hears of it
        assert owned >= set(event["assignment"]), event
        assert owned - set(event["assignment"]) <= revoked.get(member_id, set()), event


def test_nobody_owned_what_another_had() -> None:
    for one in first_recording.read_histories().values():
        last: dict[tuple[str, int], PartitionOwnership] = {}
        for row in one.ownership:
            before = last.get((row.topic, row.partition))
            assert before is None or (before.until is not None and before.until <= row.since)
            last[row.topic, row.partition] = row


class _Client:
    """What one member had, by its own callbacks."""

    def __init__(self) -> None:
        self.since: dict[str, int] = {}
        self.tenures: list[tuple[str, int, int]] = []

    def see(self, event: Mapping[str, Any]) -> None:
        match event["event"]:
            case "assigned":
                for partition in event["partitions"]:
                    self.since[partition] = event["t"]
            case "revoked":
                for partition in event["partitions"]:
                    self.tenures.append((partition, self.since.pop(partition), event["t"]))
            case "lost":  # it had them until then only by its own belief
                for partition in event["partitions"]:
                    self.since.pop(partition)


def _clients() -> Mapping[tuple[str, str], _Client]:
    clients: dict[tuple[str, str], _Client] = {}
    crashed: set[tuple[str, str]] = set()
    for event in first_recording.read_expected():
        if event["group"] not in first_recording.read_histories() or "member" not in event:
            continue
        who = event["group"], event["member"]
        if event["event"] == "crashed":
            crashed.add(who)
        if who not in crashed:
            clients.setdefault(who, _Client()).see(event)
    return clients


def _covers(rows: Iterable[PartitionOwnership], member_id: str, since: int, until: int) -> bool:
    """The member owned it at the begin, and nobody else did before the end: a cooperative member
    gives up what it was not given again a moment after the broker saved that.
    """
    meanwhile = [one for one in rows if one.since < until and not _is_over(one, since)]
    return bool(meanwhile) and {one.member_id for one in meanwhile} == {member_id}


def _is_over(row: PartitionOwnership, at: int) -> bool:
    return row.until is not None and row.until <= at


def test_members_owned_all_the_time_that_they_had_a_partition() -> None:
    compared = 0
    for (group, member_id), client in _clients().items():
        rows: dict[str, list[PartitionOwnership]] = {}
        for row in first_recording.read_histories()[group].ownership:
            rows.setdefault(f"{row.topic}:{row.partition}", []).append(row)
        for partition, since, until in client.tenures:
            assert _covers(rows[partition], member_id, since, until), (group, member_id, partition)
            compared += 1
    assert compared > 1_000


def test_no_ownership_is_invented() -> None:
    told = {
        (event["group"], event["member"], partition)
        for event in first_recording.read_expected()
        if event["event"] == "assigned" and event["group"] in first_recording.read_histories()
        for partition in event["partitions"]
    }
    for group, one in first_recording.read_histories().items():
        for row in one.ownership:
            assert (group, row.member_id, f"{row.topic}:{row.partition}") in told


ASSIGNED = re.compile(r"Assignment received from leader .* for group (\S+) for generation (\d+)")
EMPTIED = re.compile(r"Group (\S+) with generation (\d+) is now empty")
COMPUTED = re.compile(r"\[GroupId (\S+)\] Computed a new target assignment for epoch (\d+)")
BUMPED = re.compile(r"\[GroupId (\S+)\] Bumped group epoch to (\d+) with metadata hash 0\.")
FOLLOW_UP = re.compile(
    r"Preparing to rebalance group (\S+) .* with old generation (\d+) .*need to revoke partitions"
)


#: The log has the leave of a share group's last member, but not the epoch that follows.
NOT_LOGGED = ("a-share", 4)


def _rounds(*patterns: re.Pattern[str]) -> list[tuple[str, int]]:
    """(group, generation) as the broker's lines have them."""
    matches = (pattern.match(line) for line in first_recording.broker_log() for pattern in patterns)
    found = [(one[1], int(one[2])) for one in matches if one]
    return sorted(
        (group, number) for group, number in found if group in first_recording.read_histories()
    )


def _steps() -> list[Rebalance]:
    return [
        step
        for one in first_recording.read_histories().values()
        for step in find_rebalances(one.generations)
    ]


def test_every_rebalance_of_the_broker_is_found_and_none_invented() -> None:
    found = [(one.group, one.generation) for step in _steps() for one in step.rounds]

    # a consumer group of no members subscribes to nothing, whose hash is 0
    wanted = _rounds(ASSIGNED, EMPTIED, COMPUTED, BUMPED)
    assert sorted(found) == sorted([*wanted, NOT_LOGGED])


def test_rounds_belong_together_where_members_rejoined_to_revoke() -> None:
    found = [(one.group, one.generation) for step in _steps() for one in step.rounds[:-1]]

    assert sorted(found) == _rounds(FOLLOW_UP)
    assert len(found) == 6


def test_a_step_begins_where_the_one_before_it_ended() -> None:
    for one in first_recording.read_histories().values():
        incarnation: int | None = None
        number: int | None = None
        for step in find_rebalances(one.generations):
            if step.after.incarnation != incarnation:
                incarnation, number = step.after.incarnation, 0
            assert step.known_before
            assert step.from_generation == number
            assert (step.before is None) == (number == 0 or not _had_members(step, one.generations))
            number = step.after.generation


def _had_members(step: Rebalance, generations: Iterable[Generation]) -> bool:
    earlier = [
        one
        for one in generations
        if one.offset < step.rounds[0].offset and one.change is not GenerationChange.CONVERTED
    ]
    return bool(earlier[-1].members)


def test_attempts_that_never_settled_are_counted() -> None:
    assert {
        (step.after.group, step.after.generation): step.unseen for step in _steps() if step.unseen
    } == {
        ("a-upgrade", 4): 1,
        ("a-next-range", 8): 1,
    }


def test_a_conversion_is_no_death_and_a_new_life_begins_where_numbers_do() -> None:
    changes = {group: [one.change for one in _generations(group)] for group in GENERATIONS}
    dead = [group for group, ones in changes.items() if GenerationChange.DELETED in ones]
    lives = {group: _generations(group)[-1].incarnation for group in GENERATIONS}

    assert dead == ["a-deleted"]
    assert changes["a-migrate"].count(GenerationChange.CONVERTED) == 2
    assert {group: incarnation for group, incarnation in lives.items() if incarnation} == {
        "a-deleted": 1,
        "a-protoswitch": 2,
    }


def test_what_a_consumer_group_asked_for() -> None:
    strategies = {
        group: {
            one.strategy for one in _generations(group) if one.change is GenerationChange.REBALANCED
        }
        for group in ("a-next", "a-next-range", "a-next-regex")
    }
    regex = _generations("a-next-regex")[-1]

    assert strategies == {
        "a-next": {"uniform"},
        "a-next-range": {"range"},
        "a-next-regex": {"uniform"},
    }
    assert {one.topics for one in regex.members} == {("evt.alpha", "evt.beta", "evt.gamma")}


def test_sticky_members_say_what_they_owned() -> None:
    settled = [one for one in _generations("a-sticky") if one.members]

    for before, after in pairwise(settled):
        had = {member.member_id: member.assigned for member in before.members}
        for member in after.members:
            if member.member_id in had:
                assert member.owned == had[member.member_id]
                assert member.owned_generation == before.generation


def test_javas_own_client_ids_were_not_used_so_only_its_bytes_tell() -> None:
    libraries = {
        group: {member.library for one in _generations(group) for member in one.members}
        for group in GENERATIONS
    }

    assert set().union(*libraries.values()) == {None, "java"}
    assert libraries["a-coop"] == {"java"}
