"""A data folder with a bit of everything, and what a broker that is started on it may serve.

::

    folder = stopped()          or killed(): the same, without the last words
    disk = folder.disk.kill()   a copy, to be damaged
    found = folder.judge(disk, "log-0/00000000000000000000.log")

Judging starts a broker on the copy and reads all of it, as clients would.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

from rota.engine.formats.record_batch import HEADER, BatchRecord, CompressionType, encode_batch
from rota.engine.model.config import BrokerConfig
from rota.errors import Code, RotaError
from rota.protocol.messages import ListOffsetsRequest
from tests.support.faulty_disk import FaultyDisk
from tests.support.node import ClientConnection, InMemoryNode
from tests.support.requests import START

CONFIG = BrokerConfig(offsets_partitions=2, offsets_segment_bytes=900)
SMALL = {"internal.segment.bytes": "700", "index.interval.bytes": "150"}
PARTITIONS = (("log", 0), ("log", 1), ("compact", 0), ("cut", 0))
GROUPS = ("readers", "writers", "third")
#: What a reader may be told; the last where a folder is of another topic.
UNREAD = (Code.NONE, Code.OFFSET_OUT_OF_RANGE, Code.KAFKA_STORAGE_ERROR)
UNAVAILABLE = (Code.NOT_COORDINATOR, Code.COORDINATOR_LOAD_IN_PROGRESS)
TIMES = (START - 1, START + 9, START + 21, START + 70_000)


@dataclass
class ServedData:
    """All that a broker gives to its clients."""

    #: By partition and base offset.
    batches: dict[tuple[str, int], dict[int, bytes]] = field(default_factory=dict)
    #: Of each partition the first offset and the next.
    bounds: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    #: For a partition and a timestamp.
    times: dict[tuple[str, int, int], tuple[int, int] | Code] = field(default_factory=dict)
    committed: dict[str, dict[tuple[str, int], tuple[int, str]] | Code] = field(
        default_factory=dict
    )
    settings: dict[str, dict[str, str]] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def lacks(self, promised: ServedData) -> bool:
        """Is there less than that?"""
        return (
            self.batches != promised.batches
            or self.bounds != promised.bounds
            or self.committed != promised.committed
        )


@dataclass
class AcknowledgedFolder:
    """A folder, and what was acknowledged by the broker that wrote it."""

    disk: FaultyDisk
    promised: ServedData
    #: Every batch as it was before any was deleted or compacted, too.
    taken: dict[tuple[str, int], dict[int, bytes]]
    #: Every offset that was ever committed, by group, topic and partition.
    history: dict[tuple[str, str, int], set[int]]
    #: Of partitions of ``log`` the last batch of an idempotent producer, and its offset.
    last: dict[int, tuple[bytes, int]]

    def judge(
        self, disk: FaultyDisk, path: str, *, foreign: bool = False, unsaid: bool = False
    ) -> ServedData | None:
        """Starts a broker on a disk with this file damaged, and asks it for everything.

        :param foreign: the file has another's content, in which nothing is wrong by itself
        :param unsaid: what is missing need not be said
        :return: what it serves; None: it did not start
        """
        try:
            node = InMemoryNode(disk, config=CONFIG, now=START + 100_000)
        except RotaError as error:
            text = str(error)
            assert "\n" not in text, text
            assert (path.rpartition("/")[0] or path) in text, (path, text)
            return None
        served = read_all(node)
        self.check(served, path, foreign=foreign, unsaid=unsaid)
        if not foreign:
            self._retry(node, served)
        assert not [line for line in node.error_lines if "are not available" not in line], (
            node.error_lines
        )
        return served

    def check(
        self, served: ServedData, path: str, *, foreign: bool = False, unsaid: bool = False
    ) -> None:
        """Nothing is wrong; if something is missing, that was said."""
        for partition, batches in served.batches.items():
            promised = self.taken[partition]
            for base, batch in batches.items():
                known = [promised.get(base)]
                if foreign:
                    known = [each.get(base) for each in self.taken.values()]
                assert batch in known, f"{partition}: offset {base} is not what was promised"
        for group, found in served.committed.items():
            if isinstance(found, Code):
                assert found in UNAVAILABLE, (group, found)
                continue
            for (topic, number), (offset, text) in found.items():
                assert offset in self.history.get((group, topic, number), ()), (group, offset)
                assert text == f"{group} at {offset}"
        for key, time in served.times.items():
            missing = served.batches[key[:2]] != self.promised.batches[key[:2]]
            right = {self.promised.times[key], Code.CORRUPT_MESSAGE}
            assert missing or time in right, (key, time, self.promised.times[key], served.lines)
        assert served.settings == self.promised.settings
        if served.lacks(self.promised) and not unsaid:
            stem = path.rpartition(".")[0]
            told = [line for line in served.lines if path in line or (stem and stem in line)]
            assert told, f"something is missing, and nothing said: {served.lines}"

    def _retry(self, node: InMemoryNode, served: ServedData) -> None:
        """A producer that was not answered sends its last batch again: it is there once."""
        peer = node.connect()
        for number, (batch, offset) in self.last.items():
            if served.bounds["log", number] != self.promised.bounds["log", number]:
                continue
            answer = peer.produce_batch("log", number, batch)
            assert answer.error_code or answer.base_offset == offset, "taken twice"


def read_all(node: InMemoryNode) -> ServedData:
    """Asks for everything."""
    served = ServedData(lines=node.log_lines)
    peer = node.connect()
    for topic, number in PARTITIONS:
        log = node.topics.get_log(topic, number)
        assert log is not None, f"{topic}-{number} is gone"
        served.batches[topic, number] = dict(
            read_batches(peer, topic, number, log.log_start_offset)
        )
        served.bounds[topic, number] = log.log_start_offset, log.log_end_offset
        for time in TIMES:
            served.times[topic, number, time] = offset_for(peer, topic, number, time)
    for group in GROUPS:
        served.committed[group] = peer.committed(group)
    served.settings = {each.name: dict(each.overrides) for each in node.topics}
    return served


def read_batches(
    peer: ClientConnection, topic: str, number: int, offset: int
) -> Iterator[tuple[int, bytes]]:
    """Every batch that can be had; behind damage the next offset that can."""
    while True:
        found = peer.fetch_partition(topic, number, offset)
        if found.error_code == Code.CORRUPT_MESSAGE:
            offset += 1
        elif found.error_code or not found.records:
            assert found.error_code in UNREAD, Code(found.error_code)
            return
        data = bytes(found.records or b"")
        while data:
            base, length, *_ = HEADER.unpack_from(data)
            batch, data = data[: 12 + length], data[12 + length :]
            yield base, batch
            offset = max(offset, base + HEADER.unpack_from(batch)[6] + 1)


def offset_for(
    peer: ClientConnection, topic: str, number: int, time: int
) -> tuple[int, int] | Code:
    asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=number, timestamp=time)
    of = ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[asked])
    found = peer.ask(ListOffsetsRequest(topics=[of]), 5).topics[0].partitions[0]
    return Code(found.error_code) if found.error_code else (found.offset, found.timestamp)


@cache
def folder_after_stop() -> AcknowledgedFolder:
    """After a stop in good order."""
    return _write_folder(clean=True)


@cache
def folder_after_kill() -> AcknowledgedFolder:
    """After a kill -9."""
    return _write_folder(clean=False)


def _write_folder(*, clean: bool) -> AcknowledgedFolder:
    node = InMemoryNode(config=CONFIG)
    create = node.topics.create
    create("log", 2, SMALL, START)
    create("compact", 1, {**SMALL, "cleanup.policy": "compact"}, START)
    create("cut", 1, SMALL, START)
    peer = node.connect()
    last: dict[int, tuple[bytes, int]] = {}
    history: dict[tuple[str, str, int], set[int]] = {}
    codecs = list(CompressionType)
    for turn in range(24):
        for number in range(2):
            batch = encode_batch(
                [BatchRecord(0, START + turn, b"k%d" % turn, b"log %d %d" % (number, turn))],
                codec=codecs[turn % len(codecs)] if number else CompressionType.NONE,
                producer_id=number,
                producer_epoch=0,
                base_sequence=turn,
            )
            last[number] = batch, produce_batch(peer, "log", number, batch)
        same = encode_batch(
            [BatchRecord(0, START + turn, b"k%d" % (turn % 3), b"compact %d" % turn)]
        )
        produce_batch(peer, "compact", 0, same)
        produce_batch(
            peer, "cut", 0, encode_batch([BatchRecord(0, START + turn, None, b"cut %d" % turn)])
        )
        if turn % 3 == 0:
            for group in GROUPS:
                assert peer.commit(group, "log", 0, turn, f"{group} at {turn}") is Code.NONE
                history.setdefault((group, "log", 0), set()).add(turn)
        if turn == 16:
            before = read_all(node).batches
            node.topics.delete_records_before({("cut", 0): 11})
            node.now += 70_000
            node.topics.log_manager.run_all(node.now)
    promised = read_all(node)
    if clean:
        node.topics.close(node.now)
    taken = {each: {**before[each], **promised.batches[each]} for each in PARTITIONS}
    return AcknowledgedFolder(node.disk.kill(), promised, taken, history, last)


def produce_batch(peer: ClientConnection, topic: str, number: int, batch: bytes) -> int:
    answer = peer.produce_batch(topic, number, batch)
    assert answer.error_code == 0, answer
    offset: int = answer.base_offset
    return offset
