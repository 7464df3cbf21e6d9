"""The leader's duty: every member's subscription bytes in, every member's assignment bytes out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rota.assignors.interface import Assignor
from rota.assignors.rules import assign_checked
from rota.errors import FormatError, InputError, RotaError
from rota.formats import assignment, scatter, subscription
from rota.member.event import AssignmentMade, MakeAssignment
from rota.model.membership import GroupAssignment, GroupSubscription, Subscription
from rota.model.topic import Cluster


@dataclass(frozen=True, slots=True)
class MemberMetadata:
    """A member as the coordinator names it to the leader."""

    member_id: str
    static_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the leader sends back, and what a person should know of it."""

    assignments: dict[str, bytes]
    notes: tuple[str, ...]


def lead(assignor: Assignor, cluster: Cluster, members: Iterable[MemberMetadata]) -> Outcome:
    """Reads the group, assigns, checks the result, and writes it.

    A member whose bytes cannot be read is given nothing and named in a note: the others are not
    held up, and to guess its topics would hand it what it did not ask for.
    """
    group, notes = read_group(members)
    return lead_group(assignor, cluster, group, notes)


def lead_group(
    assignor: Assignor, cluster: Cluster, group: GroupSubscription, notes: Iterable[str] = ()
) -> Outcome:
    """The same for a group that has been read already; ``notes`` come from the reading."""
    checked = assign_checked(assignor, cluster, group)
    return Outcome(write_group(checked.result), (*notes, *checked.notes))


def make(command: MakeAssignment) -> AssignmentMade:
    """The same at a member's wish; a strategy that fails, or breaks a rule, is in the answer."""
    try:
        outcome = lead_group(command.assignor, command.cluster, command.group, command.notes)
    except RotaError as error:
        return AssignmentMade(command.number, error=error)
    return AssignmentMade(command.number, outcome.assignments, outcome.notes)


def read_group(members: Iterable[MemberMetadata]) -> tuple[GroupSubscription, list[str]]:
    """The subscriptions of all members, and a note on each that could not be read.

    Such a member subscribes to nothing.
    """
    listed = list(members)
    decoded = subscription.decode_all([(member.metadata, member.static_id) for member in listed])
    found: dict[str, Subscription] = {}
    notes: list[str] = []
    for member, read in zip(listed, decoded, strict=True):
        if member.member_id in found:
            raise InputError(f"member {member.member_id!r} is listed twice")
        if isinstance(read, FormatError):
            notes.append(
                f"member {member.member_id!r}: unreadable, so subscribed to nothing: {read}"
            )
            found[member.member_id] = Subscription(topics=(), static_id=member.static_id)
        else:
            found[member.member_id] = read
    return GroupSubscription(found), sorted(notes)


def write_group(assigned: GroupAssignment) -> dict[str, bytes]:
    """The assignments of all members, as bytes."""
    if assigned.placement is not None:
        return scatter.encode_all(assigned.placement)
    return {member: assignment.encode(given) for member, given in assigned.items()}
