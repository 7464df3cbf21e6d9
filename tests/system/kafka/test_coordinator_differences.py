"""Where Rota's coordinator means to act otherwise than Kafka's: both sides, exactly.

Differences that show in a single answer are rules of the comparison itself. These need cases of
their own: in Kafka they hang on the order of a hash map, or on a timer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from rota.engine.formats.hashing import hash_map_order
from rota.engine.model.response import JoinGroupResult
from rota.errors import Code
from tests.support.coordinator.case_run import CaseRun
from tests.support.coordinator.comparison import run_case
from tests.support.coordinator.difference import RULES
from tests.support.coordinator.live_side import LiveSide
from tests.support.coordinator.node import CoordinatorSide
from tests.support.coordinator.scripted_member import CONFIG, DELAY, ScriptedMember, join_protocols
from tests.support.coordinator.story.group_setup import BEYOND, SHORT, create_members, form_group
from tests.support.coordinator.transcript import Step
from tests.support.kafka import KafkaBroker
from tests.support.paths import ROOT

SCENES = ("succession of leaders", "tied election", "strategy listed twice", "turned away")
TEXT = ROOT / "docs" / "differences.md"
SEEN = TypeVar("SEEN")


def run_on_both(
    broker: KafkaBroker, case: Callable[[CaseRun], SEEN], *, alike: bool = True
) -> tuple[SEEN, SEEN]:
    """What is seen before Rota and before Kafka; alike: the same requests are answered."""
    seen: list[SEEN] = []

    def run_and_record(run: CaseRun) -> None:
        seen.append(case(run))

    ours = run_case(run_and_record, CoordinatorSide(CONFIG))
    expected: tuple[Step, ...] = tuple(ours.steps) if alike else ()
    with LiveSide(broker.port) as live:
        run_case(run_and_record, live, expected)
    return seen[0], seen[1]


def first_in_hash_map(names: list[str], among: list[str]) -> str:
    return next(names[at] for at in hash_map_order(names) if names[at] in among)


def leader_leaves(case_run: CaseRun) -> tuple[list[str], str | None]:
    a, b, c = everybody = create_members(case_run, "a", "b", "c")
    form_group(case_run, a, b, c)
    a.leave()
    b.join()
    c.join()
    assert b.joined is not None
    return [each.member_id for each in everybody], b.joined.leader


def static_leader_is_absent(case_run: CaseRun) -> tuple[list[str], str | None]:
    a, b, c = everybody = create_members(case_run, "a", "b", "c", rebalance_timeout=SHORT)
    a.group_instance_id = "i1"
    form_group(case_run, a, b, c)
    b.join(protocols=join_protocols("range", topics=("other",)))
    c.join()
    case_run.wait(BEYOND)
    assert b.joined is not None
    return [each.member_id for each in everybody], b.joined.leader


@pytest.mark.parametrize("case", [leader_leaves, static_leader_is_absent])
@pytest.mark.parametrize("_time", range(3))
def test_succession_of_leaders(
    broker: KafkaBroker, case: Callable[[CaseRun], tuple[list[str], str | None]], _time: int
) -> None:
    (our_ids, our_leader), (their_ids, their_leader) = run_on_both(broker, case)
    assert our_leader == our_ids[1]
    assert their_leader == first_in_hash_map(their_ids, their_ids[1:])


def test_tied_election(broker: KafkaBroker) -> None:
    strategies = ["range", "roundrobin"]
    first = first_in_hash_map(strategies, strategies)
    (second,) = set(strategies) - {first}

    def case(case_run: CaseRun) -> str | None:
        a, b = create_members(case_run, "a", "b")
        a.protocols, b.protocols = join_protocols(second, first), join_protocols(first, second)
        a.enter()
        case_run.wait(DELAY)
        b.enter()
        a.join()
        assert a.joined is not None
        return a.joined.protocol

    assert run_on_both(broker, case) == (second, first)


def test_strategy_listed_twice(broker: KafkaBroker) -> None:
    def case(case_run: CaseRun) -> bool:
        (a,) = create_members(case_run, "a", protocols=join_protocols("range", "range"))
        a.enter()
        case_run.wait(DELAY)
        return a.joined is not None

    assert run_on_both(broker, case, alike=False) == (True, False)


def test_turned_away(broker: KafkaBroker) -> None:
    """Whoever is one too many is sent away; Kafka lets the others wait for the timeout then."""
    patience = 4 * SHORT

    def case(case_run: CaseRun) -> tuple[list[str], list[str]]:
        a, b, c = create_members(case_run, "a", "b", "c", rebalance_timeout=patience)
        d = ScriptedMember(case_run, "d")  # its longer timeout leaves time to sync
        form_group(case_run, a, b)
        c.enter()
        d.enter()
        a.join()
        reply = b.join()
        assert isinstance(reply, JoinGroupResult)
        assert reply.code == Code.GROUP_MAX_SIZE_REACHED
        at_once = [each.name for each in (a, c, d) if each.generation > b.generation]
        case_run.wait(patience)
        return at_once, [each.name for each in (a, c, d) if each.generation > b.generation]

    ours, theirs = run_on_both(broker, case, alike=False)
    assert ours == (["a", "c", "d"], ["a", "c", "d"])
    assert theirs == ([], ["a", "c", "d"])


@pytest.mark.parametrize("name", [*RULES, *SCENES])
def test_every_difference_is_written_down(name: str) -> None:
    assert f"**{name}**" in TEXT.read_text()
