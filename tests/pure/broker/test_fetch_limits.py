"""Whatever the limits of a fetch: it makes progress, in whole batches, without a gap."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rota.engine.formats.record_batch_columns import decode_batches, iterate_records
from rota.engine.formats.record_batch_scan import find_batches
from tests.support.examples import examples
from tests.support.node import InMemoryNode
from tests.support.requests import numbered_batch

LIMITS = st.one_of(st.integers(0, 40), st.integers(0, 3_000), st.just(2**31 - 1))


@examples(quick=25)
@given(
    sizes=st.lists(st.lists(st.integers(1, 30), min_size=0, max_size=12), min_size=1, max_size=3),
    limits=st.lists(st.tuples(LIMITS, LIMITS), min_size=1, max_size=5),
    version=st.integers(4, 18),
    committed=st.booleans(),
)
def test_everything_is_read_once_in_order(
    sizes: list[list[int]], limits: list[tuple[int, int]], version: int, committed: bool
) -> None:
    node = InMemoryNode()
    node.create_topic("t", len(sizes))
    peer = node.connect()
    for number, counts in enumerate(sizes):
        peer.store(*map(numbered_batch, counts), partition=number)
    largest = max((len(numbered_batch(count)) for counts in sizes for count in counts), default=0)
    positions = {("t", each): 0 for each in range(len(sizes))}
    ends = {("t", each): sum(counts) for each, counts in enumerate(sizes)}
    turn = 0
    while positions != ends:
        most, most_each = limits[turn % len(limits)]
        answers = peer.fetch(
            positions,
            version,
            max_bytes=most,
            partition_max=most_each,
            isolation=int(committed),
        )
        total = sum(len(answer.records) for answer in answers.values())
        assert total <= max(most, largest)
        assert total, "no progress"
        for partition, answer in answers.items():
            data = bytes(answer.records)
            assert find_batches(data).end == len(data)
            assert len(data) <= max(most_each, largest)
            new = [each.offset for each in iterate_records(decode_batches(data))]
            first = positions[partition]
            fresh = [each for each in new if each >= first]
            assert fresh == list(range(first, first + len(fresh)))
            positions[partition] = first + len(fresh)
        # a client that turns the order of its partitions, as all do
        positions = dict(list(positions.items())[1:] + list(positions.items())[:1])
        turn += 1
        assert turn <= 200
