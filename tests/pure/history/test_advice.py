"""Advice: what is said of a group, and what is not."""

from __future__ import annotations

from dataclasses import replace

from rota.engine.history import client_settings
from rota.engine.history.advice import PolicyEvaluation, advise_group, sum_by_policy
from rota.engine.history.facts import Advice, RebalanceCause
from rota.engine.history.rebalances import find_rebalances
from rota.engine.history.whatif import evaluate_policies
from tests.pure.history import capture
from tests.pure.history.example_history import HistoryBuilder, generation, member


def advice_for(
    history_builder: HistoryBuilder, rollouts: dict[tuple[int, int], str] | None = None
) -> Advice:
    return advise_group(
        history_builder.generations,
        history_builder.rebalances,
        evaluate_policies(history_builder.generations, history_builder.rebalances),
        None,
        rollouts,
    )


def history_with_deploys(**fields: object) -> HistoryBuilder:
    """Twelve members, replaced one after the other, each gone for 50 seconds."""
    history_builder = HistoryBuilder({"t": 24}, fields=fields)
    names = [f"pod-{number:02}" for number in range(12)]
    history_builder.at(0, *names)
    for number in range(12):
        history_builder.at(100 * number + 10, *(name for name in names if name != names[number]))
        names[number] += "#2"
        history_builder.at(100 * number + 60, *names)
    return history_builder


def test_a_rolling_deploy_asks_for_static_members() -> None:
    history_builder = history_with_deploys(library=client_settings.JAVA)
    rollout = {(0, number): "2-25" for number in range(2, 26)}
    found = advice_for(history_builder, rollout)
    assert found.verdict == "change"
    assert (found.policies_used, found.policy) == (("range",), "range, static 60s")
    assert (found.rebalances, found.rebalances_after) == (25, 1)
    assert (found.moved_after, found.stopped_after) == (0, 0)
    assert found.libraries == ("java",)
    assert found.headline == (
        f"g: 25 rebalances in 19 min, 24 of them one rolling deploy of 12 members; "
        f"{found.stopped} partitions stopped, {found.moved} moved; {found.moves_needed} moves were "
        "necessary. Use static membership with a session timeout of 60s: "
        f"1 rebalance instead of 25, 0 stopped instead of {found.stopped}, "
        f"0 moved instead of {found.moved}."
    )
    assert any("group.instance.id" in one for one in found.steps)
    assert not any("is unknown" in one for one in found.steps)


def history_with_mixed_strategies(*names: str | None) -> HistoryBuilder:
    """The same deploy, of members that run these libraries in turn."""
    history_builder = history_with_deploys()
    history_builder.generations = [
        replace(
            one,
            members=tuple(
                replace(each, library=names[int(each.client_id[4:6]) % len(names)])
                for each in one.members
            ),
        )
        for one in history_builder.generations
    ]
    return history_builder


def test_each_library_is_told_its_own_settings() -> None:
    found = advice_for(history_with_mixed_strategies(client_settings.JAVA, client_settings.SARAMA))
    assert (found.policy, found.libraries) == ("range, static 60s", ("java", "sarama"))
    assert found.steps[1] == (
        "Set this. The session must not be above the broker's group.max.session.timeout.ms, "
        "1800000 if not set. Java: session.timeout.ms=60000; "
        "sarama: config.Consumer.Group.Session.Timeout = 60 * time.Second."
    )


def history_with_new_strategy(before: str | None, after: str | None) -> HistoryBuilder:
    """The same deploy, of processes that run another library than those they replace."""
    history_builder = history_with_deploys()
    history_builder.generations = [
        replace(
            one,
            members=tuple(
                replace(each, library=after if each.member_id.endswith("#2") else before)
                for each in one.members
            ),
        )
        for one in history_builder.generations
    ]
    return history_builder


def test_what_a_group_ran_before_is_asked_for_nothing() -> None:
    found = advice_for(history_with_new_strategy(client_settings.KAFKAJS, client_settings.JAVA))
    assert (found.policy, found.libraries) == ("range, static 60s", ("java",))
    assert found.steps == advice_for(history_with_deploys(library=client_settings.JAVA)).steps
    assert (
        advice_for(history_with_new_strategy(client_settings.JAVA, client_settings.KAFKAJS)).verdict
        == "keep"
    )
    told = advice_for(history_with_new_strategy(None, client_settings.LIBRDKAFKA))
    assert told.libraries == ("librdkafka",)
    assert told.steps == advice_for(history_with_deploys(library=client_settings.LIBRDKAFKA)).steps


def test_the_last_members_count_where_all_have_left() -> None:
    history_builder = history_with_new_strategy(client_settings.KAFKAJS, client_settings.JAVA).at(
        2_000
    )
    assert not history_builder.generations[-1].members
    found = advice_for(history_builder)
    assert (found.policy, found.libraries) == ("range, static 60s", ("java",))


def test_members_whose_library_cannot_be_told_are_named() -> None:
    found = advice_for(history_with_mixed_strategies(client_settings.LIBRDKAFKA, None))
    assert found.libraries == ("librdkafka", "unknown")
    assert found.steps[0] == (
        "Find out which client library the other members use; the steps below name Java's "
        "settings for them."
    )
    assert found.steps[1].endswith(
        " librdkafka: group.instance.id=ID (librdkafka 1.4 or newer); "
        "unknown (as Java): group.instance.id=ID (Java client 2.3 or newer)."
    )
    alone = advice_for(history_with_deploys())
    assert alone.libraries == ("unknown",)
    assert alone.steps[0] == (
        "Find out which client library the members use; the steps below are for Java."
    )
    assert alone.steps[1].startswith(
        "Give every process group.instance.id=ID (Java client 2.3 or newer), with an ID of its"
    )
    assert alone.steps[2:] == found.steps[2:]


def test_damage_is_what_stopped_and_what_moved_without_need() -> None:
    history_builder = HistoryBuilder().at(0, "a", "b").at(10, "a", "b", "c")
    # everything stopped; six moved, four had to
    assert advice_for(history_builder).damage == 12 + 2
    rows = [
        row
        for row in evaluate_policies(history_builder.generations, history_builder.rebalances).rows
        if row.actual
    ]
    assert sum_by_policy(rows)["range"].needless == 2


def test_next_to_nothing_is_not_worth_a_change() -> None:
    found = advice_for(HistoryBuilder({"t": 4}).at(0, "a").at(10, "a", "b"))
    assert found.verdict == "keep"
    assert ((found.policy,), found.stopped_after) == (found.policies_used, found.stopped)
    assert found.steps == ()
    assert found.headline.endswith("Keep range: no other policy is much better.")


def test_a_group_to_which_nothing_happened() -> None:
    told = [generation(1, [member("a", {"t": (0,)})])]
    found = advise_group(told, [], PolicyEvaluation())
    assert (found.verdict, found.damage, found.headline) == ("keep", 0.0, "g: no rebalances.")


def test_what_a_library_cannot_do_is_not_advised() -> None:
    found = advice_for(history_with_deploys(library=client_settings.KAFKAJS))
    assert found.verdict == "keep"
    able = advice_for(history_with_deploys(library=client_settings.AIOKAFKA))
    assert able.policy == "range, static 60s"
    assert any("group_instance_id" in one for one in able.steps)


def test_an_unknown_strategy_is_said_to_be_one() -> None:
    told = [
        generation(1, [member("a", {"t": (0, 1)})], "com.example.Mine"),
        generation(2, [member("a", {"t": (0,)}), member("b", {"t": (1,)})], "com.example.Mine"),
    ]
    found = advise_group(
        told, find_rebalances(told), evaluate_policies(told, find_rebalances(told))
    )
    assert found.verdict == "cannot tell"
    assert (found.policy,) == found.policies_used == ("com.example.Mine",)
    assert "Rota does not know its strategy, com.example.Mine" in found.headline


def test_members_that_cannot_be_read_leave_nothing_to_tell() -> None:
    told = [generation(1, [member("a", problem="garbage")])]
    found = advise_group(
        told, find_rebalances(told), evaluate_policies(told, find_rebalances(told))
    )
    assert found.verdict == "cannot tell"
    assert "could not be decoded" in found.headline


def test_of_members_that_are_no_consumers_nothing_is_counted() -> None:
    told = [
        replace(generation(number, [member("a"), member("b")]), protocol_type="connect")
        for number in (1, 2)
    ]
    found = advise_group(
        told, find_rebalances(told), evaluate_policies(told, find_rebalances(told))
    )
    assert (found.verdict, found.rebalances) == ("cannot tell", 2)
    assert found.moved is found.stopped is found.moves_needed is None
    assert "not consumers (connect)" in found.headline


def test_another_librarys_range_makes_it_an_estimate() -> None:
    numbers = tuple(range(40))
    told = [
        generation(1, [member("a", {"t": numbers})]),
        generation(2, [member("a", {"t": numbers[:30]}), member("b", {"t": numbers[30:]})]),
    ]
    found = advise_group(
        told, find_rebalances(told), evaluate_policies(told, find_rebalances(told))
    )
    assert found.policies_used == ("range (other)",)
    assert found.verdict == "change"
    assert any("an estimate" in one for one in found.steps)


def test_what_was_changed_already_is_not_advised_again() -> None:
    told = list(capture.read_histories()["a-upgrade"].generations)
    found = advise_group(
        told, find_rebalances(told), evaluate_policies(told, find_rebalances(told))
    )
    assert found.policies_used[-1] == "cooperative-sticky"
    assert found.verdict == "keep"


def test_less_moved_by_worse_balance_is_no_advice() -> None:
    told = list(capture.read_histories()["a-roundrobin"].generations)
    found = advise_group(
        told, find_rebalances(told), evaluate_policies(told, find_rebalances(told))
    )
    assert found.policy == "cooperative-sticky"


def test_slow_polls_are_told_how_to_avoid() -> None:
    told = list(capture.read_histories()["a-slow"].generations)
    history = find_rebalances(told)
    slow = {(0, number): RebalanceCause.SLOW_POLL for number in (2, 4, 6)}
    found = advise_group(told, history, evaluate_policies(told, history, slow), slow)
    assert "(3 slow poll)" in found.headline
    assert found.steps[0] == (
        "Slow polls caused 3 rebalances, which no policy prevents: raise max.poll.interval.ms "
        "above the longest time between two polls, or take fewer records at a time "
        "(max.poll.records)."
    )


def test_slow_polls_of_many_libraries() -> None:
    history_builder = history_with_mixed_strategies(
        client_settings.AIOKAFKA, client_settings.LIBRDKAFKA, client_settings.SARAMA
    )
    causes = {(0, 2): RebalanceCause.SLOW_POLL}
    found = advise_group(
        history_builder.generations,
        history_builder.rebalances,
        evaluate_policies(history_builder.generations, history_builder.rebalances, causes),
        causes,
    )
    assert found.steps[0] == (
        "Slow polls caused 1 rebalance, which no policy prevents: do this. aiokafka: raise "
        "max_poll_interval_ms above the longest time between two polls, or take fewer records at "
        "a time (max_poll_records); librdkafka: raise max.poll.interval.ms above the longest time "
        "between two polls."
    )


def test_static_members_are_no_cure_for_those_that_crash() -> None:
    told = list(capture.read_histories()["a-roll-dyn"].generations)
    history = find_rebalances(told)
    ends = [(0, step.after.generation) for step in history if step.before is not None]
    for cause, advised in ((RebalanceCause.LEFT, True), (RebalanceCause.SESSION_TIMEOUT, False)):
        causes = dict.fromkeys(ends, cause)
        found = advise_group(told, history, evaluate_policies(told, history, causes), causes)
        assert ("static" in found.policy) == advised
        assert any("sending heartbeats" in one for one in found.steps) != advised
