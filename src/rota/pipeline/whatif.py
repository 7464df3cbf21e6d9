"""Gold out of gold: every rebalance under other policies, and what to do about a group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
from pyspark.sql import DataFrame

from rota.pipeline import generation, schema
from rota.pipeline.bygroup import Part, each_group
from rota.replay.advice import advise
from rota.replay.fact import Cause, Generation
from rota.replay.timeline import steps
from rota.replay.whatif import whatif
from rota.tables import ADVICE, WHATIF

_KINDS: Mapping[str, str] = {"whatif": schema.struct(WHATIF), "advice": schema.struct(ADVICE)}
MADE = ", ".join(f"{name} {kind}" for name, kind in _KINDS.items())
"""A row has ``whatif``, a row of gold/whatif, or ``advice``, one of gold/advice."""


def alternatives(
    generations: DataFrame,
    rebalances: DataFrame,
    *,
    topic_ids: Mapping[str, bytes],
    since: int | None,
) -> DataFrame:
    """Every rebalance under every policy, and advice on every group: :data:`MADE`.

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
    taken = steps(made)
    found = whatif(made, taken, causes, topic_ids)
    if since is not None:
        taken = [step for step in taken if step.after.at >= since]
        found = [row for row in found if row.at >= since]
    if not taken:
        return
    told = [schema.fact_row(WHATIF, each) for each in found]
    yield schema.one_of(_KINDS, "whatif", schema.batch(WHATIF, told))
    advice = advise(made, taken, found, causes, rollouts)
    yield schema.one_of(_KINDS, "advice", schema.batch(ADVICE, [schema.fact_row(ADVICE, advice)]))
