"""``rota run --follow``: a line for every round, until Ctrl-C."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Protocol

from rota.cli import telling
from rota.cli.screen import count, plain
from rota.model.topic import first_few
from rota.pipeline.evidence import Evidence, Options
from rota.pipeline.follow import follow
from rota.pipeline.round import Round
from rota.pipeline.stage import Progress, Stage


class Screen(Progress, Protocol):
    """Where progress is shown."""

    def status(self, text: str) -> None:
        """What goes on, for who looks at a terminal, until something else is said."""


def run(
    args: argparse.Namespace, evidence: Evidence, out: str, options: Options, screen: Screen
) -> None:
    """Follows until somebody interrupts it; what the tables tell then is told last."""
    told = _Told(screen, out, as_json=args.json)
    try:
        follow(evidence, out, options, told)
    except KeyboardInterrupt:
        screen.status("")
        if told.rounds:
            telling.end(out, as_json=args.json, indent=None)
        raise


class _Told:
    """Rounds as lines on standard output, everything else on the screen."""

    def __init__(self, screen: Screen, out: str, *, as_json: bool) -> None:
        self._screen = screen
        self._out = out
        self._as_json = as_json
        self.rounds = 0

    def began(self, stage: Stage) -> None:
        self._screen.began(stage)

    def ended(self, stage: Stage, note: str) -> None:
        self._screen.ended(stage, note)

    def waiting(self, why: str) -> None:
        self._screen.status(f"{why}; waiting for one, Ctrl-C ends")

    def round(self, done: Round) -> None:
        """Prints the line: who reads a pipe wants it now."""
        self.rounds += 1
        now = time.time()
        if self._as_json:
            line = json.dumps({"at": int(now * 1000)} | asdict(done))
        else:
            line = f"{datetime.fromtimestamp(now, UTC):%H:%M:%S}Z  {said(done)}"
        self._screen.status("")
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
        rounds = count(self.rounds, "round")
        self._screen.status(f"following: {rounds}; tables in {self._out}; Ctrl-C ends")


def said(done: Round) -> str:
    """A round in a line."""
    parts = [
        count(done.records, "record"),
        f"{count(done.groups, 'group')} touched",
        f"{count(done.rebalances, 'new rebalance')}",
    ]
    if done.happened:
        happened = first_few([f"{group} ({cause})" for group, cause in done.happened])
        parts[-1] += f": {plain(happened).plain}"
    if done.unread:
        parts.append(f"{count(done.unread, 'record')} not read")
    return f"{', '.join(parts)}  ({done.seconds:.1f} s)"
