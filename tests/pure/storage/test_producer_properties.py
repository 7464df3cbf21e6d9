"""Producers against a model that keeps every batch there ever was."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.broker.storage import producer_state
from rota.broker.storage.producer_state import ProducerStateManager
from rota.engine.formats.record_batch import BatchHeader
from rota.engine.model.config import DAY
from rota.errors import Code, Refused
from tests.support.examples import examples

NOW = 1_790_000_000_000
WRAP = 2**31


@dataclass
class Model:
    """What Kafka would do, from the history alone."""

    epochs: dict[int, int] = field(default_factory=dict)
    #: By producer, of its present epoch: first sequence, count, offset.
    sent: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)

    def answer(self, producer: int, epoch: int, first: int, count: int) -> Code | int | None:
        """An offset it has already, a refusal, or None: it is taken."""
        if producer not in self.epochs:
            return None
        present, sent = self.epochs[producer], self.sent[producer]
        if epoch < present:
            return Code.INVALID_PRODUCER_EPOCH
        if epoch > present:
            return Code.OUT_OF_ORDER_SEQUENCE_NUMBER if first else None
        for there, size, offset in sent[-5:]:
            if (there, size) == (first, count):
                return offset
        there, size, _ = sent[-1]
        return None if first == (there + size) % WRAP else Code.OUT_OF_ORDER_SEQUENCE_NUMBER

    def take(self, producer: int, epoch: int, first: int, count: int, offset: int) -> None:
        if self.epochs.get(producer) != epoch:
            self.epochs[producer] = epoch
            self.sent[producer] = []
        self.sent[producer].append((first, count, offset))

    def restart(self) -> None:
        """A snapshot has but the last batch of each."""
        self.sent = {producer: sent[-1:] for producer, sent in self.sent.items()}


def header(producer: int, epoch: int, first: int, count: int, offset: int) -> BatchHeader:
    return BatchHeader(
        base_offset=offset,
        length=100,
        leader_epoch=0,
        magic=2,
        checksum=0,
        attributes=0,
        last_offset_delta=count - 1,
        base_timestamp=NOW,
        max_timestamp=NOW,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=first,
        record_count=count,
    )


sends = st.tuples(
    st.integers(0, 1),  # the producer
    st.integers(0, 1),  # its epoch
    st.integers(0, 12) | st.sampled_from([WRAP - 1, WRAP - 2, WRAP - 3]),
    st.integers(1, 3),
)
follow = st.tuples(st.integers(0, 1), st.integers(1, 3))
again = st.tuples(st.integers(0, 1), st.integers(1, 7), st.none())
restart = st.just(())
moves = st.lists(st.one_of(sends, follow, follow, follow, again, restart), max_size=60)


@examples(quick=25)
@given(moves)
def test_answers_are_those_of_the_model(script: list[tuple[int | None, ...]]) -> None:
    model, producers, end = Model(), ProducerStateManager(), 0
    for move in script:
        if not move:
            model.restart()
            producers = producer_state.unpack_snapshot(producer_state.pack_snapshot(producers), DAY)
            continue
        producer, epoch, first, count = _sent(model, move)
        head = header(producer, epoch, first, count, end)
        expected = model.answer(producer, epoch, first, count)
        if isinstance(expected, Code):
            with pytest.raises(Refused) as refused:
                producers.check_batch(head)
            assert refused.value.code is expected
            continue
        known = producers.check_batch(head)
        if expected is not None:
            assert known is not None
            assert known.first_offset == expected
            continue
        assert known is None
        producers.add_batch(head)
        model.take(producer, epoch, first, count, end)
        end += count
    assert {key: each.epoch for key, each in producers} == model.epochs


def _sent(model: Model, move: tuple[int | None, ...]) -> tuple[int, int, int, int]:
    """A batch out of nowhere; the one that comes next; or one that was sent before."""
    numbers = [each or 0 for each in move]
    if len(numbers) == 4:
        return numbers[0], numbers[1], numbers[2], numbers[3]
    producer = numbers[0]
    if producer not in model.epochs:
        return producer, 0, 0, numbers[1]
    epoch, sent = model.epochs[producer], model.sent[producer]
    if len(numbers) == 2:
        first, count, _ = sent[-1]
        return producer, epoch, (first + count) % WRAP, numbers[1]
    first, count, _ = sent[-min(numbers[1], len(sent))]
    return producer, epoch, first, count
