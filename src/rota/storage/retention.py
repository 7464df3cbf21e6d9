"""Which segments a partition may let go of: too old, too many bytes, or before its start.

Files are removed at once: nobody reads them while that is done, so ``file.delete.delay.ms`` has
nothing to wait for. Each gets the suffix ``.deleted`` first, as a crash may come between.
"""

from __future__ import annotations

from rota.model.config import TopicConfig
from rota.storage import lookup
from rota.storage.scan import Damage
from rota.storage.segment import Segment


def expired(segments: list[Segment], config: TopicConfig, start: int, now: int) -> list[Segment]:
    """Those that go, from the oldest on; an empty last one stays."""
    found: list[Segment] = []
    over = sum(each.size for each in segments) - config.retention_bytes
    for row, segment in enumerate(segments):
        last = row == len(segments) - 1
        if last and not segment.size:
            break
        passed = not last and segment.end <= start
        if not passed and config.deleted:
            too_large = config.retention_bytes >= 0 and over >= segment.size
            passed = too_large or _too_old(segment, config, now)
        if not passed:
            break
        over -= segment.size
        found.append(segment)
    return found


def _too_old(segment: Segment, config: TopicConfig, now: int) -> bool:
    if config.retention < 0:
        return False
    try:
        newest, _ = lookup.newest(segment)
    except Damage as damage:  # nobody can tell how old it is
        segment.tell(damage)
        return False
    return now - (newest if newest >= 0 else segment.written) > config.retention
