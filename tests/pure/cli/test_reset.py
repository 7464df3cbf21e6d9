"""What the flags of ``rota groups reset`` mean."""

from __future__ import annotations

import pytest

from rota.cli.groups_change import (
    FromFile,
    LogBounds,
    OffsetChange,
    ShiftBy,
    ToOffset,
    compute_changes,
    export_offsets,
    parse_by_duration,
    parse_offsets_file,
    parse_to_datetime,
    parse_topic_flags,
)
from rota.engine.model.topic import OffsetAndMetadata, TopicPartition
from rota.errors import InputError

PLACE = TopicPartition("t", 0)
LOG = LogBounds(start=5, end=20)


def new_offset(target: ToOffset | ShiftBy | FromFile, old: int | None = 10) -> tuple[int, str]:
    committed = {} if old is None else {PLACE: OffsetAndMetadata(old)}
    (change,) = compute_changes(target, committed, {PLACE: LOG})
    return change.new, change.note


@pytest.mark.parametrize(
    ("target", "offset", "note"),
    [
        (ToOffset(5), 5, ""),
        (ToOffset(20), 20, ""),
        (ToOffset(21), 20, "21 is after the end, 20"),
        (ToOffset(4), 5, "4 is before the first record, 5"),
        (ShiftBy(-6), 5, "4 is before the first record, 5"),
        (ShiftBy(10), 20, ""),
        (FromFile({PLACE: 3}), 5, "3 is before the first record, 5"),
    ],
)
def test_an_offset_out_of_range_becomes_the_nearest(
    target: ToOffset | ShiftBy | FromFile, offset: int, note: str
) -> None:
    assert new_offset(target) == (offset, note)


def test_what_has_no_offset_cannot_be_shifted() -> None:
    with pytest.raises(InputError, match="--shift-by: nothing is committed for t-0;"):
        new_offset(ShiftBy(1), old=None)
    assert new_offset(ToOffset(7), old=None) == (7, "")


def test_topics_with_partitions() -> None:
    given = ("a", "b:3,0-1", "b:1", "c:1", "c")
    assert parse_topic_flags(given) == {"a": None, "b": (0, 1, 3), "c": None}
    for wrong in (":1", "a:", "a:1,", "a:-1", "a:x", "a:1-", ""):
        with pytest.raises(InputError, match="--topic"):
            parse_topic_flags([wrong])


def test_times_are_utc_unless_they_say() -> None:
    assert parse_to_datetime("1970-01-02T00:00:00.250") == 86_400_250
    assert parse_to_datetime("1970-01-02") == 86_400_000
    assert parse_to_datetime("1970-01-02T00:00:00Z") == 86_400_000
    assert parse_to_datetime("1970-01-02T02:00:00+02:00") == 86_400_000
    for wrong in ("", "soon", "1969-12-31", "2025-13-01"):
        with pytest.raises(InputError, match="--to-datetime"):
            parse_to_datetime(wrong)


def test_durations_as_in_java_and_as_people_write_them() -> None:
    assert parse_by_duration("PT1H30M") == parse_by_duration("1h30m") == 5_400_000
    assert parse_by_duration("P1DT0.5S") == 86_400_500
    assert parse_by_duration("90s") == 90_000
    for wrong in ("", "P", "PT", "1 fortnight", "-PT1H", "90"):
        with pytest.raises(InputError, match="--by-duration"):
            parse_by_duration(wrong)


def test_offsets_in_files() -> None:
    listed = parse_offsets_file('t,0,5\n\n"odd,topic",1,7\n', "f", "g")
    assert listed.offsets == {PLACE: 5, TopicPartition("odd,topic", 1): 7}
    assert parse_offsets_file("g,t,0,5\nother,t,0,9\n", "f", "g").offsets == {PLACE: 5}
    both = [
        OffsetChange(partition=place, old=None, new=offset)
        for place, offset in listed.offsets.items()
    ]
    assert parse_offsets_file(export_offsets(both), "f", "g") == listed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no offset of group 'g'"),
        ("other,t,0,5\n", "no offset of group 'g'"),
        ("t,0\n", "line 1: expected topic,partition,offset"),
        ("t,0,5\nt,0,6\n", "line 2: t-0 occurs twice"),
        ("t,x,5\n", "line 1: partition 'x' must be 0 or more"),
        ("t,0,-5\n", "line 1: offset '-5' must be 0 or more"),
        ("t,0,99999999999999999999\n", "line 1: offset"),
    ],
)
def test_malformed_files(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_offsets_file(text, "f", "g")
