"""Runs the pipeline for ``rota run``: from its arguments to what it prints."""

from __future__ import annotations

import argparse
import logging
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from rich.console import Console
from rich.progress import Progress

from rota.cli import follow, setting, telling
from rota.cli.bootstrap import say
from rota.cli.poll import polled
from rota.cli.report import DEMO_OUT, OUT
from rota.client import missing
from rota.client import setting as client_setting
from rota.errors import Unreachable
from rota.pipeline import store, survey
from rota.pipeline.cluster import ACLS, DEFAULTS, Cluster
from rota.pipeline.demo import served, write_day
from rota.pipeline.evidence import Back, Evidence, Options
from rota.pipeline.run import run as run_pipeline
from rota.pipeline.stage import Stage

DAY = ".day"
"""The folder of the demo's evidence, in the one of its tables."""


def run(args: argparse.Namespace) -> None:
    """Reads, computes, writes tables and a page, prints what they tell."""
    signal.signal(signal.SIGTERM, _stop)
    # the bridge to Java logs a traceback when it is interrupted; a person has asked for it
    logging.getLogger().addHandler(logging.NullHandler())
    out = args.out or (DEMO_OUT if args.demo else OUT)
    with ExitStack() as stack:
        told = stack.enter_context(_Progress())
        options = _options(args)
        if args.demo:
            evidence = stack.enter_context(_day(out, args.master, told))
        elif args.poll is not None:
            seen = stack.enter_context(polled(args, _cluster(args), out, options))
            evidence = replace(_given(args), polled=seen)
        else:
            evidence = _evidence(args)
        if args.follow:
            follow.run(args, evidence, out, options, told)
            return
        run_pipeline(evidence, out, options, told)
    telling.end(out, as_json=args.json)


def _stop(_signal: int, _frame: object) -> None:
    """Asked to end: clear up, as for Ctrl-C."""
    raise KeyboardInterrupt


def _evidence(args: argparse.Namespace) -> Evidence:
    live = args.bootstrap_servers is not None or args.command_config is not None
    return replace(_given(args), cluster=_cluster(args) if live else None)


def _given(args: argparse.Namespace) -> Evidence:
    """The files."""
    return Evidence(
        segments=tuple(args.segments),
        server_logs=tuple(args.server_log),
        zone=args.log_zone,
        ends=tuple(args.ends),
    )


def _cluster(args: argparse.Namespace) -> Cluster:
    """The live cluster that the flags name; what is wrong with its settings is said now."""
    if (problem := missing()) is not None:
        raise Unreachable(problem)
    given = setting.given(args)
    for warning in client_setting.read({**DEFAULTS, **given}).warnings:
        say(warning)
    found = Cluster(settings=given, timeout=args.timeout, lookups=args.lookups)
    needs = ACLS if found.lookups else ACLS[:1]
    if args.poll is not None:
        needs = survey.ACLS
    say(f"{found.servers}: this only reads; where there are ACLs, it needs {'; '.join(needs)}")
    return found


def _options(args: argparse.Namespace) -> Options:
    return Options(
        master=args.master,
        since=_moment(args.since),
        until=_moment(args.until),
        groups=tuple(args.group),
        redact=args.redact,
    )


def _moment(told: tuple[str, int] | None) -> int | Back | None:
    match told:
        case ("back", milliseconds):
            return Back(milliseconds)
        case (_, milliseconds):
            return milliseconds
        case _:
            return None


@contextmanager
def _day(out: str, master: str, told: _Progress) -> Iterator[Evidence]:
    """A simulated day, served as by a cluster that has lived it."""
    top = store.checked(out)
    top.mkdir(parents=True, exist_ok=True)
    folder = top / DAY
    with store.locked(top), told.long("simulating a day") as share:
        shutil.rmtree(folder, ignore_errors=True)
        day = write_day(folder, progress=share)
    told.say("simulating a day", f"{day.groups} groups, {day.records:,} records")
    with served(day, master) as cluster:
        yield Evidence(
            cluster=cluster,
            server_logs=(str(day.server_log),),
            ends=(str(day.ends),),
            demo=True,
        )


class _Progress:
    """On standard error: what is being done, and lines for what is done."""

    def __init__(self) -> None:
        self._screen = Console(stderr=True, markup=False, highlight=False, emoji=False)
        self._stack = ExitStack()
        self._since = time.monotonic()

    def __enter__(self) -> _Progress:
        self._stack.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def began(self, stage: Stage) -> None:
        """Shows that something happens."""
        self._since = time.monotonic()
        if self._screen.is_terminal:
            self._stack.close()
            self._stack.enter_context(self._screen.status(f"{stage} ..."))

    def ended(self, stage: Stage, note: str) -> None:
        """Shows what came of it."""
        self._stack.close()
        self.say(stage, note)

    def status(self, text: str) -> None:
        """What goes on until something else is said; nothing, where nobody looks."""
        self._stack.close()
        if text and self._screen.is_terminal:
            self._stack.enter_context(self._screen.status(text))

    def say(self, what: str, note: str) -> None:
        """A line about what is done."""
        seconds = time.monotonic() - self._since
        self._screen.print(f"{what:<26} {seconds:6.1f} s  {note}".rstrip(), soft_wrap=True)

    @contextmanager
    def long(self, what: str) -> Iterator[Callable[[float], None]]:
        """A bar for work that knows its share."""
        self._since = time.monotonic()
        with Progress(
            console=self._screen, transient=True, disable=not self._screen.is_terminal
        ) as bar:
            task = bar.add_task(what, total=1.0)
            yield lambda share: bar.update(task, completed=share)
