"""The broker's strategies (KIP-848): uniform and its own range."""

from __future__ import annotations

import gzip
import json
from base64 import b64decode, urlsafe_b64decode
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

import rota
from rota.engine.assignors import uniform
from rota.engine.assignors.interface import ColumnarAssignor, assign_checked
from rota.engine.assignors.uniform import TOPIC_IDS_UNKNOWN, UniformAssignor
from rota.engine.formats.journal import decode_record
from rota.engine.model.consumer_group_entry import (
    MemberMetadataEntry,
    MemberMetadataTombstone,
    RegularExpressionEntry,
    TargetAssignmentMemberEntry,
    TargetAssignmentMemberTombstone,
    TargetAssignmentMetadataEntry,
)
from rota.engine.model.journal_entry import JournalEntry
from rota.engine.model.share_streams_entry import ShareRecord
from rota.errors import UnknownStrategy
from tests.support.paths import FIXTURES

Held = dict[str, list[int]]
Target = dict[str, Held]


def compute_target(
    assignor: ColumnarAssignor, counts: dict[str, int], members: list[rota.Member]
) -> Target:
    """What each member is to have."""
    group = rota.GroupSubscription.of(members)
    result = assign_checked(assignor, rota.Cluster(counts), group).result
    return {
        member: {topic: sorted(numbers) for topic, numbers in given.partitions.by_topic().items()}
        for member, given in result.items()
    }


def count_moved(before: Target, after: Target) -> int:
    """Partitions that one living member gives to another."""
    return sum(
        owner in after and number not in after[owner].get(topic, ())
        for owner, held in before.items()
        for topic, numbers in held.items()
        for number in numbers
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("uniform", UniformAssignor),
        ("range", uniform.ServerRangeAssignor),
        ("org.apache.kafka.coordinator.group.assignor.UniformAssignor", UniformAssignor),
        ("org.apache.kafka.coordinator.group.assignor.RangeAssignor", uniform.ServerRangeAssignor),
    ],
)
def test_by_name(name: str, expected: type[ColumnarAssignor]) -> None:
    assert type(uniform.resolve_server_assignor(name)) is expected


def test_a_members_strategy_is_none_of_the_brokers() -> None:
    with pytest.raises(UnknownStrategy, match="unknown strategy 'sticky' of the broker"):
        uniform.resolve_server_assignor("sticky")


def test_twelve_partitions_over_two_four_three_and_two_members() -> None:
    steps = [("ab", 0), ("abcd", 6), ("abc", 0), ("ac", 0)]
    held: Target = {}
    for names, moves in steps:
        members = [rota.Member(id=name, topics=["f"], owned=held.get(name, {})) for name in names]
        after = compute_target(UniformAssignor(), {"f": 12}, members)
        assert {len(given["f"]) for given in after.values()} == {12 // len(names)}
        assert count_moved(held, after) == moves
        held = after
    assert held == {"a": {"f": [0, 1, 2, 6, 7, 9]}, "c": {"f": [3, 4, 5, 8, 10, 11]}}


def test_a_static_member_keeps_its_target_under_a_new_id() -> None:
    before = [rota.Member(id=f"m{n}", topics=["f"], group_instance_id=f"s{n}") for n in range(3)]
    held = compute_target(UniformAssignor(), {"f": 8}, before)
    back = rota.Member(id="again", topics=["f"], group_instance_id="s1", owned=held["m1"])
    others = [rota.Member(id=m, topics=["f"], owned=held[m]) for m in ("m0", "m2")]
    assert compute_target(UniformAssignor(), {"f": 8}, [back, *others]) == {
        "again": held["m1"],
        "m0": held["m0"],
        "m2": held["m2"],
    }


def test_neither_heeds_racks() -> None:
    racks = {"f": [["r2"], ["r1"]]}
    members = [rota.Member(id=f"m{n}", topics=["f"], rack=f"r{n}") for n in (1, 2)]
    group = rota.GroupSubscription.of(members)
    for name in uniform.SERVER_ASSIGNORS:
        near = uniform.resolve_server_assignor(name).assign(rota.Cluster({"f": 2}, racks), group)
        plain = uniform.resolve_server_assignor(name).assign(rota.Cluster({"f": 2}), group)
        assert {m: near[m].partitions for m in near} == {m: plain[m].partitions for m in plain}


def test_topics_are_taken_by_id_where_ids_are_known() -> None:
    members = [rota.Member(id="m", topics=["t", "u"]), rota.Member(id="n", topics=["t", "u"])]
    counts = {"t": 1, "u": 1}
    group = rota.GroupSubscription.of(members)
    first, second = bytes(15) + b"\x01", bytes(15) + b"\x02"
    known = UniformAssignor({"t": second, "u": first}).assign(rota.Cluster(counts), group)
    by_name = UniformAssignor().assign(rota.Cluster(counts), group)
    assert known["m"].partitions.by_topic() == {"u": (0,)}
    assert by_name["m"].partitions.by_topic() == {"t": (0,)}
    assert (known.notes, by_name.notes) == ((), (TOPIC_IDS_UNKNOWN,))


def test_of_claims_that_meet_the_latest_counts() -> None:
    members = [
        rota.Member(id="a", topics=["f"], owned={"f": [0, 1]}, generation=4),
        rota.Member(id="b", topics=["f"], owned={"f": [0, 1]}, generation=5),
        rota.Member(id="c", topics=["f", "g"], owned={"f": [2]}, generation=1),
    ]
    after = compute_target(UniformAssignor(), {"f": 3}, members)
    assert after == {"a": {"f": [1]}, "b": {"f": [0]}, "c": {"f": [2]}}


@pytest.mark.parametrize("name", uniform.SERVER_ASSIGNORS)
def test_nothing_to_give(name: str) -> None:
    assert compute_target(
        uniform.resolve_server_assignor(name), {}, [rota.Member(id="m", topics=["gone"])]
    ) == {"m": {}}
    assert compute_target(
        uniform.resolve_server_assignor(name), {"f": 2}, [rota.Member(id="m", topics=[])]
    ) == {"m": {}}
    assert compute_target(uniform.resolve_server_assignor(name), {"f": 2}, []) == {}


RECORDED = FIXTURES / "kafka-4.3.1" / "offsets.jsonl.gz"
TOPIC_IDS = {
    name: urlsafe_b64decode(f"{uuid}==")
    for name, uuid in {
        "audit": "31E0QfIsTImxuZafO8vYjA",
        "evt.alpha": "Lo-jtZ9lSHi7h593_kcklg",
        "evt.beta": "9PMo913aRceQQAnGf5hRVw",
        "evt.gamma": "PhaLV_n9Tby7wioKvJfD7g",
        "grow": "KDW7FjJOSwGPh7gfx6nCAQ",
        "inventory": "r6uvQRXoSDWjGmp-sSn5EQ",
        "orders": "hmI_O7bhSoermYwMi45VTA",
        "payments": "xEid0DNcT_SiTC5pcbfVgQ",
    }.items()
}


@dataclass
class Recorded:
    """A consumer group as far as its journal has been read."""

    members: dict[str, MemberMetadataEntry] = field(default_factory=dict)
    patterns: dict[str, tuple[str, ...]] = field(default_factory=dict)
    before: Target = field(default_factory=dict)
    after: Target = field(default_factory=dict)

    def read(self, entry: JournalEntry) -> bool:
        """Takes an entry in; true where it completes a new target."""
        names = {uuid: name for name, uuid in TOPIC_IDS.items()}
        match entry:
            case MemberMetadataEntry():
                self.members[entry.member_id] = entry
            case MemberMetadataTombstone():
                self.members.pop(entry.member_id, None)
            case RegularExpressionEntry():
                self.patterns[entry.regex] = entry.topics
            case TargetAssignmentMemberEntry():
                held = {names[one.topic_id]: sorted(one.partitions) for one in entry.topics}
                self.after[entry.member_id] = held
            case TargetAssignmentMemberTombstone():
                self.before.pop(entry.member_id, None)
                self.after.pop(entry.member_id, None)
            case TargetAssignmentMetadataEntry():
                return True
        return False

    def asked(self) -> list[rota.Member]:
        """The members with the targets that they had."""
        return [
            rota.Member(
                id=name,
                topics=sorted({*one.topics, *self.patterns.get(one.regex or "", ())}),
                group_instance_id=one.group_instance_id,
                owned=self.before.get(name, {}),
            )
            for name, one in self.members.items()
        ]


def recorded_targets() -> Iterator[tuple[str, list[rota.Member], Target]]:
    """Every target of the capture: its strategy, the group before it, and what it says."""
    groups: dict[str, Recorded] = {}
    with gzip.open(RECORDED, "rt") as lines:
        for line in lines:
            row = json.loads(line)
            entry = decode_record(b64decode(row["k"]), row["v"] and b64decode(row["v"]))
            if isinstance(entry, ShareRecord):  # its partitions have several members
                continue
            group = groups.setdefault(str(getattr(entry, "group", "")), Recorded())
            if group.read(entry):
                new = {name: group.after.get(name, {}) for name in group.members}
                named = [one.assignor for one in group.members.values() if one.assignor]
                yield (*named, uniform.DEFAULT_SERVER_ASSIGNOR)[0], group.asked(), new
                group.before = dict(group.after)


def test_every_target_that_a_broker_wrote() -> None:
    """Joins, leaves, a crash, static members, patterns, a topic that grows, a migration."""
    found = list(recorded_targets())
    assert len(found) == 26
    for strategy, members, written in found:
        held = [one for given in written.values() for one in given.items()]
        counts = {name: max(max(n) for t, n in held if t == name) + 1 for name, _ in held}
        assert (
            compute_target(
                uniform.resolve_server_assignor(strategy, topic_ids=TOPIC_IDS), counts, members
            )
            == written
        )
