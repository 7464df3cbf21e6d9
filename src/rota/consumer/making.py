"""Records as values, made of a batch's columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain, repeat
from typing import Any, NamedTuple, TypeAlias

from rota.client.batch import NO_HEADERS, Batch
from rota.consumer.record import ConsumerRecord
from rota.errors import RecordError

Deserializer: TypeAlias = Callable[[bytes], object]
"""Makes something of a key or a value; it does not get those that are null."""


class Made(NamedTuple):
    """The records of a batch, up to the first that cannot be made."""

    records: list[ConsumerRecord]
    error: RecordError | None = None
    """What is wrong with the next; its cause is what the deserializer raised."""


def make(batch: Batch, key: Deserializer | None = None, value: Deserializer | None = None) -> Made:
    """All records of a batch."""
    keys, values = batch.keys(), batch.values()
    error = None
    if key is not None:
        keys, error = _deserialized(batch, key, keys, "key")
    if value is not None:
        values, found = _deserialized(batch, value, values[: len(keys)], "value")
        error = found or error
    kinds, epochs = _of_spans(batch)
    columns = zip(
        repeat(batch.topic, min(len(keys), len(values))),
        repeat(batch.partition),
        batch.offsets.tolist(),
        batch.timestamps.tolist(),
        kinds,
        keys,
        values,
        batch.headers() if batch.has_headers else repeat(NO_HEADERS),
        epochs,
        strict=False,
    )
    # as ConsumerRecord._make, but without a call of Python's for each: that would be half the time
    new: Callable[[type[ConsumerRecord], Iterable[Any]], ConsumerRecord] = tuple.__new__
    return Made(list(map(new, repeat(ConsumerRecord), columns)), error)


def _of_spans(batch: Batch) -> tuple[Iterable[int], Iterable[int | None]]:
    """Of each record its timestamp's type and its epoch."""
    spans = [
        (count, int(by_broker), None if epoch < 0 else epoch)
        for count, by_broker, epoch in batch.spans()
    ]
    if len(spans) == 1:
        _, kind, epoch = spans[0]
        return repeat(kind), repeat(epoch)
    kinds = chain.from_iterable(repeat(kind, count) for count, kind, _ in spans)
    return kinds, chain.from_iterable(repeat(epoch, count) for count, _, epoch in spans)


def _deserialized(
    batch: Batch, deserializer: Deserializer, given: list[Any], name: str
) -> tuple[list[Any], RecordError | None]:
    """What it makes of them, up to the first on which it fails."""
    made: list[Any] = []
    add = made.append
    try:
        for each in given:
            add(None if each is None else deserializer(each))
    except Exception as cause:  # noqa: BLE001 an application's own code
        offset = int(batch.offsets[len(made)])
        problem = f"its {name} is not understood: {cause!r}"
        error = RecordError(*batch.source, offset, problem, next_offset=offset + 1)
        error.__cause__ = cause
        return made, error
    return made, None
