"""Subscriptions and assignments of Connect's workers; the bytes are those of Connect 4.3.1."""

from __future__ import annotations

import pytest

from rota.engine.formats.connect_protocol import (
    ConnectAssignment,
    ConnectSubscription,
    decode_connect_assignment,
    decode_connect_subscription,
    list_connect_work,
)
from rota.errors import FormatError

URL = "http://a:8083/"
STATE = "000e687474703a2f2f613a383038332f0000000000000007"
LEADER = "0003772d31000e687474703a2f2f613a383038332f0000000000000007"
SINK = "000473696e6b00000002ffffffff00000000"
SOURCE = "0006736f757263650000000100000001"
CURRENT = f"0002 0000 {LEADER} 00000001 {SINK} 00000000 00000000"
EAGER = f"0000 0000 {LEADER} 00000002 {SINK} {SOURCE}"
REVOKING = f"0001 0000 {LEADER} 00000000 00000001 000473696e6b 00000001 00000000 000493e0"


def read_subscription(text: str) -> ConnectSubscription:
    return decode_connect_subscription(bytes.fromhex(text))


def read_assignment(text: str) -> ConnectAssignment:
    return decode_connect_assignment(bytes.fromhex(text))


def test_subscriptions_are_read() -> None:
    current = ConnectAssignment(2, 0, "w-1", URL, 7, {"sink": (-1, 0)})
    assert read_subscription(f"0000 {STATE}") == ConnectSubscription(0, URL, 7)
    assert read_subscription(f"0002 {STATE} ffffffff") == ConnectSubscription(2, URL, 7)
    found = read_subscription(f"0002 {STATE} 0000003f {CURRENT}")
    assert found == ConnectSubscription(2, URL, 7, current)


def test_assignments_are_read() -> None:
    assigned = {"sink": (-1, 0), "source": (1,)}
    assert read_assignment(EAGER) == ConnectAssignment(0, 0, "w-1", URL, 7, assigned)
    revoked = ConnectAssignment(1, 0, "w-1", URL, 7, {}, {"sink": (0,)}, 300_000)
    assert read_assignment(REVOKING) == revoked


def test_arrays_may_be_null_and_last_fields_missing() -> None:
    empty = ConnectAssignment(1, 0, "w-1", URL, 7)
    assert read_assignment(f"0001 0000 {LEADER} ffffffff ffffffff 00000000") == empty
    assert read_assignment(f"0001 0000 {LEADER}") == empty


def test_an_eager_worker_runs_its_assignment() -> None:
    told, given = read_subscription(f"0000 {STATE}"), read_assignment(EAGER)
    assert list_connect_work(told, given) == (
        "connector sink",
        "task 0 of sink",
        "task 1 of source",
    )
    assert list_connect_work(told, None) == ()


def test_an_incremental_worker_keeps_what_is_not_revoked() -> None:
    told = read_subscription(f"0002 {STATE} 0000003f {CURRENT}")
    assert list_connect_work(told, read_assignment(REVOKING)) == ("connector sink",)
    more = ConnectAssignment(2, 0, "w-1", URL, 7, {"sink": (3,)})
    work = ("connector sink", "task 0 of sink", "task 3 of sink")
    assert list_connect_work(told, more) == work


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ffff", "Connect assignment: version at byte 0: unknown -1"),
        ("0000 00", "Connect assignment: error at byte 2: 2 bytes needed, 1 left"),
        (f"0000 0000 {LEADER} 00000009", "assigned connectors at byte 33: impossible count 9"),
        (f"0000 0000 {LEADER} ffffffff", "assigned connectors at byte 33: impossible count -1"),
    ],
)
def test_what_is_wrong_is_named(text: str, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        read_assignment(text)
    assert message in str(caught.value)
