"""Sentences about the evidence of a story; the page and the terminal show the same ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rota.report.story import EvidenceMark, EvidenceSummary, Story, format_time

#: The cause of which nothing is known.
UNKNOWN_CAUSE = "unknown"


def evidence_lines(story: Story) -> list[str]:
    """Returns one line each for what was read, what is missing, and which option would add to
    it.
    """
    read = story.evidence
    if read.first is None or read.last is None:
        return [_no_records_line(read)]
    return [
        _records_line(story, read.first, read.last),
        *_sampling_lines(read.polled),
        *_time_range_lines(read),
        *_selection_lines(story),
        *_compaction_lines(read),
        _causes_line(story),
        *_lag_lines(read),
    ]


def count_noun(number: int, noun: str) -> str:
    """``1 record``, ``2 records``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_marks(marks: Iterable[EvidenceMark]) -> str:
    """Formats how a number is known, to be put after it: ``(stated and sampled)``."""
    return f"({' and '.join(marks)})"


def _no_records_line(read: EvidenceSummary) -> str:
    if read.cluster is not None and not read.cluster["partitions"] and not read.complete:
        return (
            "evidence: the cluster has no journal (__consumer_offsets): no group has ever been here"
        )
    return "evidence: the journal is empty"


def _records_line(story: Story, first: int, last: int) -> str:
    read, marks = story.evidence, story.marks
    what = f"{count_noun(read.records, 'record')} {format_marks(marks['records'])}"
    if read.polled and not read.records:
        what = "samples"
    return (
        f"evidence: {what} from {format_time(first)} to {format_time(last)}; "
        f"{count_noun(read.commits, 'commit')} {format_marks(marks['commits'])}, "
        f"{count_noun(read.generations, 'generation')} {format_marks(marks['generations'])}, "
        f"{count_noun(read.rebalances, 'rebalance')} {format_marks(marks['rebalances'])}"
    )


def _sampling_lines(polled: dict[str, Any] | None) -> Iterator[str]:
    """Says what samples can show, and what they cannot."""
    if polled is None:
        return
    yield (
        f"sampled: {count_noun(len(polled['groups']), 'group')} in "
        f"{count_noun(polled['rounds'], 'round')}, every {polled['every']:g} s. A rebalance "
        "between "
        "two samples that ended where it began is not seen; several are told of as one"
    )
    for gap in polled["gaps"]:
        end = "the end" if gap["end"] is None else format_time(gap["end"])
        yield f"gap: no samples from {format_time(gap['begin'])} to {end}: {gap['why']}"


def _time_range_lines(read: EvidenceSummary) -> Iterator[str]:
    if read.since is not None or read.until is not None:
        begin = "the beginning" if read.since is None else format_time(read.since)
        end = "the end" if read.until is None else format_time(read.until)
        yield f"shown: what happened from {begin} to {end}"


def _selection_lines(story: Story) -> Iterator[str]:
    if len(story.groups) < story.total_groups:
        yield (
            f"shown: {len(story.groups):,} of {count_noun(story.total_groups, 'group')}; what "
            "was read is "
            "counted for all of them, without examples that may name others; causes are of these"
        )


def _compaction_lines(read: EvidenceSummary) -> Iterator[str]:
    """Says what log compaction has removed."""
    late = [group for group, _, whole in read.windows if not whole]
    if late:
        yield (
            f"the journal is compacted: of {count_noun(len(late), 'group')} the beginning is "
            "missing "
            f"{format_marks([EvidenceMark.INFERRED])}; what is told of them is complete from "
            "their first entry on"
        )
    edges = [at for _, offset, at in read.complete if offset]
    if edges:
        yield (
            f"commits: all of them are there from {format_time(max(edges))} on "
            f"{format_marks([EvidenceMark.INFERRED])}; before, compaction took some, so that "
            "lag and inferred "
            "causes rest on fewer"
        )


def _causes_line(story: Story) -> str:
    read = story.evidence
    unknown = sum(number for cause, _, number in story.causes if cause == UNKNOWN_CAUSE)
    known = {
        how: sum(n for cause, said, n in story.causes if said is how and cause != UNKNOWN_CAUSE)
        for how in (EvidenceMark.STATED, EvidenceMark.INFERRED, EvidenceMark.SAMPLED)
    }
    sampled = (
        f"{known[EvidenceMark.SAMPLED]:,} seen in samples, " if read.polled is not None else ""
    )
    text = (
        f"causes: {known[EvidenceMark.STATED]:,} stated by the broker's log, "
        f"{known[EvidenceMark.INFERRED]:,} inferred from the journal, {sampled}{unknown:,} unknown"
    )
    if read.logs and not read.lines:
        text += "; the log that was given has no line about these groups"
    elif unknown and not read.logs and read.polled is None:
        text += "; --server-log FILE would state them"
    return text


def _lag_lines(read: EvidenceSummary) -> Iterator[str]:
    """Says what lag was computed from."""
    lookups = read.lookups
    if lookups is not None and lookups["made"]:
        yield (
            f"lag, from commit to commit: by {count_noun(lookups['made'], 'look-up')} of ends in "
            f"{count_noun(lookups['partitions'], 'partition')} "
            f"{format_marks([EvidenceMark.SAMPLED])}, as true as "
            "the timestamps of their records"
        )
    elif not read.samples:
        asked = "--lookups N" if read.cluster is not None else "--bootstrap-servers"
        yield f"lag: not computed; {asked} asks a cluster for log ends, --ends FILE gives samples"
    else:
        yield (
            f"lag, from commit to commit: between {count_noun(read.samples, 'sample')} of log ends "
            f"{format_marks([EvidenceMark.SAMPLED])}"
        )
    if lookups is None:
        return
    if lookups["of_a_time_that_is_deleted"]:
        yield (
            f"lag: {count_noun(lookups['of_a_time_that_is_deleted'], 'look-up')} found "
            "nothing left "
            f"of that time {format_marks([EvidenceMark.SAMPLED])}: retention has deleted it"
        )
    if lookups["partitions_left_out"]:
        yield (
            f"lag: {count_noun(len(lookups['partitions_left_out']), 'partition')} with commits "
            f"{format_marks([EvidenceMark.STATED])} not looked up: a larger --lookups N takes "
            "them in"
        )
