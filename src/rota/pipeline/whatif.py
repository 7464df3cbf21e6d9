"""Gold out of gold: every rebalance under other policies, what to do about a group, and who would
have owned what then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
from pyspark.sql import DataFrame

from rota.pipeline import generation, schema
from rota.pipeline.bygroup import Part, each_group
from rota.replay.advice import advise
from rota.replay.advised import advised
from rota.replay.fact import Cause, Generation
from rota.replay.timeline import steps
from rota.replay.whatif import whatif
from rota.tables import ADVICE, ADVISED, WHATIF

COLUMNS = {"whatif": WHATIF, "advice": ADVICE, "advised": ADVISED}
"""A row has one of these, which is a row of that table."""
_KINDS: Mapping[str, str] = {name: schema.struct(table) for name, table in COLUMNS.items()}
MADE = ", ".join(f"{name} {kind}" for name, kind in _KINDS.items())


def alternatives(
    generations: DataFrame,
    rebalances: DataFrame,
    *,
    topic_ids: Mapping[str, bytes],
    since: int | None,
) -> DataFrame:
    """Every rebalance under every policy, advice on every group, and what would have come of it:
    :data:`COLUMNS`.

    :param since: rebalances before it are history, and not counted in the advice
    """

    def read(_: str, parts: Iterable[Part]) -> Iterator[pa.RecordBatch]:
        yield from of_group(parts, topic_ids, since)

    told = rebalances.select("group", "life", "to_generation", "cause", "rollout")
    return each_group(read, MADE, generations=generations, rebalances=told)


def of_group(
    parts: Iterable[Part], topic_ids: Mapping[str, bytes], since: int | None
) -> Iterator[pa.RecordBatch]:
    """One group's: see :func:`alternatives`."""
    made: list[Generation] = []
    reader = generation.Reader()
    causes: dict[tuple[int, int], Cause] = {}
    rollouts: dict[tuple[int, int], str] = {}
    for table, rows in parts:
        if table == "generations":
            made += reader.read(rows)
            continue
        for row in rows.to_pylist():
            key = (row["life"], row["to_generation"])
            causes[key] = Cause(row["cause"])
            if row["rollout"] is not None:
                rollouts[key] = row["rollout"]
    made.sort(key=lambda generation: generation.offset)
    history = taken = steps(made)
    found = whatif(made, history, causes, topic_ids)
    if since is not None:
        taken = [step for step in history if step.after.at >= since]
        found = [row for row in found if row.at >= since]
    if not taken:
        return
    advice = advise(made, taken, found, causes, rollouts)
    owners = advised(made, history, advice, causes, topic_ids)
    shown = [row for row in owners if since is None or row.until is None or row.until >= since]
    for name, facts in (("whatif", found), ("advice", [advice]), ("advised", shown)):
        yield schema.one_of(_KINDS, name, schema.fact_batch(COLUMNS[name], facts))
