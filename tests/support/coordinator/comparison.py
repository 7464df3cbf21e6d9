"""Plays cases before Rota and before Kafka, and compares what they leave behind."""

from __future__ import annotations

import functools
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from rota.engine.model.journal_entry import ClassicEntry, GroupMetadataEntry, OffsetCommitEntry
from rota.engine.model.request import OffsetFetch
from tests.support.coordinator.case_run import CaseRun, Side
from tests.support.coordinator.connection import Connection, journal_end, read_journal
from tests.support.coordinator.difference import apply_rules
from tests.support.coordinator.live_side import LiveSide
from tests.support.coordinator.node import CoordinatorSide
from tests.support.coordinator.scripted_member import CONFIG
from tests.support.coordinator.transcript import Step, Transcript, find_difference

Case = Callable[[CaseRun], object]
Name = TypeVar("Name")
#: How many run side by side. Cases spend their time waiting for the broker's timers; those that
#: differ are played again with fewer beside them, and then again, since other work on the machine
#: may be in the way of a single one, too. What really differs does so every time. Every difference
#: of an earlier run stays in the result, and tests print it.
AT_ONCE = (48, 8, 1, 1, 1, 1)


@dataclass(frozen=True, slots=True)
class RepeatedCase:
    """A run that differed, after which the case was run again."""

    #: How many cases were played side by side.
    at_once: int
    difference: str


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What came of a case: the rules that explain a difference, and one that none explains."""

    rules: frozenset[str] = frozenset()
    difference: str | None = None
    #: Earlier plays of the same case, oldest first.
    repeats: tuple[RepeatedCase, ...] = ()


def format_repeats(verdicts: Mapping[str, CaseResult]) -> str:
    """Which cases were played more than once, and each difference seen; empty if none was."""
    told = [
        f"{name}, with {each.at_once} at once: {each.difference}"
        for name, verdict in verdicts.items()
        for each in verdict.repeats
    ]
    return "\n\n".join([f"{len(told)} plays differed and were repeated", *told]) if told else ""


def run_case(case: Case, side: Side, expected: tuple[Step, ...] = ()) -> CaseRun:
    """The stage after the case's last step, which shows what offsets the group has."""
    stage = CaseRun(side, f"group-{uuid.uuid4()}", expected)
    case(stage)
    stage.send("admin", OffsetFetch(group=stage.group))
    return stage


@functools.cache
def run_on_rota(case: Case) -> Transcript:
    """The case before Rota's coordinator."""
    node = CoordinatorSide(CONFIG)
    return transcript(run_case(case, node), node.journal)


def transcript(stage: CaseRun, journal: Iterable[ClassicEntry]) -> Transcript:
    """What the case left behind."""
    return Transcript(tuple(stage.steps), stage.names.of(tuple(map(without_timestamps, journal))))


def without_timestamps(entry: ClassicEntry) -> ClassicEntry:
    """The entry without what differs from run to run, and without the broker's topic ids."""
    match entry:
        case OffsetCommitEntry():
            return replace(entry, commit_timestamp=0, topic_id=None)
        case GroupMetadataEntry():
            return replace(entry, state_timestamp=min(entry.state_timestamp, 0))
        case _:
            return entry


class Comparison(Generic[Name]):
    """Cases that are played before Rota first: what it does tells what to wait for in Kafka."""

    def __init__(self, port: int, cases: Mapping[Name, Case]) -> None:
        self._port = port
        self._cases = cases
        self._expected: dict[Name, Transcript] = {}
        self._at_once: dict[Name, int] = {}
        self.verdicts: dict[Name, CaseResult] = {}
        for name, case in cases.items():
            try:
                expected, rules = apply_rules(run_on_rota(case))
            except Exception as error:  # noqa: BLE001 the other cases shall be judged too
                self.verdicts[name] = CaseResult(difference=f"Rota fails: {error!r}")
            else:
                self._expected[name] = expected
                self.verdicts[name] = CaseResult(rules)

    def _judge(self, name: Name, found: str | None, at_once: int) -> None:
        """Add the result of this run; the results of earlier runs are kept."""
        before = self.verdicts[name]
        repeats = before.repeats
        if before.difference is not None:
            repeats += (RepeatedCase(self._at_once[name], before.difference),)
        self._at_once[name] = at_once
        self.verdicts[name] = replace(before, difference=found, repeats=repeats)

    def run(
        self, names: Iterable[Name], at_once: int, restart: Callable[[], None] | None = None
    ) -> None:
        """Play these cases before Kafka, and judge them."""
        with Connection(self._port) as admin:
            start = journal_end(admin)
        with ThreadPoolExecutor(at_once) as pool:
            known = [name for name in names if name in self._expected]
            played = list(pool.map(lambda name: self._before_kafka(name, restart), known))
        journals: defaultdict[str, list[tuple[int, ClassicEntry]]] = defaultdict(list)
        with Connection(self._port) as admin:
            for offset, entry in read_journal(admin, start, journal_end(admin)):
                journals[entry.group].append((offset, entry))
        for name, outcome in zip(known, played, strict=True):
            if isinstance(outcome, OSError):
                self._judge(name, f"Kafka fails: {outcome!r}", at_once)
                continue
            stage, end = outcome
            # what timers did after the case is not of the case
            journal = [entry for offset, entry in journals[stage.group] if offset < end]
            found = find_difference(self._expected[name], transcript(stage, journal))
            self._judge(name, found, at_once)

    def _before_kafka(
        self, name: Name, restart: Callable[[], None] | None
    ) -> tuple[CaseRun, int] | OSError:
        """What came of a case; an error where the broker gave no answer in time."""
        try:
            with LiveSide(self._port, restart) as live:
                stage = run_case(self._cases[name], live, self._expected[name].steps)
                return stage, live.journal_end()
        except OSError as error:
            return error

    def differing(self) -> list[Name]:
        """The cases that differ by what no rule explains."""
        return [name for name, each in self.verdicts.items() if each.difference is not None]


def compare_cases(port: int, cases: Mapping[Name, Case]) -> dict[Name, CaseResult]:
    """Many cases at once.

    Those that differ are played again, at last one by one: where only the machine was too slow
    for the broker's timers, the difference does not come again.
    """
    comparison = Comparison(port, cases)
    comparison.run(cases, AT_ONCE[0])
    for at_once in AT_ONCE[1:]:
        if again := comparison.differing():
            comparison.run(again, at_once)
    return comparison.verdicts
