"""Compares measured downtime with the true downtime of the recorded runs.

The measured pieces of a partition are merged where they touch, and their bounds are added. Measured
pieces and true gaps that overlap are one comparison. A slow poll counts from the owner's last poll
if the measure claims a time without polls there, and from its leave otherwise: the journal alone
cannot tell how long a member that left had not polled.
"""

from __future__ import annotations

import base64
import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np

from rota.engine.history.causes import CommitTimes, explain_rebalance
from rota.engine.history.facts import (
    Downtime,
    DowntimeReason,
    Explanation,
    LogLine,
    Rebalance,
)
from rota.engine.history.generations import GroupHistory, read_history
from rota.engine.history.rebalances import find_rebalances
from tests.support import first_recording, second_recording
from tests.support.captured_downtime import (
    GapType,
    Partition,
    TrueGap,
    find_true_downtime,
    find_true_gaps,
    recording_end,
)

#: A measure of a group's downtime, with or without the broker's log.
Measure = Callable[[str, bool], Sequence[Downtime]]

#: Shorter gaps may be missed.
SHORT_GAP_MS = 50
#: Longer gaps may not be missed, and longer pieces may not be invented.
LONG_GAP_MS = 250
#: Callbacks and records have their own times, a few milliseconds apart.
SLACK_MS = 50
#: With the log 95 % of exact pieces may be wrong by this much, and all by the second.
USUAL_ERROR_MS, LARGEST_ERROR_MS, USUAL_SHARE = 500, 2_000, 0.95


# Evidence for a measure.


@dataclass(frozen=True, slots=True)
class GroupEvidence:
    """What is known about a group of a recorded run."""

    history: GroupHistory
    rebalances: Sequence[Rebalance]
    #: Of each rebalance.
    explanations: Sequence[Explanation]
    commits: CommitTimes
    lines: Sequence[LogLine]
    #: End of the evidence.
    until: int


@cache
def read_evidence(group: str, with_log: bool) -> GroupEvidence:
    if group.startswith("a-"):
        history = first_recording.read_histories()[group]
        commits = first_recording.read_commit_times(group)
        lines = first_recording.read_log_lines(group)
    else:
        history = read_history(group, second_recording.read_journal()[group], _second_run_topics())
        commits = second_recording.read_commit_times(group)
        lines = second_recording.read_log_lines(group)
    rebalances = find_rebalances(history.generations)
    kept = lines if with_log else ()
    return GroupEvidence(
        history,
        rebalances,
        [explain_rebalance(one, commits, kept) for one in rebalances],
        commits,
        kept,
        recording_end(group),
    )


def _second_run_topics() -> Mapping[bytes, str]:
    """Topics by id. Only ``b-next`` names topics by id; their numbers of partitions differ."""
    ids = {
        "ZEwi9CQaRPOXQ_RXgN_Tvw": "orders",
        "rWoi2lM0RTOj_dwNjnnpWQ": "audit",
    }
    return {base64.urlsafe_b64decode(text + "=="): name for text, name in ids.items()}


# Merged pieces.


@dataclass(frozen=True, slots=True)
class MeasuredGap:
    """Touching pieces of measured downtime of a partition."""

    pieces: tuple[Downtime, ...]

    @property
    def since(self) -> int:
        return self.pieces[0].since

    @property
    def until(self) -> int:
        return max(piece.until for piece in self.pieces)

    @property
    def is_ended(self) -> bool:
        return all(piece.ended for piece in self.pieces)

    @property
    def at_least_ms(self) -> int:
        return sum(piece.at_least_ms for piece in self.pieces)

    @property
    def at_most_ms(self) -> int:
        return sum(piece.at_most_ms for piece in self.pieces)

    @property
    def reasons(self) -> tuple[DowntimeReason, ...]:
        return tuple(reason for reason, _ in itertools.groupby(one.reason for one in self.pieces))


def merge_pieces(pieces: Iterable[Downtime]) -> Mapping[Partition, Sequence[MeasuredGap]]:
    """Merges pieces of a partition that touch or overlap."""
    found: dict[Partition, list[MeasuredGap]] = defaultdict(list)
    for piece in sorted(pieces, key=lambda piece: (piece.since, piece.until)):
        merged = found[piece.topic, piece.partition]
        if merged and piece.since <= merged[-1].until:
            merged[-1] = MeasuredGap((*merged[-1].pieces, piece))
        else:
            merged.append(MeasuredGap((piece,)))
    return found


# Comparison.


@dataclass(frozen=True, slots=True, kw_only=True)
class GapComparison:
    """Measured downtime of a partition, and the true gaps that overlap with it."""

    group: str
    topic: str
    partition: int
    measured: tuple[MeasuredGap, ...]
    truth: tuple[TrueGap, ...]
    #: End of the recording: open gaps end there.
    end: int

    @property
    def true_ms(self) -> int:
        return sum(self._true_end(gap) - gap.since for gap in self.truth)

    @property
    def measured_ms(self) -> int:
        return sum(gap.until - gap.since for gap in self.measured)

    @property
    def at_least_ms(self) -> int:
        return sum(gap.at_least_ms for gap in self.measured)

    @property
    def at_most_ms(self) -> int:
        return sum(gap.at_most_ms for gap in self.measured)

    @property
    def width_ms(self) -> int:
        return self.at_most_ms - self.at_least_ms

    @property
    def error_ms(self) -> int:
        """Measured minus true length."""
        return self.measured_ms - self.true_ms

    @property
    def since_error_ms(self) -> int:
        return self.measured[0].since - self.truth[0].since

    @property
    def until_error_ms(self) -> int:
        return self.measured[-1].until - self._true_end(self.truth[-1])

    @property
    def is_bounded(self) -> bool:
        return self.at_least_ms < self.at_most_ms

    @property
    def reasons(self) -> tuple[DowntimeReason, ...]:
        return tuple(reason for gap in self.measured for reason in gap.reasons)

    @property
    def kinds(self) -> tuple[GapType, ...]:
        return tuple(gap.kind for gap in self.truth)

    def outside_ms(self) -> int:
        """By how much the true length is below (negative) or above the bounds."""
        if self.true_ms < self.at_least_ms:
            return self.true_ms - self.at_least_ms
        return max(self.true_ms - self.at_most_ms, 0)

    def contains_truth(self, slack: int = SLACK_MS) -> bool:
        return abs(self.outside_ms()) <= slack

    def _true_end(self, gap: TrueGap) -> int:
        if gap.until is not None:
            return gap.until
        # the journal ends a little before or after the recording
        last = self.measured[-1] if self.measured else None
        return last.until if last is not None and not last.is_ended else self.end

    def describe(self) -> str:
        start = self.measured[0].since if self.measured else self.truth[0].since
        words = [f"{self.group} {self.topic}-{self.partition} at {start}:"]
        if self.truth:
            words.append(f"true {self.true_ms} ms ({', '.join(self.kinds)})")
        if self.measured:
            words.append(
                f"measured {self.measured_ms} ms [{self.at_least_ms}, {self.at_most_ms}]"
                f" ({', '.join(self.reasons)})"
            )
        if self.truth and self.measured:
            words.append(f"since {self.since_error_ms:+} until {self.until_error_ms:+}")
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class DowntimeReport:
    """All comparisons of a measure."""

    with_log: bool
    #: Measured and true.
    matched: list[GapComparison] = field(default_factory=list)
    #: True gaps longer than ``LONG_GAP_MS`` that were not measured.
    missed: list[GapComparison] = field(default_factory=list)
    #: Measured pieces of at least ``LONG_GAP_MS`` without a true gap.
    invented: list[GapComparison] = field(default_factory=list)
    #: Shorter missed gaps, and pieces that may be shorter.
    ignored: list[GapComparison] = field(default_factory=list)

    def failures(self, slack: int = SLACK_MS) -> list[str]:
        """Returns what breaks the rule of acceptance; empty: the measure is accepted."""
        found = [f"missed: {one.describe()}" for one in self.missed]
        found += [f"invented: {one.describe()}" for one in self.invented]
        if not self.with_log:
            found += [
                f"outside its bounds by {one.outside_ms()} ms: {one.describe()}"
                for one in self.matched
                if not one.contains_truth(slack)
            ]
            return found
        # an exact piece is accepted by its error, a bounded one by its bounds too
        errors = {
            id(one): 0 if one.is_bounded and one.contains_truth(slack) else abs(one.error_ms)
            for one in self.matched
        }
        found += [
            f"wrong by {one.error_ms:+} ms: {one.describe()}"
            for one in self.matched
            if errors[id(one)] > LARGEST_ERROR_MS
        ]
        unusual = [one for one in self.matched if errors[id(one)] > USUAL_ERROR_MS]
        if len(unusual) > (1 - USUAL_SHARE) * len(self.matched):
            found.append(f"{len(unusual)} of {len(self.matched)} are wrong by more than 0.5 s")
            found += [f"wrong by {one.error_ms:+} ms: {one.describe()}" for one in unusual]
        return found

    def summary(self) -> str:
        """A table of errors and widths by the true kind of the gaps."""
        head = f"{'with' if self.with_log else 'without'} the log: {len(self.matched)} compared,"
        lines = [
            f"{head} {len(self.missed)} missed, {len(self.invented)} invented,"
            f" {len(self.ignored)} short ones ignored",
            f"{'kind':34}{'n':>5}{'exact':>6}{'in bounds':>10}"
            + "".join(f"{title:>17}{'95%':>7}{'max':>7}" for title in _COLUMNS),
        ]
        by_kind: dict[str, list[GapComparison]] = defaultdict(list)
        for one in self.matched:
            by_kind[" + ".join(dict.fromkeys(one.kinds))].append(one)
        for kind, all_of_kind in [*sorted(by_kind.items()), ("all", self.matched)]:
            if all_of_kind:
                lines.append(_summary_line(kind, all_of_kind))
        return "\n".join(lines)


#: Titles of a summary's columns, and their values.
_COLUMNS: Mapping[str, Callable[[GapComparison], int]] = {
    "|error| median": lambda one: abs(one.error_ms),
    "|since| median": lambda one: abs(one.since_error_ms),
    "|until| median": lambda one: abs(one.until_error_ms),
    "width median": lambda one: one.width_ms,
}


def _summary_line(kind: str, compared: Sequence[GapComparison]) -> str:
    exact = sum(not one.is_bounded for one in compared)
    contained = sum(one.contains_truth() for one in compared)
    numbers = []
    for value in _COLUMNS.values():
        values = np.array([value(one) for one in compared])
        high = np.percentile(values, 95)
        numbers.append(f"{np.median(values):>17.0f}{high:>7.0f}{values.max():>7.0f}")
    return f"{kind:34}{len(compared):>5}{exact:>6}{contained:>10}{''.join(numbers)}"


def compare_with_truth(
    measure: Measure, groups: Collection[str], *, with_log: bool
) -> DowntimeReport:
    """Compares what ``measure`` returns for each group with the callbacks of its clients."""
    report = DowntimeReport(with_log)
    for group in groups:
        for comparison in compare_group(group, measure(group, with_log)):
            if comparison.measured and comparison.truth:
                report.matched.append(comparison)
            elif comparison.truth:
                long = comparison.true_ms > LONG_GAP_MS
                (report.missed if long else report.ignored).append(comparison)
            else:
                long = comparison.at_least_ms > LONG_GAP_MS
                (report.invented if long else report.ignored).append(comparison)
    return report


def compare_group(group: str, pieces: Sequence[Downtime]) -> list[GapComparison]:
    """Pairs the measured pieces of a group with the true gaps that they overlap."""
    end = recording_end(group)
    measured = merge_pieces(piece for piece in pieces if piece.since < end)
    truth: dict[Partition, list[TrueGap]] = defaultdict(list)
    for gap in find_true_downtime(group):
        truth[gap.topic, gap.partition].append(gap)
    found = []
    for topic, partition in sorted({*measured, *truth}):
        key = topic, partition
        spans: list[tuple[int, int, MeasuredGap | TrueGap]] = [
            (gap.since, gap.until, gap) for gap in measured.get(key, ())
        ]
        spans += [(gap.since, gap.until or end, gap) for gap in truth[key]]
        for cluster in _overlapping(spans):
            pairs = tuple(one for one in cluster if isinstance(one, MeasuredGap))
            gaps = tuple(one for one in cluster if isinstance(one, TrueGap))
            if not any(DowntimeReason.NOT_POLLED in one.reasons for one in pairs):
                gaps = tuple(_without_pause(gap) for gap in gaps)
            found.append(
                GapComparison(
                    group=group,
                    topic=topic,
                    partition=partition,
                    measured=pairs,
                    truth=gaps,
                    end=end,
                )
            )
    return found


def _overlapping(
    spans: Iterable[tuple[int, int, MeasuredGap | TrueGap]],
) -> list[list[MeasuredGap | TrueGap]]:
    """Groups times that overlap; measured and true times may miss each other by the slack."""
    found: list[list[MeasuredGap | TrueGap]] = []
    last = -1
    for since, until, gap in sorted(spans, key=lambda span: span[:2]):
        if found and since <= last:
            found[-1].append(gap)
        else:
            found.append([gap])
            last = -1
        last = max(last, until + SLACK_MS)
    return found


def _without_pause(gap: TrueGap) -> TrueGap:
    """The gap from the leave of the owner on."""
    if gap.kind is not GapType.SLOW_POLL:
        return gap
    left = next(
        one.since
        for one in find_true_gaps(gap.group)
        if (one.topic, one.partition, one.until) == (gap.topic, gap.partition, gap.until)
    )
    return replace(gap, since=left)
