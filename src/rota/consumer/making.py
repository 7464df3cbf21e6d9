"""Records as values, made of a batch's columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple, TypeAlias

from rota.client.batch import Batch
from rota.consumer.record import ConsumerRecord
from rota.errors import RecordError

Deserializer: TypeAlias = Callable[[bytes], object]
"""Makes something of a key or a value; it does not get those that are null."""


class Made(NamedTuple):
    """The records of a batch, up to the first that cannot be made."""

    records: list[ConsumerRecord]
    error: RecordError | None = None
    """What is wrong with the next; its cause is what the deserializer raised."""


# as ConsumerRecord._make, but without a call of Python's for each: that would be half the time
_make: Callable[[Iterable[Any]], ConsumerRecord] = partial(tuple.__new__, ConsumerRecord)


def make(batch: Batch, key: Deserializer | None = None, value: Deserializer | None = None) -> Made:
    """All records of a batch."""
    keys, values = batch.keys(), batch.values()
    error = None
    if key is not None:
        keys, error = _deserialized(batch, key, keys, "key")
    if value is not None:
        values, found = _deserialized(batch, value, values[: len(keys)], "value")
        error = found or error
    count = len(values)
    columns = zip(
        repeat(batch.topic, count),
        repeat(batch.partition),
        batch.offsets.tolist(),
        batch.timestamps.tolist(),
        batch.timestamp_types.tolist(),
        keys,
        values,
        batch.headers(),
        [epoch if epoch >= 0 else None for epoch in batch.leader_epochs.tolist()],
        strict=False,
    )
    return Made(list(map(_make, columns)), error)


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
