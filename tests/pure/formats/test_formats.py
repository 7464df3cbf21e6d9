"""The byte formats, example by example. tests/system/kafka compares random cases with Java."""

from __future__ import annotations

import pytest

from rota.engine.formats import consumer_protocol
from rota.engine.formats.hashing import (
    compute_if_absent_order,
    hash_map_order,
    java_string_hash,
    sort_like_java,
)
from rota.engine.formats.primitive import PrimitiveReader
from rota.engine.model.member import Assignment, Subscription
from rota.engine.model.text import MAX_STRING_BYTES
from rota.engine.model.topic import NO_PARTITIONS, Partitions
from rota.errors import FormatError

OWNED = Partitions.of({"t1": [3, 1], "t0": [2]})


def full_subscription(**changes: object) -> Subscription:
    fields: dict[str, object] = {
        "topics": ("t1", "t0"),
        "user_data": b"\x01\x02",
        "owned": OWNED,
        "generation": 7,
        "rack": "r1",
    }
    return Subscription(**(fields | changes))  # type: ignore[arg-type]


HEAD = "00000002 00027430 00027431 00000002 0102"
OWNED_BYTES = "00000002 00027430 00000001 00000002 00027431 00000002 00000001 00000003"


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (0, f"0000 {HEAD}"),
        (1, f"0001 {HEAD} {OWNED_BYTES}"),
        (2, f"0002 {HEAD} {OWNED_BYTES} 00000007"),
        (3, f"0003 {HEAD} {OWNED_BYTES} 00000007 00027231"),
        (4, f"0003 {HEAD} {OWNED_BYTES} 00000007 00027231"),
    ],
)
def test_subscription_bytes_by_version(version: int, expected: str) -> None:
    assert consumer_protocol.encode_subscription(full_subscription(), version) == bytes.fromhex(
        expected
    )


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_subscription_comes_back_sorted_with_what_its_version_carries(version: int) -> None:
    read = consumer_protocol.decode_subscription(
        consumer_protocol.encode_subscription(full_subscription(), version), group_instance_id="s"
    )
    assert read == Subscription(
        topics=("t0", "t1"),
        user_data=b"\x01\x02",
        owned=Partitions.of({"t0": [2], "t1": [1, 3]} if version >= 1 else {}),
        generation=7 if version >= 2 else None,
        rack="r1" if version >= 3 else None,
        group_instance_id="s",
    )


def test_newer_version_is_read_as_the_newest_known_and_its_tail_ignored() -> None:
    data = consumer_protocol.encode_subscription(full_subscription())
    assert consumer_protocol.decode_subscription(
        b"\x00\x09" + data[2:] + b"new fields"
    ) == consumer_protocol.decode_subscription(data)
    given = consumer_protocol.encode_assignment(Assignment(OWNED))
    assert consumer_protocol.decode_assignment(b"\x7f\xff" + given[2:] + b"new") == Assignment(
        OWNED
    )


def test_nothing_is_written_as_java_writes_it() -> None:
    nothing = Subscription(topics=())
    data = consumer_protocol.encode_subscription(nothing)
    assert data == bytes.fromhex("0003 00000000 ffffffff 00000000 ffffffff ffff")
    assert consumer_protocol.decode_subscription(data) == nothing


def test_an_empty_rack_is_no_rack() -> None:
    assert (
        consumer_protocol.decode_subscription(
            consumer_protocol.encode_subscription(full_subscription(rack=""))
        ).rack
        is None
    )


def test_assignment_keeps_the_order_in_which_topics_appear() -> None:
    given = Assignment(Partitions.of([("t1", 3), ("t0", 2), ("t1", 1)]), b"u")
    data = consumer_protocol.encode_assignment(given)
    assert data == bytes.fromhex(
        "0003 00000002 00027431 00000002 00000003 00000001 00027430 00000001 00000002 00000001 75"
    )
    assert consumer_protocol.decode_assignment(data) == Assignment(OWNED, b"u")
    assert all(
        consumer_protocol.encode_assignment(given, version)[2:] == data[2:] for version in range(3)
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("", "subscription: version at byte 0: 2 bytes needed, 0 left"),
        ("ffff 00000000", "subscription: version at byte 0: -1 is negative"),
        ("0000 ffffffff", "subscription: topics at byte 2: impossible count -1, 0 bytes left"),
        ("0000 7fffffff 0000", "topics at byte 2: impossible count 2147483647, 2 bytes left"),
        ("0000 00000001 ffff", "topic at byte 6: null where text is needed"),
        ("0000 00000001 0001 ff ffffffff", r"topic at byte 6: not UTF-8 \(invalid start byte\)"),
        ("0000 00000000 00000005 00", "user data at byte 10: 5 bytes needed, 1 left"),
        (
            "0001 00000000 ffffffff 00000001 0000 10000000",
            "partitions of owned partitions at byte 16: impossible count 268435456, 0 bytes left",
        ),
    ],
)
def test_bad_subscriptions_are_refused_with_field_and_offset(data: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        consumer_protocol.decode_subscription(bytes.fromhex(data))


def test_what_has_no_bytes_is_refused() -> None:
    for topic in ("x" * (MAX_STRING_BYTES + 1), "\ud800"):
        with pytest.raises(FormatError, match="subscription: "):
            consumer_protocol.encode_subscription(Subscription(topics=(topic,)))
    with pytest.raises(FormatError, match="does not fit 32 bits"):
        consumer_protocol.encode_cooperative_user_data(2**31)
    with pytest.raises(FormatError, match="version -1 is negative"):
        consumer_protocol.encode_assignment(Assignment(OWNED), version=-1)


def test_reader_gives_null_and_empty_apart() -> None:
    reader = PrimitiveReader(bytes.fromhex("ffff 0000 ffffffff 00000000"), "test")
    assert reader.nullable_string("a") is None
    assert reader.nullable_string("b") == ""
    assert reader.nullable_bytes("c") is None
    assert reader.nullable_bytes("d") == b""
    assert reader.remaining == 0


# User data


def test_sticky_user_data_bytes() -> None:
    assert consumer_protocol.encode_sticky_user_data(
        Partitions.of({"t": [1, 0]}), 5
    ) == bytes.fromhex("00000001 000174 00000002 00000001 00000000 00000005")


def test_sticky_versions_of_java_and_kafka_python_are_all_read() -> None:
    version1 = consumer_protocol.encode_sticky_user_data(OWNED, 9)
    # as kafka-python 3.0.12 writes StickyAssignorUserData([("t1", [3, 1]), ("t0", [2])], 9)
    kafka_python = bytes.fromhex(
        "0001 00000002 00027431 00000002 00000003 00000001 00027430 00000001 00000002 00000009"
    )
    for data, generation in (
        (version1, 9),
        (version1[:-4], -1),
        (kafka_python, 9),
        (b"\0\0" + version1[:-4], -1),
    ):
        read = consumer_protocol.decode_sticky_user_data(data)
        assert (read.generation, read.note) == (generation, None)
        assert {topic: set(n) for topic, n in read.partitions.by_topic().items()} == {
            "t0": {2},
            "t1": {1, 3},
        }


def test_a_newer_versions_tail_is_ignored() -> None:
    version1 = consumer_protocol.encode_sticky_user_data(OWNED, 9)
    for tail in (b"\0", b"\0\0\0\1", b"new fields", version1):
        assert consumer_protocol.decode_sticky_user_data(
            version1 + tail
        ) == consumer_protocol.decode_sticky_user_data(version1)
    version0 = version1[:-4]
    for tail in (b"\0", b"\1\2\3"):  # too short for a generation
        assert consumer_protocol.decode_sticky_user_data(
            version0 + tail
        ) == consumer_protocol.decode_sticky_user_data(version0)
    nothing = consumer_protocol.encode_sticky_user_data(NO_PARTITIONS, 9)
    assert consumer_protocol.decode_sticky_user_data(
        nothing + b"new"
    ) == consumer_protocol.decode_sticky_user_data(nothing)
    assert consumer_protocol.decode_cooperative_user_data(b"\0\0\0\5\0") == (5, None)


@pytest.mark.parametrize(
    ("data", "generation"), [("0000 00000000", -1), ("0001 00000000 00000009", 9)]
)
def test_nothing_owned_in_kafka_pythons_form(data: str, generation: int) -> None:
    read = consumer_protocol.decode_sticky_user_data(bytes.fromhex(data))
    assert (len(read.partitions), read.generation, read.note) == (0, generation, None)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0",
        consumer_protocol.encode_sticky_user_data(OWNED, 9)[:-5],
        b"\0\1" + consumer_protocol.encode_sticky_user_data(OWNED, 9) + b"\0",
        b"\x7f\xff\xff\xff" + consumer_protocol.encode_sticky_user_data(OWNED, 9)[4:],
        b"\0\2" + consumer_protocol.encode_sticky_user_data(OWNED, 9),
        b"\xff" * 40,
        b"{'t0': [1]}",
    ],
)
def test_garbage_in_sticky_user_data_is_no_claim_and_is_said(data: bytes) -> None:
    read = consumer_protocol.decode_sticky_user_data(data)
    assert (len(read.partitions), read.generation) == (0, -1)
    assert read.note is not None
    assert "sticky user data" in read.note


def test_cooperative_user_data() -> None:
    assert consumer_protocol.encode_cooperative_user_data(258) == bytes.fromhex("00000102")
    assert consumer_protocol.decode_cooperative_user_data(bytes.fromhex("00000102")) == (258, None)
    for garbage in (b"", b"\0\0\1"):
        generation, note = consumer_protocol.decode_cooperative_user_data(garbage)
        assert generation == -1
        assert note is not None
        assert "cooperative user data: generation at byte 0: 4 bytes needed" in note


# Java's orders


def test_java_hash() -> None:
    assert java_string_hash("") == 0
    assert java_string_hash("test") == 3556498
    assert java_string_hash("polygenelubricants") == -(2**31)
    assert java_string_hash("😀") == 0xD83D * 31 + 0xDE00


def test_java_sorts_by_utf16_units() -> None:
    assert sort_like_java(["\uffee", "😀", "a"]) == ["a", "😀", "\uffee"]


def test_hash_map_order_doubles_and_keeps_order_inside_a_bucket() -> None:
    assert hash_map_order(["BB", "Aa"]) == [0, 1]
    assert compute_if_absent_order(["BB", "Aa"], looked_up_after=False) == [1, 0]
    digits = [str(number) for number in range(13)]  # the thirteenth key doubles a table of sixteen
    late = compute_if_absent_order(digits, looked_up_after=False)
    assert late != compute_if_absent_order(digits, looked_up_after=True)
    assert sorted(late) == sorted(hash_map_order(digits)) == list(range(13))
