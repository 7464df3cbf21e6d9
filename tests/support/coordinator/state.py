"""Every state a group can be in, as the steps that lead there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rota.engine.model.request import DeleteGroups, JoinGroupProtocol
from tests.support.coordinator.case_run import CaseRun
from tests.support.coordinator.scripted_member import DELAY, STRANGER, ScriptedMember


@dataclass(frozen=True, slots=True)
class GroupMembers:
    """Those who ask: ``a`` leads and ``b`` follows where the group has members."""

    stage: CaseRun
    a: ScriptedMember
    b: ScriptedMember
    newcomer: ScriptedMember


Lead = Callable[[CaseRun], GroupMembers]


def group_members(stage: CaseRun, *, static: bool = False) -> GroupMembers:
    """Nobody has joined yet; ``a`` and ``b`` have ids and a generation that mean nothing."""
    ids = ("i1", "i2") if static else (None, None)
    a = ScriptedMember(stage, "a", ids[0], member_id=STRANGER, generation=0)
    b = ScriptedMember(stage, "b", ids[1], member_id=f"another {STRANGER}", generation=0)
    return GroupMembers(stage, a, b, ScriptedMember(stage, "n"))


def unknown(stage: CaseRun) -> GroupMembers:
    """No request has named the group."""
    return group_members(stage)


def simple(stage: CaseRun) -> GroupMembers:
    """Only offsets were committed, by one that does not join."""
    group = group_members(stage)
    group.newcomer.commit()
    return group


def id_given(stage: CaseRun) -> GroupMembers:
    """The first one to come was sent its id, and has not come back with it."""
    group = group_members(stage)
    group.a.join(member_id="")
    return group


def first_generation(
    stage: CaseRun, static: bool, protocol_type: str | None = None
) -> GroupMembers:
    """The initial delay is over, ``a`` is alone, has synced and committed."""
    group = group_members(stage, static=static)
    if protocol_type is not None:
        for scripted in (group.a, group.b):
            scripted.protocol_type = protocol_type
            scripted.protocols = (JoinGroupProtocol("range", b"worker"),)
    group.a.enter()
    stage.wait(DELAY)
    group.a.sync(group.a)
    group.a.commit()
    return group


def initial(stage: CaseRun, *, static: bool = False) -> GroupMembers:
    """The initial delay runs; both joins are parked."""
    group = group_members(stage, static=static)
    group.a.enter()
    group.b.enter()
    return group


def completing(
    stage: CaseRun, *, static: bool = False, protocol_type: str | None = None
) -> GroupMembers:
    """Both have joined, nobody has synced."""
    group = first_generation(stage, static, protocol_type)
    group.b.enter()
    group.a.join()
    return group


def completing_synced(stage: CaseRun, *, static: bool = False) -> GroupMembers:
    """The follower's sync is parked, the leader's is awaited."""
    group = completing(stage, static=static)
    group.b.sync()
    return group


def stable(
    stage: CaseRun, *, static: bool = False, protocol_type: str | None = None
) -> GroupMembers:
    """Both have their assignment."""
    group = completing(stage, static=static, protocol_type=protocol_type)
    group.a.sync(group.a, group.b)
    group.b.sync()
    return group


def stable_unsynced(stage: CaseRun) -> GroupMembers:
    """The leader has synced, so the group is stable; the follower has not asked yet."""
    group = completing(stage)
    group.a.sync(group.a, group.b)
    return group


def id_pending(stage: CaseRun) -> GroupMembers:
    """Stable, and somebody was sent an id."""
    group = stable(stage)
    ScriptedMember(stage, "p").join()
    return group


def full(stage: CaseRun) -> GroupMembers:
    """Stable with as many members as may be."""
    group = stable(stage)
    c = ScriptedMember(stage, "c")
    c.enter()
    group.a.join()
    group.b.join()
    group.a.sync(group.a, group.b, c)
    group.b.sync()
    c.sync()
    return group


def awaited(stage: CaseRun, *, static: bool = False) -> GroupMembers:
    """A third one joins: ``a`` and ``b`` are awaited."""
    group = stable(stage, static=static)
    ScriptedMember(stage, "c", "i3" if static else None).enter()
    return group


def follower_awaited(stage: CaseRun) -> GroupMembers:
    """A third one joins, ``a`` has joined again: only ``b`` is awaited."""
    group = awaited(stage)
    group.a.join()
    return group


def emptied(stage: CaseRun) -> GroupMembers:
    """Both have left; offsets are kept."""
    group = stable(stage)
    group.b.leave()
    group.a.leave()
    return group


def deleted(stage: CaseRun) -> GroupMembers:
    """An admin has deleted the group after both left."""
    group = emptied(stage)
    stage.send("admin", DeleteGroups(groups=(stage.group,)))
    return group


STATES: dict[str, Lead] = {
    "unknown": unknown,
    "simple": simple,
    "id given": id_given,
    "initial delay": initial,
    "awaited": awaited,
    "follower awaited": follower_awaited,
    "completing": completing,
    "completing, follower waits": completing_synced,
    "stable": stable,
    "stable, follower unsynced": stable_unsynced,
    "stable, id pending": id_pending,
    "stable, full": full,
    "stable, not consumers": lambda stage: stable(stage, protocol_type="connect"),
    "emptied": emptied,
    "deleted": deleted,
    "static, initial delay": lambda stage: initial(stage, static=True),
    "static, awaited": lambda stage: awaited(stage, static=True),
    "static, completing": lambda stage: completing(stage, static=True),
    "static, completing, follower waits": lambda stage: completing_synced(stage, static=True),
    "static, stable": lambda stage: stable(stage, static=True),
}
