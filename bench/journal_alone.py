"""A journal's segments to rebalances and advice in one process: the core alone, without Spark."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rota.formats import batch, journal
from rota.formats.journal import column
from rota.replay.advice import advise
from rota.replay.cause import explain
from rota.replay.cost import cost
from rota.replay.fact import Written
from rota.replay.rollout import rollouts
from rota.replay.timeline import read as read_timeline
from rota.replay.timeline import steps
from rota.replay.whatif import whatif

Times = dict[tuple[str, int], list[npt.NDArray[np.int64]]]


def read(folder: Path) -> tuple[int, int]:
    """How many groups and rebalances there are. One partition of the journal at a time."""
    groups = rebalances = 0
    for partition in sorted(folder.iterdir()):
        written: dict[str, list[Written]] = defaultdict(list)
        times: dict[str, Times] = defaultdict(lambda: defaultdict(list))
        for file in sorted(partition.glob("*.log")):
            columns = batch.decode(file.read_bytes())
            entries = column.decode_batches(columns)
            _add_times(entries, times)
            for row in np.flatnonzero(entries.type > 1).tolist():
                entry = journal.decode(columns.key(row) or b"", columns.value(row))
                group = entries.groups[int(entries.group[row])]
                at, offset = int(columns.timestamp[row]), int(columns.offset[row])
                written[group].append(Written(offset, at, entry))
        for group, records in written.items():
            groups += 1
            rebalances += _group(group, records, times[group])
    return groups, rebalances


def _add_times(entries: column.Entries, times: dict[str, Times]) -> None:
    commits = entries.commits
    code = (commits.group.astype(np.int64) << 40) | (commits.topic.astype(np.int64) << 24)
    code |= commits.partition
    order = np.argsort(code, kind="stable")
    starts = np.flatnonzero(np.diff(code[order], prepend=-1))
    for rows in np.split(order, starts[1:]) if len(order) else ():
        first = int(rows[0])
        group = entries.groups[int(commits.group[first])]
        topic = entries.topics[int(commits.topic[first])]
        times[group][topic, int(commits.partition[first])].append(commits.commit_timestamp[rows])


def _group(group: str, records: list[Written], times: Times) -> int:
    commits = {key: np.sort(np.concatenate(parts)) for key, parts in times.items()}
    made = read_timeline(group, records, {}).generations
    taken = steps(made)
    explained = [explain(step, commits) for step in taken]
    for step in taken:
        cost(step)
    keys = [(step.after.life, step.after.generation) for step in taken]
    causes = {key: why.cause for key, why in zip(keys, explained, strict=True)}
    names = zip(keys, rollouts(taken, explained), strict=True)
    deploys = {key: name for key, name in names if name is not None}
    advise(made, taken, whatif(made, taken, causes), causes, deploys)
    return len(taken)
