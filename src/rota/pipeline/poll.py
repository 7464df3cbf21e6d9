"""Samples the groups of a cluster, again and again, where its journal may not be read.

Each round asks for all groups once (:mod:`.survey`); what differs from the round before is written
down (:mod:`.spool`). A round that fails is a gap, and the next one is tried in its time.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGINT
from typing import Protocol, TypeVar

from rota.client.cluster import Client
from rota.client.retry import hopeless
from rota.errors import Unreachable
from rota.pipeline.redact import Redaction
from rota.pipeline.spool import Spool
from rota.pipeline.survey import Survey, Surveyor
from rota.replay.sample import Watch

TIMEOUT = 30.0
TROUBLES = 20
"""So many different troubles are remembered."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """How to sample."""

    every: float = 5.0
    """Seconds from one round to the next."""
    length: float = 600.0
    """Seconds until the last."""
    until: int | None = None
    """No later than this, in milliseconds since 1970."""
    groups: tuple[str, ...] = ()
    """Only groups whose names are like one of these; none: all."""
    timeout: float = TIMEOUT
    """Seconds for each question."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A time in which no round came about."""

    begin: int
    end: int | None
    """None: to the end."""
    why: str


@dataclass(slots=True, kw_only=True)
class Polled:
    """What came of it."""

    folder: str
    every: float
    rounds: int = 0
    first: int | None = None
    """When the answers of the first round were there, and of the last."""
    last: int | None = None
    groups: set[str] = field(default_factory=set)
    changes: int = 0
    """Groups that were another than the round before."""
    commits: int = 0
    """Offsets that were another than the round before."""
    gaps: list[Gap] = field(default_factory=list)
    denied: dict[str, str] = field(default_factory=dict)
    """Groups and topics that may not be looked at, and what the broker says."""
    troubles: dict[str, int] = field(default_factory=dict)
    """Why something was missing in a round, and in how many."""
    others: set[str] = field(default_factory=set)
    """Groups of kinds that do not share partitions."""

    def add(self, survey: Survey, changes: int, commits: int) -> None:
        """A round."""
        self.rounds += 1
        self.first = survey.look.at if self.first is None else self.first
        self.last = survey.look.at
        self.groups |= survey.look.groups.keys()
        self.changes += changes
        self.commits += commits
        self.denied |= {f"group {name}": why for name, why in survey.denied.items()}
        self.denied |= {f"topic {name}": "no permission" for name in survey.denied_topics}
        self.others |= survey.others
        for trouble in survey.troubles:
            if trouble in self.troubles or len(self.troubles) < TROUBLES:
                self.troubles[trouble] = self.troubles.get(trouble, 0) + 1

    def missing(self) -> Iterator[tuple[str, int, Sequence[str]]]:
        """What was not seen: what it is, how many, which."""
        if self.denied:
            shown = [f"{name}: {why}" for name, why in sorted(self.denied.items())]
            yield "groups and topics without permission", len(shown), shown
        if self.others:
            yield (
                "groups that share no partitions (share, streams)",
                len(self.others),
                sorted(self.others),
            )
        if self.troubles:
            shown = [f"{number:,} times: {why}" for why, number in self.troubles.items()]
            yield "answers while sampling", sum(self.troubles.values()), shown


class Listener(Protocol):
    """Who is told how far it is."""

    def round(self, polled: Polled) -> None:
        """A round is done."""

    def lost(self, why: str) -> None:
        """No broker answers."""

    def back(self, gap: Gap) -> None:
        """One does again."""


async def sample(
    client: Client,
    poll: Poll,
    folder: Path,
    listener: Listener,
    redaction: Redaction | None = None,
) -> Polled:
    """Samples until the time is over, or Ctrl-C; a second Ctrl-C is an interrupt as ever.

    :param folder: where what is seen is written to; it is made
    :raises Unreachable: the first round fails, or nothing may be looked at
    :raises KeyboardInterrupt: it was ended before the first round
    """
    folder.mkdir(parents=True, exist_ok=True)
    polled = Polled(folder=str(folder), every=poll.every)
    with Spool(folder, redaction) as spool, _interruptible() as stop:
        await _Rounds(client, poll, spool, listener, polled, stop).run()
    if not polled.rounds:
        raise KeyboardInterrupt
    return polled


@dataclass(slots=True)
class _Rounds:
    client: Client
    poll: Poll
    spool: Spool
    listener: Listener
    polled: Polled
    stop: asyncio.Event
    watch: Watch = field(default_factory=Watch)
    lost: tuple[int, str] | None = None
    """Since when no round came about, and why."""

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        surveyor = Surveyor(self.client, self.poll.groups, self.poll.timeout)
        end = loop.time() + self._length()
        while not self.stop.is_set():
            begun = loop.time()
            await self._round(surveyor)
            following = max(begun + self.poll.every, loop.time())
            if following > end:
                break
            await self._until(asyncio.sleep(following - loop.time()))
        if self.lost is not None:
            self.polled.gaps.append(Gap(self.lost[0], None, self.lost[1]))

    def _length(self) -> float:
        if self.poll.until is None:
            return self.poll.length
        return min(self.poll.length, self.poll.until / 1000 - time.time())

    async def _round(self, surveyor: Surveyor) -> None:
        begun = time.time_ns() // 1_000_000
        try:
            survey = await self._until(surveyor.survey())
            if survey is not None and not self.polled.rounds:
                await self._until(surveyor.check(survey))
        except Unreachable as error:
            if not self.polled.rounds or hopeless(error):
                raise
            self._lose(begun, str(error))
            return
        if survey is None:
            return
        if self.lost is not None:
            gap = Gap(self.lost[0], survey.look.begun, self.lost[1])
            self.polled.gaps.append(gap)
            self.listener.back(gap)
            self.lost = None
        seen = self.watch.see(survey.look)
        self.spool.add(survey, seen)
        self.polled.add(survey, len(seen.samples), len(seen.commits))
        self.listener.round(self.polled)

    def _lose(self, begun: int, why: str) -> None:
        if self.lost is None:
            self.lost = self.polled.last or begun, why
            self.listener.lost(why)

    async def _until(self, work: Awaitable[T]) -> T | None:
        """What comes of it; None: it was ended before."""
        doing = asyncio.ensure_future(work)
        ended = asyncio.ensure_future(self.stop.wait())
        try:
            await asyncio.wait({doing, ended}, return_when=asyncio.FIRST_COMPLETED)
            return doing.result() if doing.done() else None
        finally:
            for task in (doing, ended):
                if not task.done():
                    task.cancel()
                    with suppress(asyncio.CancelledError):
                        await task


@contextmanager
def _interruptible() -> Iterator[asyncio.Event]:
    """An event that Ctrl-C sets; the second one interrupts."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()

    def interrupt() -> None:
        if stop.is_set() and task is not None:
            task.cancel()
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    loop.add_signal_handler(SIGINT, interrupt)
    try:
        yield stop
    except asyncio.CancelledError:
        if stop.is_set():
            raise KeyboardInterrupt from None
        raise
    finally:
        loop.remove_signal_handler(SIGINT)
