"""Causes in the recorded run, against what its script did to the consumers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from rota.engine.history.causes import explain_rebalance
from rota.engine.history.facts import (
    EvidenceType,
    Explanation,
    Generation,
    GenerationChange,
    GroupType,
    Rebalance,
    RebalanceCause,
)
from rota.engine.history.rebalances import find_rebalances
from rota.engine.history.restarts import find_rollouts
from tests.support import first_recording

#: So many of the run's 153 rebalances are explained by the journal alone.
KNOWN = 123
#: The run's ``group.consumer.session.timeout.ms``.
CONSUMER_SESSION = 6_000


GONE = (RebalanceCause.LEFT, RebalanceCause.SESSION_TIMEOUT, RebalanceCause.SLOW_POLL)


@dataclass(frozen=True)
class Trigger:
    """Something that was done to a consumer, and when a broker could know at the earliest."""

    at: int
    cause: RebalanceCause
    #: A member, by its member id or its client id where that is all that is known.
    who: str = ""

    def had_a_part(self, step: Rebalance) -> bool:
        """It came into the group by this step, or was no more in it; the rest is for all."""
        if not self.who:
            return True
        is_in = self.is_in(step.after)
        return is_in if self.cause is RebalanceCause.JOINED else not is_in

    def tells(self, step: Rebalance) -> bool:
        """Who was gone before was noticed before, or never; who was there took its place again."""
        if not self.who:
            return True
        was_in = self.is_in(step.before)
        return was_in if self.cause in GONE else not was_in

    def is_in(self, generation: Generation | None) -> bool:
        members = generation.members if generation is not None else ()
        return any(self.who in (member.member_id, member.client_id) for member in members)


def _triggers(group: str) -> Iterator[Trigger]:
    """What happened to a group's consumers, by the script that did it."""
    events = [
        event
        for event in first_recording.read_expected()
        if event["group"] in (group, None) or event["event"] == "partitions_added"
    ]
    started = [event for event in events if event["event"] == "start"]
    for event in events:
        if started and event["t"] >= started[0]["t"]:
            yield from _done_to_member(event, started)
            yield from _done_to_group(event, started)


def _done_to_member(
    event: Mapping[str, Any], started: Sequence[Mapping[str, Any]]
) -> Iterator[Trigger]:
    """Members that go, and may come back."""
    at, client = event["t"], event.get("client", "")
    member = event.get("member", client)
    session = max(one.get("session", CONSUMER_SESSION) for one in started)
    match event["event"]:
        case "left" | "unsubscribed":
            # of the share group it is written after the consumer was closed
            early = 100 if started[0]["protocol"] == "share" else 0
            yield Trigger(at - early, RebalanceCause.LEFT, member)
        case (
            "crashed" | "static_restart_begin"
        ):  # it may not be noticed, if another takes its place
            yield Trigger(at + session // 2, RebalanceCause.SESSION_TIMEOUT, member)
        case "slow_poll_begin":
            interval = event["max_poll_interval_ms"]  # since the poll before
            yield Trigger(at + interval // 2, RebalanceCause.SLOW_POLL, member)
        case "subscription_changed":
            yield Trigger(at, RebalanceCause.SUBSCRIPTION)
        case _:
            pass
    if event["event"] in ("unsubscribed", "slow_poll_end"):
        yield Trigger(at + 1, RebalanceCause.JOINED, client)


def _done_to_group(
    event: Mapping[str, Any], started: Sequence[Mapping[str, Any]]
) -> Iterator[Trigger]:
    """Members that are new, and what is done from outside."""
    at = event["t"]
    match event["event"]:
        case "start":
            yield Trigger(at, RebalanceCause.JOINED, event["client"])
            if event["protocol"] == "share":  # the broker then creates the state of its partitions
                yield Trigger(at + 1_000, RebalanceCause.PARTITIONS)
        case "removed_by_admin":
            yield Trigger(at, RebalanceCause.LEFT)
        case "topic_created" if any(_matches(one, event["topic"]) for one in started):
            yield Trigger(at, RebalanceCause.SUBSCRIPTION)
        case "partitions_added" if any(event["topic"] in one["topics"] for one in started):
            yield Trigger(at, RebalanceCause.PARTITIONS)
        case _:
            pass


def _matches(started: Mapping[str, Any], topic: str) -> bool:
    pattern = started.get("pattern") or started.get("regex")
    quoted = re.sub(r"\\Q(.*?)\\E", lambda found: re.escape(found[1]), pattern or "")
    return pattern is not None and re.fullmatch(quoted, topic) is not None


def _truth(group: str, found: Sequence[Rebalance]) -> list[RebalanceCause]:
    """The first of what had a part in each step; what had one has none in a later step."""
    left = sorted(_triggers(group), key=lambda trigger: trigger.at)
    causes = []
    for step in found:
        mine = [one for one in left if one.at <= step.after.at and one.had_a_part(step)]
        left = [one for one in left if one not in mine]
        mine = [one for one in mine if one.tells(step)]
        assert mine, f"{group}: nothing led to generation {step.after.generation}"
        causes.append(mine[0].cause)
    return causes


@cache
def _groups() -> Mapping[str, list[Rebalance]]:
    return {
        group: find_rebalances(one.generations)
        for group, one in first_recording.read_histories().items()
    }


def _explained(group: str, *, with_log: bool) -> list[Explanation]:
    commits = first_recording.read_commit_times(group)
    lines = first_recording.read_log_lines(group) if with_log else ()
    return [explain_rebalance(step, commits, lines) for step in _groups()[group]]


def test_with_the_broker_s_log_every_cause_is_stated_and_true() -> None:
    for group, found in _groups().items():
        told = _explained(group, with_log=True)

        assert {one.evidence for one in told} == {EvidenceType.STATED}
        assert [one.cause for one in told] == _truth(group, found), group


def test_without_it_causes_are_true_or_unknown() -> None:
    known = 0
    for group, found in _groups().items():
        for told, cause in zip(
            _explained(group, with_log=False), _truth(group, found), strict=True
        ):
            assert told.evidence is EvidenceType.INFERRED
            assert told.cause in (cause, RebalanceCause.UNKNOWN), (group, told)
            assert (told.likely is None) == (told.cause is not RebalanceCause.UNKNOWN)
            known += told.cause is not RebalanceCause.UNKNOWN
    assert known == KNOWN
    assert sum(map(len, _groups().values())) == 153


def test_the_stated_start_lies_where_the_journal_allows_it() -> None:
    for group, found in _groups().items():
        both = zip(
            found,
            _explained(group, with_log=True),
            _explained(group, with_log=False),
            strict=True,
        )
        for step, stated, inferred in both:
            assert stated.started_at is not None
            assert inferred.latest_start is not None
            # an epoch's own entry follows its line by milliseconds
            late = 0 if step.after.kind is GroupType.CLASSIC else 100
            assert stated.started_at <= inferred.latest_start
            if inferred.earliest_start is not None:
                assert inferred.earliest_start - late <= stated.started_at


def test_the_entry_s_state_time_is_when_all_had_joined() -> None:
    for group, found in _groups().items():
        for step, stated, inferred in zip(
            found,
            _explained(group, with_log=True),
            _explained(group, with_log=False),
            strict=True,
        ):
            if (
                step.after.kind is not GroupType.CLASSIC
                or step.after.change is GenerationChange.EMPTIED
            ):
                assert stated.joined_at is None
                assert inferred.joined_at is None
            else:
                assert stated.joined_at is not None
                assert inferred.joined_at is not None
                assert abs(stated.joined_at - inferred.joined_at) < 50


def test_the_rollouts_are_the_script_s() -> None:
    named = {}
    for group, found in _groups().items():
        told = find_rollouts(found, _explained(group, with_log=False))
        if any(told):
            named[group] = list(dict.fromkeys(name for name in told if name))

    # a-roll-static is a rollout too, without a rebalance
    assert named == {
        "a-migrate": ["generation 1-5", "generation 5-9"],
        "a-roll-dyn": ["generation 1-9"],
        "a-upgrade": ["generation 1-5", "generation 5-11"],
    }


def test_every_step_of_a_rollout_is_marked() -> None:
    found = find_rollouts(_groups()["a-roll-dyn"])

    assert found == [None, *["generation 1-9"] * 8]
