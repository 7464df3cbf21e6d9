"""``rota run --poll``: samples the groups of a cluster, and says how far it is."""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.status import Status

from rota.cli.screen import count
from rota.client.cluster import Client
from rota.errors import InputError
from rota.pipeline import poll, store
from rota.pipeline.cluster import Cluster, asked
from rota.pipeline.evidence import Options
from rota.pipeline.poll import Gap, Poll, Polled
from rota.pipeline.redact import Redaction
from rota.sim.duration import written

FOLDER = ".poll"
"""What was seen, in the folder of the tables, until they are made of it."""


@contextmanager
def polled(
    args: argparse.Namespace, cluster: Cluster, out: str, options: Options
) -> Iterator[Polled]:
    """What is seen while it is polled for; it is gone with the block."""
    top = store.checked(out)
    top.mkdir(parents=True, exist_ok=True)
    folder = top.absolute() / FOLDER
    _check_times(options, args.poll_for)
    plan = Poll(
        every=args.poll / 1000,
        length=args.poll_for / 1000,
        until=options.until if isinstance(options.until, int) else None,
        groups=options.groups,
        timeout=args.timeout,
    )
    redaction = Redaction(options.key) if options.redact else None
    try:
        with store.locked(top), _Screen(plan, cluster.servers) as screen:
            shutil.rmtree(folder, ignore_errors=True)
            found = asked(cluster, lambda client: _sample(client, plan, folder, screen, redaction))
        yield found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _check_times(options: Options, length: int) -> None:
    """Whether anything that is seen can be shown: it takes a while to find out otherwise.

    :raises InputError: it cannot
    """
    now = int(time.time() * 1000)
    if isinstance(options.until, int) and options.until <= now:
        raise InputError("--until is in the past: --poll sees what happens from now on")
    if isinstance(options.since, int) and options.since > now + length:
        raise InputError("--since is later than the end of --poll")


async def _sample(
    client: Client, plan: Poll, folder: Path, screen: _Screen, redaction: Redaction | None
) -> Polled:
    return await poll.sample(client, plan, folder, screen, redaction)


class _Screen:
    """On standard error: how far it is, what is lost, and what came of it."""

    def __init__(self, plan: Poll, servers: str) -> None:
        self._plan = plan
        self._servers = servers
        self._console = Console(stderr=True, markup=False, highlight=False, emoji=False)
        self._status: Status | None = None
        self._begun = time.monotonic()
        self._told: Polled | None = None

    def __enter__(self) -> _Screen:
        every, length = (
            written(round(seconds * 1000)) for seconds in (self._plan.every, self._plan.length)
        )
        self._say(
            f"asking {self._servers} for its groups every {every} for {length}; "
            "Ctrl-C ends it and computes what there is"
        )
        if self._console.is_terminal:
            self._status = self._console.status("asking the groups ...")
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()
        if self._told is not None:
            seconds = time.monotonic() - self._begun
            self._say(f"{'sampling groups':<26} {seconds:6.1f} s  {_counted(self._told)}")

    def round(self, polled: Polled) -> None:
        """Shows what was seen so far."""
        self._told = polled
        if polled.rounds == 1 and not polled.groups:
            named = f" like {' or '.join(self._plan.groups)}" if self._plan.groups else ""
            self._say(f"there is no group{named} yet; one is waited for")
        if self._status is not None:
            left = max(self._plan.length - (time.monotonic() - self._begun), 0)
            text = f"asking the groups, {written(round(left) * 1000)} to go: {_counted(polled)}"
            self._status.update(text)

    def lost(self, why: str) -> None:
        """Says that nobody answers."""
        self._say(f"no answer since {datetime.now(UTC):%H:%M:%S}Z, it is tried again: {why}")

    def back(self, gap: Gap) -> None:
        """Says that somebody does."""
        seconds = ((gap.end or gap.begin) - gap.begin) / 1000
        self._say(f"answered again; nothing is known of {seconds:,.0f} s")

    def _say(self, text: str) -> None:
        self._console.print(text, soft_wrap=True)


def _counted(polled: Polled) -> str:
    return (
        f"{count(polled.rounds, 'round')}, {count(len(polled.groups), 'group')}, "
        f"{count(polled.changes, 'state')}, {count(polled.commits, 'offset')}"
    )
