"""Runs the pipeline for ``rota run``, in all of its modes, and shows its progress."""

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

from rich.console import Console
from rich.progress import Progress

from rota.cli import flags, report_summary
from rota.cli.render import print_notice, printable_text
from rota.cli.report import DEFAULT_DEMO_OUT, DEFAULT_OUT
from rota.client import config, explain_missing_packages
from rota.engine.model.duration import format_duration
from rota.engine.model.text import count_noun, list_first_names
from rota.errors import InputError, Unreachable
from rota.pipeline import follow, poll, store
from rota.pipeline.cluster import DEFAULT_SETTINGS, JOURNAL_ACLS, LiveCluster, run_with_client
from rota.pipeline.demo import check_demo_groups, serve_day, write_day
from rota.pipeline.follow import MicroBatchResult
from rota.pipeline.poll import PollGap, PollResult, PollSettings
from rota.pipeline.redaction import Redaction
from rota.pipeline.stages import BeforeEnd, EvidenceSources, PipelineStage, RunOptions, run_pipeline

DEMO_FOLDER = ".day"  # folder of the simulated journal, in the folder of the tables


def run_analysis(args: argparse.Namespace) -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # raises KeyboardInterrupt
    # Py4J logs a traceback when Ctrl-C interrupts it
    logging.getLogger().addHandler(logging.NullHandler())
    out = args.out or (DEFAULT_DEMO_OUT if args.demo else DEFAULT_OUT)
    with ExitStack() as stack:
        progress = stack.enter_context(_TerminalProgress())
        options = _options_from_flags(args)
        evidence = EvidenceSources(
            segments=tuple(args.segments),
            server_logs=tuple(args.server_log),
            zone=args.log_zone,
            ends=tuple(args.ends),
        )
        if args.demo:
            check_demo_groups(options.groups)
            evidence = stack.enter_context(_demo_evidence(out, args.master, progress))
        elif args.poll is not None:
            polled = stack.enter_context(_sample_groups(args, out, options, progress))
            evidence = replace(evidence, polled=polled)
        elif args.bootstrap_servers is not None or args.command_config is not None:
            evidence = replace(evidence, cluster=_cluster_from_flags(args))
        if args.follow:
            follow_and_report(args, evidence, out, options, progress)
            return
        run_pipeline(evidence, out, options, progress)
    report_summary.write_and_print_report(out, as_json=args.json)


def _cluster_from_flags(args: argparse.Namespace) -> LiveCluster:
    if (problem := explain_missing_packages()) is not None:
        raise Unreachable(problem)
    settings = flags.read_connection_settings(args)
    for warning in config.read_settings({**DEFAULT_SETTINGS, **settings}).warnings:
        print_notice(warning)
    cluster = LiveCluster(settings=settings, timeout=args.timeout, lookups=args.lookups)
    acls = JOURNAL_ACLS if cluster.lookups else JOURNAL_ACLS[:1]
    if args.poll is not None:
        acls = poll.POLL_ACLS
    text = f"reading {cluster.servers}, nothing is written to it; if it uses ACLs, you need"
    print_notice(f"{text}: {'; '.join(acls)}")
    return cluster


def _options_from_flags(args: argparse.Namespace) -> RunOptions:
    flags.import_from_working_directory(args.strategy)
    reason = "every run replays the built-in strategies; give one of your own as MODULE:CLASS"
    return RunOptions(
        master=args.master,
        since=_time_bound(args.since),
        until=_time_bound(args.until),
        groups=tuple(args.group),
        redact=args.redact,
        strategies=tuple(flags.custom_strategies(args, reason)),
        assignment_interval=args.assignment_interval,
    )


def _time_bound(flag: tuple[str, int] | None) -> int | BeforeEnd | None:
    if flag is None:
        return None
    form, milliseconds = flag
    return BeforeEnd(milliseconds) if form == "back" else milliseconds


@contextmanager
def _demo_evidence(out: str, master: str, progress: _TerminalProgress) -> Iterator[EvidenceSources]:
    top = store.check_output_folder(out)
    top.mkdir(parents=True, exist_ok=True)
    folder = top / DEMO_FOLDER
    with store.lock_folder(top), progress.progress_bar("simulating a day") as share:
        shutil.rmtree(folder, ignore_errors=True)
        day = write_day(folder, progress=share)
    progress.print_line("simulating a day", f"{day.groups} groups, {day.records:,} records")
    with serve_day(day, master) as cluster:
        logs, ends = (str(day.server_log),), (str(day.ends),)
        yield EvidenceSources(cluster=cluster, server_logs=logs, ends=ends, demo=True)


class _TerminalProgress:
    def __init__(self) -> None:
        self._console = Console(stderr=True, markup=False, highlight=False, emoji=False)
        self._status = self._console.status("")
        self._since = time.monotonic()

    def __enter__(self) -> _TerminalProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self._status.stop()

    def began(self, stage: PipelineStage) -> None:
        self.start(f"{stage} ...")

    def start(self, text: str) -> None:
        """Shows a text, and sets the time from which the next line counts seconds."""
        self._since = time.monotonic()
        self.status(text)

    def ended(self, stage: PipelineStage, note: str) -> None:
        self.status("")
        self.print_line(stage, note)

    def status(self, text: str) -> None:
        """Shows a text on a terminal until the next call."""
        if not text:
            self._status.stop()
        elif self._console.is_terminal:
            self._status.update(text)
            self._status.start()

    def print_line(self, label: str, note: str) -> None:
        seconds = time.monotonic() - self._since
        self.print_text(f"{label:<26} {seconds:6.1f} s  {note}".rstrip())

    def print_text(self, text: str) -> None:
        self._console.print(text, soft_wrap=True)

    @contextmanager
    def progress_bar(self, label: str) -> Iterator[Callable[[float], None]]:
        self._since = time.monotonic()
        with Progress(
            console=self._console, transient=True, disable=not self._console.is_terminal
        ) as bar:
            task = bar.add_task(label, total=1.0)
            yield lambda share: bar.update(task, completed=share)


POLL_FOLDER = ".poll"  # folder of the samples, beside the tables, until these are computed


@contextmanager
def _sample_groups(
    args: argparse.Namespace, out: str, options: RunOptions, progress: _TerminalProgress
) -> Iterator[PollResult]:
    """Polls the groups; the files with the samples are deleted when the block ends."""
    cluster = _cluster_from_flags(args)
    top = store.check_output_folder(out)
    top.mkdir(parents=True, exist_ok=True)
    folder = top.absolute() / POLL_FOLDER
    now = int(time.time() * 1000)
    if isinstance(options.until, int) and options.until <= now:
        raise InputError("--until is in the past: --poll samples groups from now on")
    if isinstance(options.since, int) and options.since > now + args.poll_for:
        raise InputError("--since is later than the end of --poll")
    plan = PollSettings(
        every=args.poll / 1000,
        length=args.poll_for / 1000,
        until=options.until if isinstance(options.until, int) else None,
        groups=options.groups,
        timeout=args.timeout,
    )
    redaction = Redaction(options.key) if options.redact else None
    try:
        with store.lock_folder(top), _PollProgress(progress, plan, cluster.servers) as listener:
            shutil.rmtree(folder, ignore_errors=True)
            polled = run_with_client(
                cluster, lambda client: poll.poll_groups(client, plan, folder, listener, redaction)
            )
        yield polled
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _PollProgress:
    def __init__(self, progress: _TerminalProgress, plan: PollSettings, servers: str) -> None:
        self._progress = progress
        self._plan = plan
        self._begun = time.monotonic()
        self._last_polled: PollResult | None = None
        every, length = (format_duration(round(s * 1000)) for s in (plan.every, plan.length))
        text = f"describing the groups of {servers} every {every} for {length}"
        progress.print_text(f"{text}; Ctrl-C ends polling and computes the tables")
        progress.start("describing the groups ...")

    def __enter__(self) -> _PollProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.status("")
        if self._last_polled is not None:
            self._progress.print_line("sampling groups", _format_poll_counts(self._last_polled))

    def round(self, polled: PollResult) -> None:
        self._last_polled = polled
        if polled.rounds == 1 and not polled.groups:
            named = f" named {' or '.join(self._plan.groups)}" if self._plan.groups else ""
            self._progress.print_text(f"no group{named} yet; polling continues")
        left = max(self._plan.length - (time.monotonic() - self._begun), 0)
        time_left, counts = format_duration(round(left) * 1000), _format_poll_counts(polled)
        self._progress.status(f"describing the groups, {time_left} left: {counts}")

    def lost(self, why: str) -> None:
        now = datetime.now(UTC)
        self._progress.print_text(f"no response since {now:%H:%M:%S}Z, retrying: {why}")

    def back(self, gap: PollGap) -> None:
        seconds = ((gap.end or gap.begin) - gap.begin) / 1000
        self._progress.print_text(f"the cluster responds again after a gap of {seconds:,.0f} s")


def _format_poll_counts(polled: PollResult) -> str:
    return (
        f"{count_noun(polled.rounds, 'round')}, {count_noun(len(polled.groups), 'group')}, "
        f"{count_noun(polled.changes, 'state')}, {count_noun(polled.commits, 'offset')}"
    )


def follow_and_report(
    args: argparse.Namespace,
    evidence: EvidenceSources,
    out: str,
    options: RunOptions,
    progress: _TerminalProgress,
) -> None:
    output = _FollowOutput(progress, out, as_json=args.json)
    try:
        follow.follow_cluster(evidence, out, options, output)
    except KeyboardInterrupt:
        progress.status("")
        if output.rounds:
            report_summary.write_and_print_report(out, as_json=args.json, indent=None)
        raise


class _FollowOutput:
    """Prints micro-batches on standard output; passes the rest to the progress display."""

    def __init__(self, progress: _TerminalProgress, out: str, *, as_json: bool) -> None:
        self._progress = progress
        self._out = out
        self._as_json = as_json
        self.began, self.ended = progress.began, progress.ended
        self.rounds = 0

    def waiting(self, why: str) -> None:
        self._progress.status(f"{why}; waiting for the first group; Ctrl-C ends")

    def round(self, done: MicroBatchResult) -> None:
        self.rounds += 1
        line = f"{datetime.now(UTC):%H:%M:%S}Z  {format_round(done)}"
        if self._as_json:
            line = json.dumps({"at": int(time.time() * 1000)} | asdict(done))
        self._progress.status("")
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
        count = f"{self.rounds:,} micro-batch{'es' * (self.rounds != 1)}"
        self._progress.status(f"following: {count}; tables in {self._out}; Ctrl-C ends")


def format_round(done: MicroBatchResult) -> str:
    counts = [
        count_noun(done.records, "record"),
        f"{count_noun(done.groups, 'group')} changed",
        count_noun(done.rebalances, "new rebalance"),
    ]
    if done.happened:
        happened = list_first_names([f"{group} ({cause})" for group, cause in done.happened])
        counts[-1] += f": {printable_text(happened).plain}"
    if done.unread:
        counts.append(f"{count_noun(done.unread, 'record')} not decoded")
    return f"{', '.join(counts)}  ({done.seconds:.1f} s)"
