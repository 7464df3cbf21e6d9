"""Why a group rebalanced: small cases, by the broker's log and by the journal alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from rota.engine.history.causes import CommitTimes, explain_rebalance
from rota.engine.history.facts import (
    EvidenceType,
    Explanation,
    Generation,
    GenerationChange,
    GenerationMember,
    GroupType,
    LogLine,
    Rebalance,
    RebalanceCause,
)
from rota.engine.history.server_log import parse_coordinator_message

SESSION, POLL = 45_000, 300_000
#: When the generation before was saved, and when the one after.
BEGIN, END = 1_000_000, 2_000_000


def member(name: str, *partitions: int, **fields: object) -> GenerationMember:
    made = GenerationMember(
        member_id=f"{name}-id",
        client_id=name,
        session_timeout=SESSION,
        rebalance_timeout=POLL,
        topics=("t",),
        assigned={"t": partitions} if partitions else {},
    )
    return replace(made, **fields)  # type: ignore[arg-type]


def generation(number: int, at: int, *members: GenerationMember, **fields: object) -> Generation:
    made = Generation(
        group="g",
        kind=GroupType.CLASSIC,
        incarnation=0,
        generation=number,
        change=GenerationChange.REBALANCED if members else GenerationChange.EMPTIED,
        at=at,
        state_at=at - 10,
        offset=number,
        protocol_type="consumer",
        strategy="range",
        members=members,
    )
    return replace(made, **fields)  # type: ignore[arg-type]


def make_rebalance(
    before: Sequence[GenerationMember], after: Sequence[GenerationMember], **fields: object
) -> Rebalance:
    """From generation 4 to generation 5."""
    old, new = generation(4, BEGIN, *before), generation(5, END, *after)
    made = Rebalance(
        before=old if before else None,
        rounds=(new,),
        unseen=0,
        known_before=True,
        from_generation=4,
    )
    return replace(made, **fields)  # type: ignore[arg-type]


def commit_times(*times: int, partition: int = 0) -> CommitTimes:
    return {("t", partition): np.array(times, dtype=np.int64)}


def parse_log_lines(*said: str, at: int = END - 500) -> list[LogLine]:
    """Lines about group g, a millisecond apart."""
    lines = [parse_coordinator_message(at + number, text) for number, text in enumerate(said)]
    return [line for line in lines if isinstance(line, LogLine)]


def preparing_message(reason: str, old: int = 4) -> str:
    return (
        f"Preparing to rebalance group g in state PreparingRebalance with old generation {old} "
        f"(reason: {reason})."
    )


A, B, C = member("a", 0, 1), member("b", 2, 3), member("c")
ALONE = member("a", 0, 1, 2, 3)
JOIN = make_rebalance([ALONE], [A, B])
#: Who stays gets what those had who went.
B_ALONE, C_ALONE = (replace(one, assigned=ALONE.assigned) for one in (B, C))
LEAVE = make_rebalance([A, B], [B_ALONE])
SAME = make_rebalance([A, B], [A, B])
#: The generation before was not there for long.
YOUNG = replace(LEAVE, before=generation(4, END - POLL // 2 + 1_000, A, B))


# by the log


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        (
            "Adding new member b-id with group instance id null; client reason: x",
            RebalanceCause.JOINED,
        ),
        ("removing member a-id on heartbeat expiration.", RebalanceCause.SESSION_TIMEOUT),
        ("Removing [a-id] on pending sync request expiration", RebalanceCause.SESSION_TIMEOUT),
        (
            "Removing member a-id on LeaveGroup; client reason: the consumer is being closed",
            RebalanceCause.LEFT,
        ),
        (
            "Removing member a-id on LeaveGroup; client reason: consumer poll timeout has expired.",
            RebalanceCause.SLOW_POLL,
        ),
        (
            "Group's selectedProtocol will change because static member a-id with instance id a "
            "joined with change of protocol; client reason: not provided",
            RebalanceCause.STRATEGY,
        ),
        (
            "Updating metadata for member a-id during Stable; client reason: subscription has "
            "changed",
            RebalanceCause.SUBSCRIPTION,
        ),
        (
            "Leader a-id re-joining group during Stable; client reason: rebalance enforced by user",
            RebalanceCause.LEADER,
        ),
        ("leader a-id re-joining group during Stable", RebalanceCause.LEADER),
        (
            "Leader a-id re-joining group during Stable; client reason: encountered "
            "NOT_COORDINATOR from JOIN_GROUP response",
            RebalanceCause.UNKNOWN,
        ),
        (
            "Freshly-loaded group g (size 9) is over capacity 8. Rebalancing in order to",
            RebalanceCause.UNKNOWN,
        ),
    ],
)
def test_the_call_to_join_names_the_cause(reason: str, cause: RebalanceCause) -> None:
    told = explain_rebalance(SAME, {}, parse_log_lines(preparing_message(reason)))

    assert (told.cause, told.evidence) == (cause, EvidenceType.STATED)
    assert told.started_at == END - 500


def test_a_leader_that_finds_the_metadata_changed_has_seen_what_the_generations_show() -> None:
    lines = parse_log_lines(
        preparing_message(
            "Leader a-id re-joining group during Stable; client reason: cached metadata has changed"
        )
    )
    more = make_rebalance([A, B], [A, replace(B, assigned={"t": (2, 3, 4)})])
    found = replace(A, topics=("t", "u"), assigned={"t": (0, 1), "u": (0,)})

    assert explain_rebalance(more, {}, lines).cause is RebalanceCause.PARTITIONS
    assert (
        explain_rebalance(make_rebalance([A, B], [found, B]), {}, lines).cause
        is RebalanceCause.SUBSCRIPTION
    )
    assert explain_rebalance(SAME, {}, lines).cause is RebalanceCause.LEADER


def test_the_first_call_names_the_cause_and_the_others_are_told() -> None:
    lines = parse_log_lines(
        preparing_message("Adding new member b-id with group instance id null; client reason: x"),
        "Stabilized group g generation 5 with 2 members.",
        preparing_message("removing member a-id on heartbeat expiration.", old=5),
        "Stabilized group g generation 6 with 1 members.",
    )
    overtaken = make_rebalance([A], [B], unseen=1)
    overtaken = replace(overtaken, rounds=(replace(overtaken.after, generation=6),))

    told = explain_rebalance(overtaken, {}, lines)

    assert told.cause is RebalanceCause.JOINED
    assert told.reason.endswith("; then: removing member a-id on heartbeat expiration.")
    assert told.joined_at == END - 497


def test_a_second_round_is_no_reason_of_its_own() -> None:
    lines = parse_log_lines(
        preparing_message("Adding new member b-id with group instance id null; client reason: x"),
        preparing_message(
            "Leader a-id re-joining group during Stable; client reason: need to revoke partitions "
            "and re-join",
            old=5,
        ),
    )
    first, last = generation(5, END - 300, A, C), generation(6, END, A, B)

    told = explain_rebalance(replace(JOIN, rounds=(first, last)), {}, lines)

    assert told.cause is RebalanceCause.JOINED
    assert "revoke" not in told.reason


def test_the_line_before_tells_why_a_member_left() -> None:
    call = preparing_message("explicit `LeaveGroup` request for (a-id) members.")
    left = (
        "[Group g] Member a-id has left group through explicit `LeaveGroup` request; "
        "client reason: "
    )
    for reason, cause in (
        ("the consumer is being closed", RebalanceCause.LEFT),
        ("member was removed by an admin", RebalanceCause.LEFT),
        ("consumer poll timeout has expired.", RebalanceCause.SLOW_POLL),
    ):
        told = explain_rebalance(LEAVE, {}, parse_log_lines(left + reason, call))

        assert told.cause is cause
        assert reason in told.reason


def test_of_two_that_left_the_last_one_before_the_call_tells_why() -> None:
    lines = [
        f"[Group g] Member {name}-id has left group through explicit `LeaveGroup` request; "
        f"client reason: {reason}"
        for name, reason in (
            ("b", "consumer poll timeout has expired."),
            ("a", "the consumer is being closed"),
        )
    ]
    call = preparing_message("explicit `LeaveGroup` request for (a-id) members.")

    assert explain_rebalance(LEAVE, {}, parse_log_lines(*lines, call)).cause is RebalanceCause.LEFT


NO_REASON = preparing_message("Removing member a-id on LeaveGroup; client reason: not provided")


def commit_times_by_gaps(*beats: int, end: int) -> CommitTimes:
    """Commits so many milliseconds apart, the last of them at the end."""
    return commit_times(*(end - sum(beats[number:]) for number in range(len(beats) + 1)))


STEADY = (5_000,) * 6


@pytest.mark.parametrize(
    ("commits", "cause", "likely"),
    [
        (
            commit_times_by_gaps(*STEADY, 1_200, end=END - 510),
            RebalanceCause.LEFT,
            None,
        ),  # one more, to close
        (
            commit_times_by_gaps(*STEADY, end=END - 510),
            RebalanceCause.UNKNOWN,
            RebalanceCause.LEFT,
        ),  # it would have come anyway
        (
            commit_times_by_gaps(*STEADY, 1_200, end=END - 9_000),
            RebalanceCause.UNKNOWN,
            RebalanceCause.LEFT,
        ),
        (
            commit_times_by_gaps(900, 100, 4_000, 30, 7_000, 80, end=END - 510),
            RebalanceCause.UNKNOWN,
            RebalanceCause.LEFT,
        ),
        (
            commit_times_by_gaps(*STEADY, end=END - POLL - 9_000),
            RebalanceCause.UNKNOWN,
            RebalanceCause.SLOW_POLL,
        ),
        ({}, RebalanceCause.UNKNOWN, RebalanceCause.LEFT),
    ],
)
def test_who_leaves_without_a_reason_may_have_polled_too_late(
    commits: CommitTimes, cause: RebalanceCause, likely: RebalanceCause | None
) -> None:
    told = explain_rebalance(LEAVE, commits, parse_log_lines(NO_REASON))

    assert (told.cause, told.likely) == (cause, likely)
    assert told.evidence is EvidenceType.STATED


def test_but_not_if_it_joined_within_its_poll_interval() -> None:
    begun = preparing_message(
        "Adding new member a-id with group instance id null; client reason: x", old=3
    )
    young = replace(LEAVE, before=generation(4, END - POLL // 2, A, B))

    told = explain_rebalance(
        young,
        {},
        [*parse_log_lines(begun, at=END - POLL // 2 - 9_000), *parse_log_lines(NO_REASON)],
    )

    assert told.cause is RebalanceCause.LEFT


def test_some_libraries_do_not_know_a_poll_interval() -> None:
    made = make_rebalance([replace(A, library="sarama"), B], [B])

    assert explain_rebalance(made, {}, parse_log_lines(NO_REASON)).cause is RebalanceCause.LEFT


def test_lines_of_a_former_life_do_not_count() -> None:
    joins = preparing_message(
        "Adding new member a-id with group instance id null; client reason: x", old=0
    )
    former = parse_log_lines(
        joins,
        "Assignment received from leader a-id for group g for generation 1",
        preparing_message("removing member a-id on heartbeat expiration.", old=1),
        "Group g with generation 2 is now empty.",
        at=BEGIN,
    )
    first = replace(make_rebalance([], [A]), rounds=(generation(1, END, A),), from_generation=0)

    assert explain_rebalance(first, {}, former).evidence is EvidenceType.INFERRED
    told = explain_rebalance(first, {}, [*former, *parse_log_lines(joins)])
    assert (told.evidence, told.started_at) == (EvidenceType.STATED, END - 500)


def test_a_group_that_is_made_again_at_once_has_only_its_own_lines() -> None:
    former = parse_log_lines(
        preparing_message("removing member a-id on heartbeat expiration.", old=0),
        "Assignment received from leader a-id for group g for generation 1",
        "Group g with generation 2 is now empty.",
        at=END - 900,
    )
    joins = preparing_message(
        "Adding new member a-id with group instance id null; client reason: x", old=0
    )
    first = replace(make_rebalance([], [A]), rounds=(generation(1, END, A),), from_generation=0)

    told = explain_rebalance(first, {}, [*former, *parse_log_lines(joins)])

    assert (told.cause, told.started_at) == (RebalanceCause.JOINED, END - 500)


def test_lines_about_other_rebalances_say_nothing_about_this_one() -> None:
    join = "Adding new member b-id with group instance id null; client reason: x"
    others = [
        *parse_log_lines(preparing_message(join, old=3), at=BEGIN - 500),
        *parse_log_lines(preparing_message(join, old=5), at=END + 9),
    ]

    assert explain_rebalance(LEAVE, {}, others).evidence is EvidenceType.INFERRED


def of_consumer_group(made: Rebalance) -> Rebalance:
    """The same of a consumer group."""
    before = made.before
    return replace(
        made,
        before=None
        if before is None
        else replace(before, kind=GroupType.CONSUMER, strategy="uniform"),
        rounds=tuple(
            replace(one, kind=GroupType.CONSUMER, strategy="uniform") for one in made.rounds
        ),
    )


RAISED = "[GroupId g] Bumped group epoch to 5 with metadata hash 7."


@pytest.mark.parametrize(
    ("said", "made", "cause"),
    [
        (
            "Member b-id joins the consumer group using the consumer protocol.",
            JOIN,
            RebalanceCause.JOINED,
        ),
        (
            "Member a-id fenced from the group because the member session expired.",
            LEAVE,
            RebalanceCause.SESSION_TIMEOUT,
        ),
        (
            "Member a-id fenced from the group because it failed to transition from epoch 4 within "
            "9ms.",
            LEAVE,
            RebalanceCause.SLOW_POLL,
        ),
        ("Member a-id updated its subscribed topics to: [t].", SAME, RebalanceCause.SUBSCRIPTION),
    ],
)
def test_the_line_before_an_epoch_tells_why(
    said: str, made: Rebalance, cause: RebalanceCause
) -> None:
    told = explain_rebalance(
        of_consumer_group(made), {}, parse_log_lines(f"[GroupId g] {said}", RAISED)
    )

    assert (told.cause, told.evidence) == (cause, EvidenceType.STATED)


def test_an_epoch_that_nobody_came_or_went_for_is_told_by_the_generations() -> None:
    more = make_rebalance([A, B], [A, replace(B, assigned={"t": (2, 3, 4)})])
    other = make_rebalance([A, B], [replace(A, topics=("u",)), B])

    assert (
        explain_rebalance(of_consumer_group(more), {}, parse_log_lines(RAISED)).cause
        is RebalanceCause.PARTITIONS
    )
    assert (
        explain_rebalance(of_consumer_group(other), {}, parse_log_lines(RAISED)).cause
        is RebalanceCause.SUBSCRIPTION
    )


def test_a_member_of_a_consumer_group_that_comes_back_under_its_id_polled_too_late() -> None:
    left = parse_log_lines("[GroupId g] Member a-id left the consumer group.", RAISED)
    back = parse_log_lines(
        "[GroupId g] Member a-id joins the consumer group using the consumer protocol.",
        at=END + 9_000,
    )
    quiet, fresh = commit_times(END - POLL - 1_000), commit_times(END - 600)

    assert (
        explain_rebalance(of_consumer_group(LEAVE), quiet, [*left, *back]).cause
        is RebalanceCause.SLOW_POLL
    )
    assert (
        explain_rebalance(of_consumer_group(LEAVE), quiet, left).likely is RebalanceCause.SLOW_POLL
    )
    assert explain_rebalance(of_consumer_group(LEAVE), fresh, left).cause is RebalanceCause.LEFT
    # it committed while it was slow, or it had unsubscribed
    assert (
        explain_rebalance(of_consumer_group(LEAVE), fresh, [*left, *back]).likely
        is RebalanceCause.SLOW_POLL
    )


# by the journal


def infer_cause(made: Rebalance, commits: CommitTimes | None = None) -> Explanation:
    told = explain_rebalance(made, commits or {})
    assert told.evidence is EvidenceType.INFERRED
    assert told.started_at is None
    return told


def test_who_comes_to_an_empty_group_joined() -> None:
    assert infer_cause(make_rebalance([], [A])).cause is RebalanceCause.JOINED


def test_what_was_before_the_evidence_is_not_known() -> None:
    told = infer_cause(replace(make_rebalance([], [A]), known_before=False, from_generation=None))

    assert (told.cause, told.likely) == (RebalanceCause.UNKNOWN, None)


def test_who_comes_while_nothing_else_differs_joined() -> None:
    assert infer_cause(JOIN).cause is RebalanceCause.JOINED


@pytest.mark.parametrize(
    "after",
    [
        [replace(A, topics=("u",)), B],  # and a subscription
        [replace(A, assigned={"t": (0, 1, 9)}), B],  # and a partition
    ],
)
def test_who_comes_while_more_differs_may_not_have_been_first(
    after: list[GenerationMember],
) -> None:
    told = infer_cause(make_rebalance([A], after))

    assert (told.cause, told.likely) == (RebalanceCause.UNKNOWN, RebalanceCause.JOINED)


@pytest.mark.parametrize("number", [6, 7])
def test_where_attempts_are_not_seen_nothing_is_known(number: int) -> None:
    skipped = replace(JOIN, rounds=(generation(number, END, A, B),), unseen=number - 5)

    assert infer_cause(skipped).cause is RebalanceCause.UNKNOWN


def test_who_came_and_who_went_first_is_not_known() -> None:
    told = infer_cause(make_rebalance([A, B], [B, C]), commit_times(END - 1_000))

    assert (told.cause, told.likely) == (RebalanceCause.UNKNOWN, RebalanceCause.LEFT)


@pytest.mark.parametrize(
    ("quiet", "cause", "likely"),
    [
        (20, RebalanceCause.LEFT, None),
        (SESSION * 2 // 3 - 100, RebalanceCause.LEFT, None),
        (SESSION * 2 // 3 + 100, RebalanceCause.UNKNOWN, RebalanceCause.LEFT),
        (SESSION + 1_000, RebalanceCause.UNKNOWN, RebalanceCause.SESSION_TIMEOUT),
    ],
)
def test_how_a_member_went_is_known_only_if_it_had_just_committed(
    quiet: int, cause: RebalanceCause, likely: RebalanceCause | None
) -> None:
    told = infer_cause(YOUNG, commit_times(END - quiet))

    assert (told.cause, told.likely) == (cause, likely)


def test_a_commit_alone_does_not_tell_that_a_member_polled() -> None:
    told = infer_cause(LEAVE, commit_times(END - 20))

    assert (told.cause, told.likely) == (RebalanceCause.UNKNOWN, RebalanceCause.LEFT)
    assert (
        infer_cause(LEAVE, commit_times_by_gaps(*STEADY, end=END - 20)).cause
        is RebalanceCause.UNKNOWN
    )


def test_a_commit_out_of_its_rhythm_tells_that_it_was_closed() -> None:
    assert (
        infer_cause(LEAVE, commit_times_by_gaps(*STEADY, 1_200, end=END - 900)).cause
        is RebalanceCause.LEFT
    )


@pytest.mark.parametrize(
    ("gap", "quiet", "likely"),
    [
        (1_000, 500, RebalanceCause.SLOW_POLL),
        (5_000, 4_000, RebalanceCause.SLOW_POLL),
        (5_000, 500, RebalanceCause.LEFT),  # its last commit may be the one of a closed client
    ],
)
def test_who_commits_in_its_rhythm_to_the_end_was_hardly_closed(
    gap: int, quiet: int, likely: RebalanceCause
) -> None:
    steady = commit_times_by_gaps(*[gap] * 6, end=END - quiet)
    told = infer_cause(LEAVE, steady)

    assert (told.cause, told.likely) == (RebalanceCause.UNKNOWN, likely)
    assert infer_cause(YOUNG, steady).likely is not RebalanceCause.SLOW_POLL


def test_commits_of_others_tell_nothing_of_who_is_gone() -> None:
    assert infer_cause(LEAVE, commit_times(END - 20, partition=2)).cause is RebalanceCause.UNKNOWN


def test_commits_before_the_generation_tell_nothing() -> None:
    short = replace(LEAVE, before=generation(4, END - 1_000, A, B))

    assert infer_cause(short, commit_times(END - 2_000)).cause is RebalanceCause.UNKNOWN


def test_of_several_that_are_gone_each_must_have_just_committed() -> None:
    made = replace(
        make_rebalance([A, B, C], [C_ALONE]), before=generation(4, END - 90_000, A, B, C)
    )
    one, other = commit_times(END - 20), commit_times(END - 40, partition=2)

    assert infer_cause(made, one).cause is RebalanceCause.UNKNOWN
    assert infer_cause(made, {**one, **other}).cause is RebalanceCause.LEFT


def test_who_went_while_a_topic_was_deleted_may_not_have_been_first() -> None:
    """The leader joins again when a topic is gone, and a member may close meanwhile."""
    told = infer_cause(replace(YOUNG, rounds=(generation(5, END, B),)), commit_times(END - 20))

    assert told.cause is RebalanceCause.UNKNOWN


def test_a_group_that_became_empty_soon_after_a_commit_was_left() -> None:
    made = replace(make_rebalance([A], []), before=generation(4, END - 90_000, A))

    assert infer_cause(made, commit_times(END - 20)).cause is RebalanceCause.LEFT


def test_a_static_member_that_is_gone_was_most_likely_silent() -> None:
    static = replace(A, group_instance_id="s")

    assert (
        infer_cause(make_rebalance([static, B], [B_ALONE])).likely is RebalanceCause.SESSION_TIMEOUT
    )
    assert (
        infer_cause(make_rebalance([static, B], [B_ALONE]), commit_times(END - 20)).cause
        is RebalanceCause.LEFT
    )


def test_a_static_member_with_another_id_may_have_been_put_out_first() -> None:
    static = replace(A, group_instance_id="s")
    back = replace(static, member_id="another")

    made = make_rebalance([static, B], [back, B])
    assert infer_cause(made).cause is RebalanceCause.UNKNOWN
    # a static member that is closed does not leave the group, however shortly before it committed
    told = infer_cause(made, commit_times(END - 20))
    assert (told.cause, told.likely) == (RebalanceCause.UNKNOWN, RebalanceCause.SESSION_TIMEOUT)
    other = replace(made, rounds=(replace(made.after, strategy="sticky"),))
    assert infer_cause(other, commit_times(END - 20)).likely is RebalanceCause.STRATEGY


def test_the_same_members_with_other_topics_changed_their_subscription() -> None:
    assert (
        infer_cause(make_rebalance([A, B], [replace(A, topics=("u",)), B])).cause
        is RebalanceCause.SUBSCRIPTION
    )


def test_the_same_members_with_more_partitions() -> None:
    more = make_rebalance([A, B], [A, replace(B, assigned={"t": (2, 3, 4)})])

    assert infer_cause(more).cause is RebalanceCause.PARTITIONS


def test_the_same_members_with_fewer_partitions() -> None:
    assert (
        infer_cause(make_rebalance([A, B], [A, replace(B, assigned={"t": (2,)})])).cause
        is RebalanceCause.LEADER
    )


def test_the_same_members_with_another_strategy() -> None:
    other = replace(SAME, rounds=(replace(SAME.after, strategy="sticky"),))

    assert infer_cause(other).cause is RebalanceCause.STRATEGY


def test_where_nothing_differs_nothing_is_known() -> None:
    told = infer_cause(SAME)

    assert (told.cause, told.likely) == (RebalanceCause.UNKNOWN, RebalanceCause.LEADER)


def test_what_cannot_be_read_cannot_have_been_the_same() -> None:
    broken = replace(A, problem="subscription: version at byte 0: 2 bytes needed, 1 left")

    assert infer_cause(make_rebalance([A, B], [broken, B])).cause is RebalanceCause.UNKNOWN


def test_how_a_member_of_a_consumer_group_went_is_not_known() -> None:
    told = infer_cause(of_consumer_group(LEAVE), commit_times(END - 20))

    assert (told.cause, told.likely) == (RebalanceCause.UNKNOWN, RebalanceCause.LEFT)


def test_a_round_that_was_due_anyway_hides_the_cause() -> None:
    cooperative = {"strategy": "cooperative-sticky"}
    taken = replace(ALONE, owned={"t": (0, 1, 2, 3, 9)}, owned_generation=3)
    made = replace(
        JOIN,
        before=generation(4, BEGIN, taken, **cooperative),
        rounds=(generation(5, END, replace(A, owned_generation=4), B, **cooperative),),
    )

    assert infer_cause(made).cause is RebalanceCause.UNKNOWN


def test_a_member_that_had_lost_what_it_had_may_have_been_first() -> None:
    sticky = {"strategy": "sticky"}
    made = replace(
        JOIN,
        before=generation(4, BEGIN, ALONE, **sticky),
        rounds=(generation(5, END, A, B, **sticky),),
    )
    told = replace(A, owned=ALONE.assigned, owned_generation=4)

    assert infer_cause(made).cause is RebalanceCause.UNKNOWN
    kept = replace(made, rounds=(generation(5, END, told, B, **sticky),))
    assert infer_cause(kept).cause is RebalanceCause.JOINED


def test_it_began_after_the_generation_before_and_after_the_last_commit_of_who_is_gone() -> None:
    told = infer_cause(LEAVE, commit_times(END - 5_000))
    assert (told.earliest_start, told.latest_start) == (END - 5_000, END - 10)
    assert told.joined_at == END - 10

    told = infer_cause(JOIN, commit_times(END - 5_000))
    assert (told.earliest_start, told.latest_start) == (BEGIN, END - 10)
