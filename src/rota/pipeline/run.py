"""A run of the pipeline: evidence in, tables out, and what is worth saying about both."""

from __future__ import annotations

from contextlib import ExitStack

from pyspark.sql import SparkSession

from rota.pipeline import cluster, ingest, segment, store
from rota.pipeline.evidence import Evidence, Found, Options, window
from rota.pipeline.session import session
from rota.pipeline.stage import Progress, Stage, stage
from rota.pipeline.stages import Stages
from rota.pipeline.summary import Summary

LARGE = 256 << 20
"""Bytes of segments from which on Java's better compiler pays."""


def run(
    evidence: Evidence,
    out: str,
    options: Options,
    progress: Progress,
    spark: SparkSession | None = None,
) -> Summary:
    """Reads the evidence and writes every table.

    :param spark: a session to use; one is started, and ended, where none is given
    """
    with stage(progress, Stage.FIND) as note:
        ingest.check(evidence.server_logs, evidence.ends)
        found = Found(
            segments=segment.find(evidence.segments),
            live=None if evidence.cluster is None else cluster.look(evidence.cluster),
            polled=evidence.polled,
        )
        window(options, found.last)
        note.append(str(found))
    with ExitStack() as stack:
        tables = stack.enter_context(store.begin(out))
        with stage(progress, Stage.START):
            if spark is None:
                large = found.size > LARGE
                spark = stack.enter_context(session(options.master, large=large))
        this = Stages(spark, tables, options, progress, found)
        with store.failures(tables.out):
            this.all(evidence)
        return this.summary
