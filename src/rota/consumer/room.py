"""How many bytes may be under way, and how many may wait: from the settings, and how many brokers
there are.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from rota.model.client import ReadConfig

LANES: Final = ("fetch", "fetch beside")
"""What the two connections to a broker are for; looking things up has a third."""
LARGE = 8 << 20
"""Bytes of an answer: larger ones are read no faster, and take more memory."""
LEAST = 4 << 20
"""Bytes that an answer may have with any number of brokers: many small ones take longer."""


class Room(NamedTuple):
    """Bytes, as they come from brokers."""

    answer: int
    """In one answer."""
    waiting: int
    """No more is fetched while so many wait to be handed out."""
    resting: int
    """More of what is not to be handed out now is let go of: not less than can come to be there
    when all is paused at once.
    """


def room(config: ReadConfig, brokers: int) -> Room:
    """What there is for so many brokers.

    All answers together have ``fetch.max.bytes``, unless that makes them very small. Half of that
    may wait, or two answers if those are more: so one is under way while another is handed out.
    """
    most, of_partition = config.fetch_max_bytes, config.max_partition_bytes
    fetches = len(LANES) * max(brokers, 1)
    answer = min(most // fetches, max(LARGE, of_partition))
    answer = max(answer, min(LEAST, of_partition, most // 2), 1)
    waiting = max(min(most, max(most // 2, 2 * answer)), 1)
    return Room(answer, waiting, waiting + max(most, fetches * answer))
