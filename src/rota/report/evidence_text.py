"""Sentences about the input of a run; the page and the terminal show the same ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from rota.engine.model.duration import format_rounded_duration
from rota.engine.model.text import count_noun
from rota.report.story import EvidenceMark, EvidenceSummary, Story, format_time

UNKNOWN_CAUSE = "unknown"
DEMO_TEXT = "DEMO: simulated data, not a real cluster"
NO_REBALANCES = "No group had a rebalance."


def evidence_lines(story: Story) -> list[str]:
    """Returns lines about the input, its gaps, and the options that would add to it."""
    evidence = story.evidence
    if evidence.first is None or evidence.last is None:
        return [f"input: {_describe_no_records(evidence)}"]
    return [
        _records_line(story, evidence.first, evidence.last),
        *_sampling_lines(evidence.polled),
        *_selection_lines(story),
        *_compaction_lines(evidence),
        _causes_line(story),
        *_lag_lines(evidence),
    ]


def input_text(evidence: EvidenceSummary) -> str:
    """Returns the time window of the input, and what it lacks, in one line."""
    if evidence.first is None or evidence.last is None:
        facts = [_describe_no_records(evidence)]
    else:
        begin = evidence.first if evidence.since is None else evidence.since
        length = format_rounded_duration(max(evidence.last - begin, 0))
        facts = [f"{length} to {format_time(evidence.last)}"]
    if unread := sum(number for _, number, _ in evidence.unread):
        facts.append(
            f"{unread:,} not decoded ({', '.join(what for what, _, _ in evidence.unread)})"
        )
    if evidence.polled is not None:
        facts.append(f"sampled every {evidence.polled['every']:g} s")
        if evidence.polled["gaps"]:
            facts[-1] += f" with {count_noun(len(evidence.polled['gaps']), 'gap')}"
    if late := sum(not whole for _, _, whole in evidence.windows):
        facts.append(f"compaction removed the beginning of {count_noun(late, 'group')}")
    if edges := [at for _, offset, at in evidence.complete if offset]:
        facts.append(f"commits complete from {format_time(max(edges))}")
    if evidence.lookups is not None and evidence.lookups["skipped_partitions"]:
        skipped = len(evidence.lookups["skipped_partitions"])
        facts.append(f"no lag for {count_noun(skipped, 'partition')}")
    return "; ".join(facts)


def _describe_no_records(evidence: EvidenceSummary) -> str:
    cluster = evidence.cluster
    if cluster is not None and not cluster["partitions"] and not evidence.complete:
        return "the cluster has no journal (__consumer_offsets) because it never had a group"
    return "the journal is empty"


def format_marks(marks: Iterable[EvidenceMark]) -> str:
    """Formats how a number is known, to be put after it: ``(stated and sampled)``."""
    return f"({' and '.join(marks)})"


def _records_line(story: Story, first: int, last: int) -> str:
    evidence, marks = story.evidence, story.marks
    records = f"{count_noun(evidence.records, 'record')} {format_marks(marks['records'])}"
    if evidence.polled and not evidence.records:
        records = "samples"
    return (
        f"input: {records} from {format_time(first)} to {format_time(last)}; "
        f"{count_noun(evidence.commits, 'commit')} {format_marks(marks['commits'])}, "
        f"{count_noun(evidence.generations, 'generation')} {format_marks(marks['generations'])}, "
        f"{count_noun(evidence.rebalances, 'rebalance')} {format_marks(marks['rebalances'])}"
    )


def _sampling_lines(polled: dict[str, Any] | None) -> Iterator[str]:
    if polled is None:
        return
    yield (
        f"sampled: {count_noun(len(polled['groups']), 'group')} in "
        f"{count_noun(polled['rounds'], 'round')}, every {polled['every']:g} s. Several rebalances "
        "between two samples appear as one, or not at all if the group is the same again"
    )
    for gap in polled["gaps"]:
        end = "the end" if gap["end"] is None else format_time(gap["end"])
        yield f"gap: no samples from {format_time(gap['begin'])} to {end}: {gap['why']}"


def _selection_lines(story: Story) -> Iterator[str]:
    evidence = story.evidence
    if evidence.since is not None or evidence.until is not None:
        begin = "the beginning" if evidence.since is None else format_time(evidence.since)
        end = "the end" if evidence.until is None else format_time(evidence.until)
        yield f"shown: events from {begin} to {end}"
    if len(story.groups) < story.total_groups:
        yield (
            f"shown: {len(story.groups):,} of {count_noun(story.total_groups, 'group')}; the input "
            "is counted for all groups, the causes for the groups shown"
        )


def _compaction_lines(evidence: EvidenceSummary) -> Iterator[str]:
    inferred = format_marks([EvidenceMark.INFERRED])
    if late := sum(not whole for _, _, whole in evidence.windows):
        yield (
            f"the journal is compacted: the beginning of {count_noun(late, 'group')} is missing "
            f"{inferred}; from their first record on these groups are complete"
        )
    if edges := [at for _, offset, at in evidence.complete if offset]:
        yield (
            f"commits: complete from {format_time(max(edges))} on {inferred}; compaction removed "
            "some earlier commits, so lag and inferred causes are less certain before"
        )


def _causes_line(story: Story) -> str:
    evidence = story.evidence
    unknown = sum(number for cause, _, number in story.causes if cause == UNKNOWN_CAUSE)
    counts = Counter[EvidenceMark]()
    for cause, how, number in story.causes:
        counts[how] += number if cause != UNKNOWN_CAUSE else 0
    text = (
        f"causes: {counts[EvidenceMark.STATED]:,} stated by the broker's log, "
        f"{counts[EvidenceMark.INFERRED]:,} inferred from the journal, "
    )
    if evidence.polled is not None:
        text += f"{counts[EvidenceMark.SAMPLED]:,} seen in samples, "
    text += f"{unknown:,} unknown"
    if evidence.logs and not evidence.lines:
        text += "; the broker log has no line about these groups"
    elif unknown and not evidence.logs and evidence.polled is None:
        text += "; --server-log FILE would state them"
    return text


def _lag_lines(evidence: EvidenceSummary) -> Iterator[str]:
    lookups, sampled = evidence.lookups, format_marks([EvidenceMark.SAMPLED])
    if lookups is not None and lookups["made"]:
        yield (
            f"lag: from {count_noun(lookups['made'], 'lookup')} of log ends in "
            f"{count_noun(lookups['partitions'], 'partition')} {sampled}; as exact as the "
            "timestamps of the records"
        )
    elif not evidence.samples:
        option = "--lookups N" if evidence.cluster is not None else "--bootstrap-servers"
        yield f"lag: not computed; use {option} to look up log ends, or --ends FILE with samples"
    else:
        yield f"lag: from {count_noun(evidence.samples, 'sample')} of log ends {sampled}"
    if lookups is None:
        return
    if lookups["before_log_start"]:
        yield (
            f"lag: {count_noun(lookups['before_log_start'], 'lookup')} found no record {sampled}: "
            "retention deleted the records of that time"
        )
    if lookups["skipped_partitions"]:
        yield (
            f"lag: {count_noun(len(lookups['skipped_partitions']), 'partition')} with commits "
            f"{format_marks([EvidenceMark.STATED])} not looked up; use a larger --lookups N"
        )
