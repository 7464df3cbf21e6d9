"""Runs the pipeline for ``rota run``, also with ``--demo``, ``--poll`` and ``--follow``, and
shows its progress.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.progress import Progress
from rich.status import Status

from rota.cli import flags, report_summary
from rota.cli.render import count_noun, print_notice, printable_text
from rota.cli.report import DEMO_OUT, OUT
from rota.client import config, missing
from rota.client.cluster import ClusterClient
from rota.engine.model.duration import format_duration
from rota.engine.model.text import list_first_names
from rota.errors import InputError, Unreachable
from rota.pipeline import follow, poll, store
from rota.pipeline.cluster import DEFAULT_SETTINGS, JOURNAL_ACLS, LiveCluster, ask_cluster
from rota.pipeline.demo import serve_day, write_day
from rota.pipeline.evidence import BeforeEnd, EvidenceSources, RunOptions
from rota.pipeline.follow import MicroBatchResult
from rota.pipeline.poll import PollGap, PollResult, PollSettings
from rota.pipeline.redaction import Redaction
from rota.pipeline.stages import PipelineStage, StageListener, run_pipeline

#: The folder of the demo's evidence, in the one of its tables.
DEMO_FOLDER = ".day"


def run_analysis(args: argparse.Namespace) -> None:
    """Runs the pipeline, writes the page, and prints the summary."""
    signal.signal(signal.SIGTERM, _interrupt_on_sigterm)
    # the bridge to Java logs a traceback when it is interrupted; a person has asked for it
    logging.getLogger().addHandler(logging.NullHandler())
    out = args.out or (DEMO_OUT if args.demo else OUT)
    with ExitStack() as stack:
        told = stack.enter_context(_TerminalProgress())
        options = _options_from_flags(args)
        if args.demo:
            evidence = stack.enter_context(_demo_evidence(out, args.master, told))
        elif args.poll is not None:
            seen = stack.enter_context(sample_groups(args, _cluster_from_flags(args), out, options))
            evidence = replace(_files_from_flags(args), polled=seen)
        else:
            evidence = _evidence_from_flags(args)
        if args.follow:
            follow_and_report(args, evidence, out, options, told)
            return
        run_pipeline(evidence, out, options, told)
    report_summary.write_and_print_report(out, as_json=args.json)


def _interrupt_on_sigterm(_signal: int, _frame: object) -> None:
    """Asked to end: clear up, as for Ctrl-C."""
    raise KeyboardInterrupt


def _evidence_from_flags(args: argparse.Namespace) -> EvidenceSources:
    live = args.bootstrap_servers is not None or args.command_config is not None
    return replace(_files_from_flags(args), cluster=_cluster_from_flags(args) if live else None)


def _files_from_flags(args: argparse.Namespace) -> EvidenceSources:
    """The files."""
    return EvidenceSources(
        segments=tuple(args.segments),
        server_logs=tuple(args.server_log),
        zone=args.log_zone,
        ends=tuple(args.ends),
    )


def _cluster_from_flags(args: argparse.Namespace) -> LiveCluster:
    """Returns the live cluster that the flags name, and prints warnings about its settings."""
    if (problem := missing()) is not None:
        raise Unreachable(problem)
    given = flags.read_connection_settings(args)
    for warning in config.read_settings({**DEFAULT_SETTINGS, **given}).warnings:
        print_notice(warning)
    found = LiveCluster(settings=given, timeout=args.timeout, lookups=args.lookups)
    needs = JOURNAL_ACLS if found.lookups else JOURNAL_ACLS[:1]
    if args.poll is not None:
        needs = poll.POLL_ACLS
    print_notice(
        f"{found.servers}: this only reads; where there are ACLs, it needs {'; '.join(needs)}"
    )
    return found


def _options_from_flags(args: argparse.Namespace) -> RunOptions:
    return RunOptions(
        master=args.master,
        since=_time_bound(args.since),
        until=_time_bound(args.until),
        groups=tuple(args.group),
        redact=args.redact,
    )


def _time_bound(told: tuple[str, int] | None) -> int | BeforeEnd | None:
    match told:
        case ("back", milliseconds):
            return BeforeEnd(milliseconds)
        case (_, milliseconds):
            return milliseconds
        case _:
            return None


@contextmanager
def _demo_evidence(out: str, master: str, told: _TerminalProgress) -> Iterator[EvidenceSources]:
    """Simulates a day, and serves it like a cluster that has run it."""
    top = store.check_output_folder(out)
    top.mkdir(parents=True, exist_ok=True)
    folder = top / DEMO_FOLDER
    with store.lock_folder(top), told.progress_bar("simulating a day") as share:
        shutil.rmtree(folder, ignore_errors=True)
        day = write_day(folder, progress=share)
    told.print_line("simulating a day", f"{day.groups} groups, {day.records:,} records")
    with serve_day(day, master) as cluster:
        yield EvidenceSources(
            cluster=cluster,
            server_logs=(str(day.server_log),),
            ends=(str(day.ends),),
            demo=True,
        )


class _TerminalProgress:
    """On standard error: what is being done, and lines for what is done."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, markup=False, highlight=False, emoji=False)
        self._stack = ExitStack()
        self._since = time.monotonic()

    def __enter__(self) -> _TerminalProgress:
        self._stack.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def began(self, stage: PipelineStage) -> None:
        """Shows that something happens."""
        self._since = time.monotonic()
        if self._console.is_terminal:
            self._stack.close()
            self._stack.enter_context(self._console.status(f"{stage} ..."))

    def ended(self, stage: PipelineStage, note: str) -> None:
        """Shows what came of it."""
        self._stack.close()
        self.print_line(stage, note)

    def status(self, text: str) -> None:
        """What goes on until something else is said; nothing, where nobody looks."""
        self._stack.close()
        if text and self._console.is_terminal:
            self._stack.enter_context(self._console.status(text))

    def print_line(self, what: str, note: str) -> None:
        """A line about what is done."""
        seconds = time.monotonic() - self._since
        self._console.print(f"{what:<26} {seconds:6.1f} s  {note}".rstrip(), soft_wrap=True)

    @contextmanager
    def progress_bar(self, what: str) -> Iterator[Callable[[float], None]]:
        """A bar for work that knows its share."""
        self._since = time.monotonic()
        with Progress(
            console=self._console, transient=True, disable=not self._console.is_terminal
        ) as bar:
            task = bar.add_task(what, total=1.0)
            yield lambda share: bar.update(task, completed=share)


#: What was seen, in the folder of the tables, until they are made of it.
POLL_FOLDER = ".poll"


@contextmanager
def sample_groups(
    args: argparse.Namespace, cluster: LiveCluster, out: str, options: RunOptions
) -> Iterator[PollResult]:
    """Samples the groups, and yields what was seen; its files are deleted when the block ends."""
    top = store.check_output_folder(out)
    top.mkdir(parents=True, exist_ok=True)
    folder = top.absolute() / POLL_FOLDER
    _check_poll_times(options, args.poll_for)
    plan = PollSettings(
        every=args.poll / 1000,
        length=args.poll_for / 1000,
        until=options.until if isinstance(options.until, int) else None,
        groups=options.groups,
        timeout=args.timeout,
    )
    redaction = Redaction(options.key) if options.redact else None
    try:
        with store.lock_folder(top), _PollProgress(plan, cluster.servers) as screen:
            shutil.rmtree(folder, ignore_errors=True)
            found = ask_cluster(
                cluster, lambda client: _run_sampling(client, plan, folder, screen, redaction)
            )
        yield found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _check_poll_times(options: RunOptions, length: int) -> None:
    """Checks that ``--since`` and ``--until`` leave something to show, before time is spent on
    sampling.

    :raises InputError: they do not
    """
    now = int(time.time() * 1000)
    if isinstance(options.until, int) and options.until <= now:
        raise InputError("--until is in the past: --poll sees what happens from now on")
    if isinstance(options.since, int) and options.since > now + length:
        raise InputError("--since is later than the end of --poll")


async def _run_sampling(
    client: ClusterClient,
    plan: PollSettings,
    folder: Path,
    screen: _PollProgress,
    redaction: Redaction | None,
) -> PollResult:
    return await poll.poll_groups(client, plan, folder, screen, redaction)


class _PollProgress:
    """On standard error: how far it is, what is lost, and what came of it."""

    def __init__(self, plan: PollSettings, servers: str) -> None:
        self._plan = plan
        self._servers = servers
        self._console = Console(stderr=True, markup=False, highlight=False, emoji=False)
        self._status: Status | None = None
        self._begun = time.monotonic()
        self._last_polled: PollResult | None = None

    def __enter__(self) -> _PollProgress:
        every, length = (
            format_duration(round(seconds * 1000))
            for seconds in (self._plan.every, self._plan.length)
        )
        self._print_line(
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
        if self._last_polled is not None:
            seconds = time.monotonic() - self._begun
            self._print_line(
                f"{'sampling groups':<26} {seconds:6.1f} s  "
                f"{_format_poll_counts(self._last_polled)}"
            )

    def round(self, polled: PollResult) -> None:
        """Shows what was seen so far."""
        self._last_polled = polled
        if polled.rounds == 1 and not polled.groups:
            named = f" like {' or '.join(self._plan.groups)}" if self._plan.groups else ""
            self._print_line(f"there is no group{named} yet; one is waited for")
        if self._status is not None:
            left = max(self._plan.length - (time.monotonic() - self._begun), 0)
            text = (
                f"asking the groups, {format_duration(round(left) * 1000)} to go: "
                f"{_format_poll_counts(polled)}"
            )
            self._status.update(text)

    def lost(self, why: str) -> None:
        """Says that nobody answers."""
        self._print_line(f"no answer since {datetime.now(UTC):%H:%M:%S}Z, it is tried again: {why}")

    def back(self, gap: PollGap) -> None:
        """Says that somebody does."""
        seconds = ((gap.end or gap.begin) - gap.begin) / 1000
        self._print_line(f"answered again; nothing is known of {seconds:,.0f} s")

    def _print_line(self, text: str) -> None:
        self._console.print(text, soft_wrap=True)


def _format_poll_counts(polled: PollResult) -> str:
    return (
        f"{count_noun(polled.rounds, 'round')}, {count_noun(len(polled.groups), 'group')}, "
        f"{count_noun(polled.changes, 'state')}, {count_noun(polled.commits, 'offset')}"
    )


class ProgressWithStatus(StageListener, Protocol):
    """Where progress is shown."""

    def status(self, text: str) -> None:
        """What goes on, for who looks at a terminal, until something else is said."""


def follow_and_report(
    args: argparse.Namespace,
    evidence: EvidenceSources,
    out: str,
    options: RunOptions,
    screen: ProgressWithStatus,
) -> None:
    """Follows the cluster until it is interrupted, then writes the page and prints the summary."""
    told = _FollowOutput(screen, out, as_json=args.json)
    try:
        follow.follow_cluster(evidence, out, options, told)
    except KeyboardInterrupt:
        screen.status("")
        if told.rounds:
            report_summary.write_and_print_report(out, as_json=args.json, indent=None)
        raise


class _FollowOutput:
    """Prints micro-batches as lines on standard output, and passes everything else to the
    progress display.
    """

    def __init__(self, screen: ProgressWithStatus, out: str, *, as_json: bool) -> None:
        self._screen = screen
        self._out = out
        self._as_json = as_json
        self.rounds = 0

    def began(self, stage: PipelineStage) -> None:
        self._screen.began(stage)

    def ended(self, stage: PipelineStage, note: str) -> None:
        self._screen.ended(stage, note)

    def waiting(self, why: str) -> None:
        self._screen.status(f"{why}; waiting for one, Ctrl-C ends")

    def round(self, done: MicroBatchResult) -> None:
        """Prints the line: who reads a pipe wants it now."""
        self.rounds += 1
        now = time.time()
        if self._as_json:
            line = json.dumps({"at": int(now * 1000)} | asdict(done))
        else:
            line = f"{datetime.fromtimestamp(now, UTC):%H:%M:%S}Z  {format_round(done)}"
        self._screen.status("")
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
        rounds = count_noun(self.rounds, "round")
        self._screen.status(f"following: {rounds}; tables in {self._out}; Ctrl-C ends")


def format_round(done: MicroBatchResult) -> str:
    """A round in a line."""
    parts = [
        count_noun(done.records, "record"),
        f"{count_noun(done.groups, 'group')} touched",
        f"{count_noun(done.rebalances, 'new rebalance')}",
    ]
    if done.happened:
        happened = list_first_names([f"{group} ({cause})" for group, cause in done.happened])
        parts[-1] += f": {printable_text(happened).plain}"
    if done.unread:
        parts.append(f"{count_noun(done.unread, 'record')} not read")
    return f"{', '.join(parts)}  ({done.seconds:.1f} s)"
