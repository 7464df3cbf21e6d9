"""What a finished batch says, whose topics are whose, and what a checkpoint has; without Spark."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from pyspark.sql.streaming.listener import QueryProgressEvent

import rota.spark
from rota.engine.model.topic import TopicPartition
from rota.errors import FormatError, InputError, MissingExtra
from rota.spark import commit
from rota.spark.progress import (
    FinishedBatch,
    LocalCheckpoint,
    TargetOffsets,
    TopicConflict,
    lowest_offsets,
    parse_offset_log,
    parse_source_offsets,
    read_last_finished,
    read_progress,
    read_query_id,
)

OWN = "KafkaV2[Subscribe[orders]]"
PYTHON = (
    "org.apache.spark.sql.execution.datasources.v2.python."
    "PythonMicroBatchStreamWithAdmissionControl@6a9a11f7"
)
ORDERS, RETURNS = TopicPartition("orders", 0), TopicPartition("returns", 3)
QUERY, RUN = uuid.uuid4(), uuid.uuid4()


def query_progress(*sources: tuple[str, object], batch: int = 7, **times: int) -> Any:
    """As Spark tells it; by default of a batch that is in the commit log."""
    rates = {"inputRowsPerSecond": 1.0, "processedRowsPerSecond": 1.0, "metrics": {}}
    fields = {
        "id": str(QUERY),
        "runId": str(RUN),
        "name": "bills",
        "timestamp": "2026-01-01T00:00:00.000Z",
        "batchId": batch,
        "batchDuration": 5,
        "durationMs": times or {"addBatch": 3, "commitOffsets": 1},
        "stateOperators": [],
        "sources": [
            {
                "description": description,
                "startOffset": None,
                "endOffset": end if isinstance(end, str | None) else json.dumps(end),
                "latestOffset": None,
                "numInputRows": 1,
                **rates,
            }
            for description, end in sources
        ],
        "sink": {"description": "noop", "numOutputRows": 1},
    }
    return QueryProgressEvent.fromJson({"progress": fields}).progress


class TestProgress:
    @pytest.mark.parametrize("description", [OWN, PYTHON, "KafkaV1[Assign[orders-0]]"])
    def test_a_finished_batch_tells_where_it_ends(self, description: str) -> None:
        done = read_progress(query_progress((description, {"orders": {"0": 5, "1": 0}})))
        assert done == FinishedBatch(
            query=str(QUERY),
            run=str(RUN),
            batch=7,
            offsets={ORDERS: 5, TopicPartition("orders", 1): 0},
        )

    def test_two_sources_are_one_and_the_lower_offset_counts(self) -> None:
        done = read_progress(
            query_progress(
                (OWN, {"orders": {"0": 5}}),
                ("RateStreamV2[rowsPerSecond=1]", "17"),
                (PYTHON, {"orders": {"0": 4}, "returns": {"3": 9}}),
            )
        )
        assert done is not None
        assert done.offsets == {ORDERS: 4, RETURNS: 9}

    @pytest.mark.parametrize(
        ("description", "end"),
        [
            ("org.apache.spark.sql.eventhubs.EventHubsSource@1", {"orders": {"0": 5}}),
            ("FileStreamSource[file:/in]", {"logOffset": 3}),
            (PYTHON, {"logOffset": 3}),
            (PYTHON, {"orders": {"first": 3}}),
            (PYTHON, {"orders": {"0": "3"}}),
            (PYTHON, {"orders": {"0": True}}),
            (PYTHON, {"orders": {"\u0663": 3}}),
            (PYTHON, ["orders"]),
            (PYTHON, "no JSON"),
            (PYTHON, None),
            (PYTHON, {}),
        ],
    )
    def test_other_sources_tell_nothing(self, description: str, end: object) -> None:
        assert read_progress(query_progress((description, end))) is None

    def test_a_trigger_without_a_batch_tells_nothing(self) -> None:
        assert (
            read_progress(query_progress((OWN, {"orders": {"0": 5}}), triggerExecution=2)) is None
        )

    def test_numbers_below_0_are_no_offsets(self) -> None:
        assert parse_source_offsets('{"orders": {"0": -1, "1": 2}}') == {
            TopicPartition("orders", 1): 2
        }

    @given(
        st.lists(
            st.dictionaries(
                st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 2)),
                st.integers(0, 9),
            )
        )
    )
    def test_together_they_are_never_ahead_of_any(
        self, several: list[dict[TopicPartition, int]]
    ) -> None:
        merged = lowest_offsets(several)
        assert set(merged) == {place for each in several for place in each}
        for place, offset in merged.items():
            assert offset == min(each[place] for each in several if place in each)


def finished_batch(query: str, run: str, batch: int, **offsets: int) -> FinishedBatch:
    at = {TopicPartition(topic, 0): offset for topic, offset in offsets.items()}
    return FinishedBatch(query=query, run=run, batch=batch, offsets=at)


def target_offsets(ledger: TargetOffsets) -> dict[str, int]:
    return {place.topic: offset for place, offset in ledger.offsets().items()}


class TestLedger:
    def test_the_newest_batch_of_a_run_counts(self) -> None:
        ledger = TargetOffsets()
        ledger.query_started("q", "1")
        assert ledger.batch_finished(finished_batch("q", "1", 4, a=40)) == []
        assert ledger.batch_finished(finished_batch("q", "1", 3, a=30)) is None
        assert ledger.batch_finished(finished_batch("q", "1", 4, a=40)) is None
        assert target_offsets(ledger) == {"a": 40}

    def test_a_new_run_may_begin_lower(self) -> None:
        ledger = TargetOffsets()
        ledger.batch_finished(finished_batch("q", "1", 4, a=40))
        ledger.query_started("q", "2")
        assert ledger.batch_finished(finished_batch("q", "2", 1, a=10)) == []
        assert target_offsets(ledger) == {"a": 10}

    def test_last_words_of_a_run_may_come_late_but_not_too_late(self) -> None:
        ledger = TargetOffsets()
        ledger.query_started("q", "1")
        ledger.batch_finished(finished_batch("q", "1", 4, a=40))
        ledger.query_started("q", "2")
        assert ledger.batch_finished(finished_batch("q", "1", 5, a=50)) == []
        ledger.batch_finished(finished_batch("q", "2", 5, a=50))
        assert ledger.batch_finished(finished_batch("q", "1", 6, a=60)) is None
        assert target_offsets(ledger) == {"a": 50}

    def test_what_a_checkpoint_had_before_the_start_gives_way_to_the_run(self) -> None:
        ledger = TargetOffsets()
        ledger.batch_finished(finished_batch("q", "", 4, a=40))
        assert target_offsets(ledger) == {"a": 40}
        ledger.query_started("q", "1")
        ledger.batch_finished(finished_batch("q", "1", 0, a=5))
        assert target_offsets(ledger) == {"a": 5}

    def test_a_checkpoint_that_never_ran_holds_no_topic(self) -> None:
        ledger = TargetOffsets()
        ledger.batch_finished(finished_batch("old", "", 4, a=40))
        ledger.query_started("new", "1")
        assert ledger.batch_finished(finished_batch("new", "1", 0, a=5)) == []
        assert target_offsets(ledger) == {"a": 5}

    def test_a_topic_is_the_first_ones_until_it_ends(self) -> None:
        ledger = TargetOffsets()
        for query in ("first", "second"):
            ledger.query_started(query, query)
        ledger.batch_finished(finished_batch("first", "first", 0, a=5))
        conflict = TopicConflict("a", query="second", owner="first")
        assert ledger.batch_finished(finished_batch("second", "second", 0, a=9, b=1)) == [conflict]
        assert target_offsets(ledger) == {"a": 5, "b": 1}
        ledger.query_ended("first", "first")
        assert target_offsets(ledger) == {"a": 5, "b": 1}
        assert ledger.batch_finished(finished_batch("second", "second", 1, a=10, b=2)) == []
        assert target_offsets(ledger) == {"a": 10, "b": 2}

    def test_the_end_of_an_earlier_run_frees_nothing(self) -> None:
        ledger = TargetOffsets()
        ledger.query_started("q", "1")
        ledger.batch_finished(finished_batch("q", "1", 0, a=5))
        ledger.query_started("q", "2")
        ledger.query_ended("q", "1")
        ledger.query_started("other", "1")
        assert ledger.batch_finished(finished_batch("other", "1", 0, a=9))
        assert target_offsets(ledger) == {"a": 5}

    def test_a_topic_that_is_not_read_any_more_is_left_alone(self) -> None:
        ledger = TargetOffsets()
        ledger.batch_finished(finished_batch("q", "1", 0, a=5, b=5))
        ledger.batch_finished(finished_batch("q", "1", 1, a=6))
        assert target_offsets(ledger) == {"a": 6}


def write_batch(root: Path, batch: int, version: str, *lines: str, commit: bool = True) -> None:
    for folder in ("offsets", "commits"):
        (root / folder).mkdir(exist_ok=True)
    head = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": {}})
    (root / "offsets" / str(batch)).write_text("\n".join([version, head, *lines]))
    if commit:
        (root / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


class TestCheckpoint:
    def test_the_last_batch_in_the_commit_log_counts(self, tmp_path: Path) -> None:
        for batch in (9, 10):
            write_batch(tmp_path, batch, "v1", f'{{"orders": {{"0": {batch}}}}}', "-", "17")
        write_batch(tmp_path, 11, "v1", '{"orders": {"0": 11}}', "-", "17", commit=False)
        (tmp_path / "commits" / ".11.crc").touch()
        (tmp_path / "commits" / ".12.1f2e.tmp").touch()
        assert read_last_finished(LocalCheckpoint(tmp_path)) == (10, {ORDERS: 10})

    def test_sources_may_have_names(self, tmp_path: Path) -> None:
        write_batch(
            tmp_path, 0, "v2", 'a_1:{"orders": {"0": 5}}', "b:17", 'c:{"returns": {"3": 1}}', "d:-"
        )
        found = read_last_finished(LocalCheckpoint(tmp_path))
        assert found == (0, {ORDERS: 5, RETURNS: 1})

    def test_nothing_is_there_yet(self, tmp_path: Path) -> None:
        nowhere = LocalCheckpoint(tmp_path / "none")
        assert read_last_finished(nowhere) is None
        assert read_query_id(nowhere) is None

    def test_it_says_whose_it_is(self, tmp_path: Path) -> None:
        (tmp_path / "metadata").write_text('{"id":"6b2d7867-b625-40d0-b0ab-1997c36c7c19"}')
        owner = read_query_id(LocalCheckpoint(tmp_path))
        assert owner == "6b2d7867-b625-40d0-b0ab-1997c36c7c19"

    @pytest.mark.parametrize("text", ["", "{}", "[]", "no"])
    def test_a_broken_one_says_so(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "metadata").write_text(text)
        with pytest.raises(FormatError, match="metadata"):
            read_query_id(LocalCheckpoint(tmp_path))
        with pytest.raises(FormatError, match="version"):
            parse_offset_log(text)

    def test_a_commit_without_its_offsets_says_so(self, tmp_path: Path) -> None:
        write_batch(tmp_path, 3, "v1")
        (tmp_path / "offsets" / "3").unlink()
        with pytest.raises(FormatError, match="offsets/3"):
            read_last_finished(LocalCheckpoint(tmp_path))


class TestSettings:
    @pytest.mark.parametrize(
        "kafka",
        [
            {"bootstrap.servers": "host:9092"},
            {"kafka.bootstrap.servers": "host:9092"},
            {"Kafka.Bootstrap.Servers": "host:9092", "subscribePattern": "a.*", "SLOTS": "3"},
            {"kafka.bootstrap.servers": "host:9092", "bootstrap.servers": "host:9092"},
            {"kafka.bootstrap.servers": "host:9092", "kafka.group.id": "reader"},
        ],
    )
    def test_a_readers_options_will_do(self, kafka: Mapping[str, str]) -> None:
        config = commit.client_config("billing", kafka)
        assert [str(each) for each in config.bootstrap_servers] == ["host:9092"]
        assert config.client_id == "rota-spark-billing"

    def test_a_jaas_line_is_understood(self) -> None:
        line = (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            'username="alice" password="secret";'
        )
        login = commit.client_config(
            "billing",
            {
                "kafka.bootstrap.servers": "host:9092",
                "kafka.security.protocol": "SASL_PLAINTEXT",
                "kafka.sasl.mechanism": "PLAIN",
                "kafka.sasl.jaas.config": line,
            },
        ).sasl
        assert login is not None
        assert "alice" in repr(login)

    @pytest.mark.parametrize(
        ("kafka", "message"),
        [
            ({}, "bootstrap.servers is needed"),
            ({"subscribe": "orders"}, "bootstrap.servers is needed"),
            ({"bootstrap.servers": "a:1", "kafka.bootstrap.servers": "b:1"}, "twice"),
            ({"bootstrap.servers": "a:1", "kafka.sasl.mechansim": "PLAIN"}, "sasl.mechanism"),
            ({"bootstrap.servers": "a:1", "subscrib": "orders"}, "subscrib"),
            ("host:9092", "mapping"),
        ],
    )
    def test_wrong_ones_are_named(self, kafka: Any, message: str) -> None:
        with pytest.raises(InputError, match=message):
            commit.client_config("billing", kafka)

    @pytest.mark.parametrize("group", ["", None, 5])
    def test_a_group_needs_a_name(self, group: Any) -> None:
        kafka = {"bootstrap.servers": "host:9092"}
        with pytest.raises(InputError, match="group_id"):
            commit.commit_to_group(None, group_id=group, kafka=kafka)  # type: ignore[arg-type]

    @pytest.mark.parametrize("query", ["", 5, ["bills"]])
    def test_a_query_is_a_name_or_a_query(self, query: Any) -> None:
        kafka = {"bootstrap.servers": "host:9092"}
        with pytest.raises(InputError, match="query"):
            commit.commit_to_group(
                None,  # type: ignore[arg-type]
                group_id="billing",
                kafka=kafka,
                query=query,
            )


def test_without_pyspark_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.startswith("rota.spark.")]:
        monkeypatch.delitem(sys.modules, name)
        monkeypatch.delattr(rota.spark, name.removeprefix("rota.spark."), raising=False)
    for name in [each for each in sys.modules if each.partition(".")[0] == "pyspark"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra, match=r"pip install 'rota\[spark\]'"):
        rota.spark.commit_to_group  # noqa: B018
