"""Random walks: what no list of states and stories has thought of.

At most two members are in a group at a time, and nobody's votes tie, so that nothing hangs on the
order of Kafka's hash maps.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rota.engine.model.request import DeleteGroups, OffsetDelete
from rota.engine.model.response import JoinGroupResult
from rota.errors import Code
from tests.support.coordinator.case_run import CaseRun
from tests.support.coordinator.comparison import Case, run_case
from tests.support.coordinator.node import CoordinatorSide
from tests.support.coordinator.scripted_member import (
    CONFIG,
    DELAY,
    OTHER,
    T0,
    ScriptedMember,
    join_protocols,
)

LENGTH = 14
#: Milliseconds; with 200, walks of many steps within the initial delay differed on a busy machine,
#: where the broker's delay ended before the last of them.
STEADY = 400


@dataclass(frozen=True, slots=True)
class RandomMembers:
    """Those who walk: ``b`` and ``again`` are processes with the same static id."""

    stage: CaseRun
    actors: tuple[ScriptedMember, ...]

    def gather(self) -> None:
        """Everybody joins, and whoever leads assigns."""
        for scripted in self.actors[:2]:
            _join(scripted)
        self.stage.wait(DELAY)
        for scripted in self.actors:
            scripted.sync(*self.actors)


def _create_members(stage: CaseRun) -> RandomMembers:
    return RandomMembers(
        stage,
        (
            ScriptedMember(stage, "a"),
            ScriptedMember(stage, "b", "i2"),
            ScriptedMember(stage, "again", "i2"),
        ),
    )


def _enter(scripted: ScriptedMember) -> None:
    """Join as a new process; a dynamic one only if its last member is gone."""
    if scripted.group_instance_id is not None or not scripted.member_id:
        scripted.enter()


def _join(scripted: ScriptedMember, **changes: Any) -> None:
    """Join, and start anew if nobody knows the id any more, as clients do."""
    reply = scripted.join(**changes)
    if isinstance(reply, JoinGroupResult) and reply.code == Code.UNKNOWN_MEMBER_ID:
        scripted.member_id = ""


def _leave(scripted: ScriptedMember) -> None:
    scripted.leave()
    if scripted.group_instance_id is None:
        scripted.member_id = ""


def _delete_group(walkers: RandomMembers) -> None:
    walkers.stage.send("admin", DeleteGroups(groups=(walkers.stage.group,)))


def _delete_offsets(walkers: RandomMembers) -> None:
    request = OffsetDelete(group=walkers.stage.group, partitions=(T0, OTHER))
    walkers.stage.send("admin", request)


#: How often, and what.
ACTIONS: tuple[tuple[int, Callable[[RandomMembers, ScriptedMember], object]], ...] = (
    (4, lambda walkers, _: walkers.gather()),
    (3, lambda _, scripted: _enter(scripted)),
    (4, lambda _, scripted: _join(scripted)),
    (2, lambda _, scripted: _join(scripted, protocols=join_protocols("range", topics=("other",)))),
    (1, lambda _, scripted: _join(scripted, supports_skip_assignment=False)),
    (4, lambda walkers, scripted: scripted.sync(*walkers.actors)),
    (3, lambda _, scripted: scripted.heartbeat()),
    (1, lambda _, scripted: scripted.heartbeat(generation=scripted.generation + 1)),
    (3, lambda _, scripted: _leave(scripted)),
    (3, lambda _, scripted: scripted.commit()),
    (1, lambda _, scripted: scripted.commit(generation=-1, member_id="", group_instance_id=None)),
    (3, lambda walkers, _: walkers.stage.wait(DELAY)),
    (1, lambda walkers, _: _delete_group(walkers)),
    (1, lambda walkers, _: _delete_offsets(walkers)),
)


def random_case(seed: int) -> Case:
    """A case of random steps; the same ones whatever is answered."""

    def case(stage: CaseRun) -> None:
        rng = random.Random(seed)
        walkers = _create_members(stage)
        weights = [weight for weight, _ in ACTIONS]
        for _, act in rng.choices(ACTIONS, weights, k=LENGTH):
            act(walkers, rng.choice(walkers.actors))

    return case


def random_cases(count: int) -> dict[str, Case]:
    """So many walks. One whose timers come close to a step is not taken: in real time the step
    could as well come after."""
    steady = (seed for seed in itertools.count() if _slack(random_case(seed)) >= STEADY)
    return {f"walk {seed}": random_case(seed) for seed in itertools.islice(steady, count)}


def _slack(case: Case) -> int:
    node = CoordinatorSide(CONFIG)
    run_case(case, node)
    return node.slack
