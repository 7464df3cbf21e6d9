"""Records as values, made of a batch's columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain, islice, repeat
from typing import Any, NamedTuple, TypeAlias

from rota.client.batch import NO_HEADERS, Batch, Headers
from rota.consumer.record import ConsumerRecord
from rota.errors import RecordError

Deserializer: TypeAlias = Callable[[bytes], object]
"""Makes something of a key or a value; it does not get those that are null."""


class Made(NamedTuple):
    """The records of a batch, up to the first that cannot be made."""

    records: list[ConsumerRecord]
    error: RecordError | None = None
    """What is wrong with the next; its cause is what the deserializer raised."""


class Making:
    """A batch on its way to records: some rows at a time, and what concerns all of them once."""

    def __init__(
        self, batch: Batch, key: Deserializer | None = None, value: Deserializer | None = None
    ) -> None:
        self._batch = batch
        self._key, self._value = key, value
        self._keys, self._values = batch.key_pieces, batch.value_pieces
        self._offsets: list[int] = batch.offsets.tolist()
        self._timestamps: list[int] = batch.timestamps.tolist()
        self._has_headers = batch.has_headers
        self._spans = [
            (count, int(by_broker), None if epoch < 0 else epoch)
            for count, by_broker, epoch in batch.spans()
        ]

    def __len__(self) -> int:
        return len(self._offsets)

    def make(self, first: int, behind: int) -> Made:
        """The records of the rows from one to before another, which may be behind the last."""
        behind = min(behind, len(self))
        keys: list[Any] = self._keys.cut(first, behind)
        values: list[Any] = self._values.cut(first, behind)
        error = None
        if self._key is not None:
            keys, error = self._deserialized(first, self._key, keys, "key")
        if self._value is not None:
            values, found = self._deserialized(first, self._value, values[: len(keys)], "value")
            error = found or error
        headers: Iterable[Headers] = repeat(NO_HEADERS)
        if self._has_headers:
            headers = self._batch[first:behind].headers()
        kinds, epochs = self._of_spans(first)
        columns = zip(
            repeat(self._batch.topic, min(len(keys), len(values))),
            repeat(self._batch.partition),
            self._offsets[first:behind],
            self._timestamps[first:behind],
            kinds,
            keys,
            values,
            headers,
            epochs,
            strict=False,
        )
        # as ConsumerRecord._make, but without a call of Python's for each: it would take as long as
        # all the rest
        new: Callable[[type[ConsumerRecord], Iterable[Any]], ConsumerRecord] = tuple.__new__
        return Made(list(map(new, repeat(ConsumerRecord), columns)), error)

    def _of_spans(self, first: int) -> tuple[Iterable[int], Iterable[int | None]]:
        """Of each record from a row on its timestamp's type and its epoch."""
        if len(self._spans) == 1:
            _, kind, epoch = self._spans[0]
            return repeat(kind), repeat(epoch)
        kinds = chain.from_iterable(repeat(kind, count) for count, kind, _ in self._spans)
        epochs = chain.from_iterable(repeat(epoch, count) for count, _, epoch in self._spans)
        return islice(kinds, first, None), islice(epochs, first, None)

    def _deserialized(
        self, first: int, deserializer: Deserializer, given: list[Any], name: str
    ) -> tuple[list[Any], RecordError | None]:
        """What it makes of them, up to the first on which it fails."""
        made: list[Any] = []
        add = made.append
        try:
            for each in given:
                add(None if each is None else deserializer(each))
        except Exception as cause:  # noqa: BLE001 an application's own code
            offset = self._offsets[first + len(made)]
            problem = f"its {name} is not understood: {cause!r}"
            error = RecordError(*self._batch.source, offset, problem, next_offset=offset + 1)
            error.__cause__ = cause
            return made, error
        return made, None
