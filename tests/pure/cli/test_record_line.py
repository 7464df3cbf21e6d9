"""A record as a line: what is written is read back to the same bytes."""

from __future__ import annotations

import argparse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.cli.consume_records import (
    ProducerRecord,
    format_line,
    parse_json_line,
    record_json_line,
)
from rota.consumer.records import ConsumerRecord
from rota.errors import InputError

DATA = st.one_of(st.none(), st.binary(max_size=20), st.text(max_size=10).map(str.encode))
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)


def record(
    key: object = b"k",
    value: object = b"v",
    headers: tuple[tuple[str, bytes | None], ...] = (),
    timestamp: int = 5,
) -> ConsumerRecord:
    return ConsumerRecord("t", 1, 7, timestamp, 0, key, value, headers, None)


@given(DATA, DATA, st.lists(st.tuples(NAMES, DATA), max_size=3).map(tuple), st.integers(-1, 2**40))
def test_json_carries_any_bytes(
    key: bytes | None,
    value: bytes | None,
    headers: tuple[tuple[str, bytes | None], ...],
    timestamp: int,
) -> None:
    line = record_json_line(record(key, value, headers, timestamp))
    assert line.count(b"\n") == 1
    assert parse_json_line(line) == ProducerRecord(
        topic="t",
        partition=1,
        timestamp=None if timestamp == -1 else timestamp,
        key=key,
        value=value,
        headers=headers,
    )


def test_json_of_what_deserializers_made() -> None:
    assert b'"value":{"a":[1,null]}' in record_json_line(record(value={"a": [1, None]}))
    assert parse_json_line(b'{"value": {"a": [1, null]}}').value == b'{"a":[1,null]}'
    assert parse_json_line(b"{}") == ProducerRecord(topic=None)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"valeu": 1}', "'valeu' is not a field of a record"),
        (b'{"topic": 1}', "topic: 1 is not text"),
        (b'{"partition": -1}', "partition: -1 is not a number of 0 or more"),
        (b'{"timestamp": "now"}', "timestamp: 'now' is not a number"),
        (b'{"key_base64": "?"}', "key_base64: not base64"),
        (b'{"key": "a", "key_base64": "YQ=="}', "key and key_base64 are both given"),
        (b'{"headers": {}}', "headers: not a list"),
        (b'{"headers": [{"value": "x"}]}', "headers: each item must be"),
        (b'{"value": "\\ud800"}', "value: cannot be encoded in UTF-8"),
        (b"\xff", "not JSON"),
    ],
)
def test_what_is_no_record_is_refused(line: bytes, says: str) -> None:
    with pytest.raises(InputError, match=says):
        parse_json_line(line)


def line(record: ConsumerRecord, *printed: str, separator: str = "\\t") -> bytes:
    flags = {f"print_{name}": name in printed for name in ("key", "headers", "time", "place")}
    return format_line(argparse.Namespace(separator=separator, **flags), record)


def test_lines_of_text() -> None:
    one = record(b"k", b"v\xff", (("a", b"1"), ("b", None)))
    assert line(one) == b"v\xff\n"
    assert line(one, "key", separator=":") == b"k:v\xff\n"
    every = ("key", "headers", "time", "place")
    assert line(one, *every) == b"CreateTime:5\tt-1@7\ta:1,b:null\tk\tv\xff\n"
    assert line(record(None, None, timestamp=-1), *every) == (
        b"NoTimestamp:-1\tt-1@7\tNO_HEADERS\tnull\tnull\n"
    )
    assert line(record(7, "ä"), "key") == "7\tä\n".encode()
