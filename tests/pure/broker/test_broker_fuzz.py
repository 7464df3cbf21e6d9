"""A whole broker, sent anything: it answers or closes, goes on, and keeps what it has promised."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.broker.events import ConnectionId
from rota.engine.formats.record_batch import BatchRecord, encode_batch
from rota.engine.model.text import CONSUMER_OFFSETS_TOPIC
from rota.errors import Code, FormatError
from rota.protocol.codec import (
    RequestHeader,
    read_request_header,
    read_response,
    write_request,
    write_response,
)
from rota.protocol.messages import Api, InitProducerIdRequest
from tests.support.examples import examples
from tests.support.fuzz_frames import (
    TOPICS,
    KnownNames,
    encode_frame,
    mutate_bytes,
    random_bytes,
    random_request,
    random_valid_message,
    replace_with_extreme,
)
from tests.support.node import VERSIONS, ClientConnection, InMemoryNode
from tests.support.requests import START, read_records
from tests.support.wire_messages import message_classes

T = TypeVar("T")
every_api = pytest.mark.parametrize("api", list(VERSIONS), ids=lambda api: api.name)
#: Bytes of memory for each byte sent, at most: arrays of empty structs, and their answers.
MULTIPLE = 150
#: For what is kept whatever the size: decoders, log lines.
SLACK = 400_000
#: A journal that takes no larger batches is no use.
LEAST = 1_000
#: No wait is as long: the longest that a request can ask for is 2^31 - 1 milliseconds.
FOREVER = 50 * 86_400_000


class FuzzedBroker:
    """A broker with topics and groups, some connections, and what they have been promised."""

    def __init__(self, seed: int, *, passwords: bool = False) -> None:
        self.rng = random.Random(seed)
        self.seed = seed
        self.node = InMemoryNode(passwords={"user": "password"} if passwords else None)
        self.known = KnownNames()
        self.attackers: list[ClientConnection] = []
        #: The frame that is answered next; None if it has no head, as within a login.
        self.asked: dict[ConnectionId, bytes | None] = {}
        self.sent: list[bytes] = []
        self.kept: list[bytes] = []
        self.committed = -1
        for name in TOPICS[:3]:
            self.node.topics.create(name, 3, {}, START)
        self.node.topics.create("kept", 1, {}, START)
        if not passwords:
            self._settle()

    def _settle(self) -> None:
        self.friend = self.node.connect()
        for _ in range(3):
            self.known.producers.append(self.friend.ask(InitProducerIdRequest(), 0).producer_id)
        self.keep()

    def keep(self) -> None:
        """A good client, whom nobody knows: it is promised a record and an offset."""
        value = b"%d" % len(self.kept)
        answer = self.friend.produce_batch(
            "kept", 0, encode_batch([BatchRecord(0, START, b"k", value)])
        )
        assert (answer.error_code, answer.base_offset) == (0, len(self.kept)), self.told()
        self.kept.append(value)
        code = self.friend.commit("keeper", "kept", 0, len(self.kept), "as promised")
        if code is Code.NONE:
            self.journal = self.node.topics.get(CONSUMER_OFFSETS_TOPIC)
            self.committed = len(self.kept)
        else:
            journal = self.node.topics.get(CONSUMER_OFFSETS_TOPIC)
            assert journal is not None, self.told()
            assert journal.config.max_message_bytes < LEAST, self.told()

    def check_promises(self, node: InMemoryNode | None = None) -> None:
        node = node or self.node
        friend = node.connect()
        found = friend.fetch_partition("kept", 0)
        assert found.error_code == 0, self.told()
        expected = [(at, b"k", value) for at, value in enumerate(self.kept)]
        assert read_records(bytes(found.records)) == expected, self.told()
        if (
            self.committed >= 0 and self.node.topics.get(CONSUMER_OFFSETS_TOPIC) is self.journal
        ):  # not deleted
            promised = {("kept", 0): (self.committed, "as promised")}
            assert friend.committed("keeper") == promised, self.told()

    def told(self) -> str:
        last = self.sent[-1][:200].hex() if self.sent else "none"
        return f"seed {self.seed}, frame {len(self.sent)}: {last}; said: {self.node.log_lines[-2:]}"

    def give(self, frame: bytes, peer: ClientConnection | None = None) -> None:
        """A frame from an attacker who does not wait; what comes back is judged."""
        peer = self.attacker() if peer is None else peer
        client = next(each for each in self.node.node.clients if each.connection == peer.id)
        bare = client.raw_frame_handler is not None
        self.sent.append(frame)
        self.asked[peer.id] = None if bare else frame
        try:
            peer.send_frame(frame)
        except AssertionError as error:
            raise AssertionError(f"{error}; {self.told()}") from error
        except Exception as error:
            raise AssertionError(f"{error!r} left the node; {self.told()}") from error
        self.judge()

    def attacker(self) -> ClientConnection:
        free = [each for each in self.attackers if each.closed is None and not each.waits]
        if len(free) < 3 and len(self.attackers) < 40:
            peer = self.node.connect()
            self.attackers.append(peer)
            return peer
        if not free:  # all wait: one gives up
            self.attackers.pop(0).disconnect()
            return self.attacker()
        return self.rng.choice(free)

    def judge(self) -> None:
        """Answers follow their schemas; nothing unexpected was caught."""
        # an administrator may do that
        errors = [line for line in self.node.error_lines if "max.message.bytes is" not in line]
        assert not errors, f"{errors}; {self.told()}"
        unwritten = [line for line in self.node.log_lines if "cannot be written" in line]
        assert not unwritten, f"{unwritten}; {self.told()}"
        for peer in self.attackers:
            while peer.responses:
                self.read(peer, peer.responses.popleft())
        self.attackers = [each for each in self.attackers if each.closed is None]

    def read(self, peer: ClientConnection, data: bytes | None) -> None:
        asked = self.asked[peer.id]
        if data is None or asked is None:
            return
        head = read_request_header(asked)
        api = Api(head.api_key)
        version = head.api_version if head.api_version in VERSIONS[api] else 0
        assert int.from_bytes(data[:4], "big") == len(data) - 4, self.told()
        try:
            correlation, response = read_response(message_classes(api)[1], version, data[4:])
        except FormatError as error:
            raise AssertionError(f"{api.name} v{version}: {error}; {self.told()}") from error
        assert correlation == head.correlation_id, self.told()
        assert bytes(write_response(api, version, correlation, response)) == data, self.told()
        self.learn(api, response)

    def learn(self, api: Api, response: Any) -> None:
        if api is Api.JOIN_GROUP and response.member_id:
            self.known.members = [*self.known.members[-5:], response.member_id]
            self.known.generations = [*self.known.generations[-3:], response.generation_id]
        self.known.topic_ids = [each.id for each in self.node.topics if each.name != "kept"]

    def step(self) -> None:
        """Something happens."""
        rng = self.rng
        match rng.randrange(20):
            case 0:
                self.node.jump(rng.choice((0, 1, 100, 5_000, 61_000)))
                self.judge()
            case 1 if self.attackers:
                self.attackers.pop(rng.randrange(len(self.attackers))).disconnect()
                self.judge()
            case 2:
                self.keep()
            case 3 | 4:
                self.give(random_bytes(rng))
            case 5 | 6 | 7 | 8:
                self.give(mutate_bytes(random_request(rng, self.known), rng))
            case _:
                self.give(random_request(rng, self.known))

    def end(self) -> None:
        """All promises are kept, here and after a restart; nobody waits for ever."""
        self.check_promises()
        for clean in (False, True):
            node = self.node.restart(clean=clean)
            assert not node.error_lines, f"{node.error_lines}; {self.told()}"
            self.check_promises(node)
        for _ in range(3):
            self.node.jump(FOREVER)
            self.judge()
        waiting = [peer for peer in self.attackers if peer.waits]
        assert not waiting, self.told()


def fuzz_broker(seed: int, steps: int) -> None:
    found = FuzzedBroker(seed)
    for _ in range(steps):
        found.step()
    found.end()


@examples(quick=25)
@settings(max_examples=max(12, settings().max_examples // 10))
@given(st.integers(0, 2**32))
def test_whatever_comes_in_promises_are_kept(seed: int) -> None:
    fuzz_broker(seed, 150)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(40))
def test_long_sieges(seed: int) -> None:
    fuzz_broker(seed, 5_000)


@settings(max_examples=max(10, settings().max_examples // 20))
@given(st.integers(0, 2**32))
def test_nobody_gets_in_by_chance(seed: int) -> None:
    """Who must log in first is served nothing, whatever he sends."""
    found = FuzzedBroker(seed, passwords=True)
    before = {topic.name: [log.log_end_offset for log in topic.logs] for topic in found.node.topics}
    login = (Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE)
    for _ in range(100):
        frame = random_request(found.rng, found.known, found.rng.choice((None, *login)))
        wrong = frame.replace(b"\0user\0password", b"\0user\0passwort")
        found.give(found.rng.choice((mutate_bytes(wrong, found.rng), wrong)))
    assert {
        topic.name: [log.log_end_offset for log in topic.logs] for topic in found.node.topics
    } == before
    assert all(client.user is None for client in found.node.node.clients)


@every_api
def test_every_version_whole_and_broken(api: Api) -> None:
    """Cut at every byte, with every kind of impossible number, and changed at random."""
    found = FuzzedBroker(int(api))
    for version in VERSIONS[api]:
        message = random_valid_message(api, version, found.rng, found.known)
        frame = bytes(write_request(RequestHeader(api, version, 7, "me", 0), message))[4:]
        found.give(frame)
        body = read_request_header(frame).size
        for each in (
            *(frame[:end] for end in sample_of(range(len(frame)), 150, found.rng)),
            *(replace_with_extreme(frame, body, found.rng) for _ in range(60)),
            *(mutate_bytes(frame, found.rng) for _ in range(30)),
        ):
            found.give(each)
    found.keep()
    found.end()


def sample_of(of: Sequence[T], most: int, rng: random.Random) -> Sequence[T]:
    return of if len(of) <= most else rng.sample(of, most)


@every_api
def test_tags_that_nobody_knows(api: Api) -> None:
    """Many, large, nested in their bytes, with numbers up to the largest: all are passed over."""
    found = FuzzedBroker(int(api))
    for version in VERSIONS[api]:
        if version not in message_classes(api)[0].SCHEMA.flexible:
            continue
        frame = bytes(
            write_request(RequestHeader(api, version, 7, "me", 0), message_classes(api)[0]())
        )[4:]
        peer = found.node.connect()
        found.attackers.append(peer)
        for many in (1, 100):
            inside = varint(5) + b"\x01\x00\x02\x01\x00"  # that might be tags, too
            tags = b"".join(varint(1_000 + at) + inside for at in range(many))
            found.give(frame[:-1] + varint(many) + tags, peer)
            assert peer.closed is None, peer.closed
            if peer.waits:
                peer.disconnect()
                peer = found.node.connect()
                found.attackers.append(peer)
        found.give(frame[:-1] + varint(2**32 - 1) + varint(1) + varint(2**32 - 1))


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes((*found, number))


@pytest.mark.check
@every_api
def test_memory_is_bounded_by_what_was_sent(api: Api) -> None:
    """Counts of empty structs, which are the cheapest to send, and the same asked many times."""
    size = 20_000
    found = FuzzedBroker(int(api))
    for version in {VERSIONS[api][0], VERSIONS[api][-1]}:
        frames = [*zeros(api, version, size), *repeated_bytes(api, version, size, found)]
        for frame in (*frames[:1], *frames):  # once before: decoders are made on first use
            peer = found.node.connect()
            found.attackers.append(peer)
            found.asked[peer.id] = frame
            tracemalloc.start()
            peer.send_frame(frame)
            most = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            found.judge()
            if frame is not frames[0]:
                assert most < MULTIPLE * len(frame) + SLACK, (version, most, frame[:90])
    found.keep()


def zeros(api: Api, version: int, size: int) -> Iterator[bytes]:
    """Zeros with a count at some place, as four bytes and as a varint."""
    head = bytes(write_request(RequestHeader(api, version, 7, "me", 0), message_classes(api)[0]()))[
        4:
    ]
    head = head[: read_request_header(head).size]
    for at in (0, 1, 4, 5, 11):
        for count in ((size - 50) // 2, (size - 50) // 20, 2**31 - 1):
            for written in (count.to_bytes(4, "big"), varint(count)):
                yield head + bytes(at) + written + bytes(size - at - len(written) - len(head))


def repeated_bytes(api: Api, version: int, size: int, found: FuzzedBroker) -> Iterator[bytes]:
    """A list of the request with one element again and again."""
    for _ in range(3):
        message = random_valid_message(api, version, found.rng, found.known)
        for each in message.STRUCT.fields:
            inside = getattr(message, each.name)
            if isinstance(inside, list) and inside and version in each.versions:
                one = len(encode_frame(api, version, message, found.rng))
                setattr(message, each.name, inside * max(size // one, 1))
                yield encode_frame(api, version, message, found.rng)
                setattr(message, each.name, inside)


def splice_frames(seed: int, data: bytes, known: KnownNames) -> bytes:
    """A request that a client may send, with these bytes in place of its last ones."""
    frame = random_request(random.Random(seed), known)
    return frame[: max(len(frame) - len(data), 10)] + data
