"""What samples of a group tell, against what its journal says."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

import rota
from rota.engine.history.causes import explain_rebalance
from rota.engine.history.facts import (
    EvidenceType,
    Generation,
    GenerationChange,
    GenerationMember,
    GroupType,
    JournalRecord,
    LogLine,
    PartitionOwnership,
    Rebalance,
    RebalanceCause,
)
from rota.engine.history.generations import DEAD_STATE, GroupHistory, read_history
from rota.engine.history.rebalances import compute_cost, find_rebalances
from rota.engine.history.samples import (
    GroupPoll,
    GroupSample,
    SampleChanges,
    SampleReader,
    SampleTracker,
)
from rota.engine.history.whatif import HistoryReplay
from rota.engine.model.topic import OffsetAndMetadata, TopicPartition
from rota.engine.simulator.trace import TraceEventType
from tests.support.example_history import NOT_MEASURED, member
from tests.support.examples import examples
from tests.support.policies import policy_of
from tests.support.simulation.random_scenario import random_scenario

A, B, C = (member(name) for name in "abc")


def sample(
    *members: GenerationMember, state: str = "", at: int = 0, **fields: object
) -> GroupSample:
    given = {"kind": GroupType.CLASSIC, "protocol_type": "consumer", "strategy": "range", **fields}
    state = state or ("Stable" if members else "Empty")
    return GroupSample(group="g", at=at, state=state, members=members, **given)  # type: ignore[arg-type]


def consumer_group_sample(epoch: int, *members: GenerationMember, state: str = "") -> GroupSample:
    return sample(*members, state=state, kind=GroupType.CONSUMER, epoch=epoch, strategy="uniform")


def with_partitions(who: GenerationMember, *partitions: int) -> GenerationMember:
    return replace(who, assigned={"t": partitions})


def track_samples(*samples: GroupSample | None, first: int = 0) -> list[GroupSample]:
    """Seen one after the other, ten seconds apart; None: the group is not there."""
    watch = SampleTracker()
    return [
        each
        for number, one in enumerate(samples, first)
        for each in watch.compare(make_poll(number, one)).samples
    ]


def make_poll(number: int, one: GroupSample | None) -> GroupPoll:
    groups = {} if one is None else {one.group: one}
    return GroupPoll(started_at=10_000 * number, at=10_000 * number + 5, groups=groups)


def read_samples(
    samples: Iterable[GroupSample],
) -> tuple[list[Generation], list[PartitionOwnership]]:
    reading = SampleReader("g")
    made = list(reading.generations(samples))
    return made, reading.take_ownership()


def sampled_changes(*samples: GroupSample | None) -> list[tuple[GenerationChange, int, int]]:
    """What is made of them: change, incarnation, number."""
    made, _ = read_samples(track_samples(*samples))
    return [(one.change, one.incarnation, one.generation) for one in made]


FIRST_SAMPLE, REBALANCED, EMPTIED = (
    GenerationChange.FIRST_SAMPLE,
    GenerationChange.REBALANCED,
    GenerationChange.EMPTIED,
)


def test_what_is_there_first_is_no_rebalance() -> None:
    made, _ = read_samples(track_samples(sample(A), sample(A)))
    assert [(one.change, one.sampled, one.not_before) for one in made] == [
        (FIRST_SAMPLE, True, None)
    ]
    assert find_rebalances(made) == []


def test_a_change_is_a_rebalance_between_two_samples() -> None:
    made, _ = read_samples(track_samples(sample(A), sample(A), sample(A, B)))
    (step,) = find_rebalances(made)
    assert (step.before, step.after) == (made[0], made[1])
    assert (step.after.not_before, step.after.at) == (10_000, 20_005)
    why = explain_rebalance(step, {})
    assert (why.cause, why.likely, why.evidence) == (
        RebalanceCause.UNKNOWN,
        RebalanceCause.JOINED,
        EvidenceType.SAMPLED,
    )
    assert (why.earliest_start, why.latest_start) == (10_000, 20_005)


def test_lines_are_not_found_by_numbers_that_were_counted_here() -> None:
    made, _ = read_samples(track_samples(sample(A), sample(A, B)))
    (step,) = find_rebalances(made)
    line = LogLine(at=10_000, group="g", what="preparing", generation=0, text="", reason="r")
    assert explain_rebalance(step, {}, [line]).evidence is EvidenceType.SAMPLED


def test_a_new_group_began_from_nothing() -> None:
    assert sampled_changes(None, sample(A)) == [(REBALANCED, 0, 1)]
    (step,) = find_rebalances(read_samples(track_samples(None, sample(A)))[0])
    assert explain_rebalance(step, {}).cause is RebalanceCause.JOINED


def test_the_last_one_goes_and_somebody_comes() -> None:
    assert sampled_changes(sample(A), sample(), sample(B)) == [
        (FIRST_SAMPLE, 0, 0),
        (EMPTIED, 0, 1),
        (REBALANCED, 0, 2),
    ]


def test_a_group_is_deleted_and_made_again() -> None:
    assert sampled_changes(sample(A), None, sample(A)) == [
        (FIRST_SAMPLE, 0, 0),
        (GenerationChange.DELETED, 0, 0),
        (REBALANCED, 1, 1),
    ]


def test_a_rebalance_that_was_seen_under_way_is_one_though_nothing_differs() -> None:
    assert sampled_changes(sample(A), sample(A, state="PreparingRebalance"), sample(A)) == [
        (FIRST_SAMPLE, 0, 0),
        (REBALANCED, 0, 1),
    ]
    made, _ = read_samples(
        track_samples(sample(A), sample(A), sample(A, state="CompletingRebalance"), sample(A))
    )
    assert made[-1].not_before == 10_000


def test_who_joined_again_says_something_else_of_itself() -> None:
    again = replace(A, owned={"t": (0,)}, owned_generation=7)
    assert sampled_changes(sample(A), sample(again)) == [(FIRST_SAMPLE, 0, 0), (REBALANCED, 0, 1)]


def test_a_rebalance_under_way_at_first_does_not_tell_what_was_before() -> None:
    assert sampled_changes(sample(A, state="PreparingRebalance"), sample(A)) == [
        (FIRST_SAMPLE, 0, 0)
    ]


def test_a_static_member_that_is_back_may_be_without_a_rebalance() -> None:
    old, new = (
        with_partitions(member("s!pod"), 0),
        with_partitions(replace(member("s!pod"), member_id="x"), 0),
    )
    assert sampled_changes(sample(old), sample(new)) == [
        (FIRST_SAMPLE, 0, 0),
        (GenerationChange.REPLACED, 0, 0),
    ]
    moved = with_partitions(new, 1)
    assert sampled_changes(sample(old), sample(moved)) == [(FIRST_SAMPLE, 0, 0), (REBALANCED, 0, 1)]


def test_epochs_tell_how_many_changes_were_not_seen() -> None:
    made, _ = read_samples(
        track_samples(consumer_group_sample(5, A), consumer_group_sample(8, A, B))
    )
    (step,) = find_rebalances(made)
    assert (step.from_generation, step.after.generation, step.unseen) == (5, 8, 2)
    assert explain_rebalance(step, {}).earliest_start == 0


def test_a_target_is_waited_for() -> None:
    late = consumer_group_sample(6, A, B, state="Assigning")
    assert sampled_changes(consumer_group_sample(5, A), late, consumer_group_sample(6, A, B)) == [
        (FIRST_SAMPLE, 0, 5),
        (REBALANCED, 0, 6),
    ]


def test_epochs_that_fall_are_of_a_new_group() -> None:
    assert sampled_changes(consumer_group_sample(9, A), consumer_group_sample(1, A)) == [
        (FIRST_SAMPLE, 0, 9),
        (REBALANCED, 1, 1),
    ]


def test_a_group_of_the_other_kind_begins_anew() -> None:
    assert sampled_changes(
        sample(A), consumer_group_sample(3, A), consumer_group_sample(4, A, B)
    ) == [
        (FIRST_SAMPLE, 0, 0),
        (FIRST_SAMPLE, 1, 3),
        (REBALANCED, 1, 4),
    ]


def test_members_of_a_consumer_group_own_what_they_have_and_not_their_targets() -> None:
    on_its_way = replace(A, owned={"t": (0, 1)}, assigned={"t": (0,)})
    there = replace(A, owned={"t": (0,)}, assigned={"t": (0,)})
    _, owned = read_samples(
        track_samples(consumer_group_sample(5, on_its_way), consumer_group_sample(5, there))
    )
    assert [(one.partition, one.since, one.until) for one in owned] == [
        (0, 5, None),
        (1, 5, 10_005),
    ]


def test_who_did_not_answer_is_not_gone() -> None:
    watch = SampleTracker()
    watch.compare(make_poll(0, sample(A)))
    silent = GroupPoll(started_at=10_000, at=10_005, groups={}, unanswered={"g"})
    partial = GroupPoll(started_at=20_000, at=20_005, groups={}, complete=False)
    assert watch.compare(silent).samples == watch.compare(partial).samples == []
    (after,) = watch.compare(make_poll(3, sample(A, B))).samples
    assert after.not_before == 0
    (gone,) = watch.compare(make_poll(4, None)).samples
    assert (gone.state, gone.not_before) == (DEAD_STATE, 30_000)


def test_who_answers_late_is_not_new() -> None:
    watch = SampleTracker()
    watch.compare(GroupPoll(started_at=0, at=5, groups={}, unanswered={"g"}))
    (first,) = watch.compare(make_poll(1, sample(A))).samples
    assert first.not_before is None


PLACE = TopicPartition("t", 0)


def sampled_commits(*offsets: int | None) -> list[tuple[int | None, int, int | None]]:
    """What is seen of these commits: offset, time, not before; None: there is none."""
    watch, seen = SampleTracker(), []
    for number, offset in enumerate(offsets):
        one = make_poll(number, sample(A))
        told = {} if offset is None else {PLACE: OffsetAndMetadata(offset)}
        seen += watch.compare(replace(one, offsets={"g": told})).commits
    return [
        (None if each.committed is None else each.committed.offset, each.at, each.not_before)
        for each in seen
    ]


def test_a_commit_is_seen_where_the_offset_is_another() -> None:
    assert sampled_commits(5, 5, 7, None) == [
        (5, 5, None),
        (7, 20_005, 10_000),
        (None, 30_005, 20_000),
    ]


def test_offsets_go_with_their_group() -> None:
    watch = SampleTracker()
    watch.compare(replace(make_poll(0, sample(A)), offsets={"g": {PLACE: OffsetAndMetadata(1)}}))
    (gone,) = watch.compare(make_poll(1, None)).commits
    assert (gone.committed, gone.not_before) == (None, 0)


def test_other_policies_begin_from_what_was_found() -> None:
    """Not from nothing: they would move nothing at the first rebalance that was seen."""
    four = with_partitions(A, 0, 1, 2, 3)
    two = (with_partitions(A, 0, 1), with_partitions(B, 2, 3))
    made, _ = read_samples(track_samples(sample(four), sample(*two)))
    rows = HistoryReplay(made, find_rebalances(made), NOT_MEASURED).rows_under(
        [policy_of("cooperative-sticky"), policy_of("range, static 5min")]
    )
    assert [(row.to_generation, row.happens, row.moved, row.revoked) for row in rows] == [
        (1, True, 2, 2),
        (1, True, 2, 4),
    ]


@cache
def simulate_history(seed: int) -> tuple[str, GroupHistory]:
    simulation = rota.simulate(random_scenario(seed), seed=seed)
    saved = (record for record in simulation.trace if record.type is TraceEventType.JOURNAL)
    records = [JournalRecord(offset, one.at, one.detail) for offset, one in enumerate(saved)]  # type: ignore[arg-type]
    group = simulation.scenario.group
    return group, read_history(group, records, {})


def sample_at(timeline: GroupHistory, time: int) -> GroupSample | None:
    """What an answer would be; None: the group is not there."""
    made = timeline.generations
    place = bisect_right([one.at for one in made], time)
    if not place or made[place - 1].change is GenerationChange.DELETED:
        return None
    one = made[place - 1]
    return GroupSample(
        group=one.group,
        at=0,
        kind=one.kind,
        state="Stable" if one.members else "Empty",
        protocol_type=one.protocol_type,
        strategy=one.strategy,
        members=one.members,
    )


def owners_at(owned: Iterable[PartitionOwnership], time: int) -> dict[tuple[str, int], str]:
    return {
        (one.topic, one.partition): one.member_id
        for one in owned
        if one.since <= time and (one.until is None or time < one.until)
    }


def have_same_members(one: Sequence[GenerationMember], other: Sequence[GenerationMember]) -> bool:
    return [(each.member_id, each.assigned) for each in one] == [
        (each.member_id, each.assigned) for each in other
    ]


def is_step_of(step: Rebalance, history: Sequence[Generation]) -> bool:
    """Whether the journal has the generations it leads from and to, with one between or at it."""
    ends = [
        place
        for place, one in enumerate(history)
        if have_same_members(one.members, step.after.members)
    ]
    before = () if step.before is None else step.before.members
    begins = [place for place, one in enumerate(history) if have_same_members(one.members, before)]
    return any(begin < end for begin in begins or [-1] for end in ends)


@examples(quick=25)
@given(st.integers(0, 40), st.lists(st.integers(1, 400), min_size=2, max_size=60), st.data())
def test_samples_agree_with_the_journal(seed: int, pauses: list[int], data: st.DataObject) -> None:
    group, timeline = simulate_history(seed)
    if not timeline.generations:
        return
    at = timeline.generations[0].at + data.draw(st.integers(-30_000, 600_000))
    times = [at := at + 1_000 * pause for pause in pauses]
    watch = SampleTracker()
    samples = []
    for time in times:
        found = sample_at(timeline, time)
        groups = {} if found is None else {group: found}
        samples += watch.compare(GroupPoll(started_at=time, at=time, groups=groups)).samples
    made, owned = read_samples(samples)
    for time in times:
        assert owners_at(owned, time) == owners_at(timeline.ownership, time)
    history = timeline.generations
    taken = find_rebalances(made)
    assert len(taken) <= len(find_rebalances(history))
    for step in taken:
        assert is_step_of(step, history)
        assert step.after.sampled
        compute_cost(step)
    numbers = [
        (one.incarnation, one.generation) for one in made if one.change in {REBALANCED, EMPTIED}
    ]
    assert all(first < second for first, second in pairwise(numbers))


def test_nothing_new_is_nothing_seen() -> None:
    watch = SampleTracker()
    watch.compare(make_poll(0, sample(A)))
    assert watch.compare(make_poll(1, sample(A))) == SampleChanges([], [])
