"""A group that runs, as ``rota plan`` takes one: read from its cluster."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rota.assignors import registry
from rota.cli.bootstrap import asked
from rota.cli.case import Case
from rota.client.overview import STABLE, WITHOUT_MEMBERS, Overview, Present, labels
from rota.errors import InputError, TimedOut, UnknownStrategy
from rota.model.membership import Member
from rota.model.topic import first_few

if TYPE_CHECKING:
    from rota.client.admin import Admin
    from rota.model.topic import Cluster

SORTING = frozenset({"range", "roundrobin"})
"""Strategies by which a member's place among the others decides what it gets."""
PAUSE = 0.2
"""Seconds between looks at a group that is rebalancing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """A group as it is now."""

    case: Case
    overview: Overview
    names: Mapping[str, str]
    """Short names of members."""

    @property
    def strategies(self) -> list[str]:
        """The one that it has chosen; those of Kafka's consumers while nobody is in it."""
        return [self.overview.strategy] if self.overview.members else [*registry.DEFAULT_LIST]

    def notes(self, joining: int, strategy: str) -> tuple[str, ...]:
        """What is not known of the future."""
        if not self.overview.members:
            topics = first_few(sorted(self.case.partitions))
            return (f"the group is empty: new members are taken to read what it did, {topics}",)
        if not joining or strategy not in SORTING:
            return ()
        return (
            f"{strategy} goes by the order of member ids, and an id is chance: new members are "
            "taken to come behind all others",
        )

    def ids(self, given: Sequence[str]) -> list[str]:
        """The members that are meant: by id, static id, short name, client id, or the beginning of
        one of these.

        :raises InputError: nobody is meant, or several are
        """
        return [self._id(each) for each in given]

    def _id(self, given: str) -> str:
        members = self.overview.members or ()
        for fits in (_is, _begins):
            found = [each.id for each in members if fits(given, _called(each, self.names))]
            if len(found) == 1:
                return found[0]
            if found:
                names = first_few(sorted(self.names[each] for each in found))
                raise InputError(f"--remove {given!r}: several members are called so: {names}")
        known = ", ".join(sorted(self.names.values()))
        there = f"members are {known}" if known else "the group is empty"
        raise InputError(f"--remove {given!r}: no such member; {there}")


def _called(member: Present, names: Mapping[str, str]) -> tuple[str, ...]:
    return (member.id, member.static_id or member.id, names[member.id], member.client_id)


def _is(given: str, names: tuple[str, ...]) -> bool:
    return given in names


def _begins(given: str, names: tuple[str, ...]) -> bool:
    return any(name.startswith(given) for name in names)


def read(args: argparse.Namespace) -> Live:
    """The group that the flags name, once it is stable.

    :raises InputError: it does not exist, is empty and nobody joins, or is of a kind that members
        do not assign
    :raises TimedOut: it has not settled in time
    """

    async def ask(admin: Admin) -> Live:
        group = await _settled(admin, args.group, args.timeout)
        _check(group, strategy_given=args.strategy is not None or args.compare)
        members = group.members or ()
        topics = {topic for each in members for topic in (*each.topics, *each.assigned.names)}
        if not members:
            _check_joining(args)
            topics = {each.topic for each in await admin.committed(args.group)}
        cluster = (await admin.known(topics)).cluster()
        if not members and not cluster.partitions:
            raise InputError(
                f"group {args.group!r} is empty, and there is none of the topics that it has "
                "committed: there is nothing to plan"
            )
        return _live(group, cluster)

    return asked(args, ask)


async def _settled(admin: Admin, name: str, patience: float) -> Overview:
    """A rebalance is waited for: while it lasts, nobody is told who has what."""
    end = asyncio.get_running_loop().time() + patience
    while True:
        group = await admin.overview(name)
        if not group.classic or group.state == STABLE or group.state in WITHOUT_MEMBERS:
            return group
        if asyncio.get_running_loop().time() + PAUSE >= end:
            raise TimedOut(
                f"group {name!r} has been rebalancing for {patience:g} s ({group.state}): who has "
                "what is not known before it is over; --timeout waits longer"
            )
        await asyncio.sleep(PAUSE)


def _check(group: Overview, *, strategy_given: bool) -> None:
    name = f"group {group.group!r}"
    if group.members is None:
        raise InputError(f"{name} is of type {group.kind}: its assignment cannot be looked at")
    if not group.reads:
        raise InputError(
            f"{name} is a group of {group.protocol_type} workers, not of consumers: nothing of its "
            "assignment can be planned"
        )
    if not strategy_given and (group.members or not group.classic):
        _check_strategy(group)
    for each in group.members:
        if each.problem is not None:
            raise InputError(f"{name}: what member {each.id} says cannot be read: {each.problem}")


def _check_joining(args: argparse.Namespace) -> None:
    if not args.add and not args.member:
        raise InputError(
            f"group {args.group!r} is empty: there is nothing to plan; --add 3 tells what three "
            "members would get of the topics that it has committed"
        )


def _check_strategy(group: Overview) -> None:
    name = f"group {group.group!r}"
    if not group.classic:
        raise InputError(
            f"{name} is assigned by the broker (KIP-848, strategy {group.strategy}), not by its "
            "members; --strategy or --compare tells what a strategy of members would do"
        )
    try:
        registry.resolve(group.strategy)
    except UnknownStrategy:
        raise InputError(
            f"{name} has the strategy {group.strategy!r}, which Rota does not know; --strategy "
            "takes another, or yours as package.module:Class"
        ) from None


def _live(group: Overview, cluster: Cluster) -> Live:
    members = group.members or ()
    told = [each.generation for each in members if each.generation is not None]
    # what members have now is of one generation, newer than any that they have joined with
    generation = max(told) + 1 if told and group.classic else group.epoch
    matched = sorted({topic for each in members for topic in each.assigned.names})
    return Live(
        case=Case(
            partitions=cluster.partitions,
            racks=cluster.racks,
            members=tuple(
                Member(
                    id=each.id,
                    topics=dict.fromkeys((*each.topics, *(matched if each.pattern else ()))),
                    owned=each.assigned,
                    generation=generation,
                    static_id=each.static_id,
                    rack=each.rack,
                )
                for each in members
            ),
        ),
        names=labels(members),
        overview=group,
    )
