"""Sequences that a table of single requests does not show: what time does, and what follows."""

from __future__ import annotations

from tests.support.coordinator.comparison import Case
from tests.support.coordinator.story import (
    absence,
    delay,
    generation,
    offset,
    silence,
    static,
    strategy,
)

STORIES: dict[str, Case] = {
    story.__name__.replace("_", " "): story
    for room in (delay, silence, absence, generation, strategy, static, offset)
    for story in room.STORIES
}
