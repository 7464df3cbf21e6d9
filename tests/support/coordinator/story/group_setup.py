"""Members that come together."""

from __future__ import annotations

from tests.support.coordinator.case_run import CaseRun
from tests.support.coordinator.scripted_member import DELAY, ScriptedMember

#: A session or rebalance timeout that a case waits for; the shortest that the broker allows.
SHORT = 1_000
WITHIN = 500
BEYOND = 1_500


def create_members(stage: CaseRun, *names: str, **settings: object) -> list[ScriptedMember]:
    """New actors, alike."""
    return [ScriptedMember(stage, name, **settings) for name in names]  # type: ignore[arg-type]


def form_group_alone(stage: CaseRun, scripted: ScriptedMember) -> None:
    """The scripted member makes the group's first generation alone."""
    scripted.enter()
    stage.wait(DELAY)
    scripted.sync(scripted)


def form_group(stage: CaseRun, leader: ScriptedMember, *others: ScriptedMember) -> None:
    """All are in one generation and have synced; each newcomer makes all others join again."""
    form_group_alone(stage, leader)
    present = [leader]
    for other in others:
        other.enter()
        for each in present:
            each.join()
        present.append(other)
    leader.sync(*present)
    for other in others:
        other.sync()
