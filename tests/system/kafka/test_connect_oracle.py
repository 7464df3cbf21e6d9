"""What workers of Kafka Connect send, written by Connect's own classes and read by Rota."""

from __future__ import annotations

from hypothesis import strategies as st

from rota.engine.formats.connect_protocol import (
    ConnectAssignment,
    ConnectSubscription,
    decode_connect_assignment,
    decode_connect_subscription,
)
from tests.support.journal_entries import integers
from tests.system.kafka import oracle
from tests.system.kafka.test_journal_oracle import draw_examples

CASES = 300
words = st.text("abcxyz-_0üß", min_size=1, max_size=12).filter(lambda word: word != "-")
connectors = st.dictionaries(
    words,
    st.lists(st.integers(-1, 20), min_size=1, max_size=5, unique=True).map(
        lambda n: tuple(sorted(n))
    ),
    max_size=4,
)


@st.composite
def assignments(draw: st.DrawFn) -> ConnectAssignment:
    version = draw(st.integers(0, 2))
    return ConnectAssignment(
        version,
        draw(integers(16)),
        draw(words),
        f"http://{draw(words)}:8083/",
        draw(integers(64)),
        draw(connectors),
        draw(connectors) if version else {},
        draw(st.integers(0, 2**31 - 1)) if version else 0,
    )


@st.composite
def subscriptions(draw: st.DrawFn) -> ConnectSubscription:
    current = draw(st.none() | assignments())
    version = draw(st.integers(0, 2)) if current is None else current.version
    current = None if version == 0 else current
    return ConnectSubscription(version, f"http://{draw(words)}/", draw(integers(64)), current)


def describe_assignment(one: ConnectAssignment) -> str:
    assigned, revoked = (
        ";".join(f"{name}:{','.join(map(str, tasks))}" for name, tasks in each.items()) or "-"
        for each in (one.assigned, one.revoked)
    )
    return (
        f"{one.error} {one.leader} {one.leader_url} {one.config_offset} {assigned} {revoked} "
        f"{one.delay}"
    )


def test_assignments_of_every_version_are_read() -> None:
    cases = draw_examples(assignments(), CASES)
    asked = [f"assignment {one.version} {describe_assignment(one)}" for one in cases]
    for one, answer in zip(cases, oracle.ask_connect("ConnectOracle", asked), strict=True):
        read = decode_connect_assignment(bytes.fromhex(answer))
        # Java writes the tasks of a connector before the connector itself, or after them
        for found in (read.assigned, read.revoked):
            assert all(len(set(tasks)) == len(tasks) for tasks in found.values())
        assert sort_tasks(read) == one
    assert {one.version for one in cases} == {0, 1, 2}


def sort_tasks(one: ConnectAssignment) -> ConnectAssignment:
    assigned, revoked = (
        {name: tuple(sorted(tasks)) for name, tasks in each.items()}
        for each in (one.assigned, one.revoked)
    )
    same = one.version, one.error, one.leader, one.leader_url, one.config_offset
    return ConnectAssignment(*same, assigned, revoked, one.delay)


def test_subscriptions_of_every_version_are_read() -> None:
    cases = draw_examples(subscriptions(), CASES)
    asked = [
        f"subscription {one.version} {one.url} {one.config_offset}"
        + ("" if one.version == 0 else " -" if one.current is None else "")
        + (f" {describe_assignment(one.current)}" if one.current is not None else "")
        for one in cases
    ]
    for one, answer in zip(cases, oracle.ask_connect("ConnectOracle", asked), strict=True):
        read = decode_connect_subscription(bytes.fromhex(answer))
        current = None if read.current is None else sort_tasks(read.current)
        assert ConnectSubscription(read.version, read.url, read.config_offset, current) == one
    assert any(one.current is not None for one in cases)
