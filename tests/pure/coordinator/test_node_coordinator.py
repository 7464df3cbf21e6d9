"""The same requests to a broker's node, by frames, and to a coordinator alone: the same answers.

What is compared with a live Kafka in ``tests/system/kafka`` is compared here with all that a broker
has around its coordinator: versions, frames, handlers, alarms, the journal's bytes, restarts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial

import pytest

from rota.engine.formats import journal, record_batch_columns
from rota.engine.model.config import BrokerConfig
from rota.engine.model.journal_entry import ClassicEntry
from rota.engine.model.request import GroupRequest
from rota.engine.model.response import GroupResponse
from rota.engine.model.text import CONSUMER_OFFSETS_TOPIC
from tests.support.coordinator import wire
from tests.support.coordinator.case_run import QUIET
from tests.support.coordinator.comparison import Case, run_case, run_on_rota, transcript
from tests.support.coordinator.random_case import random_cases
from tests.support.coordinator.restart import after_restart
from tests.support.coordinator.scripted_member import CONFIG, TOPICS
from tests.support.coordinator.state import STATES
from tests.support.coordinator.story import STORIES
from tests.support.coordinator.table import bundle_questions, question_case
from tests.support.coordinator.transcript import find_difference
from tests.support.node import ClientConnection, InMemoryNode
from tests.support.requests import find_coordinator_request

BROKER = BrokerConfig(offsets_partitions=1)
WALKS = 100


class NodeSide:
    """A node as one side of a comparison: a connection for each request under way."""

    def __init__(self) -> None:
        self._node = InMemoryNode(config=BROKER, group_config=CONFIG)
        for name, count in TOPICS.items():
            self._node.create_topic(name, count)
        self._node.connect().ask(find_coordinator_request(), 2)
        self._sent: dict[str, tuple[ClientConnection, GroupRequest]] = {}

    @property
    def journal(self) -> list[ClassicEntry]:
        """What is on the disk."""
        log = self._node.topics.get_log(CONSUMER_OFFSETS_TOPIC, 0)
        assert log is not None
        found: list[ClassicEntry] = []
        columns = record_batch_columns.decode_batches(log.read(0, 1 << 30))
        for record in record_batch_columns.iterate_records(columns):
            entry = journal.decode_record(record.key or b"", record.value)
            assert isinstance(entry, ClassicEntry)
            found.append(entry)
        return found

    def send(self, label: str, client_id: str, request: GroupRequest) -> None:
        peer = self._node.connect()
        peer.client_id = client_id
        self._sent[label] = peer, request
        message = wire.encode(request)
        peer.send(message, message.API_VERSION)

    def collect(
        self, milliseconds: int, expected: Collection[str] | None
    ) -> Mapping[str, GroupResponse]:
        self._node.advance(milliseconds)
        if any(peer.waits for peer, _ in self._sent.values()):
            self._node.advance(QUIET)
        ready = [label for label, (peer, _) in self._sent.items() if not peer.waits]
        answers: dict[str, GroupResponse] = {}
        for label in ready:
            peer, request = self._sent.pop(label)
            answers[label] = wire.decode(request, peer.receive())
        return answers

    def ask(self, request: GroupRequest, wanted: Callable[[GroupResponse], bool]) -> GroupResponse:
        message = wire.encode(request)
        return wire.decode(request, self._node.connect().ask(message, message.API_VERSION))

    def restart(self) -> None:
        self._sent.clear()
        self._node = self._node.restart(config=BROKER, group_config=CONFIG)

    def create_topic(self, topic: str) -> None:
        self._node.create_topic(topic, 1)

    def delete_topic(self, topic: str) -> None:
        self._node.topics.delete(topic, self._node.now)


def find_differences(cases: Mapping[str, Case]) -> dict[str, str]:
    """The cases that a node answers otherwise than its coordinator, and how."""
    found: dict[str, str] = {}
    for name, case in cases.items():
        side = NodeSide()
        stage = run_case(case, side)
        told = find_difference(run_on_rota(case), transcript(stage, side.journal))
        if told is not None:
            found[name] = told
    return found


@pytest.mark.parametrize("name", STORIES)
def test_stories(name: str) -> None:
    assert find_differences({name: STORIES[name]}) == {}


@pytest.mark.parametrize("state", STATES)
def test_restarts(state: str) -> None:
    assert find_differences({state: partial(after_restart, STATES[state])}) == {}


def test_walks() -> None:
    assert find_differences(random_cases(WALKS)) == {}


@pytest.mark.nightly
def test_every_question_in_every_state() -> None:
    table = {
        f"{state} / {' + '.join(asks)}": question_case((state, asks))
        for state, asks in bundle_questions()
    }
    assert find_differences(table) == {}
