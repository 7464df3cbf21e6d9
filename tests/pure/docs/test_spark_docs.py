"""The page on the Spark source names every option there is, and no others."""

from __future__ import annotations

import re

from rota.spark import option
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "how-to" / "spark.md").read_text()
NAME = re.compile(r"`([\w.*]+)`")


def names_under(heading: str) -> list[str]:
    """The names in the first cells of the table that has this first line."""
    rows = PAGE.split(f"{heading}\n", 1)[1].split("\n\n")[0].splitlines()[1:]
    return [name for row in rows for name in NAME.findall(row.split("|")[1])]


def test_every_option_is_in_the_table_once() -> None:
    own = [name for name in names_under("| option | default | |") if not name.startswith("kafka.")]
    assert sorted(own) == sorted(option.SOURCE_OPTIONS)


def test_every_setting_that_is_refused_is_named() -> None:
    refused = {f"{option.KAFKA_PREFIX}{name}" for name in option.REFUSED_SETTINGS}
    assert set(names_under("| setting | instead |")) == refused


def test_defaults_are_those_of_the_options() -> None:
    found = option.parse_options({"kafka.bootstrap.servers": "here:9092", "subscribe": "orders"})
    rows = dict(re.findall(r"^\| `([\w.]+)` \| `(\w+)` \|", PAGE, flags=re.MULTILINE))
    assert rows["kafkaConsumer.pollTimeoutMs"] == str(found.poll_timeout)
    assert rows["fetchOffset.numRetries"] == str(found.lookup_attempts)
    assert rows["fetchOffset.retryIntervalMs"] == str(found.lookup_retry_interval)
    assert rows["failOnDataLoss"] == str(found.fail_on_data_loss).lower()
    assert rows["includeHeaders"] == str(found.include_headers).lower()
    assert rows["includeBatchInfo"] == str(found.include_batch_info).lower()
    assert rows["startingOffsetsByTimestampStrategy"] == "error"
    assert not found.missing_timestamp_is_latest
    assert (rows["maxTriggerDelay"], found.max_trigger_delay) == ("15m", 15 * 60_000)
