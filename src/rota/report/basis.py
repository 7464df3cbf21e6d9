"""What a story rests on, in sentences: the page and the terminal say the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rota.report.evidence import Evidence
from rota.report.moment import moment
from rota.report.story import Mark, Story

UNKNOWN = "unknown"
"""The cause of which nothing is known."""


def lines(story: Story) -> list[str]:
    """The evidence, what is not in it, and what would add to it: a line for each."""
    read = story.evidence
    if read.first is None or read.last is None:
        return [_nothing(read)]
    return [
        _read(story, read.first, read.last),
        *_polled(read.polled),
        *_shown(read),
        *_selected(story),
        *_missing(read),
        _causes(story),
        *_lag(read),
    ]


def counted(number: int, noun: str) -> str:
    """``1 record``, ``2 records``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def known(marks: Iterable[Mark]) -> str:
    """How a number is known, as it stands behind it."""
    return f"({' and '.join(marks)})"


def _nothing(read: Evidence) -> str:
    if read.cluster is not None and not read.cluster["partitions"] and not read.complete:
        return (
            "evidence: the cluster has no journal (__consumer_offsets): no group has ever been here"
        )
    return "evidence: the journal is empty"


def _read(story: Story, first: int, last: int) -> str:
    read, marks = story.evidence, story.marks
    what = f"{counted(read.records, 'record')} {known(marks['records'])}"
    if read.polled and not read.records:
        what = "samples"
    return (
        f"evidence: {what} from {moment(first)} to {moment(last)}; "
        f"{counted(read.commits, 'commit')} {known(marks['commits'])}, "
        f"{counted(read.generations, 'generation')} {known(marks['generations'])}, "
        f"{counted(read.rebalances, 'rebalance')} {known(marks['rebalances'])}"
    )


def _polled(polled: dict[str, Any] | None) -> Iterator[str]:
    """What samples tell, and what they do not."""
    if polled is None:
        return
    yield (
        f"sampled: {counted(len(polled['groups']), 'group')} in "
        f"{counted(polled['rounds'], 'round')}, every {polled['every']:g} s. A rebalance between "
        "two samples that ended where it began is not seen; several are told of as one"
    )
    for gap in polled["gaps"]:
        end = "the end" if gap["end"] is None else moment(gap["end"])
        yield f"gap: no samples from {moment(gap['begin'])} to {end}: {gap['why']}"


def _shown(read: Evidence) -> Iterator[str]:
    if read.since is not None or read.until is not None:
        begin = "the beginning" if read.since is None else moment(read.since)
        end = "the end" if read.until is None else moment(read.until)
        yield f"shown: what happened from {begin} to {end}"


def _selected(story: Story) -> Iterator[str]:
    if len(story.groups) < story.every:
        yield (
            f"shown: {len(story.groups):,} of {counted(story.every, 'group')}; what was read is "
            "counted for all of them, without examples that may name others; causes are of these"
        )


def _missing(read: Evidence) -> Iterator[str]:
    """What compaction took."""
    late = [group for group, _, whole in read.windows if not whole]
    if late:
        yield (
            f"the journal is compacted: of {counted(len(late), 'group')} the beginning is missing "
            f"{known([Mark.INFERRED])}; what is told of them is complete from their first entry on"
        )
    edges = [at for _, offset, at in read.complete if offset]
    if edges:
        yield (
            f"commits: all of them are there from {moment(max(edges))} on "
            f"{known([Mark.INFERRED])}; before, compaction took some, so that lag and inferred "
            "causes rest on fewer"
        )


def _causes(story: Story) -> str:
    read = story.evidence
    unknown = sum(number for cause, _, number in story.causes if cause == UNKNOWN)
    known = {
        how: sum(n for cause, said, n in story.causes if said is how and cause != UNKNOWN)
        for how in (Mark.STATED, Mark.INFERRED, Mark.SAMPLED)
    }
    sampled = f"{known[Mark.SAMPLED]:,} seen in samples, " if read.polled is not None else ""
    text = (
        f"causes: {known[Mark.STATED]:,} stated by the broker's log, "
        f"{known[Mark.INFERRED]:,} inferred from the journal, {sampled}{unknown:,} unknown"
    )
    if read.logs and not read.lines:
        text += "; the log that was given has no line about these groups"
    elif unknown and not read.logs and read.polled is None:
        text += "; --server-log FILE would state them"
    return text


def _lag(read: Evidence) -> Iterator[str]:
    """What lag rests on."""
    lookups = read.lookups
    if lookups is not None and lookups["made"]:
        yield (
            f"lag, from commit to commit: by {counted(lookups['made'], 'look-up')} of ends in "
            f"{counted(lookups['partitions'], 'partition')} {known([Mark.SAMPLED])}, as true as "
            "the timestamps of their records"
        )
    elif not read.samples:
        asked = "--lookups N" if read.cluster is not None else "--bootstrap-servers"
        yield f"lag: not computed; {asked} asks a cluster for log ends, --ends FILE gives samples"
    else:
        yield (
            f"lag, from commit to commit: between {counted(read.samples, 'sample')} of log ends "
            f"{known([Mark.SAMPLED])}"
        )
    if lookups is None:
        return
    if lookups["of_a_time_that_is_deleted"]:
        yield (
            f"lag: {counted(lookups['of_a_time_that_is_deleted'], 'look-up')} found nothing left "
            f"of that time {known([Mark.SAMPLED])}: retention has deleted it"
        )
    if lookups["partitions_left_out"]:
        yield (
            f"lag: {counted(len(lookups['partitions_left_out']), 'partition')} with commits "
            f"{known([Mark.STATED])} not looked up: a larger --lookups N takes them in"
        )
