"""What holds of the byte formats for any value and any bytes."""

from __future__ import annotations

import contextlib
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.engine.formats import consumer_protocol
from rota.engine.formats.consumer_protocol import FEW_MEMBERS
from rota.engine.formats.hashing import compute_if_absent_order, hash_map_order
from rota.engine.model.member import Assignment, GroupAssignment, Placement, Subscription
from rota.engine.model.topic import NO_PARTITIONS, PartitionNumbering, Partitions
from rota.errors import FormatError
from tests.support.examples import examples

int32 = st.integers(-(2**31), 2**31 - 1)
text = st.text(st.characters(codec="utf-8"), max_size=8)
user_data = st.none() | st.binary(max_size=20)
partitions = st.lists(st.tuples(text, int32), max_size=12).map(Partitions.of)
subscriptions = st.builds(
    Subscription,
    topics=st.lists(text, max_size=5).map(tuple),
    user_data=user_data,
    owned=partitions,
    generation=st.none() | st.integers(0, 2**31 - 1),
    rack=st.none() | text.filter(bool),
)
versions = st.integers(0, 3)

#: Lengths and counts that break careless readers.
EXTREMES = st.sampled_from([-1, 0, 1, 2**15 - 1, 2**16, 2**31 - 1, -(2**31)])
nasty = st.lists(
    st.binary(max_size=6)
    | EXTREMES.map(lambda value: value.to_bytes(4, "big", signed=True))
    | st.integers(0, 3).map(lambda value: value.to_bytes(2, "big")),
    max_size=12,
).map(b"".join)


def group_partitions(held: Partitions) -> dict[str, list[int]]:
    return {topic: sorted(numbers) for topic, numbers in held.by_topic().items()}


@examples(quick=25)
@given(subscriptions)
def test_subscription_round_trip(value: Subscription) -> None:
    read = consumer_protocol.decode_subscription(
        consumer_protocol.encode_subscription(value), group_instance_id="s"
    )
    assert sorted(read.topics) == sorted(value.topics)
    assert (read.user_data, read.generation) == (value.user_data, value.generation)
    assert (read.rack, read.group_instance_id) == (value.rack, "s")
    assert group_partitions(read.owned) == group_partitions(value.owned)
    assert consumer_protocol.encode_subscription(read) == consumer_protocol.encode_subscription(
        value
    )


@given(partitions, user_data, versions)
def test_assignment_round_trip(held: Partitions, data: bytes | None, version: int) -> None:
    read = consumer_protocol.decode_assignment(
        consumer_protocol.encode_assignment(Assignment(held, data), version)
    )
    assert read.user_data == data
    assert read.partitions.by_topic() == held.by_topic()


@given(partitions, int32)
def test_sticky_round_trip(held: Partitions, generation: int) -> None:
    read = consumer_protocol.decode_sticky_user_data(
        consumer_protocol.encode_sticky_user_data(held, generation)
    )
    assert (read.generation, read.note) == (generation, None)
    assert read.partitions.by_topic() == held.by_topic()


@settings(max_examples=50)
@given(subscriptions, versions)
def test_subscription_cut_anywhere_is_refused(value: Subscription, version: int) -> None:
    data = consumer_protocol.encode_subscription(value, version)
    for end in range(len(data)):
        with pytest.raises(FormatError):
            consumer_protocol.decode_subscription(data[:end])


@settings(max_examples=50)
@given(partitions, user_data)
def test_assignment_cut_anywhere_is_refused(held: Partitions, extra: bytes | None) -> None:
    data = consumer_protocol.encode_assignment(Assignment(held, extra))
    for end in range(len(data)):
        with pytest.raises(FormatError):
            consumer_protocol.decode_assignment(data[:end])


@settings(max_examples=50)
@given(partitions, st.integers(0, 2**31 - 1))
def test_sticky_cut_anywhere_is_no_claim_or_version_0(held: Partitions, generation: int) -> None:
    data = consumer_protocol.encode_sticky_user_data(held, generation)
    for end in range(len(data)):
        read = consumer_protocol.decode_sticky_user_data(data[:end])
        if read.note is None:
            assert read.generation != generation or len(read.partitions) < len(held)
        else:
            assert read.partitions is NO_PARTITIONS
    for cut in (1, 2, 3, 4):  # inside the generation
        assert (
            consumer_protocol.decode_sticky_user_data(data[:-cut]).partitions.by_topic()
            == held.by_topic()
        )


@given(partitions, st.integers(0, 2**16 - 1), st.binary(max_size=20))
def test_sticky_with_a_tail_is_that_without(held: Partitions, generation: int, tail: bytes) -> None:
    # no greater generation: behind no partitions its upper half could be kafka-python's count
    data = consumer_protocol.encode_sticky_user_data(held, generation)
    assert consumer_protocol.decode_sticky_user_data(
        data + tail
    ) == consumer_protocol.decode_sticky_user_data(data)


def decode_anything(data: bytes) -> None:
    for decode in (consumer_protocol.decode_subscription, consumer_protocol.decode_assignment):
        with contextlib.suppress(FormatError):
            decode(data)
    sticky = consumer_protocol.decode_sticky_user_data(data)
    assert sticky.note is None or (len(sticky.partitions), sticky.generation) == (0, -1)
    generation, note = consumer_protocol.decode_cooperative_user_data(data)
    assert note is None or generation == -1


@examples(quick=25)
@settings(max_examples=2_000)
@given(nasty | st.binary(max_size=60))
def test_no_bytes_raise_anything_but_format_error(data: bytes) -> None:
    decode_anything(data)


@pytest.mark.nightly
@settings(max_examples=50_000, deadline=None)
@given(nasty | st.binary(max_size=200))
def test_no_bytes_raise_anything_but_format_error_long(data: bytes) -> None:
    decode_anything(data)


# Whole groups at once


def damage_bytes(data: bytes, at: int, value: int, end: int) -> bytes:
    """One byte changed, and perhaps cut; both positions count from the end."""
    broken = bytearray(data)
    broken[-1 - at % len(data)] = value
    return bytes(broken[: len(data) - end])


def append_bytes(data: bytes, tail: bytes) -> bytes:
    """As a newer version may send it."""
    return data + tail


def group_of(pieces: st.SearchStrategy[bytes]) -> st.SearchStrategy[list[bytes]]:
    """Enough members to be read together, a few of them damaged."""
    broken = st.builds(
        damage_bytes,
        pieces,
        st.integers(0, 100),
        st.sampled_from([0, 1, 127, 255]),
        st.sampled_from([0, 0, 0, 1, 4]),
    )
    return st.builds(
        lambda good, bad: [*good[:5], *bad, *good[5:]],
        st.lists(pieces, min_size=FEW_MEMBERS, max_size=FEW_MEMBERS + 4),
        st.lists(broken | st.builds(append_bytes, pieces, st.binary(max_size=9)), max_size=4),
    )


few_topics = st.sampled_from(["t", "t1", "topic-with-a-longer-name", "ü", "x" * 300])
few_partitions = st.lists(st.tuples(few_topics, st.integers(0, 5)), max_size=8).map(Partitions.of)
listings = partitions | few_partitions


def decode_or_error(data: bytes) -> Subscription | str:
    try:
        return consumer_protocol.decode_subscription(data, "s")
    except FormatError as error:
        return str(error)


@examples(quick=25)
@settings(max_examples=60)
@given(
    group_of(
        st.builds(
            lambda owned, version, topics: consumer_protocol.encode_subscription(
                Subscription(topics=topics, owned=owned, generation=3, rack="r"), version
            ),
            listings,
            versions,
            st.lists(few_topics, max_size=3).map(tuple),
        )
    )
)
def test_subscriptions_read_together_are_those_read_one_by_one(group: list[bytes]) -> None:
    together = consumer_protocol.decode_subscriptions([(data, "s") for data in group])
    shown = [str(read) if isinstance(read, FormatError) else read for read in together]
    assert shown == [decode_or_error(data) for data in group]


@examples(quick=25)
@settings(max_examples=60)
@given(group_of(st.builds(consumer_protocol.encode_sticky_user_data, listings, int32)))
def test_sticky_user_data_read_together_is_that_read_one_by_one(group: list[bytes]) -> None:
    assert consumer_protocol.decode_all_sticky_user_data(group) == [
        consumer_protocol.decode_sticky_user_data(data) for data in group
    ]


@examples(quick=25)
@given(st.data(), st.lists(st.integers(0, 5), max_size=6), st.integers(0, 5))
def test_assignments_written_together_are_those_written_one_by_one(
    data: st.DataObject, counts: list[int], members: int
) -> None:
    topics = data.draw(
        st.lists(few_topics | text, unique=True, min_size=len(counts), max_size=len(counts))
    )
    layout = PartitionNumbering(tuple(topics), counts)
    owner = st.integers(-1, members - 1)
    owners = data.draw(st.lists(owner, min_size=layout.size, max_size=layout.size))
    ids = tuple(f"m{position}" for position in range(members))
    placement = Placement(layout, ids, np.array(owners, dtype=np.int32))
    assert consumer_protocol.encode_assignments(placement) == {
        member: consumer_protocol.encode_assignment(given)
        for member, given in GroupAssignment(placement).items()
    }


@pytest.mark.parametrize("prefix", ["", "0000", "0001 00000000 00000000", "0001 00000001 0000"])
@pytest.mark.parametrize("count", [10**6, 2**28, 2**31 - 1])
def test_huge_counts_allocate_nothing(prefix: str, count: int) -> None:
    data = bytes.fromhex(prefix) + count.to_bytes(4, "big") * 5
    tracemalloc.start()
    decode_anything(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


@given(st.lists(text, unique=True, max_size=60), st.booleans())
def test_hash_map_orders_are_permutations(keys: list[str], after: bool) -> None:
    everything = list(range(len(keys)))
    assert sorted(hash_map_order(keys)) == everything
    assert sorted(compute_if_absent_order(keys, looked_up_after=after)) == everything
