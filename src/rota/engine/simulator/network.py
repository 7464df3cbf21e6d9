"""Network models: how long requests and appends take, and which of them fail.

A scenario runs on :class:`ReliableNetwork`; tests have models that lose, repeat and delay messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from rota.engine.model.request import GroupRequest
from rota.engine.simulator.seeded_random import hash_text, mix_numbers
from rota.errors import Code


@dataclass(frozen=True, slots=True)
class Delivery:
    """How one request is delivered. Only messages of different connections may overtake."""

    delay: int  # travel time of the request, in milliseconds
    response_delay: int
    lost: bool = False  # it does not arrive; the member waits for its request timeout
    #: The connection breaks this long after the request was sent, even if a response is under way.
    disconnect_after: int | None = None
    #: The request arrives again after these delays; the responses to the copies are discarded.
    duplicate_delays: tuple[int, ...] = ()


class NetworkModel(Protocol):
    @property
    def is_memoryless(self) -> bool:
        """Whether delivery depends only on time and sender, so that heartbeats may be skipped."""
        ...

    @property
    def max_latency(self) -> int:
        """The longest travel time of a message without faults."""
        ...

    def deliver_request(self, sender: str, request: GroupRequest | None, now: int) -> Delivery:
        """Returns how a request is delivered; None is a search for the coordinator."""
        ...

    def deliver_append(self, now: int) -> tuple[int, Code]: ...


class ReliableNetwork:
    """Every message arrives, after the latency and a jitter from seed, sender and time."""

    is_memoryless = True

    def __init__(
        self, *, latency: int = 1, jitter: int = 0, append: int = 1, seed: int = 0
    ) -> None:
        self._latency = latency
        self._jitter = jitter
        self._append = append
        self._seed = seed
        self._always = Delivery(latency, latency)
        self._numbers: dict[str, int] = {}

    @property
    def max_latency(self) -> int:
        return self._latency + self._jitter

    def deliver_request(self, sender: str, request: GroupRequest | None, now: int) -> Delivery:
        if not self._jitter:
            return self._always
        number = self._numbers.get(sender)
        if number is None:
            number = self._numbers[sender] = hash_text(sender)
        bits = mix_numbers(self._seed, number, now)
        spread = self._jitter + 1
        return Delivery(self._latency + bits % spread, self._latency + (bits >> 32) % spread)

    def deliver_append(self, now: int) -> tuple[int, Code]:
        return self._append, Code.NONE
