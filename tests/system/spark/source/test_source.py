"""``format("rota")`` in a session: what comes out, in which tasks, and what is said to users."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import trustme
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

import rota
import rota.spark
from rota import Broker
from tests.support.paths import ROOT
from tests.support.spark_query import commit_offsets, p, produce_records
from tests.system.spark.pipeline_run import code_generation

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="ann" password="hunter2";'
)
LOGIN = {"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": JAAS}


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> Iterator[SparkSession]:
    rota.spark.register(spark)
    rota.spark.register(spark)  # does no harm
    with code_generation(spark):
        yield spark


@pytest.fixture
def broker() -> Iterator[Broker]:
    with rota.Broker() as started:
        yield started


def source_options(broker: Broker, given: Mapping[str, str]) -> dict[str, str]:
    base = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "orders"}
    return base | dict(given)


def load_rows(session: SparkSession, broker: Broker, **given: str) -> DataFrame:
    named = {name.replace("__", "."): value for name, value in given.items()}
    return session.read.format("rota").options(**source_options(broker, named)).load()


def sorted_values(rows: list[Row]) -> list[str]:
    return sorted(row["value"].decode() for row in rows)


def run_query(
    session: SparkSession, broker: Broker, folder: Path, **given: str
) -> tuple[list[str], list[dict[str, Any]]]:
    """The values that a query brings that reads what there is, and its progress."""
    found: list[str] = []

    def take(rows: DataFrame, _: int) -> None:
        found.extend(sorted_values(rows.select("value").collect()))

    stream = session.readStream.format("rota").options(**source_options(broker, given)).load()
    writer = stream.writeStream.foreachBatch(take).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(folder)).start()
    query.awaitTermination()
    return found, [json.loads(each.json) for each in query.recentProgress]


def test_a_record_is_a_row_of_sparks_own_columns(session: SparkSession, broker: Broker) -> None:
    broker.create_topic("orders", 2)
    broker.produce(
        "orders", "paid", key="42", headers=[("a", b"1"), ("b", None)], partition=1, timestamp=1_500
    )
    broker.produce("orders", None, partition=0, timestamp=-1)
    frame = load_rows(session, broker, includeHeaders="true")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    bare, full = sorted(frame.collect(), key=lambda row: int(row["partition"]))
    moment = dt.datetime(1970, 1, 1, 0, 0, 1, 500_000)
    assert full["timestamp"].astimezone(dt.UTC).replace(tzinfo=None) == moment
    assert full.asDict(recursive=True) | {"timestamp": None} == {
        "key": b"42",
        "value": b"paid",
        "topic": "orders",
        "partition": 1,
        "offset": 0,
        "timestamp": None,
        "timestampType": 0,
        "headers": [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
    }
    assert (bare["key"], bare["value"], bare["headers"]) == (None, None, None)


def test_tasks_are_packed_by_what_they_have_to_read(session: SparkSession, broker: Broker) -> None:
    produce_records(broker, 90, *[10] * 9)
    frame = load_rows(session, broker)
    tasks = frame.rdd.glom().map(len).collect()
    assert sorted(tasks) == [90, 90], "the session runs two at a time"
    assert load_rows(session, broker, slots="4").rdd.getNumPartitions() == 4
    assert load_rows(session, broker, minPartitions="12").rdd.getNumPartitions() == 12
    split = load_rows(session, broker, maxRecordsPerPartition="30").rdd.glom().map(len).collect()
    assert (sum(split), max(split)) == (180, 30)


def test_a_stream_reads_in_limits_and_goes_on_where_it_was(
    session: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    produce_records(broker, 10, 5)
    given = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "6"}
    found, progress = run_query(session, broker, tmp_path, **given)
    assert sorted(found) == sorted([f"0-{n}" for n in range(10)] + [f"1-{n}" for n in range(5)])
    sources = [each["sources"][0] for each in progress]
    assert [each["numInputRows"] for each in sources] == [6, 6, 3]
    assert sources[0]["startOffset"] is None
    assert sources[0]["endOffset"] == {"orders": {"0": 4, "1": 2}}
    assert sources[-1]["endOffset"] == sources[-1]["latestOffset"] == {"orders": {"0": 10, "1": 5}}
    written = (tmp_path / "offsets" / "2").read_text().splitlines()[-1]
    assert json.loads(written) == {"orders": {"0": 10, "1": 5}}
    assert run_query(session, broker, tmp_path, **given)[0] == []
    produce_records(broker, 0, 1)
    assert run_query(session, broker, tmp_path, **given)[0] == ["1-0"]


def test_a_stream_begins_where_a_group_is(
    session: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    produce_records(broker, 3)
    commit_offsets(broker, "billing", {p(0): 2})
    given = {"startingOffsets": "committed", "kafka.group.id": "billing"}
    found, progress = run_query(session, broker, tmp_path, **given)
    assert found == ["0-2"]
    assert [each["numInputRows"] for each in progress] == [0, 1]


def test_internal_topics_are_read_and_batches_shown(session: SparkSession, broker: Broker) -> None:
    produce_records(broker, 1)
    commit_offsets(broker, "billing", {p(0): 1})
    journal = load_rows(session, broker, subscribe="__consumer_offsets", includeBatchInfo="true")
    (row,) = journal.where("value is not null").collect()
    assert b"billing" in row["key"]
    shown = ("control", "transactional", "producerId", "producerEpoch")
    assert [row[name] for name in shown] == [False, False, -1, -1]
    assert journal.columns[-4:] == list(shown)


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_who_logs_in_reads_and_nobody_sees_the_password(
    session: SparkSession, tmp_path: Path, protocol: str
) -> None:
    authority = trustme.CA()
    chain = tmp_path / "broker.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(chain))
    trusted = {
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": authority.cert_pem.bytes().decode(),
    }
    tls = protocol == "SASL_SSL"
    with rota.Broker(users={"ann": "hunter2"}, tls=str(chain) if tls else None) as broker:
        broker.produce("orders", "paid")
        given = LOGIN | {"kafka.security.protocol": protocol} | (trusted if tls else {})
        frame = session.read.format("rota").options(**source_options(broker, given)).load()
        assert sorted_values(frame.collect()) == ["paid"]
        assert "hunter2" not in frame._jdf.queryExecution().toString()
        given["kafka.sasl.jaas.config"] = JAAS.replace("hunter2", "hunter3")
        wrong = session.read.format("rota").options(**source_options(broker, given)).load()
        with pytest.raises(PySparkException, match="AuthenticationFailed") as caught:
            wrong.collect()
        assert "hunter3" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"startingOffset": "latest"},
            "InputError: 'startingoffset' is not an option of format(\"rota\"); did",
        ),
        ({"startingOffsets": '{"orders": {"0": "x"}}'}, "topic 'orders', partition 0: \"x\" is no"),
        ({"kafka.auto.offset.reset": "latest"}, "InputError: kafka.auto.offset.reset: not for"),
        ({"subscribe": "oders", "fetchOffset.retryIntervalMs": "0"}, "no topic 'oders'; did you"),
    ],
)
def test_what_is_wrong_is_said_to_who_loads(
    session: SparkSession, broker: Broker, given: dict[str, str], message: str
) -> None:
    produce_records(broker, 1)
    with pytest.raises(PySparkException, match=re.escape(message)):
        session.read.format("rota").options(**source_options(broker, given)).load().count()


PAGES = (ROOT / "docs" / "how-to" / "spark.md", ROOT / "README.md")


def test_what_the_pages_show_runs(
    session: SparkSession, broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    produce_records(broker, 2)
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    blocks = re.findall(r"^```python spark\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    namespace: dict[str, object] = {"spark": session}
    for block in blocks:
        here = block.replace("localhost:9092", broker.bootstrap_servers)
        exec(here.replace("/data/", f"{tmp_path}/"), namespace)
    printed = capsys.readouterr().out
    assert "|NULL|  0-1|        0|     1|" in printed
    (shown,) = re.findall(r"^```text\n(\+---.*?)```", text, re.MULTILINE | re.DOTALL)
    assert shown in printed
    assert session.read.parquet(f"{tmp_path}/bills").count() == 2
    assert broker.committed("billing") == {p(0): 2}
