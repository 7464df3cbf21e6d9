"""What a run is asked for, and what there is to read."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from pyspark.sql import DataFrame

from rota.errors import InputError
from rota.pipeline.cluster import Cluster, Live
from rota.pipeline.poll import Polled
from rota.pipeline.segment import Segments
from rota.pipeline.session import LOCAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What to read."""

    segments: tuple[str, ...] = ()
    cluster: Cluster | None = None
    """A live one: its journal, and the ends of what groups have committed."""
    polled: Polled | None = None
    """What polling a cluster has seen."""
    server_logs: tuple[str, ...] = ()
    zone: int = 0
    """Minutes that the logs' clock is ahead of UTC."""
    ends: tuple[str, ...] = ()
    demo: bool = False
    """A simulated day, no cluster of anybody's."""


@dataclass(frozen=True, slots=True)
class Back:
    """A time so many milliseconds before the end of the evidence: the last record of folders, or
    now, where a cluster is asked.
    """

    milliseconds: int


Moment: TypeAlias = int | Back | None
"""Milliseconds since 1970, or before the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to run, and what to look at."""

    master: str = LOCAL
    since: Moment = None
    until: Moment = None
    groups: tuple[str, ...] = ()
    redact: bool = False
    key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    """Of the hashes that take the place of names: whoever polls for this run has the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What is there already: somebody else has read it."""

    journal: DataFrame
    """The records, with the columns of :func:`rota.pipeline.ingest.journal`."""
    names: Mapping[bytes, str] = field(default_factory=dict)
    """Topics by id."""
    samples: DataFrame | None = None
    """Rows of bronze/ends."""
    lines: DataFrame | None = None
    """Rows of bronze/serverlog."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What there is of the journal."""

    segments: Segments
    live: Live | None
    polled: Polled | None = None
    given: Given | None = None

    @property
    def last(self) -> int:
        """The end of the evidence: on a live cluster, now."""
        sampled = self.polled.last or 0 if self.polled is not None else 0
        return max(self.segments.last, 0 if self.live is None else self.live.at, sampled)

    @property
    def size(self) -> int:
        """Bytes, about."""
        return self.segments.size + (self.live.weight if self.live is not None else 0)

    def __str__(self) -> str:
        parts = [] if self.live is None else [str(self.live)]
        if self.polled is not None:
            parts.append(f"{len(self.polled.groups):,} groups sampled")
        if self.segments.files or not parts:
            size, partitions = self.segments.size / 1e6, self.segments.partitions
            parts.append(f"{size:,.1f} MB in {partitions} partitions")
        return "; ".join(parts)


def window(options: Options, last: int) -> tuple[int | None, int | None]:
    """What the user wants to see, in milliseconds since 1970.

    :raises InputError: nothing can be in it
    """
    since, until = (
        last - when.milliseconds if isinstance(when, Back) else when
        for when in (options.since, options.until)
    )
    if since is not None and until is not None and since > until:
        raise InputError("--since is later than --until")
    if since is not None and since > last:
        raise InputError("--since is later than the last record of the evidence")
    return since, until
