"""The journal's records against Kafka's own classes: equal bytes, every version, and damage."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import TypeVar

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from rota.engine.formats import journal
from rota.engine.model.journal_entry import (
    GroupMetadataEntry,
    JournalEntry,
    OffsetCommitEntry,
    UnparsedEntry,
)
from rota.errors import FormatError
from tests.support import record_json
from tests.support.journal_entries import (
    damaged_records,
    entries,
    entries_of_type,
    expiring,
    lasting,
)
from tests.system.kafka import oracle

CASES = 1_000
T = TypeVar("T")


def draw_examples(strategy: st.SearchStrategy[T], count: int) -> list[T]:
    """The same examples at every run, to be asked about all at once."""
    found: list[T] = []

    @settings(max_examples=count, phases=[Phase.generate], derandomize=True, database=None)
    @given(strategy)
    def collect(example: T) -> None:
        found.append(example)

    collect()
    return found


#: Types of early releases of Kafka 4, which Kafka 4.3 does not have.
OLD_TYPES = frozenset((9, 18))


@cache
def draw_entries() -> list[JournalEntry]:
    """Entries of the types that Kafka 4.3 has."""
    drawn = draw_examples(entries, 2 * CASES)
    return [entry for entry in drawn if record_json.key_json(entry)[0] not in OLD_TYPES]


def ask(lines: Sequence[str]) -> list[str]:
    return oracle.ask("JournalOracle", lines)


def written_version(entry: JournalEntry) -> int:
    match entry:
        case OffsetCommitEntry():
            return 4 if entry.expire_timestamp == -1 else 1
        case GroupMetadataEntry():
            return 3
    return 0


def encode_question(verb: str, entry: JournalEntry, version: int, number: int | None = None) -> str:
    """The entry as JSON for Kafka to write; by another record type if one is given."""
    own_number, key = record_json.key_json(entry)
    value = record_json.value_json(entry)
    number = own_number if number is None else number
    return f"{verb} {number} {version} {hex_json(key)} {'-' if value is None else hex_json(value)}"


def hex_json(value: record_json.Json) -> str:
    return json.dumps(value).encode().hex()


def decode_record(answer: str) -> tuple[bytes, bytes | None]:
    key, value = answer.split(" ")
    return bytes.fromhex(key), None if value == "-" else bytes.fromhex(value)


def test_entries_have_kafkas_bytes() -> None:
    answers = ask(
        [encode_question("write", entry, written_version(entry)) for entry in draw_entries()]
    )
    for entry, answer in zip(draw_entries(), answers, strict=True):
        assert journal.encode_entry(entry) == decode_record(answer), entry
    known = {kind for kind, (number, _) in record_json.KEYS.items() if number not in OLD_TYPES}
    assert {type(entry) for entry in draw_entries()} == known


def offset_as_of(entry: OffsetCommitEntry, version: int) -> OffsetCommitEntry:
    """What a version carries of an offset."""
    return replace(
        entry,
        leader_epoch=entry.leader_epoch if version >= 3 else -1,
        expire_timestamp=entry.expire_timestamp if version == 1 else -1,
        topic_id=entry.topic_id if version >= 4 else None,
    )


def group_as_of(entry: GroupMetadataEntry, version: int) -> GroupMetadataEntry:
    """What a version carries of a group; version 0 has one timeout for both."""
    return replace(
        entry,
        state_timestamp=entry.state_timestamp if version >= 2 else -1,
        members=tuple(
            replace(
                member,
                group_instance_id=member.group_instance_id if version >= 3 else None,
                rebalance_timeout=(
                    member.rebalance_timeout if version >= 1 else member.session_timeout
                ),
            )
            for member in entry.members
        ),
    )


@pytest.mark.parametrize("version", range(5))
def test_offsets_of_every_version_are_read(version: int) -> None:
    cases = draw_examples(lasting | expiring, CASES // 5)
    for entry, answer in zip(
        cases, ask([encode_question("write", entry, version) for entry in cases]), strict=True
    ):
        assert journal.decode_record(*decode_record(answer)) == offset_as_of(entry, version)


def test_offsets_under_the_first_brokers_keys_are_read() -> None:
    cases = draw_examples(lasting, CASES // 5)
    answers = ask([encode_question("write", entry, 0, number=0) for entry in cases])
    for entry, answer in zip(cases, answers, strict=True):
        key, value = decode_record(answer)
        assert key[:2] == b"\0\0"
        assert journal.decode_record(key, value) == offset_as_of(entry, 0)


@pytest.mark.parametrize("version", range(5))
def test_groups_of_every_version_are_read(version: int) -> None:
    cases = draw_examples(entries_of_type(GroupMetadataEntry), CASES // 5)
    for entry, answer in zip(
        cases, ask([encode_question("write", entry, version) for entry in cases]), strict=True
    ):
        assert journal.decode_record(*decode_record(answer)) == group_as_of(entry, version)


def test_unknown_tags_are_skipped_in_every_structure() -> None:
    cases = [entry for entry in draw_entries() if record_json.value_json(entry) is not None]
    cases = [entry for entry in cases if written_version(entry) != 1]
    versions = [
        4 if isinstance(entry, GroupMetadataEntry) else written_version(entry) for entry in cases
    ]
    asked = [
        encode_question("tagged", entry, version)
        for entry, version in zip(cases, versions, strict=True)
    ]
    for entry, answer in zip(cases, ask(asked), strict=True):
        key, value = decode_record(answer)
        assert value
        assert bytes.fromhex("09 03 010203 e807 c801") in value
        assert journal.decode_record(key, value) == entry


def assert_agrees(java: object, ours: object) -> bool:
    """Java prints the fields that a version has, and nothing else."""
    if isinstance(java, dict) and isinstance(ours, dict):
        return all(name in ours and assert_agrees(part, ours[name]) for name, part in java.items())
    if isinstance(java, list) and isinstance(ours, list):
        return len(java) == len(ours) and all(map(assert_agrees, java, ours))
    return java == ours


#: What Java lets pass: it puts in replacement characters, and ignores tails and tags' sizes.
STRICTER = ("not UTF-8", "too many", " tag ", "a varint past 32 bits")


def read_or_reason(case: tuple[bytes, bytes | None]) -> JournalEntry | str:
    try:
        return journal.decode_record(*case)
    except FormatError as error:
        return str(error)


def test_damaged_records_are_read_as_java_reads_them_or_refused() -> None:
    # type 0 is read with all versions; Java knows the first one only
    cases = [
        case
        for case in draw_examples(damaged_records(), 3 * CASES)
        if int.from_bytes(case[0][:2]) not in {0, *OLD_TYPES}
    ]
    answers = ask([f"read {key.hex()} {(value or b'').hex()}" for key, value in cases])
    read = refused = 0
    for case, answer in zip(cases, answers, strict=True):
        ours = read_or_reason(case)
        if isinstance(ours, str):
            refused += 1
            assert answer.startswith("error") or any(word in ours for word in STRICTER)
        elif not isinstance(ours, UnparsedEntry):
            read += 1
            number, key, _, value = answer.split(" ")
            assert (int(number), json.loads(bytes.fromhex(key))) == record_json.key_json(ours)
            assert assert_agrees(json.loads(bytes.fromhex(value)), record_json.value_json(ours))
    assert read > CASES // 4
    assert refused > CASES // 4
