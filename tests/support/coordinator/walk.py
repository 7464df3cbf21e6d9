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
from tests.support.coordinator.actor import CONFIG, DELAY, OTHER, T0, Actor, supports
from tests.support.coordinator.node import CoordinatorSide
from tests.support.coordinator.play import Case, play
from tests.support.coordinator.stage import Stage

LENGTH = 14
#: Milliseconds; with 200, walks of many steps within the initial delay differed on a busy machine,
#: where the broker's delay ended before the last of them.
STEADY = 400


@dataclass(frozen=True, slots=True)
class Company:
    """Those who walk: ``b`` and ``again`` are processes with the same static id."""

    stage: Stage
    actors: tuple[Actor, ...]

    def gather(self) -> None:
        """Everybody joins, and whoever leads assigns."""
        for actor in self.actors[:2]:
            _join(actor)
        self.stage.wait(DELAY)
        for actor in self.actors:
            actor.sync(*self.actors)


def _company(stage: Stage) -> Company:
    return Company(stage, (Actor(stage, "a"), Actor(stage, "b", "i2"), Actor(stage, "again", "i2")))


def _enter(actor: Actor) -> None:
    """Join as a new process; a dynamic one only if its last member is gone."""
    if actor.group_instance_id is not None or not actor.member_id:
        actor.enter()


def _join(actor: Actor, **changes: Any) -> None:
    """Join, and start anew if nobody knows the id any more, as clients do."""
    reply = actor.join(**changes)
    if isinstance(reply, JoinGroupResult) and reply.code == Code.UNKNOWN_MEMBER_ID:
        actor.member_id = ""


def _leave(actor: Actor) -> None:
    actor.leave()
    if actor.group_instance_id is None:
        actor.member_id = ""


def _delete_group(company: Company) -> None:
    company.stage.send("admin", DeleteGroups(groups=(company.stage.group,)))


def _delete_offsets(company: Company) -> None:
    request = OffsetDelete(group=company.stage.group, partitions=(T0, OTHER))
    company.stage.send("admin", request)


#: How often, and what.
ACTIONS: tuple[tuple[int, Callable[[Company, Actor], object]], ...] = (
    (4, lambda company, _: company.gather()),
    (3, lambda _, actor: _enter(actor)),
    (4, lambda _, actor: _join(actor)),
    (2, lambda _, actor: _join(actor, protocols=supports("range", topics=("other",)))),
    (1, lambda _, actor: _join(actor, supports_skip_assignment=False)),
    (4, lambda company, actor: actor.sync(*company.actors)),
    (3, lambda _, actor: actor.heartbeat()),
    (1, lambda _, actor: actor.heartbeat(generation=actor.generation + 1)),
    (3, lambda _, actor: _leave(actor)),
    (3, lambda _, actor: actor.commit()),
    (1, lambda _, actor: actor.commit(generation=-1, member_id="", group_instance_id=None)),
    (3, lambda company, _: company.stage.wait(DELAY)),
    (1, lambda company, _: _delete_group(company)),
    (1, lambda company, _: _delete_offsets(company)),
)


def walk(seed: int) -> Case:
    """A case of random steps; the same ones whatever is answered."""

    def case(stage: Stage) -> None:
        rng = random.Random(seed)
        company = _company(stage)
        weights = [weight for weight, _ in ACTIONS]
        for _, act in rng.choices(ACTIONS, weights, k=LENGTH):
            act(company, rng.choice(company.actors))

    return case


def walks(count: int) -> dict[str, Case]:
    """So many walks. One whose timers come close to a step is not taken: in real time the step
    could as well come after."""
    steady = (seed for seed in itertools.count() if _slack(walk(seed)) >= STEADY)
    return {f"walk {seed}": walk(seed) for seed in itertools.islice(steady, count)}


def _slack(case: Case) -> int:
    node = CoordinatorSide(CONFIG)
    play(case, node)
    return node.slack
