"""Whatever a journal holds, what-if and advice say something that fits together."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from rota.engine.history.advice import AdviceEvidence, advise_group
from rota.engine.history.downtime import sum_downtime
from rota.engine.history.facts import (
    Generation,
    GenerationChange,
    GenerationMember,
    GroupType,
    RebalanceCause,
)
from rota.engine.history.rebalances import compute_cost, find_rebalances
from rota.engine.history.whatif import (
    HistoryReplay,
    evaluate_policies,
    list_advised_ownership,
)
from tests.support.example_history import NOT_MEASURED, measure_downtime
from tests.support.examples import examples
from tests.support.policies import policy_of

TOPICS = ("t0", "t1", "é")
STRATEGIES = {
    GroupType.CLASSIC: ("range", "roundrobin", "sticky", "cooperative-sticky", "com.example.Mine"),
    GroupType.CONSUMER: ("uniform", "range", "example"),
}
HELD = st.dictionaries(
    st.sampled_from(TOPICS),
    st.lists(st.integers(0, 6), unique=True).map(lambda numbers: tuple(sorted(numbers))),
)


@st.composite
def members(draw: st.DrawFn) -> tuple[GenerationMember, ...]:
    """Any members: partitions with two owners or none, ids that come twice, static or not."""
    names = draw(st.lists(st.sampled_from("abcdefgh"), max_size=6))
    return tuple(
        GenerationMember(
            member_id=f"{name}{draw(st.integers(0, 2))}",
            group_instance_id=draw(st.sampled_from([None, None, name, "same"])),
            client_id=draw(st.sampled_from([name, "app"])),
            session_timeout=draw(st.sampled_from([None, 6_000, 45_000])),
            topics=tuple(draw(st.lists(st.sampled_from(TOPICS), unique=True))),
            owned=draw(HELD),
            owned_generation=draw(st.sampled_from([None, 1, 2])),
            assigned=draw(HELD),
            library=draw(st.sampled_from([None, "java", "librdkafka", "kafkajs"])),
        )
        for name in names
    )


@st.composite
def histories(draw: st.DrawFn) -> list[Generation]:
    """Generations as they could be read from a broken, odd or cut journal; clocks go back."""
    kind = draw(st.sampled_from(list(STRATEGIES)))
    told = []
    incarnation = at = 0
    for offset in range(draw(st.integers(1, 8))):
        incarnation += draw(st.sampled_from([0, 0, 0, 1]))
        at += draw(st.integers(-1_000, 200_000))
        listed = draw(members())
        changes = (
            [GenerationChange.REBALANCED, GenerationChange.REBALANCED, GenerationChange.REPLACED]
            if listed
            else [GenerationChange.EMPTIED]
        )
        told.append(
            Generation(
                group="g",
                kind=kind,
                incarnation=incarnation,
                generation=offset + 1,
                change=draw(st.sampled_from(changes)),
                at=at,
                offset=offset,
                protocol_type="consumer",
                strategy=draw(st.sampled_from(STRATEGIES[kind])) if listed else None,
                members=listed,
            )
        )
    return told


@examples(quick=25)
@given(told=histories(), silent=st.booleans())
def test_every_history_has_rows_that_fit_together(told: list[Generation], silent: bool) -> None:
    history = find_rebalances(told)
    cause = RebalanceCause.SESSION_TIMEOUT if silent else RebalanceCause.UNKNOWN
    causes = {one.after.generation: cause for one in history}
    until = max(one.at for one in told) + 1_000
    downtime = measure_downtime(told, causes, until=until)
    for one in downtime.found:
        assert 0 <= one.at_least_ms <= one.milliseconds <= one.at_most_ms
    evaluation = evaluate_policies(told, history, downtime)
    for policy in evaluation.alternatives.values():
        for owned in list_advised_ownership(told, history, policy, downtime):
            assert owned.until is None or owned.since < owned.until
    rows = evaluation.rows
    keys = [(row.incarnation, row.to_generation, row.at, row.policy) for row in rows]
    assert len(set(keys)) == len(keys)
    assert all(row.downtime_ms >= 0 for row in rows)
    actual = [row for row in rows if row.actual and row.happens]
    assert [(row.moved, row.revoked) for row in actual] == [
        (one.moved, one.revoked) for one in map(compute_cost, history)
    ]
    assert all(row.happens or not (row.moved or row.revoked or row.moves_needed) for row in rows)
    assert all(row.spread >= 0 and row.idle_members >= 0 for row in rows)
    ends = {(one.after.incarnation, one.after.generation) for one in history}
    for name in {row.policy for row in rows}:
        found = {(row.incarnation, row.to_generation) for row in rows if row.policy == name}
        assert ends <= found, name
    known = {(one.after.incarnation, one.after.generation): cause for one in history}
    total = sum_downtime(downtime.found)
    given = AdviceEvidence(evaluation=evaluation, causes=known, total=total)
    advice = advise_group(told, history, given)
    assert advice.verdict in {"change", "keep", "cannot tell"}
    if advice.verdict == "change":
        assert advice.downtime_after_ms is not None
        assert advice.uncertainty_ms is not None
    assert advice.rebalances == len(history)
    if not silent:
        assert (advice.saving_ms is not None) == (advice.verdict == "change")


@examples(quick=25)
@given(told=histories())
def test_the_exact_solver_moves_what_has_to_and_no_more(told: list[Generation]) -> None:
    told = [replace(one, strategy="sticky" if one.members else None) for one in told]
    history = find_rebalances(told)
    if history:
        policy = policy_of("sticky (exact)")
        for row in HistoryReplay(told, history, NOT_MEASURED).rows_under([policy]):
            assert row.moved == row.moves_needed
