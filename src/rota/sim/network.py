"""The way between members and coordinator: how long messages take, and what befalls them.

A :class:`Nature` decides the fate of every message and of every append. :class:`Steady` is what a
scenario runs on; :class:`Shaky` loses, repeats and delays, for tests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from rota.errors import Code
from rota.model.request import Request
from rota.sim.chance import Chance, mixed, text_number


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of one request.

    Messages of one connection never overtake each other; those of different ones may.
    """

    delay: int
    """How long it travels, in milliseconds."""
    reply_delay: int
    lost: bool = False
    """It does not arrive; the member learns of it when its patience ends."""
    cut_after: int | None = None
    """So long after it was sent the connection breaks, whether or not a reply has left by then."""
    copies: tuple[int, ...] = ()
    """It arrives again, after these delays, on other connections whose replies nobody reads: a
    proxy, or a client library, that tries again by itself.
    """


class Nature(Protocol):
    """Decides what befalls messages and appends."""

    @property
    def steady(self) -> bool:
        """True if fates hang on nothing but the moment and the sender, so that heartbeats may be
        skipped without changing the fate of what follows.
        """
        ...

    @property
    def slowest(self) -> int:
        """The longest that a message travels while nothing goes wrong."""
        ...

    def request(self, sender: str, request: Request | None, now: int) -> Fate:
        """The fate of a request; of a search for the coordinator, where there is no request."""
        ...

    def append(self, now: int) -> tuple[int, Code]:
        """How long an append takes, and how it ends."""
        ...


class Steady:
    """Everything arrives, after the latency and up to ``jitter`` more.

    The jitter of a message is a function of seed, sender and moment alone.
    """

    steady = True

    def __init__(
        self, *, latency: int = 1, jitter: int = 0, append: int = 1, seed: int = 0
    ) -> None:
        self._latency = latency
        self._jitter = jitter
        self._append = append
        self._seed = seed
        self._always = Fate(latency, latency)
        self._numbers: dict[str, int] = {}

    @property
    def slowest(self) -> int:
        """Latency and jitter."""
        return self._latency + self._jitter

    def request(self, sender: str, request: Request | None, now: int) -> Fate:
        """It arrives, and so does the reply."""
        if not self._jitter:
            return self._always
        number = self._numbers.get(sender)
        if number is None:
            number = self._numbers[sender] = text_number(sender)
        bits = mixed(self._seed, number, now)
        spread = self._jitter + 1
        return Fate(self._latency + bits % spread, self._latency + (bits >> 32) % spread)

    def append(self, now: int) -> tuple[int, Code]:
        """It succeeds."""
        return self._append, Code.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Odds:
    """How often things go wrong, each from 0 (never) to 1 (always)."""

    slow: float = 0.0
    """A message takes up to ``patience`` longer."""
    lost: float = 0.0
    repeated: float = 0.0
    cut: float = 0.0
    """The connection breaks between a request and its reply."""
    unwritten: float = 0.0
    """An append fails."""
    patience: int = 2_000


class Shaky:
    """Messages are late, lost, repeated or cut off, and appends fail, as often as the odds say.

    ``odds`` may be replaced while a world runs: ``Odds()`` ends all trouble.
    """

    steady = False

    def __init__(self, odds: Odds, chance: Chance, *, latency: int = 1, append: int = 1) -> None:
        self.odds = odds
        self._chance = chance
        self._latency = latency
        self._append = append

    @property
    def slowest(self) -> int:
        """Twice the latency."""
        return self._latency * 2

    def request(self, sender: str, request: Request | None, now: int) -> Fate:
        """As chance will have it."""
        chance, odds = self._chance, self.odds
        cut = chance.between(0, odds.patience) if chance.happens(odds.cut) else None
        copies = chance.between(1, 2) if chance.happens(odds.repeated) else 0
        return Fate(
            delay=self._delay(),
            reply_delay=self._delay(),
            lost=chance.happens(odds.lost),
            cut_after=cut,
            copies=tuple(self._delay() for _ in range(copies)),
        )

    def _delay(self) -> int:
        more = self._chance.below(self._latency + 1)
        if self._chance.happens(self.odds.slow):
            more += self._chance.between(0, self.odds.patience)
        return self._latency + more

    def append(self, now: int) -> tuple[int, Code]:
        """As chance will have it: the disk fails, or the broker is no longer in charge."""
        if not self._chance.happens(self.odds.unwritten):
            return self._append, Code.NONE
        failures = (Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR)
        return self._append, self._chance.pick(failures)
