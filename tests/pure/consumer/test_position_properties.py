"""Whatever is done and answered, in whatever order: each record is handed out once, in order."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rota.client.fetch import (
    FetchedPartition,
    FetchOutcome,
    FetchPosition,
    find_response_end,
)
from rota.client.offsets import EARLIEST, LATEST, EpochEndOffset, ListedOffset, OffsetQuery
from rota.consumer.buffer import FetchBuffer
from rota.consumer.positions import (
    FetchablePartition,
    FetchState,
    LeaderAndEpoch,
    Positions,
    RequestToken,
)
from rota.engine.formats import record_batch
from rota.engine.formats.record_batch import BatchRecord
from rota.engine.model.config import FetchConfig
from rota.engine.model.topic import OffsetAndMetadata, TopicPartition
from rota.errors import Code
from tests.support.examples import checked_examples

NAMES = tuple(TopicPartition("orders", number) for number in range(4))
#: ``max.partition.fetch.bytes``: a batch or two.
LIMIT = 160
REFUSALS = (
    Code.NOT_LEADER_OR_FOLLOWER,
    Code.UNKNOWN_TOPIC_ID,
    Code.UNKNOWN_LEADER_EPOCH,
    Code.OFFSET_NOT_AVAILABLE,
    Code.UNKNOWN,
)

names = st.sampled_from(NAMES)


@dataclass
class Log:
    """A partition as its leader has it."""

    #: First offset, the one behind the last, and the bytes.
    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    start: int = 0
    end: int = 0
    leader: LeaderAndEpoch = field(default_factory=lambda: LeaderAndEpoch(1, 0))
    committed: OffsetAndMetadata | None = None

    def append(self, count: int, gap: int) -> None:
        """One batch, some records of which compaction has removed at its end."""
        first, behind = self.end, self.end + count + gap
        kept = [BatchRecord(each, 0, None, b"%d" % each) for each in range(first, first + count)]
        epoch = self.leader.epoch
        data = record_batch.encode_batch(
            kept, base_offset=first, last_offset=behind - 1, leader_epoch=epoch, max_timestamp=0
        )
        self.batches.append((first, behind, data))
        self.offsets += range(first, first + count)
        self.end = behind

    def read(self, partition: TopicPartition, offset: int) -> FetchedPartition:
        """What a leader answers."""
        if not self.start <= offset <= self.end:
            return refused_partition(partition, offset, Code.OFFSET_OUT_OF_RANGE)
        found = b""
        for _, behind, data in self.batches:
            if found and len(found) + len(data) > LIMIT:
                break
            found += data if behind > offset else b""
        return FetchedPartition(
            partition, 0, offset, memoryview(found), self.end, self.end, self.start
        )


def refused_partition(partition: TopicPartition, offset: int, code: int) -> FetchedPartition:
    return FetchedPartition(partition, code, offset, memoryview(b""), -1, -1, -1)


class Question(NamedTuple):
    """Something that was asked and not answered yet."""

    tickets: tuple[RequestToken, ...]
    tell: Callable[[], None]
    #: Of a Fetch.
    node: int | None = None


class Reading(RuleBasedStateMachine):
    """A consumer's positions and its buffer, and logs that live."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.positions = Positions(
            reset=EARLIEST, backoff=lambda _: 1.0, preferred_replica_expiry=60.0
        )
        self.buffer = FetchBuffer(self.positions, FetchConfig(), drained=lambda: None)
        self.logs = {name: Log() for name in NAMES}
        self.questions: list[Question] = []
        #: The offset to be handed out next, where that is known.
        self.expected: dict[TopicPartition, int | None] = {}

    @initialize(records=st.lists(st.integers(0, 9), min_size=4, max_size=4))
    def begin(self, records: list[int]) -> None:
        for log, count in zip(self.logs.values(), records, strict=True):
            if count:
                log.append(count, 0)
        self.assign(set(NAMES))

    # What an application does

    @rule(chosen=st.sets(names))
    def assign(self, chosen: set[TopicPartition]) -> None:
        self.positions.assign(sorted(chosen))
        self.buffer.drop_outdated()
        self.lead()
        self.expected = {each: self.expected.get(each) for each in chosen}

    @rule(name=names, paused=st.booleans())
    def pause(self, name: TopicPartition, paused: bool) -> None:
        if name in self.positions:
            self.positions.pause(name, paused)
            self.buffer.drop_outdated()

    @rule(most=st.integers(0, 400))
    def make_room(self, most: int) -> None:
        before = self.positions.inactive_bytes
        self.positions.release_inactive(most)
        self.buffer.drop_outdated()
        if before <= most:
            assert self.positions.inactive_bytes == before
        elif self.positions.inactive_bytes > most:
            reading = [each for each in self.positions if each.state is FetchState.FETCHING]
            assert sum(each.inactive_bytes > 0 for each in reading) <= 1

    @rule(name=names)
    def mark_pending_revocation(self, name: TopicPartition) -> None:
        self.positions.mark_pending_revocation([name])

    @rule(name=names, part=st.floats(0, 1), with_epoch=st.booleans())
    def seek(self, name: TopicPartition, part: float, with_epoch: bool) -> None:
        if name in self.positions:
            log = self.logs[name]
            offset = log.start + int(part * (log.end - log.start))
            epoch = log.leader.epoch if with_epoch else None
            self.positions.seek(name, FetchPosition(offset, epoch))
            self.buffer.drop_outdated()
            self.expected[name] = offset

    @rule(name=names, when=st.sampled_from([EARLIEST, LATEST, 7]))
    def seek_to(self, name: TopicPartition, when: int) -> None:
        if name in self.positions:
            self.positions.seek_to(name, when)
            self.buffer.drop_outdated()
            self.expected[name] = None

    @rule(most=st.integers(1, 12))
    def take(self, most: int) -> None:
        self.buffer.prepare_records(most)
        found = self.buffer.take_records(most)
        for name, records in found.by_partition.items():
            assert self.positions[name].hands_out
            self.handed(name, [record.offset for record in records])
        assert len(found) <= most

    @rule()
    def take_batches(self) -> None:
        for each in self.buffer.take_batches(max_bytes=1):
            self.handed(each.source, each.offsets.tolist())

    def handed(self, name: TopicPartition, offsets: list[int]) -> None:
        """Nothing twice, nothing left out but what was deleted."""
        log, expected = self.logs[name], self.expected[name]
        assert offsets
        assert expected is not None
        wanted = [each for each in log.offsets if each >= expected]
        while wanted[0] < offsets[0]:
            assert wanted.pop(0) < log.start
        assert offsets == wanted[: len(offsets)]
        self.expected[name] = offsets[-1] + 1

    # What happens to the logs

    @rule(name=names, count=st.integers(0, 4), gap=st.integers(0, 3))
    def append(self, name: TopicPartition, count: int, gap: int) -> None:
        if count + gap:
            self.logs[name].append(count, gap)

    @rule(name=names, part=st.floats(0, 1))
    def delete_records(self, name: TopicPartition, part: float) -> None:
        log = self.logs[name]
        log.start += int(part * (log.end - log.start))

    @rule(name=names, node=st.integers(1, 3))
    def elect(self, name: TopicPartition, node: int) -> None:
        log = self.logs[name]
        log.leader = LeaderAndEpoch(node, log.leader.epoch + 1)

    @rule()
    def lead(self) -> None:
        self.positions.update_leaders(lambda name: self.logs[name].leader)

    @rule(name=names)
    def commit(self, name: TopicPartition) -> None:
        found = self.positions.consumed_positions().get(name)
        if found is not None:
            self.logs[name].committed = found

    # Questions, and answers that come in any order

    @rule()
    def ask(self) -> None:
        self.now += 1.0
        self.nobody_is_forgotten()
        for ticket in self.positions.requests_for_committed(self.now):
            self.questions.append(Question((ticket,), partial(self.tell_committed, ticket)))
        for looks in self.positions.requests_for_reset(self.now).values():
            for ticket, look in looks.items():
                self.questions.append(Question((ticket,), partial(self.tell_offset, ticket, look)))
        for looks in self.positions.requests_for_validation(self.now).values():
            for ticket, look in looks.items():
                self.questions.append(Question((ticket,), partial(self.tell_end, ticket, look)))
        busy = {each.node for each in self.questions if each.node is not None}
        for node, wants in self.positions.requests_for_fetch(self.now, busy, LIMIT).items():
            tickets = tuple(want.token for want in wants)
            self.questions.append(Question(tickets, partial(self.tell_records, node, wants), node))

    def nobody_is_forgotten(self) -> None:
        """Who is found to have something to ask is who is found by a look at everybody."""
        positions, now = deepcopy(self.positions), self.now
        busy = {each.node for each in self.questions if each.node is not None}
        idle = [e for e in positions if not e.token and e.source.retry_at <= now]
        led = [e for e in idle if e.leader is not None]
        own = [e for e in led if e.hands_out and e.leader is not None and e.leader.node not in busy]
        expected = {
            FetchState.INITIALIZING: {
                e.partition
                for e in idle
                if e.state is FetchState.INITIALIZING and not e.pending_revocation
            },
            FetchState.AWAIT_RESET: {e.partition for e in led if e.state is FetchState.AWAIT_RESET},
            FetchState.AWAIT_VALIDATION: {
                e.partition for e in led if e.state is FetchState.AWAIT_VALIDATION
            },
            FetchState.FETCHING: {e.partition for e in own if e.has_room(LIMIT)},
        }
        looks = (positions.requests_for_reset(now), positions.requests_for_validation(now))
        unread = positions.requests_for_fetch(now, busy, LIMIT)
        assert expected == {
            FetchState.INITIALIZING: {
                ticket.partition for ticket in positions.requests_for_committed(now)
            },
            FetchState.AWAIT_RESET: {
                t.partition for by_ticket in looks[0].values() for t in by_ticket
            },
            FetchState.AWAIT_VALIDATION: {
                t.partition for by_ticket in looks[1].values() for t in by_ticket
            },
            FetchState.FETCHING: {
                want.token.partition for wants in unread.values() for want in wants
            },
        }

    @rule(answers=st.integers(1, 8))
    def exchange(self, answers: int) -> None:
        """A while in which all goes well."""
        for _ in range(answers):
            self.ask()
            self.answer(0)

    @rule(number=st.integers(0, 99))
    def answer(self, number: int) -> None:
        if self.questions:
            self.questions.pop(number % len(self.questions)).tell()
            self.buffer.drop_outdated()

    @rule(number=st.integers(0, 99), code=st.sampled_from(REFUSALS))
    def refuse(self, number: int, code: Code) -> None:
        """A broker fails, or refuses what will pass."""
        if not self.questions:
            return
        question = self.questions.pop(number % len(self.questions))
        for ticket in question.tickets:
            if question.node is None or not self.positions.is_current(ticket):
                self.positions.handle_failure([ticket], self.now)
                continue
            answer = refused_partition(ticket.partition, self.ahead(ticket.partition), code)
            verdict, error = self.positions.handle_fetched(ticket, answer, None, self.now)
            assert verdict in {FetchOutcome.RETRY, FetchOutcome.REFRESH_METADATA}
            assert error is None

    def ahead(self, name: TopicPartition) -> int:
        ahead = self.positions[name].fetch_position
        assert ahead is not None
        return ahead.offset

    def tell_committed(self, ticket: RequestToken) -> None:
        found = self.logs[ticket.partition].committed
        holds = self.positions.is_current(ticket)
        assert self.positions.handle_committed(ticket, found) is None
        if holds and found is not None:
            self.expected[ticket.partition] = found.offset

    def tell_offset(self, ticket: RequestToken, look: OffsetQuery) -> None:
        log = self.logs[ticket.partition]
        offset = {EARLIEST: log.start, LATEST: log.end}.get(look.target)
        self.positions.handle_listed_offset(
            ticket, None if offset is None else ListedOffset(offset), self.now
        )
        entry = self.positions.get(ticket.partition)
        if (
            entry is not None
            and entry.consumed_position is not None
            and self.expected[entry.partition] is None
        ):
            self.expected[entry.partition] = entry.consumed_position.offset

    def tell_end(self, ticket: RequestToken, look: OffsetQuery) -> None:
        end = EpochEndOffset(look.target, self.logs[ticket.partition].end)
        assert self.positions.handle_epoch_end(ticket, end) is None

    def tell_records(self, node: int, wants: list[FetchablePartition]) -> None:
        for want in wants:
            name = want.token.partition
            answer = self.logs[name].read(name, want.offset)
            if self.logs[name].leader.node != node:
                answer = refused_partition(name, want.offset, Code.NOT_LEADER_OR_FOLLOWER)
            held = self.positions.is_current(want.token)
            verdict, error = self.positions.handle_fetched(
                want.token, answer, find_response_end(answer), self.now
            )
            assert error is None
            assert held or verdict is FetchOutcome.NO_RECORDS
            if verdict is FetchOutcome.HAS_RECORDS:
                self.buffer.add_response(answer)
            if verdict is FetchOutcome.OUT_OF_RANGE:
                self.expected[name] = None

    # What always holds

    @invariant()
    def commits_cover_what_was_handed_out_and_no_more(self) -> None:
        for name, committed in self.positions.consumed_positions().items():
            expected = self.expected[name]
            if expected is not None:
                between = [
                    each for each in self.logs[name].offsets if expected <= each < committed.offset
                ]
                assert committed.offset >= expected
                assert not between

    @invariant()
    def no_more_waits_than_is_allowed(self) -> None:
        longest = max(
            (len(each[2]) for log in self.logs.values() for each in log.batches), default=0
        )
        for entry in self.positions:
            assert 0 <= entry.buffered_bytes <= LIMIT + max(LIMIT, longest)
            if entry.consumed_position is not None and entry.fetch_position is not None:
                assert entry.consumed_position.offset <= entry.fetch_position.offset

    @invariant()
    def what_is_summed_up_is_right(self) -> None:
        everyone = list(self.positions)
        assert self.positions.buffered_bytes == sum(entry.buffered_bytes for entry in everyone)
        resting = [entry for entry in everyone if entry.has_bad_record or not entry.hands_out]
        assert self.positions.inactive_bytes == sum(entry.buffered_bytes for entry in resting)
        leaders = {entry.leader.node for entry in everyone if entry.leader is not None}
        assert self.positions.brokers == len(leaders)
        missing = {entry.partition for entry in everyone if entry.leader is None}
        assert set(self.positions.leaderless) == missing
        pauses = [entry.source.retry_at for entry in everyone if entry.source.retry_at > self.now]
        assert self.positions.next_retry_at(self.now) == min(pauses, default=None)

    def teardown(self) -> None:
        """When nothing more happens, all is read to the end: nobody is stuck or starves."""
        for name in self.expected:
            self.positions.pause(name, paused=False)
        self.assign(set(self.expected))
        for _ in range(200):
            self.lead()
            self.ask()
            while self.questions:
                self.answer(0)
            while self.buffer:
                self.take(10)
        for name in self.expected:
            handed = self.positions[name].consumed_position
            assert handed is not None
            assert handed.offset == self.logs[name].end


TestReading = Reading.TestCase
TestReading.settings = settings(stateful_step_count=80, max_examples=25)


class LongReading(Reading):
    """The same with more examples."""


TestLongReading = pytest.mark.check(LongReading.TestCase)
TestLongReading.settings = settings(
    stateful_step_count=80, max_examples=checked_examples(settings().max_examples)
)
