"""The network and the disk of a random world; what goes wrong is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from rota.engine.model.request import GroupRequest
from rota.engine.simulator.network import Delivery
from rota.engine.simulator.seeded_random import SeededRandom
from rota.errors import Code

#: What a log says when it cannot be written: no leader, too few replicas, a full disk.
FAILURES = (
    Code.NOT_LEADER_OR_FOLLOWER,
    Code.NOT_ENOUGH_REPLICAS,
    Code.REQUEST_TIMED_OUT,
    Code.KAFKA_STORAGE_ERROR,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRates:
    """How often each fault happens, from 0 (never) to 1 (always)."""

    #: A message takes up to ``patience`` longer.
    slow: float = 0.0
    lost: float = 0.0
    repeated: float = 0.0
    #: The connection breaks between a request and its reply.
    cut: float = 0.0
    #: An append fails.
    append_failed: float = 0.0
    max_delay: int = 2_000


class FaultyNetwork:
    """Messages are late, lost, duplicated or cut off, and appends fail, at the given rates.

    The rates may be replaced while a world runs: ``FaultRates()`` ends all faults.
    """

    is_memoryless = False

    def __init__(
        self, odds: FaultRates, chance: SeededRandom, *, latency: int = 1, append: int = 1
    ) -> None:
        self.rates = odds
        self._chance = chance
        self._latency = latency
        self._append = append

    @property
    def max_latency(self) -> int:
        return self._latency * 2

    def deliver_request(self, sender: str, request: GroupRequest | None, now: int) -> Delivery:
        chance, odds = self._chance, self.rates
        cut = chance.between(0, odds.max_delay) if chance.happens(odds.cut) else None
        copies = chance.between(1, 2) if chance.happens(odds.repeated) else 0
        return Delivery(
            delay=self._delay(),
            response_delay=self._delay(),
            lost=chance.happens(odds.lost),
            disconnect_after=cut,
            duplicate_delays=tuple(self._delay() for _ in range(copies)),
        )

    def _delay(self) -> int:
        more = self._chance.below(self._latency + 1)
        if self._chance.happens(self.rates.slow):
            more += self._chance.between(0, self.rates.max_delay)
        return self._latency + more

    def deliver_append(self, now: int) -> tuple[int, Code]:
        if not self._chance.happens(self.rates.append_failed):
            return self._append, Code.NONE
        failures = (Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR)
        return self._append, self._chance.pick(failures)


CLEAR = FaultRates()


class UnreliableNetwork(FaultyNetwork):
    """As :class:`FaultyNetwork`, with more ways for an append to fail and to be slow."""

    def __init__(
        self,
        odds: FaultRates,
        chance: SeededRandom,
        tally: Counter[str],
        *,
        latency: int,
        append: int,
    ) -> None:
        super().__init__(odds, chance, latency=latency, append=append)
        self._draws = chance
        self._tally = tally
        self._append_time = append
        self._appends = 0
        #: Appends that fail whatever the odds, by their number.
        self.failures: dict[int, Code] = {}
        #: Requests that are lost whatever the odds.
        self.loses: Callable[[str, GroupRequest | None], bool] = lambda sender, request: False

    def stop_faults(self) -> None:
        """Nothing goes wrong from now on."""
        self.rates = CLEAR

    def deliver_request(self, sender: str, request: GroupRequest | None, now: int) -> Delivery:
        fate = super().deliver_request(sender, request, now)
        if self.loses(sender, request):
            fate = replace(fate, lost=True)
        if self.rates is not CLEAR:
            late = max(fate.delay, fate.response_delay) > self.max_latency
            for name, happened in (
                ("message slow", late),
                ("request lost", fate.lost),
                ("request repeated", fate.duplicate_delays),
                ("connection cut", fate.disconnect_after is not None),
            ):
                if happened:
                    self._tally[name] += 1
        return fate

    def deliver_append(self, now: int) -> tuple[int, Code]:
        taken = self._draws.between(0, self._append_time)
        code = self.failures.get(self._appends, Code.NONE)
        self._appends += 1
        if not code and self._draws.happens(self.rates.append_failed):
            code = self._draws.pick(FAILURES)
        if not code:
            return taken, Code.NONE
        self._tally["append failed"] += 1
        self._tally[f"append failed: {code.name}"] += 1
        return taken, code
