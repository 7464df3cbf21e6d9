"""The leader's duty: every member's subscription bytes in, every member's assignment bytes out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rota.assignors.interface import Assignor
from rota.assignors.rules import assign_checked
from rota.errors import FormatError, InputError
from rota.formats import assignment, scatter, subscription
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

    A member whose bytes cannot be read is an error that names it: to leave it out silently would
    starve it, and to guess its topics would hand it what it did not ask for.
    """
    group = read_group(members)
    assigned = assign_checked(assignor, cluster, group).result
    return Outcome(write_group(assigned), assigned.notes)


def read_group(members: Iterable[MemberMetadata]) -> GroupSubscription:
    """The subscriptions of all members."""
    listed = list(members)
    decoded = subscription.decode_all([(member.metadata, member.static_id) for member in listed])
    found: dict[str, Subscription] = {}
    for member, read in zip(listed, decoded, strict=True):
        if isinstance(read, FormatError):
            raise FormatError(f"member {member.member_id!r}: {read}") from read
        if member.member_id in found:
            raise InputError(f"member {member.member_id!r} is listed twice")
        found[member.member_id] = read
    return GroupSubscription(found)


def write_group(assigned: GroupAssignment) -> dict[str, bytes]:
    """The assignments of all members, as bytes."""
    if assigned.placement is not None:
        return scatter.encode_all(assigned.placement)
    return {member: assignment.encode(given) for member, given in assigned.items()}
