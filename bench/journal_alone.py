"""A journal's segments to rebalances and advice in one process: the core alone, without Spark."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rota.engine.formats import journal, record_batch_columns
from rota.engine.history.advice import AdviceEvidence, advise_group
from rota.engine.history.causes import explain_rebalance
from rota.engine.history.downtime import find_downtime, sum_downtime
from rota.engine.history.facts import JournalRecord
from rota.engine.history.generations import read_history as read_timeline
from rota.engine.history.patterns import find_patterns
from rota.engine.history.rebalances import compute_cost, find_rebalances
from rota.engine.history.restarts import find_rollouts
from rota.engine.history.whatif import evaluate_policies

Times = dict[tuple[str, int], list[npt.NDArray[np.int64]]]


def analyze_journal(folder: Path) -> tuple[int, int]:
    """How many groups and rebalances there are. One partition of the journal at a time."""
    groups = rebalances = 0
    for partition in sorted(folder.iterdir()):
        written: dict[str, list[JournalRecord]] = defaultdict(list)
        times: dict[str, Times] = defaultdict(lambda: defaultdict(list))
        for file in sorted(partition.glob("*.log")):
            columns = record_batch_columns.decode_batches(file.read_bytes())
            entries = journal.decode_batch_entries(columns)
            _add_times(entries, times)
            for row in np.flatnonzero(entries.type > 1).tolist():
                entry = journal.decode_record(columns.key(row) or b"", columns.value(row))
                group = entries.groups[int(entries.group[row])]
                at, offset = int(columns.timestamp[row]), int(columns.offset[row])
                written[group].append(JournalRecord(offset, at, entry))
        for group, records in written.items():
            groups += 1
            rebalances += _group(group, records, times[group])
    return groups, rebalances


def _add_times(entries: journal.EntryColumns, times: dict[str, Times]) -> None:
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


def _group(group: str, records: list[JournalRecord], times: Times) -> int:
    commits = {key: np.sort(np.concatenate(parts)) for key, parts in times.items()}
    made = read_timeline(group, records, {}).generations
    rebalances = find_rebalances(made)
    explained = [explain_rebalance(rebalance, commits) for rebalance in rebalances]
    for rebalance in rebalances:
        compute_cost(rebalance)
    rollouts = find_rollouts(rebalances, explained)
    until = max(record.at for record in records)
    downtime = find_downtime(made, rebalances, explained, commits=commits, until=until)
    evidence = AdviceEvidence(
        evaluation=evaluate_policies(made, rebalances, downtime),
        total=sum_downtime(downtime.found),
        patterns=find_patterns(rebalances, explained, rollouts, generations=made, commits=commits),
    )
    advise_group(made, rebalances, evidence)
    return len(rebalances)
