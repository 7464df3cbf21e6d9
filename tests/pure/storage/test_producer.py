"""What a partition takes from idempotent producers, and how it remembers them."""

from __future__ import annotations

import pytest

from rota.broker.storage import index, producer_state
from rota.broker.storage.index import AbortedTransaction
from rota.broker.storage.log import Log
from rota.broker.storage.producer_state import (
    BatchMetadata,
    EndTransactionMarker,
    ProducerStateManager,
    read_marker,
)
from rota.engine.formats.record_batch import (
    BatchHeader,
    BatchRecord,
    ControlRecordType,
    encode_batch,
    read_batch_header,
)
from rota.engine.model.config import DAY, MAX_INT, TopicConfig
from rota.errors import Code, FormatError, Refused
from tests.support.faulty_disk import FaultyDisk
from tests.support.transactions import encode_end_transaction_marker

NOW = 1_790_000_000_000
#: Producers.
ANN, BOB = 7, 9


def batch(
    sequence: int,
    count: int = 1,
    *,
    producer: int = ANN,
    epoch: int = 0,
    offset: int = 0,
    now: int = NOW,
    transactional: bool = False,
) -> BatchHeader:
    records = [BatchRecord(offset + each, now, b"k", b"v") for each in range(count)]
    data = encode_batch(
        records,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    return read_batch_header(data)


class Partition:
    """A log's end, and what it knows of its producers."""

    def __init__(self) -> None:
        self.end = 0
        self.producers = ProducerStateManager()
        self.aborted: list[AbortedTransaction] = []

    def send(
        self, sequence: int, count: int = 1, producer: int = ANN, epoch: int = 0, now: int = NOW
    ) -> int:
        """The offset of the batch, new or old."""
        sent = batch(sequence, count, producer=producer, epoch=epoch, offset=self.end, now=now)
        known = self.producers.check_batch(sent)
        if known is not None:
            return known.first_offset
        return self.store(sent)

    def write(self, count: int = 1, sequence: int = 0, producer: int = ANN, epoch: int = 0) -> int:
        """A batch of a transaction, as it is found in a log."""
        where = self.end
        return self.store(
            batch(sequence, count, producer=producer, epoch=epoch, offset=where, transactional=True)
        )

    def mark(self, kind: ControlRecordType, producer: int = ANN, epoch: int = 0) -> None:
        data = encode_end_transaction_marker(
            kind, offset=self.end, timestamp=NOW, producer_id=producer, producer_epoch=epoch
        )
        self.store(read_batch_header(data), read_marker(data))

    def store(self, head: BatchHeader, end: EndTransactionMarker | None = None) -> int:
        aborted = self.producers.add_batch(head, end)
        self.aborted += [aborted] if aborted else []
        self.end = self.producers.end_offset = head.last_offset + 1
        return head.base_offset

    def refuses(self, code: Code, sequence: int, count: int = 1, **options: int) -> None:
        with pytest.raises(Refused) as refused:
            self.send(sequence, count, **options)
        assert refused.value.code is code

    def restarted(self) -> Partition:
        """With what a snapshot keeps."""
        found = Partition()
        found.end = self.end
        found.producers = producer_state.unpack_snapshot(
            producer_state.pack_snapshot(self.producers)
        )
        return found


def test_a_batch_that_comes_again_is_answered_with_its_first_offset() -> None:
    log = Partition()
    assert [log.send(0, 3), log.send(3, 2), log.send(5)] == [0, 3, 5]
    assert [log.send(0, 3), log.send(3, 2), log.send(5)] == [0, 3, 5]
    assert log.end == 6


def test_only_the_last_five_batches_are_known() -> None:
    log = Partition()
    for sequence in range(7):
        log.send(sequence)
    assert log.send(2) == 2
    log.refuses(Code.OUT_OF_ORDER_SEQUENCE_NUMBER, 1)


def test_a_batch_is_the_same_only_from_its_first_to_its_last_sequence() -> None:
    log = Partition()
    log.send(0, 3)
    log.refuses(Code.OUT_OF_ORDER_SEQUENCE_NUMBER, 0, 2)
    log.refuses(Code.OUT_OF_ORDER_SEQUENCE_NUMBER, 1, 2)


@pytest.mark.parametrize("sequence", [2, 4, MAX_INT])
def test_a_gap_is_refused(sequence: int) -> None:
    log = Partition()
    log.send(0, 3)
    log.refuses(Code.OUT_OF_ORDER_SEQUENCE_NUMBER, sequence, 2)
    assert log.send(3) == 3


def test_a_producer_nobody_knows_may_begin_anywhere() -> None:
    log = Partition()
    assert log.send(41, 2) == 0
    log.refuses(Code.OUT_OF_ORDER_SEQUENCE_NUMBER, 44)
    assert log.send(43) == 2


def test_behind_the_highest_sequence_comes_zero() -> None:
    log = Partition()
    log.send(MAX_INT - 1, 4)  # INT - 1, INT, 0, 1
    assert log.send(2) == 4
    assert log.send(MAX_INT - 1, 4) == 0
    other = Partition()
    other.send(MAX_INT - 2, 3)
    assert other.send(0) == 3


def test_a_new_epoch_begins_with_zero_and_ends_the_old_one() -> None:
    log = Partition()
    log.send(0, 3)
    log.refuses(Code.OUT_OF_ORDER_SEQUENCE_NUMBER, 3, epoch=1)
    assert log.send(0, 3, epoch=1) == 3
    log.refuses(Code.INVALID_PRODUCER_EPOCH, 3)
    log.refuses(Code.INVALID_PRODUCER_EPOCH, 0, 3)  # not even what it has sent before
    assert log.send(0, 3, epoch=1) == 3


def test_producers_do_not_mind_each_other() -> None:
    log = Partition()
    assert [log.send(0), log.send(0, producer=BOB), log.send(1)] == [0, 1, 2]
    assert log.send(0, producer=BOB) == 1


def test_one_that_was_silent_for_long_is_forgotten() -> None:
    log = Partition()
    log.send(0, 3)
    log.send(0, producer=BOB, now=NOW + 1)
    log.producers.remove_expired(NOW + DAY)
    assert log.producers.get(ANN) is None
    assert log.producers.get(BOB) is not None
    assert log.send(17) == 4


def test_a_retry_after_a_restart_is_not_stored_twice() -> None:
    log = Partition()
    log.send(0, 3)
    log.send(3, 2)
    again = log.restarted()
    assert again.send(3, 2) == 3
    again.refuses(Code.OUT_OF_ORDER_SEQUENCE_NUMBER, 0, 3)  # a snapshot has but the last
    assert again.send(5) == 5


@pytest.mark.parametrize("rolled", [False, True])
def test_a_retry_after_a_kill_is_not_stored_twice(rolled: bool) -> None:
    disk = FaultyDisk()
    log = Log.create(disk, "t-0", bytes(16), TopicConfig(), now=NOW)
    sent = [
        encode_batch(
            [BatchRecord(0, NOW, None, b"%d" % each)],
            producer_id=ANN,
            producer_epoch=0,
            base_sequence=each,
        )
        for each in range(6)
    ]
    for each in sent[:5]:
        log.append(each, NOW)
        if rolled and each is sent[2]:
            log.roll(NOW)
    again = Log.open(
        disk.kill(),
        "t-0",
        TopicConfig(),
        recovery_point=0,
        clean=False,
        report=pytest.fail,
        now=NOW,
    )
    for offset, each in enumerate(sent[2:5], start=2):
        appended = again.append(each, NOW)
        assert (appended.base_offset, appended.duplicate) == (offset, True)
    assert (again.append(sent[5], NOW).base_offset, again.log_end_offset) == (5, 6)


def test_an_open_transaction_holds_the_stable_offset_back() -> None:
    log = Partition()
    log.send(0, producer=BOB)
    log.write(2)
    log.send(1, producer=BOB)
    assert log.producers.last_stable_offset(log.end) == 1
    log.write(2, 2, producer=11)
    log.mark(ControlRecordType.COMMIT)
    assert log.producers.last_stable_offset(log.end) == 4
    log.mark(ControlRecordType.ABORT, producer=11)
    assert log.producers.last_stable_offset(log.end) == log.end
    assert log.aborted == [AbortedTransaction(11, 4, 7, 8)]


def test_an_abort_says_what_is_stable_then() -> None:
    log = Partition()
    log.write(2)
    log.write(2, producer=BOB)
    log.mark(ControlRecordType.ABORT, producer=BOB)
    log.mark(ControlRecordType.ABORT)
    assert log.aborted == [AbortedTransaction(BOB, 2, 4, 0), AbortedTransaction(ANN, 0, 5, 6)]


def test_a_marker_without_data_aborts_nothing() -> None:
    log = Partition()
    log.mark(ControlRecordType.ABORT)
    assert log.aborted == []
    assert log.producers.last_stable_offset(log.end) == 1


def test_a_marker_of_a_later_epoch_ends_the_transaction() -> None:
    log = Partition()
    log.write(2)
    log.mark(ControlRecordType.COMMIT, epoch=1)
    assert log.producers.last_stable_offset(log.end) == 3
    log.refuses(Code.INVALID_PRODUCER_EPOCH, 2)


def test_no_client_begins_a_transaction_here() -> None:
    log = Partition()
    with pytest.raises(Refused, match="that is not open") as refused:
        log.producers.check_batch(batch(0, transactional=True))
    assert refused.value.code is Code.INVALID_TXN_STATE
    log.send(0)
    with pytest.raises(Refused, match="that is not open"):
        log.producers.check_batch(batch(1, transactional=True))


def test_a_batch_outside_its_open_transaction_is_refused() -> None:
    log = Partition()
    log.write(2)
    log.refuses(Code.INVALID_TXN_STATE, 2)
    assert log.producers.check_batch(batch(2, transactional=True, offset=2)) is None


def test_an_emptied_marker_changes_nothing() -> None:
    log = Partition()
    log.write(2)
    emptied = encode_batch(
        [], base_offset=2, producer_id=ANN, producer_epoch=0, transactional=True, control=True
    )
    assert read_marker(emptied) is None
    log.store(read_batch_header(emptied), None)
    assert log.producers.last_stable_offset(log.end) == 0


def test_an_open_transaction_does_not_expire_and_outlives_a_restart() -> None:
    log = Partition()
    log.send(0, producer=BOB)
    log.write(2)
    log.producers.remove_expired(NOW + 2 * DAY)
    again = log.restarted()
    assert again.producers.last_stable_offset(again.end) == 1
    assert [key for key, _ in again.producers] == [ANN]


def test_a_snapshot_is_as_kafka_writes_it() -> None:
    log = Partition()
    log.send(4, 3)
    data = producer_state.pack_snapshot(log.producers)
    assert data[:2] == b"\0\1"
    assert data[6:] == (
        b"\0\0\0\1" + (7).to_bytes(8) + b"\0\0" + (6).to_bytes(4) + (2).to_bytes(8)
        + (2).to_bytes(4) + NOW.to_bytes(8) + b"\xff" * 4 + b"\xff" * 8
    )  # fmt: skip
    found = producer_state.unpack_snapshot(data).get(ANN)
    assert found is not None
    assert found.batches == [BatchMetadata(4, 6, 0, 2, NOW)]


def test_every_flipped_bit_and_every_cut_of_a_snapshot_is_found() -> None:
    log = Partition()
    log.send(0, 3)
    data = producer_state.pack_snapshot(log.producers)
    for bit in range(8 * len(data)):
        bad = bytearray(data)
        bad[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FormatError):
            producer_state.unpack_snapshot(bad)
    for size in range(len(data)):
        with pytest.raises(FormatError):
            producer_state.unpack_snapshot(data[:size])


def test_the_newest_good_snapshot_counts_and_a_bad_one_is_said() -> None:
    disk, log, said = FaultyDisk(), Partition(), list[str]()
    disk.make_folder("t-0")
    for sequence in range(4):
        log.send(sequence)
        producer_state.save_snapshot(disk, "t-0", log.producers)
    disk.flip("t-0/00000000000000000003.snapshot", 100)
    found = producer_state.load_snapshot(disk, "t-0", start=0, end=3, now=NOW, report=said.append)
    assert found.end_offset == 2
    assert len(said) == 1
    assert said[0].startswith("t-0/00000000000000000003.snapshot: checksum ")
    assert producer_state.list_snapshot_offsets(disk, "t-0") == [1, 2]
    disk.refuse("read", "*2.snapshot")
    found = producer_state.load_snapshot(disk, "t-0", start=0, end=3, now=NOW, report=said.append)
    assert found.end_offset == 1
    assert "Input/output error" in said[1]


def test_without_a_snapshot_the_log_is_read_from_its_start() -> None:
    disk = FaultyDisk()
    disk.make_folder("t-0")
    found = producer_state.load_snapshot(disk, "t-0", start=5, end=9, now=NOW, report=pytest.fail)
    assert (found.end_offset, len(found)) == (5, 0)


def test_an_index_of_transactions_reads_as_it_was_written() -> None:
    entries = [AbortedTransaction(ANN, 3, 9, 4), AbortedTransaction(BOB, 4, 12, 13)]
    data = b"".join(entry.pack() for entry in entries)
    assert len(data) == 68
    read = [AbortedTransaction(*row) for _, *row in index.TRANSACTION_ENTRY.iter_unpack(data)]
    assert read == entries
    assert index.select_overlapping(entries, 10, 20) == entries[1:]
    assert index.select_overlapping(entries, 0, 4) == entries[:1]
