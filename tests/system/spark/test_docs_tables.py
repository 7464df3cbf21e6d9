"""The questions at the end of docs/tables.md, asked of the captured run."""

from __future__ import annotations

from docs.generate_tables import EXAMPLES
from pyspark.sql import Row, SparkSession

from tests.system.spark.pipeline_run import PipelineRun

ROLLOUTS, LAGGING, SAVINGS = EXAMPLES


def query_tables(spark: SparkSession, logged: PipelineRun, sql: str) -> list[Row]:
    return spark.sql(sql.replace("`DIR/", f"`{logged.out}/")).collect()


def test_which_rolling_deploys_cost_most(spark: SparkSession, logged_run: PipelineRun) -> None:
    rows = query_tables(spark, logged_run, ROLLOUTS.sql)
    assert rows[0]["group"] == "a-roll-dyn", "4 pods one after the other, under range"
    assert rows[0].rebalances == 8, "each left and came back"
    assert rows[0].moved > rows[0].moves_needed
    assert rows[0].began < rows[0].ended


def test_who_owned_a_partition_that_was_behind(
    spark: SparkSession, logged_run: PipelineRun
) -> None:
    rows = query_tables(spark, logged_run, LAGGING.sql)
    behind = {(row["group"], row.topic, row.partition): row for row in rows}
    paused = behind["a-stall", "orders", 3]
    assert (paused.client_id, paused.client_host) == ("stall-1", "/127.0.0.1")
    assert 105 < paused.seconds < 111
    assert not [key for key in behind if key[0] in {"a-coop", "a-sticky", "a-next"}]


def test_what_each_policy_would_have_saved(spark: SparkSession, logged_run: PipelineRun) -> None:
    rows = query_tables(spark, logged_run, SAVINGS.sql)
    saved = {(row["group"], row.policy): row.seconds_saved for row in rows}
    deploy = {
        policy: seconds for (group, policy), seconds in saved.items() if group == "a-roll-dyn"
    }
    assert len(deploy) > 3
    assert deploy["range"] == max(deploy.values()) == 0, "its rebalances take half a second"
    assert deploy["range, static 6s"] < -10, "a pod is away longer than a rebalance takes"
    assert saved["a-heldback", "KIP-848 uniform"] > 10, "nobody waits for the late member"
    zero = (
        row for row in rows if row.rebalances_saved == row.moves_saved == row.seconds_saved == 0
    )
    assert next(zero, None) is not None
