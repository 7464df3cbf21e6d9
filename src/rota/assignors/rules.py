"""The rules that every assignment keeps, checked on every result, a custom strategy's too.

==============  ====================================================================
rule            what it says
==============  ====================================================================
a-result        the strategy returns an assignment for a group
all-members     every member of the group appears in the result
only-members    nobody else does
exists          no partition that does not exist is given
subscribed      nobody is given a partition of a topic it does not subscribe to
one-owner       no partition has two owners (unless the strategy says ``allow_shared``)
all-owned       every partition has an owner (unless it says ``allow_unassigned``); a
                cooperative strategy may withhold those that another live member holds
no-hand-over    cooperative: nothing is given that another live member still holds
==============  ====================================================================
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from rota.assignors.claims import held_by_another
from rota.assignors.interface import Assignor, ColumnarAssignor
from rota.assignors.problem import Problem
from rota.errors import BrokenRule, StrategyFailed
from rota.model.membership import (
    UNASSIGNED,
    Assignment,
    GroupAssignment,
    RebalanceProtocol,
    Subscription,
)
from rota.model.topic import Cluster, IntArray, Partitions, first_few


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A result that keeps the rules, with the problem it solves.

    Row i says that member ``member[i]`` was given partition number ``partition[i]``.
    """

    problem: Problem
    result: GroupAssignment
    partition: IntArray
    member: IntArray


def assign_checked(
    assignor: Assignor, cluster: Cluster, group: Mapping[str, Subscription]
) -> Checked:
    """Runs a strategy and checks its result.

    :raises StrategyFailed: the strategy raised
    :raises BrokenRule: its result breaks a rule
    """
    if isinstance(assignor, ColumnarAssignor):
        problem = assignor.pose(cluster, group)
        result = assignor.place_all(problem)
    else:
        problem = Problem.of(cluster, group)
        result = _run(assignor, cluster, group)
    partition, member = _rows(assignor, cluster, problem, result)
    _check_rows(assignor, problem, partition, member)
    return Checked(problem=problem, result=result, partition=partition, member=member)


def _run(
    assignor: Assignor, cluster: Cluster, group: Mapping[str, Subscription]
) -> GroupAssignment:
    try:
        result: object = assignor.assign(cluster, group)
    except BrokenRule:
        raise
    except (Exception, SystemExit) as error:
        raise StrategyFailed(
            f"strategy {assignor.name!r} raised {type(error).__name__}: {error}{_place(error)}"
        ) from error
    if not isinstance(result, GroupAssignment):
        raise BrokenRule(
            assignor.name,
            "a-result",
            f"assign returned {type(result).__name__}, not a GroupAssignment",
        )
    return result


def _place(error: BaseException) -> str:
    """Where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""


def _rows(
    assignor: Assignor, cluster: Cluster, problem: Problem, result: GroupAssignment
) -> tuple[IntArray, IntArray]:
    """The result as rows (partition, member), once it is known to speak of this group only."""
    placement = result.placement
    if placement is not None and placement.layout is problem.layout:
        partition = np.flatnonzero(placement.owners != UNASSIGNED).astype(np.int32)
        return partition, placement.owners[partition]
    missing = [member for member in problem.members if member not in result]
    if missing:
        raise BrokenRule(assignor.name, "all-members", f"no entry for {first_few(missing)}")
    position = {member: index for index, member in enumerate(problem.members)}
    strangers = sorted(str(member) for member in result if member not in position)
    if strangers:
        raise BrokenRule(assignor.name, "only-members", f"not in the group: {first_few(strangers)}")
    partitions: list[int] = []
    members: list[int] = []
    for member in problem.members:
        given = _numbers(assignor, cluster, problem, member, result[member])
        partitions += given
        members += [position[member]] * len(given)
    return np.array(partitions, dtype=np.int32), np.array(members, dtype=np.int32)


def _numbers(
    assignor: Assignor, cluster: Cluster, problem: Problem, member: str, assignment: object
) -> list[int]:
    if not isinstance(assignment, Assignment) or not isinstance(assignment.partitions, Partitions):
        raise BrokenRule(
            assignor.name, "a-result", f"the entry for {member!r} is not an Assignment"
        )
    layout = problem.layout
    numbers = []
    for topic, partition in assignment.partitions:
        if not 0 <= partition < cluster.partitions.get(topic, 0):
            raise BrokenRule(
                assignor.name, "exists", f"{member!r} was given {topic}-{partition}, there is none"
            )
        found = layout.index.get(topic)
        if found is None:
            raise BrokenRule(
                assignor.name,
                "subscribed",
                f"{member!r} was given {topic}-{partition}, nobody subscribes to that topic",
            )
        numbers.append(int(layout.starts[found]) + partition)
    return numbers


def _check_rows(
    assignor: Assignor, problem: Problem, partition: IntArray, member: IntArray
) -> None:
    layout = problem.layout

    def named(numbers: Iterable[int]) -> str:
        return first_few([str(layout.at(number)) for number in numbers])

    allowed = problem.may_own(member, partition)
    if not allowed.all():
        row = int(np.flatnonzero(~allowed)[0])
        raise BrokenRule(
            assignor.name,
            "subscribed",
            f"{problem.members[member[row]]!r} was given {named([int(partition[row])])}, "
            "a topic it does not subscribe to",
        )
    owners_of = np.bincount(partition, minlength=layout.size)
    shared = np.flatnonzero(owners_of > 1)
    if len(shared) and not assignor.allow_shared:
        raise BrokenRule(assignor.name, "one-owner", f"given more than once: {named(shared)}")
    unowned = owners_of == 0
    if RebalanceProtocol.COOPERATIVE in assignor.protocols and not assignor.allow_shared:
        owners = np.full(layout.size, UNASSIGNED, dtype=np.int32)
        owners[partition] = member
        held = held_by_another(problem, owners)
        handed = np.flatnonzero(held & ~unowned)
        if len(handed):
            raise BrokenRule(
                assignor.name,
                "no-hand-over",
                f"given while another member still holds it: {named(handed)}",
            )
        unowned &= ~held
    if unowned.any() and not assignor.allow_unassigned:
        raise BrokenRule(
            assignor.name, "all-owned", f"without an owner: {named(np.flatnonzero(unowned))}"
        )
