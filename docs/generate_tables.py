"""Writes tables.md from the declarations in rota.pipeline.tables: ``make docs``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rota.pipeline.tables import TABLES, Column, Table

PAGE = Path(__file__).with_name("tables.md")

INTRO = """\
# Tables

<!-- Made by `make docs` from src/rota/pipeline/tables.py. Do not edit. -->

`rota run ... --out DIR` writes these tables as Parquet (zstd). Each table is a folder in
`DIR/bronze` (the evidence as read), `DIR/silver` (the decoded evidence) or `DIR/gold` (the
results). Times are in UTC. A run replaces all tables at once, so a reader always sees the tables of
one complete run.

The column `evidence` says how a row is known: `stated` by the broker's log, `inferred` from the
journal, `sampled` from outside, or `bounded`: the true value lies between two bounds.

Downtime is the time in which no member consumed a partition. Its unit is the partition-millisecond:
two partitions without a consumer for three seconds are 6,000.
"""

EXAMPLES_INTRO = """\
## Three questions

Spark reads a table from its folder. Replace `DIR` with the path of `--out`, and pass the query to
`spark.sql`. `group` is a keyword of SQL, so put it in backticks. DuckDB reads the same files with
`read_parquet('DIR/gold/rebalances/*.parquet')`. There, put `"group"` and `"at"` in double quotes:
since DuckDB 1.3, `at` is a keyword too.
"""

LEVELS = {"bronze": "the evidence", "silver": "decoded", "gold": "results"}


@dataclass(frozen=True, slots=True)
class Example:
    """A question, and the SQL that answers it."""

    question: str
    sql: str
    #: What the answer does not say.
    note: str


EXAMPLES = (
    Example(
        "Which rolling deploys cost most?",
        """\
SELECT `group`, rollout, min(at) AS began, max(at) AS ended, count(*) AS rebalances,
       round(sum(downtime_ms) / 1000) AS downtime_seconds, sum(moved) AS moved,
       sum(moves_needed) AS moves_needed
FROM parquet.`DIR/gold/rebalances`
WHERE rollout IS NOT NULL
GROUP BY `group`, rollout
ORDER BY downtime_seconds DESC, `group`, rollout
""",
        "A deploy of static members that return within their session causes no rebalance. Its "
        "downtime is in `gold/downtime`, with the reason `restarted`.",
    ),
    Example(
        "Who owned a partition while it was more than ten seconds behind?",
        """\
SELECT l.`group`, l.topic, l.partition, o.client_id, o.client_host,
       min(l.at) AS first, max(l.at) AS last, max(l.lag) AS records,
       round(max(l.lag_seconds), 1) AS seconds
FROM parquet.`DIR/gold/lag` l
LEFT JOIN parquet.`DIR/gold/ownership` o
  ON o.`group` = l.`group` AND o.topic = l.topic AND o.partition = l.partition
 AND l.at >= o.since AND (o.until IS NULL OR l.at < o.until)
WHERE l.lag_seconds > 10
GROUP BY l.`group`, l.topic, l.partition, o.client_id, o.client_host, o.since
ORDER BY seconds DESC, l.`group`, l.topic, l.partition
""",
        "The owner is null where no member had the partition.",
    ),
    Example(
        "What would each policy have saved each group?",
        """\
WITH used AS (
  SELECT `group`, count_if(happens) AS rebalances, sum(moved) AS moved, sum(downtime_ms) AS downtime
  FROM parquet.`DIR/gold/whatif`
  WHERE actual
  GROUP BY `group`
)
SELECT w.`group`, w.policy,
       round((first(used.downtime) - sum(w.downtime_ms)) / 1000) AS seconds_saved,
       first(used.rebalances) - count_if(w.happens) AS rebalances_saved,
       first(used.moved) - sum(w.moved) AS moves_saved
FROM parquet.`DIR/gold/whatif` w
JOIN used ON used.`group` = w.`group`
GROUP BY w.`group`, w.policy
ORDER BY seconds_saved DESC, w.`group`, w.policy
""",
        "The query compares with the measured downtime, which may be a lucky or an unlucky one. "
        "The advice compares with the expected downtime, `downtime_current_ms` in `gold/advice`, "
        "and ignores savings below `uncertainty_ms`.",
    ),
)

_STRUCT = re.compile(r"(array<)?struct<(.*)>(?(1)>)", re.DOTALL)


def page() -> str:
    """The whole page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield INTRO
    for level, meaning in LEVELS.items():
        yield f"## {level.capitalize()}: {meaning}\n"
        for table in TABLES:
            if table.name.startswith(f"{level}/"):
                yield from _table(table)
    yield EXAMPLES_INTRO
    for example in EXAMPLES:
        yield f"**{example.question}**\n\n```sql\n{example.sql}```\n\n{example.note}\n"


def _table(table: Table) -> Iterator[str]:
    yield f"### `{table.name}`\n"
    yield f"One row is {table.row}. {_key(table)}\n"
    yield "| column | type | meaning |\n|---|---|---|"
    for column in table.columns:
        yield f"| `{column.name}` | {_type(column)} | {_cell(column.meaning)} |"
    for column in table.columns:
        nested = _STRUCT.fullmatch(column.type)
        if nested:
            yield f"\n{'Each of ' if nested[1] else ''}`{column.name}` has `{nested[2]}`."
    yield ""


def _key(table: Table) -> str:
    if not table.key:
        return "The table has one row."
    return f"Key: {', '.join(f'`{name}`' for name in table.key)}."


def _type(column: Column) -> str:
    nested = _STRUCT.fullmatch(column.type)
    shown = column.type if nested is None else "array<struct>" if nested[1] else "struct"
    return f"{_cell(shown)}{'' if column.required else ', or null'}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace(">", "&gt;")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
