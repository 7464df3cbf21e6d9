"""What a run is asked to read, what it finds there, and the summary of what it has read."""

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
    """Where to read from: segments, a cluster, polled samples, broker logs, samples of log ends."""

    segments: tuple[str, ...] = ()
    #: A live one: its journal, and the ends of what groups have committed.
    cluster: LiveCluster | None = None
    #: What polling a cluster has seen.
    polled: PollResult | None = None
    server_logs: tuple[str, ...] = ()
    #: Minutes that the logs' clock is ahead of UTC.
    zone: int = 0
    ends: tuple[str, ...] = ()
    #: A simulated day, no cluster of anybody's.
    demo: bool = False


@dataclass(frozen=True, slots=True)
class BeforeEnd:
    """A time this many milliseconds before the end of the evidence: before the last record of
    the segments, or before now when a cluster is read.
    """

    milliseconds: int


#: Milliseconds since 1970, or before the end.
TimeBound: TypeAlias = int | BeforeEnd | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How to run, and what to look at."""

    master: str = LOCAL_MASTER
    since: TimeBound = None
    until: TimeBound = None
    groups: tuple[str, ...] = ()
    redact: bool = False
    #: Of the hashes that take the place of names: whoever polls for this run has the same.
    key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFrames:
    """DataFrames that the caller has read already, in place of sources."""

    #: The records, with the columns of :func:`rota.pipeline.ingest.read_segment_journal`.
    journal: DataFrame
    #: Topics by id.
    names: Mapping[bytes, str] = field(default_factory=dict)
    #: Rows of bronze/ends.
    samples: DataFrame | None = None
    #: Rows of bronze/serverlog.
    lines: DataFrame | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundEvidence:
    """What there is of the journal."""

    segments: Segments
    live: LiveJournal | None
    polled: PollResult | None = None
    given: InputFrames | None = None

    @property
    def last(self) -> int:
        """The end of the evidence: on a live cluster, now."""
        sampled = self.polled.last or 0 if self.polled is not None else 0
        return max(self.segments.last_timestamp, 0 if self.live is None else self.live.at, sampled)

    @property
    def size(self) -> int:
        """Bytes, about."""
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
    """What the user wants to see, in milliseconds since 1970.

    :raises InputError: nothing can be in it
    """
    since, until = (
        last - when.milliseconds if isinstance(when, BeforeEnd) else when
        for when in (options.since, options.until)
    )
    if since is not None and until is not None and since > until:
        raise InputError("--since is later than --until")
    if since is not None and since > last:
        raise InputError("--since is later than the last record of the evidence")
    return since, until


@dataclass(slots=True, kw_only=True)
class RunSummary:
    """What a run found."""

    out: str
    records: int = 0
    commits: int = 0
    generations: int = 0
    rebalances: int = 0
    #: The first record's time, and the last one's.
    first: int | None = None
    last: int | None = None
    #: What was asked for.
    since: int | None = None
    until: int | None = None
    lines: int = 0
    #: Files of brokers' logs that were given.
    logs: int = 0
    samples: int = 0
    #: What came of polling.
    polled: PollResult | None = None
    #: What there was to read in a cluster.
    live: LiveJournal | None = None
    #: What came of look-ups.
    lookups: LookupResult | None = None
    #: By partition of the journal, from where on all its records are there.
    complete: Mapping[int, JournalPosition] = field(default_factory=dict)
    #: Each group, from when on its records are all there, and whether its first one is.
    windows: list[tuple[str, int, bool]] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)
