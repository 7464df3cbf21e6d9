"""What a consumer gets of any answer to a Fetch is what a plain reading of it gives."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from rota.client.fetch import FetchedPartition, read_batches
from rota.consumer.buffer import RecordFactory
from rota.consumer.records import ConsumerRecord
from rota.engine.formats import record_batch, record_batch_scan
from rota.engine.formats.record_batch import (
    HEADER,
    BatchHeader,
    BatchRecord,
    CompressionType,
    ControlRecordType,
    RecordReader,
    decompress,
    read_batch_header,
)
from rota.engine.model.topic import TopicPartition
from rota.errors import RecordError
from tests.pure.formats.test_batch_properties import (
    NOW,
    contents,
    edits,
    headers,
    timestamps,
    with_changes,
)
from tests.support.examples import examples
from tests.support.transactions import encode_end_transaction_marker

SOURCE = TopicPartition("orders", 3)
PRODUCERS = st.integers(0, 1)


@dataclass(frozen=True)
class Log:
    """A stretch of a partition's log, and what a broker tells of it."""

    data: bytes
    aborted: tuple[tuple[int, int], ...]
    begin: int
    end: int


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """Batches one after the other: of transactions or not, compacted or not, of every codec."""
    offset = begin = draw(st.integers(0, 2**40))
    out: list[bytes] = []
    running: dict[int, int] = {}
    aborted: list[tuple[int, int]] = []
    for _ in range(draw(st.integers(1, 10))):
        producer = draw(PRODUCERS)
        if producer in running and draw(st.booleans()):
            first = running.pop(producer)
            kind = draw(st.sampled_from(ControlRecordType))
            if kind is ControlRecordType.ABORT:
                aborted.append((producer, first))
            out.append(
                encode_end_transaction_marker(
                    kind, offset=offset, timestamp=NOW, producer_id=producer, producer_epoch=0
                )
            )
            offset += 1
            continue
        made, last = draw(log_sections(offset))
        transactional = draw(st.booleans())
        if transactional:
            running.setdefault(producer, offset)
        out.append(
            record_batch.encode_batch(
                made,
                base_offset=offset,
                last_offset=last,
                codec=draw(st.sampled_from(CompressionType)),
                append_time=draw(st.none() | st.just(NOW + 7)),
                leader_epoch=draw(st.integers(-1, 2)),
                producer_id=producer if transactional else -1,
                transactional=transactional,
            )
        )
        offset = last + 1
    # the others are aborted behind what was fetched: a broker tells of those too
    aborted += [each for each in running.items() if draw(st.booleans())]
    return Log(b"".join(out), tuple(draw(st.permutations(aborted))), begin, offset)


@st.composite
def log_sections(draw: st.DrawFn, offset: int) -> tuple[list[BatchRecord], int]:
    """Records from an offset on, and the last offset of their batch."""
    pattern = draw(st.lists(st.tuples(timestamps, contents, contents, headers), max_size=5))
    times = draw(st.sampled_from([1, 1, 1, 80])) if len(pattern) > 3 else 1
    steps = draw(st.lists(st.sampled_from([1, 1, 1, 2, 9]), min_size=1, max_size=3))
    made = []
    for number, fields in enumerate(pattern * times):
        made.append(BatchRecord(offset, *fields))
        offset += steps[number % len(steps)]
    return made, offset + draw(st.integers(0, 2))


def read_one_by_one(
    log: Log, offset: int, *, committed_only: bool
) -> tuple[list[ConsumerRecord], int]:
    """The records one by one, and where to read on."""
    ahead = sorted(log.aborted, key=lambda each: each[1])
    dropped: set[int] = set()
    found: list[ConsumerRecord] = []
    position = 0
    while position < len(log.data):
        head = read_batch_header(log.data, position)
        body = log.data[position + HEADER.size : position + head.size]
        while ahead and ahead[0][1] <= head.last_offset:
            dropped.add(ahead.pop(0)[0])
        if head.control and decode_body(head, body)[0].key == b"\0\0\0\0":
            dropped.discard(head.producer_id)
        hidden = committed_only and head.transactional and head.producer_id in dropped
        if not head.control and not hidden:
            found += [
                consumer_record(head, each)
                for each in decode_body(head, body)
                if each.offset >= offset
            ]
        position += head.size
    return found, log.end


def decode_body(head: BatchHeader, body: bytes) -> list[BatchRecord]:
    data = decompress(head.codec, body) if head.record_count else b""
    return RecordReader(data).read_records(head.record_count, head.base_offset, head.base_timestamp)


def consumer_record(head: BatchHeader, record: BatchRecord) -> ConsumerRecord:
    return ConsumerRecord(
        *SOURCE,
        record.offset,
        head.max_timestamp if head.append_time else record.timestamp,
        int(head.append_time),
        record.key,
        record.value,
        tuple([(str(name, "utf-8", "replace"), value) for name, value in record.headers]),
        head.leader_epoch if head.leader_epoch >= 0 else None,
    )


def read_records(
    answer: FetchedPartition,
    *,
    committed_only: bool = False,
    portion: int = 1 << 20,
    rows: int = 500,
) -> tuple[list[ConsumerRecord], int, RecordError | None]:
    """All records, where to read on, and the error behind them."""
    found: list[ConsumerRecord] = []
    behind = answer.fetch_offset
    try:
        for each in read_batches(answer, committed_only=committed_only, portion=portion):
            making = RecordFactory(each)
            for row in range(0, len(each), rows):
                records, error = making.make_records(row, row + rows)
                assert error is None
                assert len(records) == min(rows, len(each) - row)
                found += records
            assert each.next_offset >= behind
            behind = each.next_offset
    except RecordError as error:
        return found, behind, error
    return found, behind, None


def fetched_partition(log: Log, offset: int) -> FetchedPartition:
    return FetchedPartition(
        SOURCE, 0, offset, memoryview(log.data), log.end, log.end, 0, log.aborted
    )


@examples(quick=25)
@given(
    *(logs(), st.integers(0, 40), st.booleans()),
    st.sampled_from([1, 300, 1 << 20]),
    st.sampled_from([1, 3, 500]),
)
@settings(max_examples=150)
def test_an_answer_gives_what_plain_reading_gives(
    log: Log, skip: int, committed_only: bool, portion: int, rows: int
) -> None:
    offset = min(log.begin + skip, log.end)
    answer = fetched_partition(log, offset)
    found = read_records(answer, committed_only=committed_only, portion=portion, rows=rows)
    assert found == (*read_one_by_one(log, offset, committed_only=committed_only), None)


@examples(quick=25)
@given(logs(), st.floats(0, 1))
@settings(max_examples=100)
def test_an_answer_cut_anywhere_gives_its_whole_batches(log: Log, place: float) -> None:
    data = log.data[: int(place * len(log.data))]
    whole = [position for position, _ in record_batch_scan.find_batches(log.data)]
    fits = [
        position
        for position, size in record_batch_scan.find_batches(log.data)
        if position + size <= len(data)
    ]
    found, behind, error = read_records(
        fetched_partition(Log(data, (), log.begin, log.end), log.begin)
    )
    everything, _ = read_one_by_one(
        Log(log.data, (), log.begin, log.end), log.begin, committed_only=False
    )
    if not fits and data:
        assert error is not None
        assert (found, error.offset) == ([], log.begin)
        assert error.next_offset > log.begin
        return
    assert error is None
    following = whole[len(fits)] if len(fits) < len(whole) else None
    end = log.end if following is None else read_batch_header(log.data, following).base_offset
    assert behind == (end if fits else log.begin)
    assert found == [each for each in everything if each.offset < end]


@examples(quick=25)
@given(logs(), edits)
@settings(max_examples=250)
def test_damage_is_an_error_behind_the_records_before_it(
    log: Log, changes: list[tuple[float, int, bytes]]
) -> None:
    data = with_changes(log.data, changes)
    found, behind, error = read_records(
        fetched_partition(Log(data, (), log.begin, log.end), log.begin)
    )
    offsets = [each.offset for each in found]
    assert offsets == sorted(set(offsets))
    assert all(each < behind for each in offsets)
    if error is not None:
        assert (error.topic, error.partition) == SOURCE
        assert behind <= error.offset < error.next_offset
    pairs = enumerate(zip(data, log.data, strict=False))
    untouched = next((at for at, (a, b) in pairs if a != b), min(len(data), len(log.data)))
    ends = [position + size for position, size in record_batch_scan.find_batches(log.data)]
    before = max([end for end in ends if end <= untouched], default=0)
    sound, _ = read_one_by_one(Log(log.data[:before], (), 0, 0), log.begin, committed_only=False)
    assert found[: len(sound)] == sound
