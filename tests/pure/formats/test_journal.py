"""The journal's format: a recorded journal record by record, and each version by example.

Equality with Java over random records is in tests/system/kafka.
"""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import get_args

import pytest

from rota.engine.formats import consumer_protocol, journal, journal_classic
from rota.engine.formats.journal_modern import RECORD_TYPE_BY_NUMBER
from rota.engine.model.consumer_group_entry import (
    ClassicMemberMetadata,
    ConsumerGroupEntry,
    ConsumerGroupMetadataEntry,
    MemberMetadataEntry,
    PartitionMetadataEntry,
    PartitionMetadataTopic,
    PartitionRacks,
)
from rota.engine.model.journal_entry import (
    ClassicEntry,
    GroupMetadataEntry,
    GroupMetadataMember,
    GroupMetadataTombstone,
    JournalEntry,
    OffsetCommitEntry,
    OffsetCommitTombstone,
    UnparsedEntry,
)
from rota.engine.model.request import JoinGroupProtocol
from rota.engine.model.share_streams_entry import (
    SharePartitionMetadataEntry,
    StreamsPartitionMetadataEntry,
)
from rota.engine.model.topic import Partitions
from rota.errors import FormatError
from tests.support import record_json
from tests.support.paths import FIXTURES

RECORDED = FIXTURES / "kafka-4.3.1"
Record = tuple[bytes, bytes | None]
SHARE_TYPES = {
    kind
    for number in range(9, 16)
    for kind in (RECORD_TYPE_BY_NUMBER[number].saved, RECORD_TYPE_BY_NUMBER[number].forgotten)
}


@cache
def recorded_journal() -> dict[tuple[int, int], Record]:
    """Every record of the journal by partition and offset."""
    with gzip.open(RECORDED / "offsets.jsonl.gz", "rt") as lines:
        rows = [json.loads(line) for line in lines]
    return {
        (row["p"], row["o"]): (b64decode(row["k"]), row["v"] and b64decode(row["v"]))
        for row in rows
    }


# The recorded journal


def test_every_recorded_record_is_read_and_written_back_byte_for_byte() -> None:
    for record in recorded_journal().values():
        assert journal.encode_entry(journal.decode_record(*record)) == record


def test_recorded_records_are_of_the_kinds_that_were_counted() -> None:
    kinds = Counter(
        (type(journal.decode_record(key, value)).__name__, key[1], value and value[1])
        for key, value in recorded_journal().values()
    )
    assert kinds == {
        ("OffsetCommitTombstone", 1, None): 7,
        ("OffsetCommitEntry", 1, 4): 34736,
        ("GroupMetadataTombstone", 2, None): 4,
        ("GroupMetadataEntry", 2, 3): 168,
        ("ConsumerGroupMetadataTombstone", 3, None): 2,
        ("ConsumerGroupMetadataEntry", 3, 0): 29,
        ("PartitionMetadataTombstone", 4, None): 2,
        ("MemberMetadataTombstone", 5, None): 12,
        ("MemberMetadataEntry", 5, 0): 21,
        ("TargetAssignmentMetadataTombstone", 6, None): 2,
        ("TargetAssignmentMetadataEntry", 6, 0): 26,
        ("TargetAssignmentMemberTombstone", 7, None): 12,
        ("TargetAssignmentMemberEntry", 7, 0): 43,
        ("CurrentMemberAssignmentTombstone", 8, None): 12,
        ("CurrentMemberAssignmentEntry", 8, 0): 80,
        ("ShareMemberMetadataTombstone", 10, None): 1,
        ("ShareMemberMetadataEntry", 10, 0): 1,
        ("ShareGroupMetadataEntry", 11, 0): 3,
        ("ShareTargetAssignmentMetadataEntry", 12, 0): 2,
        ("ShareTargetAssignmentMemberTombstone", 13, None): 1,
        ("ShareTargetAssignmentMemberEntry", 13, 0): 2,
        ("ShareCurrentMemberAssignmentTombstone", 14, None): 1,
        ("ShareCurrentMemberAssignmentEntry", 14, 0): 2,
        ("ShareStatePartitionMetadataEntry", 15, 0): 2,
        ("RegularExpressionEntry", 16, 0): 4,
    }


PRINTED = re.compile(r"^\| offset: (\d+) .*? key: (\{.*\}) payload: (\{.*\}|<DELETE>)$")


def read_kafka_dump(
    partition: int,
) -> Iterator[tuple[int, record_json.Json, record_json.Json | None]]:
    """What kafka-dump-log printed: offset, key, value."""
    with gzip.open(RECORDED / f"dump-{partition}.txt.gz", "rt") as lines:
        for line in lines:
            if line.startswith("|"):
                found = PRINTED.match(line)
                assert found, line
                offset, key, value = found.groups()
                yield int(offset), json.loads(key), json.loads(value) if value[0] == "{" else None


def entry_as_dump(entry: JournalEntry) -> tuple[record_json.Json, record_json.Json | None]:
    """The entry as kafka-dump-log prints the versions that Kafka 4.3 writes."""
    number, key = record_json.key_json(entry)
    value, version = record_json.value_json(entry), 0
    match entry, value:
        case OffsetCommitEntry(), dict():
            version = 4
            del value["expireTimestamp"]
        case GroupMetadataEntry(), dict():
            version = 3
            members = zip(value["members"], entry.members, strict=True)  # type: ignore[call-overload]
            for printed, member in members:
                printed["subscription"] = subscription_words(member.subscription)
                printed["assignment"] = assignment_words(member.assignment)
    shown: record_json.Json | None = None
    if value is not None:
        shown = {"version": str(version), "data": value}
    return {"type": str(number), "data": key}, shown


def subscription_words(data: bytes) -> record_json.Json:
    read = consumer_protocol.decode_subscription(data)
    return {
        "topics": list(read.topics),
        "userData": read.user_data and record_json.base64(read.user_data),
        "ownedPartitions": partitions_json(read.owned),
        "generationId": -1 if read.generation is None else read.generation,
        "rackId": read.rack,
    }


def assignment_words(data: bytes) -> record_json.Json:
    read = consumer_protocol.decode_assignment(data)
    user_data = read.user_data and record_json.base64(read.user_data)
    return {"assignedPartitions": partitions_json(read.partitions), "userData": user_data}


def partitions_json(partitions: Partitions) -> list[record_json.Json]:
    return [
        {"topic": topic, "partitions": list(numbers)}
        for topic, numbers in partitions.by_topic().items()
    ]


@pytest.mark.parametrize(("partition", "count"), [(12, 985), (23, 78), (47, 3871)])
def test_recorded_records_mean_what_kafka_printed(partition: int, count: int) -> None:
    compared = 0
    for offset, key, value in read_kafka_dump(partition):
        record = recorded_journal().get((partition, offset))
        if record is not None:  # the log goes on for a moment after the recording
            assert entry_as_dump(journal.decode_record(*record)) == (key, value), offset
            compared += 1
    assert compared == count


# Each version by example

OFFSET_KEY = bytes.fromhex("0001 0001 67 0002 7431 00000005")
TOPIC_ID = bytes(range(16))


def offset_commit_entry(**changes: object) -> OffsetCommitEntry:
    fields: dict[str, object] = {
        "group": "g",
        "topic": "t1",
        "partition": 5,
        "offset": 258,
        "metadata": "mé",
        "commit_timestamp": 7,
    }
    return OffsetCommitEntry(**(fields | changes))  # type: ignore[arg-type]


OFFSETS = {
    "0000 0000000000000102 0003 6dc3a9 0000000000000007": offset_commit_entry(),
    "0001 0000000000000102 0003 6dc3a9 0000000000000007 0000000000000008": offset_commit_entry(
        expire_timestamp=8
    ),
    "0002 0000000000000102 0003 6dc3a9 0000000000000007": offset_commit_entry(),
    "0003 0000000000000102 00000009 0003 6dc3a9 0000000000000007": offset_commit_entry(
        leader_epoch=9
    ),
    "0004 0000000000000102 00000009 04 6dc3a9 0000000000000007 00": offset_commit_entry(
        leader_epoch=9
    ),
    f"0004 0000000000000102 00000009 04 6dc3a9 0000000000000007 01 00 10 {TOPIC_ID.hex()}": (
        offset_commit_entry(leader_epoch=9, topic_id=TOPIC_ID)
    ),
}


@pytest.mark.parametrize(("value", "entry"), OFFSETS.items())
@pytest.mark.parametrize("key_type", [0, 1])
def test_offsets_of_every_version(value: str, entry: OffsetCommitEntry, key_type: int) -> None:
    key = bytes((0, key_type)) + OFFSET_KEY[2:]
    assert journal.decode_record(key, bytes.fromhex(value)) == entry
    if value[:4] in {"0001", "0004"}:
        assert journal.encode_entry(entry) == (OFFSET_KEY, bytes.fromhex(value))
    else:
        assert journal.decode_record(*journal.encode_entry(entry)) == entry


def test_an_offset_that_expires_is_written_in_version_1_without_epoch_and_topic_id() -> None:
    entry = offset_commit_entry(expire_timestamp=8, leader_epoch=9, topic_id=TOPIC_ID)
    assert journal.decode_record(*journal.encode_entry(entry)) == offset_commit_entry(
        expire_timestamp=8
    )


def test_a_topic_id_of_zeros_is_none() -> None:
    without = journal.encode_entry(offset_commit_entry())
    assert journal.encode_entry(offset_commit_entry(topic_id=bytes(16))) == without
    assert without[1]
    zeros = without[1][:-1] + bytes((1, 0, 16)) + bytes(16)
    assert journal.decode_record(without[0], zeros) == offset_commit_entry()


GROUP_KEY = bytes.fromhex("0002 0001 67")
MEMBER = GroupMetadataMember(
    member_id="m1",
    group_instance_id="s",
    client_id="c",
    client_host="/h",
    rebalance_timeout=60_000,
    session_timeout=6_000,
    subscription=b"\x01\x02",
    assignment=b"",
)
GROUP = GroupMetadataEntry(
    group="g",
    protocol_type="consumer",
    generation=3,
    protocol="range",
    leader="m1",
    state_timestamp=7,
    members=(MEMBER,),
)
HEAD = "0008 636f6e73756d6572 00000003 0005 72616e6765 0002 6d31"
COMPACT_HEAD = "09 636f6e73756d6572 00000003 06 72616e6765 03 6d31"
TAIL = "00000002 0102 00000000"


@pytest.mark.parametrize(
    ("value", "since"),
    [
        (f"0000 {HEAD} 00000001 0002 6d31 0001 63 0002 2f68 00001770 {TAIL}", 0),
        (f"0001 {HEAD} 00000001 0002 6d31 0001 63 0002 2f68 0000ea60 00001770 {TAIL}", 1),
        (
            f"0002 {HEAD} 0000000000000007"
            f" 00000001 0002 6d31 0001 63 0002 2f68 0000ea60 00001770 {TAIL}",
            2,
        ),
        (
            f"0003 {HEAD} 0000000000000007"
            f" 00000001 0002 6d31 0001 73 0001 63 0002 2f68 0000ea60 00001770 {TAIL}",
            3,
        ),
        (
            f"0004 {COMPACT_HEAD} 0000000000000007"
            " 02 03 6d31 02 73 02 63 03 2f68 0000ea60 00001770 03 0102 01 00 00",
            4,
        ),
    ],
)
def test_groups_of_every_version(value: str, since: int) -> None:
    entry = journal.decode_record(GROUP_KEY, bytes.fromhex(value))
    assert isinstance(entry, GroupMetadataEntry)
    assert (entry.protocol_type, entry.generation) == ("consumer", 3)
    assert (entry.protocol, entry.leader) == ("range", "m1")
    assert entry.state_timestamp == (7 if since >= 2 else -1)
    (member,) = entry.members
    assert (member.member_id, member.client_id, member.client_host) == ("m1", "c", "/h")
    assert member.group_instance_id == ("s" if since >= 3 else None)
    # version 0 has one timeout for both
    assert (member.rebalance_timeout, member.session_timeout) == (60_000 if since else 6_000, 6_000)
    assert (member.subscription, member.assignment) == (b"\x01\x02", b"")
    if since >= 3:
        assert entry == GROUP
    if since == 3:
        assert journal.encode_entry(GROUP) == (GROUP_KEY, bytes.fromhex(value))


def test_no_value_is_a_tombstone() -> None:
    assert journal.decode_record(OFFSET_KEY, None) == OffsetCommitTombstone(
        group="g", topic="t1", partition=5
    )
    assert journal.decode_record(GROUP_KEY, None) == GroupMetadataTombstone(group="g")


# Members of consumer groups, with and without the classic protocol

MEMBERSHIP_KEY = bytes.fromhex("0005 0001 67 0002 6d31")
MEMBERSHIP = "0000 00 00 02 63 03 2f68 02 03 7431 01 0000ea60 00"


def member_metadata_entry(classic: ClassicMemberMetadata | None) -> MemberMetadataEntry:
    return MemberMetadataEntry(
        group="g",
        member_id="m1",
        group_instance_id=None,
        rack=None,
        client_id="c",
        client_host="/h",
        topics=("t1",),
        regex="",
        rebalance_timeout=60_000,
        assignor=None,
        classic=classic,
    )


@pytest.mark.parametrize(
    ("tags", "classic"),
    [
        ("01 00 01 00", None),
        ("00", ClassicMemberMetadata(session_timeout=0, protocols=())),
        (
            "01 00 0e 01 00001770 02 03 7231 03 0102 00 00",
            ClassicMemberMetadata(
                session_timeout=6_000, protocols=(JoinGroupProtocol("r1", b"\x01\x02"),)
            ),
        ),
    ],
)
def test_a_member_without_classic_protocol_says_so(
    tags: str, classic: ClassicMemberMetadata | None
) -> None:
    value = bytes.fromhex(f"{MEMBERSHIP} {tags}")
    assert journal.decode_record(MEMBERSHIP_KEY, value) == member_metadata_entry(classic)
    assert journal.encode_entry(member_metadata_entry(classic)) == (MEMBERSHIP_KEY, value)


def test_topics_of_share_and_streams_groups_are_written_like_those_of_consumer_groups() -> None:
    # Kafka 4.3 has no such records; the schemas of 4.0 (share) and 4.1 (streams) equal type 4
    racks = (PartitionRacks(partition=1, racks=("a", "b")),)
    topic = PartitionMetadataTopic(topic_id=TOPIC_ID, topic="t", partition_count=2, racks=racks)
    key, value = journal.encode_entry(PartitionMetadataEntry(group="g", topics=(topic,)))
    others: dict[int, JournalEntry] = {
        9: SharePartitionMetadataEntry(group="g", topics=(topic,)),
        18: StreamsPartitionMetadataEntry(group="g", topics=(topic,)),
    }
    for number, entry in others.items():
        record = number.to_bytes(2) + key[2:], value
        assert journal.encode_entry(entry) == record
        assert journal.decode_record(*record) == entry


# What is not read


@pytest.mark.parametrize("number", [24, -1])
@pytest.mark.parametrize("value", [None, b"", b"anything"])
def test_unknown_types_are_kept(number: int, value: bytes | None) -> None:
    key = number.to_bytes(2, "big", signed=True) + b"rest"
    entry = journal.decode_record(key, value)
    assert entry == UnparsedEntry(type=number, key=key, value=value)
    assert journal.encode_entry(entry) == (key, value)


def test_every_type_up_to_23_has_kafkas_name() -> None:
    assert sorted(journal_classic.RECORD_NAMES) == list(range(24))
    assert len(set(journal_classic.RECORD_NAMES.values())) == 24


def test_unknown_tags_are_skipped() -> None:
    value = bytes.fromhex(f"{MEMBERSHIP} 03 05 00 00 01 00 8701 02 ffff")
    assert journal.decode_record(MEMBERSHIP_KEY, value) == member_metadata_entry(None)
    key, plain = journal.encode_entry(offset_commit_entry())
    assert plain
    assert (
        journal.decode_record(key, plain[:-1] + bytes.fromhex("01 07 01 ff"))
        == offset_commit_entry()
    )


# What is refused

OFFSET_VALUE = bytes.fromhex("0004 0000000000000102 00000009 04 6dc3a9 0000000000000007 00")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("", "", "record key: type at byte 0: 2 bytes needed, 0 left"),
        ("01", "", "record key: type at byte 0: 2 bytes needed, 1 left"),
        ("0001 ffff", "0004", "OffsetCommit key: group at byte 2: null where text is needed"),
        ("0001 0009 67", "0004", "OffsetCommit key: group at byte 4: 9 bytes needed, 1 left"),
        ("0001 0000 0001 ff 00000000", "", "OffsetCommit key: topic at byte 4: not UTF-8"),
        ("0001 0000 0000 00000000 00", "", "OffsetCommit key: end at byte 10: 1 bytes too many"),
        (OFFSET_KEY.hex(), "", "OffsetCommit value: version at byte 0: 2 bytes needed, 0 left"),
        (OFFSET_KEY.hex(), "0005", "OffsetCommit value: version at byte 0: 5 is not one of 0 to 4"),
        (OFFSET_KEY.hex(), "ffff", "OffsetCommit value: version at byte 0: -1 is not one of"),
        (OFFSET_KEY.hex(), OFFSET_VALUE.hex() + "00", "OffsetCommit value: end at byte 27: 1 byte"),
        (OFFSET_KEY.hex(), OFFSET_VALUE[:14].hex() + "00", "metadata at byte 14: null where text"),
        (OFFSET_KEY.hex(), OFFSET_VALUE[:14].hex() + "82800200", "metadata at byte 14: text of"),
        (
            OFFSET_KEY.hex(),
            OFFSET_VALUE[:14].hex() + "ffffffffff",
            "OffsetCommit value: metadata at byte 14: a varint past 32 bits",
        ),
        (
            OFFSET_KEY.hex(),
            OFFSET_VALUE[:-1].hex() + "01 00 02" + TOPIC_ID.hex(),
            "OffsetCommit value: tag 0 at byte 29: 16 bytes read of 2",
        ),
        ("0002 0001 67", "0004", "GroupMetadata value: protocol type at byte 2: 1 bytes needed"),
        (
            "0002 0001 67",
            f"0003 {HEAD} 0000000000000007 7fffffff",
            "GroupMetadata value: members at byte 35: impossible count 2147483647, 0 bytes left",
        ),
        ("0003 0001 67", "0001", "ConsumerGroupMetadata value: version at byte 0: 1 is not one of"),
        (
            "0003 0001 67",
            "0000 00000001 01 00 08 0000",
            "ConsumerGroupMetadata value: tag 0 at byte 9: 8 bytes needed, 2 left",
        ),
        ("0007 0001 67 0001 6d", "0000 00", "topics at byte 2: null where an array is needed"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(key: str, value: str, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        journal.decode_record(bytes.fromhex(key), bytes.fromhex(value))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (offset_commit_entry(partition=2**31), "OffsetCommit key: 2147483648 does not fit 32 bits"),
        (
            offset_commit_entry(offset=2**63),
            "OffsetCommit value: 9223372036854775808 does not fit 64 bits",
        ),
        (
            offset_commit_entry(metadata="x" * 2**15),
            "OffsetCommit value: 'xxxxxxxxxxxxxxxxxxxx'... takes",
        ),
        (offset_commit_entry(group="\ud800"), "OffsetCommit key: '\\ud800' has no UTF-8 form"),
        (offset_commit_entry(topic_id=b"short"), "OffsetCommit value: a UUID has 16 bytes, not 5"),
        (
            ConsumerGroupMetadataEntry(group="g", epoch=2**31),
            "ConsumerGroupMetadata value: 2147483648 does not",
        ),
    ],
)
def test_what_kafka_cannot_hold_is_not_written(entry: JournalEntry, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        journal.encode_entry(entry)
    assert str(caught.value).startswith(message)


def test_the_recording_has_nearly_every_kind_of_entry_and_none_that_is_not_decoded() -> None:
    read = {type(journal.decode_record(*record)).__name__ for record in recorded_journal().values()}
    kinds = {*get_args(ClassicEntry), *get_args(ConsumerGroupEntry), *SHARE_TYPES}
    assert {kind.__name__ for kind in kinds} - read == {
        "PartitionMetadataEntry",
        "RegularExpressionTombstone",
        "SharePartitionMetadataEntry",
        "SharePartitionMetadataTombstone",
        "ShareGroupMetadataTombstone",
        "ShareTargetAssignmentMetadataTombstone",
        "ShareStatePartitionMetadataTombstone",
    }
    assert "UnparsedEntry" not in read
