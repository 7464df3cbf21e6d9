"""Messages against Kafka's own classes: equal bytes, equal fields, in every API and version."""

from __future__ import annotations

import base64
import functools
import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from rota.errors import FormatError
from rota.protocol.codec import (
    RequestHeader,
    read_request,
    read_request_header,
    read_response,
    write_request,
    write_response,
)
from rota.protocol.messages import Api, classes_by_api
from rota.protocol.schemas import FieldSpec, Message
from tests.support.wire_messages import all_versions, message_classes, random_message
from tests.system.kafka import oracle

#: Messages of each API and version, and of each direction.
CASES = 12


@dataclass(frozen=True)
class Case:
    api: Api
    version: int
    kind: str
    message: Any
    #: Without its length.
    frame: bytes

    def oracle_line(self, seed: int = 0, frame: bytes | None = None) -> str:
        data = self.frame if frame is None else frame
        return f"{self.kind} {self.api} {self.version} {seed} {data.hex()}"

    def __str__(self) -> str:
        return f"{self.kind} {self.api.name} v{self.version}: {self.message}"


CLIENT_IDS = ("client", "", None, "zoë")


@functools.cache
def make_cases(seed: int = 7) -> list[Case]:
    rng = random.Random(seed)
    found: list[Case] = []
    for api, version in all_versions():
        request, response = message_classes(api)
        for number in range(CASES):
            correlation = rng.randrange(-(2**31), 2**31)
            head = RequestHeader(api, version, correlation, CLIENT_IDS[number % len(CLIENT_IDS)], 0)
            asked = random_message(request, version, rng)
            frame = bytes(write_request(head, asked))
            found.append(Case(api, version, "request", asked, strip_length(frame)))
            said = random_message(response, version, rng)
            frame = bytes(write_response(api, version, correlation, said))
            found.append(Case(api, version, "response", said, strip_length(frame)))
    return found


def strip_length(frame: bytes) -> bytes:
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return frame[4:]


def ask(questions: Sequence[str]) -> list[list[str]]:
    return [line.split(" ") for line in oracle.ask("WireOracle", questions)]


def decode_frame(case: Case, frame: bytes) -> tuple[dict[str, Any], Any]:
    """Header and body as we read them; the header with Java's names."""
    if case.kind == "response":
        correlation, found = read_response(classes_by_api[case.api][1], case.version, frame)
        return {"correlation_id": correlation}, found
    head = read_request_header(frame)
    request = read_request(classes_by_api[head.api_key][0], head.api_version, frame, head.size)
    return {
        "request_api_key": head.api_key,
        "request_api_version": head.api_version,
        "correlation_id": head.correlation_id,
        "client_id": head.client_id,
    }, request


def encode_frame(case: Case, header: dict[str, Any], message: Any) -> bytes:
    if case.kind == "response":
        frame = write_response(case.api, case.version, header["correlation_id"], message)
    else:
        head = RequestHeader(
            case.api, case.version, header["correlation_id"], header["client_id"], 0
        )
        frame = write_request(head, message)
    return strip_length(bytes(frame))


# What Java says of a message, and what it should say


def decode_java(text: str) -> Any:
    return snake_case(json.loads(bytes.fromhex(text)))


def snake_case(found: Any) -> Any:
    if isinstance(found, dict):
        return {re.sub("(?=[A-Z])", "_", k).lower(): snake_case(v) for k, v in found.items()}
    return [snake_case(each) for each in found] if isinstance(found, list) else found


def field_values(record: Message, version: int) -> dict[str, Any]:
    found = {}
    for field in record.STRUCT.fields:
        value = getattr(record, field.name)
        if field.is_tagged(version) and is_default(field, value):
            continue
        if field.kind == "records" and value is not None:
            found["records_size_in_bytes"] = len(value)
        elif version in field.versions:
            found[field.name] = value_shown(field, value, version)
    return found


def is_default(field: FieldSpec, value: Any) -> bool:
    return bool(value == field.default or (isinstance(value, Message) and value == type(value)()))


def value_shown(field: FieldSpec, value: Any, version: int) -> Any:
    if isinstance(value, list):
        return [value_shown(field, each, version) for each in value]
    if isinstance(value, Message):
        return field_values(value, version)
    if field.kind == "uuid":
        return base64.urlsafe_b64encode(value).decode().rstrip("=")
    if isinstance(value, bytes | memoryview):
        return base64.b64encode(value).decode()
    return value


def assert_equal_both_ways(asked: list[Case]) -> None:
    answers = ask([case.oracle_line() for case in asked])
    for case, answer in zip(asked, answers, strict=True):
        assert answer[0] != "error", f"{answer}: {case}"
        frame, left, head, body = answer
        assert frame == case.frame.hex(), case
        assert left == "0", case
        assert decode_java(body) == field_values(case.message, case.version), case
        header, found = decode_frame(case, bytes.fromhex(frame))
        assert header == decode_java(head), case
        assert field_values(found, case.version) == field_values(case.message, case.version), case
        assert encode_frame(case, header, found) == case.frame, case


def test_java_reads_what_we_write_and_writes_what_we_read() -> None:
    assert_equal_both_ways(make_cases())


def assert_tags_skipped(asked: list[Case]) -> None:
    answers = ask([case.oracle_line(seed=number + 1) for number, case in enumerate(asked)])
    tagged = 0
    for case, (frame, *_) in zip(asked, answers, strict=True):
        header, found = decode_frame(case, bytes.fromhex(frame))
        assert encode_frame(case, header, found) == case.frame, case
        tagged += frame != case.frame.hex()
    assert tagged > len(asked) / 4


def test_tagged_fields_of_a_later_kafka_are_skipped() -> None:
    assert_tags_skipped(make_cases())


def assert_judged_alike(asked: list[Case], seed: int) -> None:
    """Bytes changed at random. What Java refuses is refused; what it takes is understood alike.

    Java is not asked about bytes that it does not use up, or would write otherwise (a varint in
    more bytes than needed, a null of -5, a tag of another size than it says): we are stricter.
    """
    rng = random.Random(seed)
    changed = [(case, mutate_frame(case.frame, rng)) for case in asked for _ in range(4)]
    answers = ask([case.oracle_line(frame=frame) for case, frame in changed])
    refused = taken = 0
    for (case, frame), answer in zip(changed, answers, strict=True):
        if answer[0] == "error":
            refused += 1
            with pytest.raises(FormatError):
                decode_frame(case, frame)
        elif answer[:2] == [frame.hex(), "0"]:
            taken += 1
            header, found = decode_frame(case, frame)
            assert header == decode_java(answer[2]), case
            assert field_values(found, case.version) == decode_java(answer[3]), (case, frame.hex())
    assert refused > len(changed) / 20
    assert taken > len(changed) / 20


def test_changed_bytes_are_judged_as_java_judges_them() -> None:
    assert_judged_alike(make_cases(), 11)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(100, 130))
def test_many_more(seed: int) -> None:
    asked = make_cases(seed)
    assert_equal_both_ways(asked)
    assert_tags_skipped(asked)
    assert_judged_alike(asked, seed)


def mutate_frame(frame: bytes, rng: random.Random) -> bytes:
    """A body with some bytes changed, cut or doubled; the header stays whole."""
    start = min(len(frame), 20)
    found = bytearray(frame)
    for _ in range(rng.choice((1, 1, 2))):
        if len(found) <= start:
            break
        at = rng.randrange(start, len(found))
        match rng.randrange(4):
            case 0:
                found[at] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
            case 1:
                found[at] ^= 1 << rng.randrange(8)
            case 2:
                del found[at : at + rng.choice((1, 2, 4, 100))]
            case _:
                found[at:at] = found[at : at + rng.choice((1, 2, 4, 100))]
    return bytes(found)
