"""The input of a run, the options, and the summary of what the run read."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from pyspark.sql import DataFrame

from rota.errors import InputError
from rota.pipeline.cluster import LiveCluster, LiveJournal, LookupResult
from rota.pipeline.decode import Unread
from rota.pipeline.ingest import JournalPosition, Segments
from rota.pipeline.poll import PollResult
from rota.pipeline.session import LOCAL_MASTER


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceSources:
    """The input: segments, a cluster, polled samples, broker logs, samples of log ends."""

    segments: tuple[str, ...] = ()
    cluster: LiveCluster | None = None
    polled: PollResult | None = None
    server_logs: tuple[str, ...] = ()
    #: Time zone of the logs, in minutes ahead of UTC.
    zone: int = 0
    ends: tuple[str, ...] = ()
    #: The input is simulated.
    demo: bool = False


@dataclass(frozen=True, slots=True)
class BeforeEnd:
    """A time this many milliseconds before the end of the evidence: before the last record of
    the segments, or before now when a cluster is read.
    """

    milliseconds: int


#: Milliseconds since 1970, or a time before the end.
TimeBound: TypeAlias = int | BeforeEnd | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    master: str = LOCAL_MASTER
    since: TimeBound = None
    until: TimeBound = None
    groups: tuple[str, ...] = ()
    redact: bool = False
    #: Custom strategies to replay, as ``package.module:Class``.
    strategies: tuple[str, ...] = ()
    #: Key of the hashes of ``redact``; polling for this run uses the same key.
    key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFrames:
    """DataFrames that the caller has read, instead of sources."""

    #: The records, with the columns of :func:`rota.pipeline.ingest.read_segment_journal`.
    journal: DataFrame
    #: Topic names by topic id.
    names: Mapping[bytes, str] = field(default_factory=dict)
    #: Rows of bronze/ends.
    samples: DataFrame | None = None
    #: Rows of bronze/serverlog.
    lines: DataFrame | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundEvidence:
    """The input that a run found."""

    segments: Segments
    live: LiveJournal | None
    polled: PollResult | None = None
    given: InputFrames | None = None

    @property
    def last(self) -> int:
        """Time of the last record; on a live cluster, now."""
        sampled = self.polled.last or 0 if self.polled is not None else 0
        return max(self.segments.last_timestamp, 0 if self.live is None else self.live.at, sampled)

    @property
    def size(self) -> int:
        """Estimated number of bytes."""
        return self.segments.size + (self.live.estimated_bytes if self.live is not None else 0)

    def __str__(self) -> str:
        parts = [] if self.live is None else [str(self.live)]
        if self.polled is not None:
            parts.append(f"{len(self.polled.groups):,} groups sampled")
        if self.segments.files or not parts:
            size, partitions = self.segments.size / 1e6, self.segments.partitions
            parts.append(f"{size:,.1f} MB in {partitions} partitions")
        return "; ".join(parts)


def time_window(options: RunOptions, last: int) -> tuple[int | None, int | None]:
    """Returns ``--since`` and ``--until`` in milliseconds since 1970.

    :raises InputError: no record can be in that time
    """
    since, until = (
        last - when.milliseconds if isinstance(when, BeforeEnd) else when
        for when in (options.since, options.until)
    )
    if since is not None and until is not None and since > until:
        raise InputError("--since is later than --until")
    if since is not None and since > last:
        raise InputError("--since is later than the last record")
    return since, until


@dataclass(slots=True, kw_only=True)
class RunSummary:
    """Counts and times of what a run read."""

    out: str
    records: int = 0
    commits: int = 0
    generations: int = 0
    rebalances: int = 0
    #: Times of the first and the last record.
    first: int | None = None
    last: int | None = None
    #: The options ``--since`` and ``--until``.
    since: int | None = None
    until: int | None = None
    lines: int = 0
    #: Number of broker log files.
    logs: int = 0
    samples: int = 0
    polled: PollResult | None = None
    live: LiveJournal | None = None
    lookups: LookupResult | None = None
    #: By partition of the journal, the position from which on its records are complete.
    complete: Mapping[int, JournalPosition] = field(default_factory=dict)
    #: Group, time from which on its records are complete, and whether its first record is there.
    windows: list[tuple[str, int, bool]] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)
