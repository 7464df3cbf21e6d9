"""Gold tables of made-up groups, laid out as the pipeline's store does, without Spark.

The groups' members come and go as told (:mod:`tests.support.gold_history`); rebalances, what-if and
advice are the pipeline's own, so that the tables agree with each other. Those of :func:`large`
are columns of numbers (:mod:`tests.support.gold_large`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from rota.engine.history.groups import OverviewBuilder
from rota.pipeline import arrow, lag, rebalances
from rota.pipeline.lag import EndSamples
from rota.pipeline.tables import (
    COMMITS,
    ENDS,
    GENERATIONS,
    GROUPS,
    HEALTH,
    LAG,
    OWNERSHIP,
    SERVERLOG,
    STATUS,
)
from tests.support.gold_history import HOUR, MINUTE, SECOND, History
from tests.support.gold_large import write_large
from tests.support.gold_layout import MORNING, Run, Tables

__all__ = [
    "HOSTILE",
    "LAGS",
    "MORNING",
    "SCRIPT",
    "Run",
    "build_tables",
    "write_empty",
    "write_hostile",
    "write_large",
    "write_sick",
    "write_small",
    "write_spread_rebalances",
    "write_strategy_changes",
]

Rows: TypeAlias = list[dict[str, Any]]
SCRIPT = "<script>alert(1)</script>"
#: Names that break pages which put them together as text.
HOSTILE = (
    SCRIPT,
    "\"double\" 'single' `back` & &amp; </td><img src=x onerror=alert(1)>",
    "right\u202eto\u202dleft \u0627\u0644\u0637\u0644\u0628\u0627\u062a",
    "long-" + "x" * 195,
    "\N{PILE OF POO} \N{FAMILY} e\u0301 \N{ZERO WIDTH JOINER}",
    "bell\x07 escape\x1b[31m tab\t line\nbreak \x7f",
    "javascript:alert(1)//#g=0?__proto__&constructor",
    "]]> --> {{7*7}} ${7*7} %s %00 \\u003cscript\\u003e \u2028 </script>",
)


def build_tables(histories: Sequence[History], *, lagging: Sequence[str] = ()) -> Tables:
    """The gold tables of groups; the evidence ends with the last rebalance of all of them.

    :param lagging: those that have rows in gold/lag and gold/status
    """
    made = Tables()
    until = max((one.at for history in histories for one in history.generations), default=0)
    for history in histories:
        if history.group not in lagging:
            _add(made, history, [], [], until)
            continue
        rows = _LagRows(history)
        _add(made, history, rows.commits, rows.samples, until)
        made.add(LAG, arrow.rows_to_batch(LAG, rows.commits))
        made.add(ENDS, arrow.rows_to_batch(ENDS, rows.samples))
        made.add(STATUS, arrow.rows_to_batch(STATUS, rows.verdicts()))
    return made


def _add(
    made: Tables,
    history: History,
    commits: Rows,
    samples: Rows,
    until: int,
    since: int | None = None,
) -> None:
    """Adds what the pipeline computes of a group: health, rebalances, downtime, advice."""
    generations = arrow.facts_to_batch(GENERATIONS, history.generations)
    lines = [
        {name: getattr(line, name, None) for name in arrow.arrow_schema(SERVERLOG).names}
        | {"file": "server.log", "line": number}
        for number, line in enumerate(history.lines, 1)
    ]
    made.add(OWNERSHIP, arrow.facts_to_batch(OWNERSHIP, history.ownership))
    made.add(SERVERLOG, arrow.rows_to_batch(SERVERLOG, lines))
    committed, ends = _commit_rows(commits), EndSamples()
    ends.add_samples(arrow.rows_to_batch(ENDS, samples))
    parts = [
        ("generations", generations),
        ("lines", arrow.rows_to_batch(SERVERLOG, lines)),
        ("health", _add_health(made, history, commits, samples, until)),
        ("commits", committed),
    ]
    if history.generations:
        builder = OverviewBuilder(history.group)
        *_, last = builder.watch(history.generations)
        state = "Stable" if last.members else "Empty"
        overview = builder.overview(last.kind, state, history.generations[0].at, last.at)
        parts.insert(0, ("overviews", arrow.facts_to_batch(GROUPS, [overview])))
    options = rebalances.GroupOptions(until=until, since=since)
    for name, rows in rebalances.compute_group(parts, options, ends):
        made.add(rebalances.GROUP_TABLES[name], rows)


def _commit_rows(commits: Rows) -> pa.RecordBatch:
    rows = [row | {"journal_partition": 0, "committed_at": row["at"]} for row in commits]
    return arrow.rows_to_batch(COMMITS, rows)


def _add_health(
    made: Tables, history: History, commits: Rows, samples: Rows, until: int
) -> pa.RecordBatch:
    """Adds and returns the row of gold/health."""
    ends, kept = EndSamples(), lag.CommitHistory()
    ends.add_samples(arrow.rows_to_batch(ENDS, samples))
    kept.add_commits(_commit_rows(commits))
    health = lag.health_row(history.group, kept, ends, history.generations, until)
    made.add(HEALTH, health)
    return health


@dataclass
class _LagRows:
    """Each partition is committed ten times from the first rebalance on; after every rebalance it
    is behind, and has caught up two minutes later. Ten records are written a second, from two
    minutes before on; the end is sampled just as often.
    """

    history: History

    @cached_property
    def commits(self) -> Rows:
        """Rows of gold/lag."""
        times = [one.at for one in self.history.generations]
        rows: Rows = []
        for owned in self.history.ownership:
            for place, at in enumerate(np.linspace(times[0], self._end, 10).astype(int).tolist()):
                if owned.since <= at and (owned.until is None or at < owned.until):
                    since = min(at - time for time in times if time <= at)
                    behind = max(2 * MINUTE - since, 0) // 100
                    rows.append(
                        {
                            "group": self.history.group,
                            "topic": owned.topic,
                            "partition": owned.partition,
                            "at": at,
                            "journal_offset": 10_000 * owned.partition + place,
                            "offset": (at - self._begin) // 100 - behind,
                            "end": (at - self._begin) // 100,
                            "lag": behind,
                            "lag_seconds": behind / 10,
                            "evidence": "sampled",
                            "member_id": owned.member_id,
                        }
                    )
        return rows

    @property
    def samples(self) -> Rows:
        """Rows of bronze/ends."""
        return [
            {"topic": topic, "partition": number, "at": at, "beginning": 0}
            | {"end": (at - self._begin) // 100}
            for topic, number in self._partitions
            for at in np.linspace(self._begin, self._end, 11).astype(int).tolist()
        ]

    def verdicts(self) -> Rows:
        """Rows of gold/status."""
        verdicts: Rows = [
            {"topic": topic, "partition": number, "verdict": "OK", "complete": 1.0}
            for topic, number in self._partitions
        ]
        verdicts.append({"topic": None, "partition": None, "verdict": "WARN", "complete": 1.0})
        same = {"group": self.history.group, "at": self._end, "lag": 0}
        return [same | verdict for verdict in verdicts]

    @property
    def _begin(self) -> int:
        return self.history.generations[0].at - 2 * MINUTE

    @property
    def _end(self) -> int:
        return self.history.generations[-1].at + 5 * MINUTE

    @property
    def _partitions(self) -> list[tuple[str, int]]:
        return sorted({(row["topic"], row["partition"]) for row in self.commits})


def write_small(folder: Path, run: Run | None = None) -> Path:
    """Six groups: one that should change, one that should keep its policy, one that was sampled,
    one of Connect's, one with a hostile name, and one in which little happened.
    """
    busy = History(group="orders-app", topics={"orders": 12, "refunds": 4})
    busy.join(["app-1", "app-2", "app-3", "app-4"], MORNING, stated=True)
    busy.deploy(MORNING + HOUR)
    busy.flap("app-5", MORNING + 2 * HOUR, 8)
    busy.join(["app-5"], MORNING + 5 * HOUR + 30 * MINUTE)
    busy.restart("app-2", MORNING + 6 * HOUR, away=20 * SECOND, stated=True)
    calm = History(group="billing", topics={"invoices": 6}, strategy="cooperative-sticky")
    calm.join(["bill-1"], MORNING + 10 * MINUTE)
    calm.join(["bill-2"], MORNING + 20 * MINUTE)
    polled = History(group="audit", topics={"audit": 8}, sampled=True)
    polled.join(["audit-1", "audit-2", "audit-4", "audit-5"], MORNING)
    polled.flap("audit-3", MORNING + 2 * HOUR, 4)
    connect = History(group="connect-sink", topics={}, protocol_type="connect", library=None)
    connect.join(["worker-1", "worker-2"], MORNING + HOUR)
    connect.restart("worker-1", MORNING + 2 * HOUR, away=30 * SECOND)
    strange = History(group=f"{SCRIPT}\"'&", topics={"a&b": 4})
    strange.join(["<b>1</b>", "2"], MORNING)
    strange.deploy(MORNING + 4 * HOUR)
    quiet = History(group="quiet", topics={"quiet": 2})
    quiet.join(["quiet-1"], MORNING)
    made = build_tables(
        [busy, calm, polled, connect, strange, quiet], lagging=["orders-app", "audit", "billing"]
    )
    return made.write(folder, run)


#: Records that a minute brings to each partition in :func:`write_sick`.
ARRIVING = 600


def write_sick(folder: Path, run: Run | None = None, since: int | None = None) -> Path:
    """Groups whose health is bad at the end, one that is OK, and a stuck one whose generations are
    not in the evidence. Partition 1 is what their health is about, from the second hour on.
    """
    made, until = Tables(), MORNING + 6 * HOUR
    consumed = {"well": 600, "behind": 400, "stuck": 0, "gone": 600, "commits-only": 0}
    for name, rate in consumed.items():
        history = History(group=name, topics={f"topic-{name}": 2})
        history.join(["one", "two"], MORNING)
        if name == "gone":
            history.leave(["one", "two"], MORNING + HOUR)
        commits, samples = [], []
        for minute in range(1, 360):
            for partition in range(2):
                where = {"topic": f"topic-{name}", "partition": partition}
                where["at"] = MORNING + minute * MINUTE
                samples.append(where | {"beginning": 0, "end": minute * ARRIVING})
                if name == "gone" and minute >= 60:
                    continue
                late = (minute - 60) * (ARRIVING - rate) if partition and minute > 60 else 0
                commit = {"journal_offset": 2 * minute + partition, "group": name}
                commits.append(where | commit | {"offset": minute * ARRIVING - late})
        if name == "commits-only":
            history.generations.clear()
            _add_health(made, history, commits, samples, until)
        else:
            _add(made, history, commits, samples, until, since)
        made.add(ENDS, arrow.rows_to_batch(ENDS, samples))
    return made.write(folder, run)


def write_hostile(folder: Path, run: Run | None = None) -> Path:
    """A group for each hostile name, whose topic, members and clients have hostile names too."""
    histories = []
    for place, name in enumerate(HOSTILE):
        topic, client, other = (HOSTILE[(place + by) % len(HOSTILE)] for by in (1, 2, 3))
        history = History(group=name, topics={topic: 16})
        history.join([client, "plain"], MORNING + place * MINUTE, stated=True)
        history.flap(other, MORNING + HOUR, 8)
        history.restart(client, MORNING + 5 * HOUR, away=9 * SECOND, stated=True)
        histories.append(history)
    unread = [(name, place + 1, [HOSTILE[place - 1]]) for place, name in enumerate(HOSTILE)]
    made = build_tables(histories, lagging=HOSTILE)
    return made.write(folder, run or Run(unread=unread))


def write_strategy_changes(folder: Path, run: Run | None = None) -> Path:
    """Two groups that changed their strategy: one that should change again, one that is done."""
    moving = History(group="moving", topics={"orders": 12})
    moving.join(["one", "two", "three"], MORNING)
    moving.flap("four", MORNING + HOUR, 4)
    moving.strategy = "sticky"
    moving.flap("four", MORNING + 3 * HOUR, 8)
    settled = History(group="settled", topics={"invoices": 6})
    settled.join(["four", "five"], MORNING)
    settled.strategy = "cooperative-sticky"
    settled.join(["six"], MORNING + HOUR)
    return build_tables([moving, settled]).write(folder, run)


#: Of every half hour: seconds that the oldest record is old, and how many there are.
LAGS = ((40, 6_000), (90, 500), (600, 300), (240, 9_000), (10, 40), (300, 100), (20, 2_500))


def write_spread_rebalances(folder: Path, run: Run | None = None) -> Path:
    """Two groups whose rebalances are hours apart, but for two within seconds, and cost something
    different each; one with lag in seconds, the other with lag in records alone.
    """
    made = []
    for name in ("aged", "ageless"):
        history = History(group=name, topics={"steps": 12})
        history.join(["a", "b"], MORNING)
        history.join(["c"], MORNING + HOUR)
        history.leave(["a"], MORNING + 2 * HOUR)
        history.join(["d", "e"], MORNING + 3 * HOUR)
        history.leave(["c"], MORNING + 4 * HOUR)
        history.restart("b", MORNING + 5 * HOUR, away=15 * SECOND)
        history.join(["f"], MORNING + 6 * HOUR)
        made.append(history)
    found = build_tables(made)
    for history in made:
        rows = [
            {
                "group": history.group,
                "topic": "steps",
                "partition": 3 * place + number,  # committed once: it is behind at that time alone
                "at": MORNING + (place + 1) * HOUR // 2,
                "journal_offset": 100 * place + number,
                "offset": 1_000_000,
                "end": 1_000_000 + records // part,
                "lag": records // part,
                "lag_seconds": seconds / part if history.group == "aged" else None,
                "evidence": "sampled",
                "member_id": None,
            }
            for place, (seconds, records) in enumerate(LAGS)
            for number, part in enumerate((4, 1, 2))
        ]
        found.add(LAG, arrow.rows_to_batch(LAG, rows))
    return found.write(folder, run)


def write_empty(folder: Path, run: Run | None = None) -> Path:
    """Tables without rows: no group had a rebalance."""
    return Tables().write(folder, run)
