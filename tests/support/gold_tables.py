"""Gold tables of made-up groups, laid out as the pipeline's store does, without Spark.

The groups' members come and go as told (:mod:`tests.support.gold_history`); rebalances, what-if and
advice are the pipeline's own, so that the tables agree with each other. Those of :func:`large`
are columns of numbers (:mod:`tests.support.gold_large`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rota.pipeline import arrow, rebalances
from rota.pipeline.tables import ENDS, GENERATIONS, LAG, OWNERSHIP, REBALANCES, SERVERLOG, STATUS
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
    "write_small",
    "write_spread_rebalances",
    "write_strategy_changes",
]

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


def build_tables(histories: Iterable[History], *, lagging: Sequence[str] = ()) -> Tables:
    """The gold tables of groups.

    :param lagging: those that have rows in gold/lag and gold/status
    """
    made = Tables()
    for history in histories:
        _add(made, history, lagging=history.group in lagging)
    return made


def _add(made: Tables, history: History, *, lagging: bool) -> None:
    generations = arrow.facts_to_batch(GENERATIONS, history.generations)
    lines = [
        {name: getattr(line, name, None) for name in arrow.arrow_schema(SERVERLOG).names}
        | {"file": "server.log", "line": number}
        for number, line in enumerate(history.lines, 1)
    ]
    given = [("generations", generations), ("lines", arrow.rows_to_batch(SERVERLOG, lines))]
    told = list(rebalances.compute_group_rebalances(history.group, given))
    for rows in told:
        made.add(REBALANCES, rows)
    made.add(OWNERSHIP, arrow.facts_to_batch(OWNERSHIP, history.ownership))
    parts = [("generations", generations), *(("rebalances", rows) for rows in told)]
    for rows in rebalances.compute_group_whatif(parts, {}, None):
        for name, table in rebalances.WHATIF_TABLES.items():
            if rows.column(name).null_count < rows.num_rows:
                made.add(table, pa.RecordBatch.from_struct_array(rows.column(name)))
    if lagging:
        _add_lag(made, history)


def _add_lag(made: Tables, history: History) -> None:
    """Each partition is committed ten times from the first rebalance on; after every rebalance it
    is behind, and has caught up two minutes later. Ten records are written a second, from two
    minutes before on; the end is sampled just as often.
    """
    times = [one.at for one in history.generations]
    begin, end = times[0] - 2 * MINUTE, times[-1] + 5 * MINUTE
    rows: list[dict[str, Any]] = []
    for owned in history.ownership:
        for place, at in enumerate(np.linspace(times[0], end, 10).astype(int).tolist()):
            if owned.since <= at and (owned.until is None or at < owned.until):
                since = min(at - time for time in times if time <= at)
                behind = max(2 * MINUTE - since, 0) // 100
                rows.append(
                    {
                        "group": history.group,
                        "topic": owned.topic,
                        "partition": owned.partition,
                        "at": at,
                        "journal_offset": 10_000 * owned.partition + place,
                        "offset": (at - begin) // 100 - behind,
                        "end": (at - begin) // 100,
                        "lag": behind,
                        "lag_seconds": behind / 10,
                        "evidence": "sampled",
                        "member_id": owned.member_id,
                    }
                )
    made.add(LAG, arrow.rows_to_batch(LAG, rows))
    pairs = sorted({(row["topic"], row["partition"]) for row in rows})
    samples = [
        {"topic": topic, "partition": number, "at": at, "beginning": 0, "end": (at - begin) // 100}
        for topic, number in pairs
        for at in np.linspace(begin, end, 11).astype(int).tolist()
    ]
    made.add(ENDS, arrow.rows_to_batch(ENDS, samples))
    verdicts = [
        {"topic": topic, "partition": number, "verdict": "OK", "complete": 1.0}
        for topic, number in pairs
    ]
    verdicts.append({"topic": None, "partition": None, "verdict": "WARN", "complete": 1.0})
    told = [{"group": history.group, "at": end, "lag": 0, **verdict} for verdict in verdicts]
    made.add(STATUS, arrow.rows_to_batch(STATUS, told))


def write_small(folder: Path, run: Run | None = None) -> Path:
    """Six groups: one that should change, one that should keep its policy, one that was sampled,
    one of Connect's, one with a hostile name, and one in which little happened.
    """
    busy = History(group="orders-app", topics={"orders": 12, "refunds": 4})
    busy.join(["app-1", "app-2", "app-3", "app-4"], MORNING, stated=True)
    for hour in (1, 3, 5):
        busy.deploy(MORNING + hour * HOUR)
    busy.join(["app-5"], MORNING + 5 * HOUR + 30 * MINUTE)
    busy.restart("app-2", MORNING + 6 * HOUR, away=20 * SECOND, stated=True)
    calm = History(group="billing", topics={"invoices": 6}, strategy="cooperative-sticky")
    calm.join(["bill-1"], MORNING + 10 * MINUTE)
    calm.join(["bill-2"], MORNING + 20 * MINUTE)
    polled = History(group="audit", topics={"audit": 8}, sampled=True)
    polled.join(["audit-1", "audit-2"], MORNING)
    polled.deploy(MORNING + 2 * HOUR)
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


def write_hostile(folder: Path, run: Run | None = None) -> Path:
    """A group for each hostile name, whose topic, members and clients have hostile names too."""
    histories = []
    for place, name in enumerate(HOSTILE):
        topic, client, other = (HOSTILE[(place + by) % len(HOSTILE)] for by in (1, 2, 3))
        history = History(group=name, topics={topic: 6})
        history.join([client, other, "plain"], MORNING + place * MINUTE, stated=True)
        history.deploy(MORNING + HOUR)
        history.restart(client, MORNING + 2 * HOUR, away=9 * SECOND, stated=True)
        histories.append(history)
    unread = [(name, place + 1, [HOSTILE[place - 1]]) for place, name in enumerate(HOSTILE)]
    made = build_tables(histories, lagging=HOSTILE)
    return made.write(folder, run or Run(unread=unread))


def write_strategy_changes(folder: Path, run: Run | None = None) -> Path:
    """Two groups that changed their strategy: one that should change again, one that is done."""
    moving = History(group="moving", topics={"orders": 12})
    moving.join(["one", "two", "three"], MORNING)
    moving.deploy(MORNING + HOUR)
    moving.strategy = "sticky"
    moving.deploy(MORNING + 3 * HOUR)
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
