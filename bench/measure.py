"""CPU seconds and peak memory of a call, and whether others took the machine's time meanwhile."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TypeVar

Made = TypeVar("Made")
Result = TypeVar("Result")


MOST_RUNS = 100
#: Seconds between looks at a call's CPU.
ASK_EVERY = 0.2
STAT = Path("/proc/stat")
#: In its first line: ticks that the cores were ready to run, and the host let others run.
STOLEN_AT = 8
#: Of the machine's time: with less of it stolen, a run counts.
CALM = 0.03
MOST_TRIES = 5


class TimeLimitExceeded(Exception):
    """A call used more CPU than it may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The CPU seconds and memory that a program took for a step, and its result."""

    #: CPU of the best run; of the one under way where ``over``; None if there is no result.
    seconds: float | None
    #: It was stopped: the true figure is higher.
    over: bool = False
    loads: tuple[int, int] | None = None
    moved: int | None = None
    #: Bytes above the input.
    peak: int | None = None
    #: Why there is no result, or what is wrong with it.
    trouble: str | None = None


def may_run_again(spent: Sequence[float], budget: float) -> bool:
    """Is there budget for another run? Long ones get three within three budgets."""
    used = sum(spent)
    return len(spent) < MOST_RUNS and (used < budget or (len(spent) < 3 and used < 3 * budget))


@contextlib.contextmanager
def time_limit(limit: float) -> Iterator[None]:
    """Stops what runs inside once it has used so much CPU.

    A timer of wall time asks now and then. One of CPU time would make the kernel count this
    process's CPU in ticks of milliseconds, and the best of several short runs would be nothing.
    """
    start = time.process_time()

    def ask(_signal: int, _frame: FrameType | None) -> None:
        if time.process_time() - start > limit:
            raise TimeLimitExceeded

    previous = signal.signal(signal.SIGALRM, ask)
    signal.setitimer(signal.ITIMER_REAL, ASK_EVERY, ASK_EVERY)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def best_run(
    prepare: Callable[[], Made], call: Callable[[Made], Result], *, limit: float, budget: float
) -> tuple[float, Result]:
    """The least CPU that the call takes, and what it gave.

    Each run gets an input of its own, made outside the clock: what an input keeps for later
    must not make the second run look faster than the first.
    """
    spent: list[float] = []
    while True:
        made = prepare()
        gc.collect()
        with time_limit(limit):
            start = time.process_time()
            result = call(made)
            spent.append(time.process_time() - start)
        if not may_run_again(spent, budget):
            return min(spent), result


def best_mean(call: Callable[[], object], *, calls: int = 100, rounds: int = 10) -> float:
    """CPU of a short call: the best mean of several rounds."""
    means = []
    for _ in range(rounds):
        gc.collect()
        start = time.process_time()
        for _ in range(calls):
            call()
        means.append((time.process_time() - start) / calls)
    return min(means)


def peak_memory(prepare: Callable[[], Made], call: Callable[[Made], object]) -> int:
    """The most bytes that the call holds at once, its result included, its input not."""
    made = prepare()
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        call(made)
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def run_when_calm(call: Callable[[], Result]) -> Result:
    """What a call gives while the host leaves the machine its cores, or in the calmest of some
    tries. Those who use both cores suffer more from a host that is busy than those who use one.
    """
    tries: list[tuple[float, Result]] = []
    while len(tries) < MOST_TRIES:
        began, before = time.monotonic(), _stolen_seconds()
        result = call()
        share = (_stolen_seconds() - before) / ((time.monotonic() - began) * (os.cpu_count() or 1))
        tries.append((share, result))
        if share < CALM:
            break
    return min(tries, key=lambda each: each[0])[1]


def _stolen_seconds() -> float:
    """Seconds of all cores since the machine started; 0 where that is not known."""
    if not STAT.exists():
        return 0.0
    ticks = int(STAT.read_text().split(maxsplit=STOLEN_AT + 1)[STOLEN_AT])
    return ticks / os.sysconf("SC_CLK_TCK")
