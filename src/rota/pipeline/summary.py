"""What a run found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rota.pipeline.cluster import Live
from rota.pipeline.lookup import Looked
from rota.pipeline.poll import Polled
from rota.pipeline.segment import Edge
from rota.pipeline.unread import Unread


@dataclass(slots=True, kw_only=True)
class Summary:
    """What a run found."""

    out: str
    records: int = 0
    commits: int = 0
    generations: int = 0
    rebalances: int = 0
    first: int | None = None
    """The first record's time, and the last one's."""
    last: int | None = None
    since: int | None = None
    """What was asked for."""
    until: int | None = None
    lines: int = 0
    logs: int = 0
    """Files of brokers' logs that were given."""
    samples: int = 0
    polled: Polled | None = None
    """What came of polling."""
    live: Live | None = None
    """What there was to read in a cluster."""
    looked: Looked | None = None
    """What came of look-ups."""
    complete: Mapping[int, Edge] = field(default_factory=dict)
    """By partition of the journal, from where on all its records are there."""
    windows: list[tuple[str, int, bool]] = field(default_factory=list)
    """Each group, from when on its records are all there, and whether its first one is."""
    unread: list[Unread] = field(default_factory=list)
