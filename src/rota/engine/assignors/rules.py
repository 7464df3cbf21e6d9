"""Runs a strategy and checks its result, also for custom strategies.

==============  ====================================================================
rule            meaning
==============  ====================================================================
a-result        the strategy returns a GroupAssignment
all-members     the result has an entry for every member of the group
only-members    the result has no entry for anybody else
exists          every assigned partition exists
subscribed      every member subscribes to the topics of its partitions
one-owner       no partition has two owners (unless ``allow_shared``)
all-owned       every partition has an owner (unless ``allow_unassigned``); a
                cooperative strategy may withhold a partition that another live
                member still owns
no-hand-over    cooperative: no partition is assigned while another live member
                still owns it
==============  ====================================================================
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from rota.engine.assignors.interface import Assignor, ColumnarAssignor
from rota.engine.assignors.problem import Problem, find_owned_by_another
from rota.engine.model.member import (
    UNASSIGNED,
    Assignment,
    GroupAssignment,
    Placement,
    RebalanceProtocol,
    Subscription,
)
from rota.engine.model.text import list_first_names
from rota.engine.model.topic import Cluster, IntArray, Partitions
from rota.errors import BrokenRule, RotaError, StrategyFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedAssignment:
    """A result that passed all rules, with the problem it solves.

    Row i: member ``member[i]`` gets partition number ``partition[i]``. ``target`` has the owners
    after the next rebalance, if a cooperative strategy states them.
    """

    problem: Problem
    result: GroupAssignment
    partition: IntArray
    member: IntArray
    target: IntArray | None

    @property
    def notes(self) -> tuple[str, ...]:
        """Messages for the user about the group and the result."""
        return tuple(dict.fromkeys(self.problem.notes + self.result.notes))


def assign_checked(
    assignor: Assignor,
    cluster: Cluster,
    group: Mapping[str, Subscription],
    problem: Problem | None = None,
) -> CheckedAssignment:
    """Runs a strategy and checks its result.

    ``problem`` is the problem of this cluster and group, if the caller has built it already.

    :raises StrategyFailed: the strategy raised an exception
    :raises BrokenRule: its result breaks a rule
    """
    try:
        return _run_and_check(assignor, cluster, group, problem)
    except (RotaError, MemoryError):
        raise
    except (Exception, SystemExit) as error:
        raised = traceback.format_exception_only(error)[-1].strip()
        raise StrategyFailed(
            f"strategy {assignor.name!r} raised {raised}{_describe_location(error)}"
        ) from error


def _run_and_check(
    assignor: Assignor,
    cluster: Cluster,
    group: Mapping[str, Subscription],
    problem: Problem | None,
) -> CheckedAssignment:
    result: object
    if type(assignor).assign is ColumnarAssignor.assign:
        assert isinstance(assignor, ColumnarAssignor)
        problem = problem or assignor.build_problem(cluster, group)
        result = assignor.solve_to_assignment(problem)
    else:
        problem = problem or Problem.from_group(cluster, group)
        result = assignor.assign(cluster, group)
    if not isinstance(result, GroupAssignment):
        raise BrokenRule(
            assignor.name,
            "a-result",
            f"assign returned {type(result).__name__}, not a GroupAssignment",
        )
    partition, member = _to_rows(assignor, cluster, problem, result)
    _check_rows(assignor, problem, partition, member)
    return CheckedAssignment(
        problem=problem,
        result=result,
        partition=partition,
        member=member,
        target=_find_target(problem, result),
    )


def _describe_location(error: BaseException) -> str:
    """Returns file and line where the error was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""


def _find_target(problem: Problem, result: GroupAssignment) -> IntArray | None:
    """Returns the owners after the next rebalance, if the result states them in the problem's
    layout.
    """
    target = result.target
    if not isinstance(target, Placement) or target.layout is not problem.layout:
        return None
    return target.owners


def _to_rows(
    assignor: Assignor, cluster: Cluster, problem: Problem, result: GroupAssignment
) -> tuple[IntArray, IntArray]:
    """Returns the result as rows (partition, member), after checking that it names exactly
    this group's members.
    """
    placement = result.placement
    if placement is not None and placement.layout is problem.layout:
        owners = placement.owners
        if len(owners) and not UNASSIGNED <= owners.min() <= owners.max() < len(problem.members):
            raise BrokenRule(assignor.name, "only-members", "an owner that is not in the group")
        partition = np.flatnonzero(owners != UNASSIGNED).astype(np.int32)
        return partition, owners[partition]
    missing = [member for member in problem.members if member not in result]
    if missing:
        raise BrokenRule(assignor.name, "all-members", f"no entry for {list_first_names(missing)}")
    position = {member: index for index, member in enumerate(problem.members)}
    strangers = sorted(str(member) for member in result if member not in position)
    if strangers:
        raise BrokenRule(
            assignor.name, "only-members", f"not in the group: {list_first_names(strangers)}"
        )
    partitions: list[int] = []
    members: list[int] = []
    for member in problem.members:
        given = _number_partitions(assignor, cluster, problem, member, result[member])
        partitions += given
        members += [position[member]] * len(given)
    return np.array(partitions, dtype=np.int32), np.array(members, dtype=np.int32)


def _number_partitions(
    assignor: Assignor, cluster: Cluster, problem: Problem, member: str, assignment: object
) -> list[int]:
    if not isinstance(assignment, Assignment) or not isinstance(assignment.partitions, Partitions):
        raise BrokenRule(
            assignor.name, "a-result", f"the entry for {member!r} is not an Assignment"
        )
    if not isinstance(assignment.user_data, bytes | None):
        raise BrokenRule(assignor.name, "a-result", f"the user data for {member!r} is not bytes")
    layout = problem.layout
    numbers = []
    for given in assignment.partitions:
        topic = layout.index.get(given.topic)
        if topic is None and 0 <= given.partition < cluster.partitions.get(given.topic, 0):
            raise BrokenRule(
                assignor.name,
                "subscribed",
                f"{member!r} was given {given}, nobody subscribes to that topic",
            )
        if topic is None or not 0 <= given.partition < layout.counts[topic]:
            raise BrokenRule(
                assignor.name, "exists", f"{member!r} was given {given}, there is none"
            )
        numbers.append(int(layout.starts[topic]) + given.partition)
    twice = [layout.partition_at(number) for number, times in Counter(numbers).items() if times > 1]
    if twice:
        names = list_first_names([str(partition) for partition in twice])
        raise BrokenRule(assignor.name, "one-owner", f"{member!r} was given twice: {names}")
    return numbers


def _check_rows(
    assignor: Assignor, problem: Problem, partition: IntArray, member: IntArray
) -> None:
    layout = problem.layout

    def named(numbers: Iterable[int]) -> str:
        return list_first_names([str(layout.partition_at(number)) for number in numbers])

    allowed = problem.is_subscribed(member, partition)
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
        held = find_owned_by_another(problem, owners)
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
