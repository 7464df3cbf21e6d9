"""Offsets, times and partitions as JSON: what is meant, and where it is wrong."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.engine.model.topic import TopicPartition
from rota.errors import InputError
from rota.spark import query
from tests.support.examples import examples

NAMES = st.text("abcXYZ019._-", min_size=1, max_size=8)
PLACES = st.builds(TopicPartition, NAMES, st.integers(0, 2**31 - 1))
OFFSETS = st.dictionaries(PLACES, st.integers(0, 2**63 - 1), max_size=20)


@given(OFFSETS)
def test_offsets_come_back_as_they_went(offsets: dict[TopicPartition, int]) -> None:
    text = json.dumps(query.offsets_to_json(offsets))
    assert query.offsets_from_json(json.loads(text)) == offsets
    assert query.parse_offsets("startingOffsets", text) == offsets


@examples(quick=25)
@given(OFFSETS)
def test_topics_and_partitions_are_in_order(offsets: dict[TopicPartition, int]) -> None:
    found = query.offsets_to_json(offsets)
    assert list(found) == sorted(found)
    for each in found.values():
        assert list(map(int, each)) == sorted(map(int, each))


def test_partitions_are_ordered_by_number_not_by_letter() -> None:
    found = query.offsets_to_json({TopicPartition("t", 10): 1, TopicPartition("t", 9): 2})
    assert json.dumps(found) == '{"t": {"9": 2, "10": 1}}'


def test_the_ends_of_a_partition_have_numbers() -> None:
    found = query.parse_offsets("startingOffsets", '{"t": {"0": -2, "1": -1}}')
    assert found == {
        TopicPartition("t", 0): query.EARLIEST_OFFSET,
        TopicPartition("t", 1): query.LATEST_OFFSET,
    }


def test_partitions_are_named_once() -> None:
    found = query.parse_partitions("assign", '{"b": [2, 0, 2], "a": [1]}')
    assert found == (TopicPartition("b", 2), TopicPartition("b", 0), TopicPartition("a", 1))


@pytest.mark.parametrize("text", ["{}", '{"t": []}'])
def test_nothing_may_be_assigned(text: str) -> None:
    assert query.parse_partitions("assign", text) == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not JSON: Expecting property name enclosed in double quotes: line 1 column 2"),
        ("[1]", "'[1]' is not like {"),
        ('{"t": 5}', "topic 't': its partitions are needed, like {"),
        ('{"t": {"x": 5}}', "topic 't': \"x\" is not a partition number"),
        ('{"t": {"-1": 5}}', "topic 't': \"-1\" is not a partition number"),
        ('{"t": {"2147483648": 5}}', "is not a partition number"),
        ('{"t": {"1": "5"}}', "topic 't', partition 1: \"5\" is not an offset"),
        ('{"t": {"1": 5.0}}', "topic 't', partition 1: 5.0 is not an offset"),
        ('{"t": {"1": true}}', "topic 't', partition 1: true is not an offset"),
        ('{"t": {"1": null}}', "topic 't', partition 1: null is not an offset"),
        ('{"t": {"1": -3}}', "topic 't', partition 1: -3 is not an offset"),
        ('{"t": {"1": 9223372036854775808}}', "partition 1: 9223372036854775808 is not an offset"),
        ('{"t": {"1": 5, "1": 6}}', "'1' is there twice"),
        ('{"t": {"1": 5}, "t": {"2": 6}}', "'t' is there twice"),
        ('{"t": {"1": 5, "01": 6}}', "topic 't', partition 1: is there twice"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_wrong_offsets_are_named_with_their_place(text: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        query.parse_offsets("startingOffsets", text)
    assert str(caught.value).startswith("startingOffsets: ")
    assert problem in str(caught.value)


def test_a_time_is_in_milliseconds() -> None:
    with pytest.raises(InputError, match='partition 0: "noon" is not a time in milliseconds'):
        query.parse_timestamps("startingOffsetsByTimestamp", '{"t": {"0": "noon"}}')


@pytest.mark.parametrize("text", ['{"t": 0}', '{"t": {"0": 1}}', '{"t": [true]}', '{"t": ["0"]}'])
def test_assigned_partitions_are_a_list_of_numbers(text: str) -> None:
    with pytest.raises(InputError, match=r"^assign: topic 't': "):
        query.parse_partitions("assign", text)


@pytest.mark.parametrize("offset", [-1, "5", None])
def test_a_checkpoint_has_offsets_and_nothing_else(offset: object) -> None:
    with pytest.raises(
        InputError, match="the checkpoint: topic 't', partition 0: .* is not an offset"
    ):
        query.offsets_from_json({"t": {"0": offset}})  # type: ignore[dict-item]


def test_many_partitions_are_named_by_some() -> None:
    some = [TopicPartition("t", number) for number in range(25)]
    assert query.format_partitions(some).endswith("t-9 and 15 more")
