"""What a run has read, out of the one row of gold/evidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rota.errors import InputError
from rota.tables import EVIDENCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a run has read. Times are milliseconds since 1970."""

    demo: bool
    """A simulated day, no cluster of anybody's."""
    first: int | None
    """The first record's time, and the last one's."""
    last: int | None
    since: int | None
    """What was asked for."""
    until: int | None
    records: int
    commits: int
    generations: int
    rebalances: int
    logs: int
    """Files of brokers' logs that were given."""
    lines: int
    samples: int
    cluster: dict[str, Any] | None
    """What there was to read in a live cluster, what came of look-ups, and of polling: with the
    names that gold/evidence has for it."""
    lookups: dict[str, Any] | None
    polled: dict[str, Any] | None
    windows: tuple[tuple[str, int, bool], ...]
    """Each group, from when on its records are all there, and whether its first one is."""
    complete: tuple[tuple[int, int, int], ...]
    """Each partition of the journal, the offset from which on all its records are there, and when
    that was."""
    unread: tuple[tuple[str, int, tuple[str, ...]], ...]
    """What could not be read, how often, and examples."""

    @property
    def commits_until(self) -> int | None:
        """Up to when all commits are known; None: to the last sample of an end.

        A cluster that is read, or polled, tells its ends after its commits. Copied folders end with
        their last record, however much later ends were sampled.
        """
        copied = self.cluster is None and self.polled is None
        bounds = [self.until, self.last if copied else None]
        return min((bound for bound in bounds if bound is not None), default=None)


def read(table: pa.Table) -> Evidence:
    """The evidence of the run.

    :raises InputError: the table has not one row
    """
    if table.num_rows != 1:
        raise InputError(f"{EVIDENCE.name}: it has {table.num_rows} rows, not one")
    (row,) = _timeless(table).to_pylist()
    lookups = row["lookups"]
    if lookups is not None:
        lookups["not_to_be_had"] = dict(lookups["not_to_be_had"])
    return Evidence(
        **{
            **row,
            "windows": tuple((one["group"], one["at"], one["whole"]) for one in row["windows"]),
            "complete": tuple(
                (one["journal_partition"], one["offset"], one["at"]) for one in row["complete"]
            ),
            "unread": tuple(
                (one["what"], one["count"], tuple(one["examples"])) for one in row["unread"]
            ),
        }
    )


def _timeless(table: pa.Table) -> pa.Table:
    """With milliseconds for times, however deep they are in a column."""
    for unit in (pa.timestamp("ms", tz="UTC"), pa.int64()):
        fields = [(field.name, _with(field.type, unit)) for field in table.schema]
        table = table.cast(pa.schema(fields), safe=False)
    return table


def _with(kind: pa.DataType, time: pa.DataType) -> pa.DataType:
    """A type with another in the place of times."""
    if pa.types.is_timestamp(kind):
        return time
    if pa.types.is_list(kind):
        return pa.list_(_with(kind.value_type, time))
    if pa.types.is_struct(kind):
        fields = (kind.field(number) for number in range(kind.num_fields))
        return pa.struct([(field.name, _with(field.type, time)) for field in fields])
    return kind
