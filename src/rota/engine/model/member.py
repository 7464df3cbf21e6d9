"""The members of a group: what each member subscribes to, what it owns, and what it is assigned."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import numpy.typing as npt

from rota.engine.model.topic import NO_PARTITIONS, IntArray, PartitionNumbering, Partitions
from rota.errors import InputError

NO_GENERATION = -1  # how an ownership without a known generation counts


class RebalanceProtocol(enum.IntEnum):
    """A member uses the highest one that all its strategies support."""

    EAGER = 0  # a member revokes all its partitions before it joins
    #: Members keep partitions; those that move are revoked now and assigned next time.
    COOPERATIVE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """What a member sends in JoinGroup: topics, user data, owned partitions, generation, rack."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: Partitions = NO_PARTITIONS
    generation: int | None = None
    rack: str | None = None
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedPartitions:
    """The partitions that a member says it owns, and the generation in which it got them."""

    partitions: Partitions
    generation: int = NO_GENERATION
    note: str | None = None  # the problem of its bytes; None: no problem


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a member receives in SyncGroup: its partitions and user data."""

    partitions: Partitions
    user_data: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A member of a group, for callers of :func:`rota.assign`. ``user_data`` is what the member's
    strategy sends to the leader. Without it, a custom strategy makes it from the member's
    partitions; for built-in sticky, ``owned`` stands for it.
    """

    id: str
    topics: tuple[str, ...]
    owned: Partitions = NO_PARTITIONS
    generation: int | None = None
    group_instance_id: str | None = None
    rack: str | None = None
    user_data: bytes | None = None

    def __init__(  # noqa: PLR0913 (the fields of a member)
        self,
        *,
        id: str,  # noqa: A002 (the name that people expect)
        topics: Iterable[str],
        owned: Mapping[str, Iterable[int]] | Iterable[tuple[str, int]] | Partitions = NO_PARTITIONS,
        generation: int | None = None,
        group_instance_id: str | None = None,
        rack: str | None = None,
        user_data: bytes | None = None,
    ) -> None:
        for name, text in (("id", id), ("group_instance_id", group_instance_id), ("rack", rack)):
            if not isinstance(text, str) and (name == "id" or text is not None):
                raise InputError(f"member {id!r}: {name} must be text, not {text!r}")
        if isinstance(topics, str) or not isinstance(topics, Iterable):
            raise InputError(f"member {id!r}: topics must be a list of names, not {topics!r}")
        is_int32 = isinstance(generation, int) and -(2**31) <= generation < 2**31
        if generation is not None and not is_int32:
            raise InputError(f"member {id!r}: generation {generation!r} is not a 32-bit number")
        if not isinstance(user_data, bytes | None):
            raise InputError(f"member {id!r}: user_data must be bytes, not {user_data!r}")
        try:
            held = owned if isinstance(owned, Partitions) else Partitions.of(owned)
        except (TypeError, ValueError, OverflowError) as error:
            problem = f"owned must be {{topic: [partition, ...]}}: {error}"
            raise InputError(f"member {id!r}: {problem}") from None
        values = (id, tuple(topics), held, generation, group_instance_id, rack, user_data)
        for name, value in zip(_MEMBER_FIELDS, values, strict=True):
            object.__setattr__(self, name, value)

    @property
    def subscription(self) -> Subscription:
        """The subscription that the member sends to the leader."""
        return Subscription(
            topics=self.topics,
            user_data=self.user_data,
            owned=self.owned,
            generation=self.generation,
            rack=self.rack,
            group_instance_id=self.group_instance_id,
        )


_MEMBER_FIELDS = tuple(each.name for each in fields(Member))


class GroupSubscription(Mapping[str, Subscription]):
    """The subscriptions of all members of a group, by member id."""

    __slots__ = ("_members",)

    def __init__(self, members: Mapping[str, Subscription]) -> None:
        self._members = dict(members)

    @classmethod
    def of(cls, members: Iterable[Member]) -> GroupSubscription:
        """Builds it from members. Raises InputError if an id or a static id occurs twice."""
        found: dict[str, Subscription] = {}
        static: dict[str, str] = {}
        for member in members:
            if not isinstance(member, Member):
                raise InputError(f"members must be rota.Member objects, not {member!r}")
            if member.id in found:
                raise InputError(f"member {member.id!r} is listed twice")
            if member.group_instance_id is not None:
                other = static.setdefault(member.group_instance_id, member.id)
                if other != member.id:
                    raise InputError(
                        f"group_instance_id {member.group_instance_id!r} is used by {other!r} "
                        f"and {member.id!r}"
                    )
            found[member.id] = member.subscription
        return cls(found)

    def __getitem__(self, member: str) -> Subscription:
        return self._members[member]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __repr__(self) -> str:
        return f"GroupSubscription({self._members!r})"


UNASSIGNED = -1  # a partition without an owner, in a column of owners


class Placement:
    """The owner of each partition, as one column of member positions."""

    def __init__(
        self, layout: PartitionNumbering, members: tuple[str, ...], owners: IntArray
    ) -> None:
        self.layout = layout
        self.members = members
        self.owners = owners

    @cached_property
    def index(self) -> dict[str, int]:
        return {member: position for position, member in enumerate(self.members)}

    @cached_property
    def loads(self) -> npt.NDArray[np.int64]:
        return np.bincount(self.owners[self.owners >= 0], minlength=len(self.members))

    @cached_property
    def numbers_by_member(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.int64]]:
        """Partition numbers sorted by member, unassigned ones first, and each member's bounds."""
        # numpy's stable sort is a radix sort for 16-bit keys: ten times faster at a million rows
        small = len(self.members) < np.iinfo(np.int16).max
        keys = self.owners.astype(np.int16) if small else self.owners
        order = np.argsort(keys, kind="stable")
        unassigned = len(self.owners) - int(self.loads.sum())
        bounds = np.concatenate(([0], np.cumsum(self.loads))) + unassigned
        return order, bounds

    def numbers_of(self, member: int) -> npt.NDArray[np.intp]:
        """The numbers of this member's partitions, ascending."""
        order, bounds = self.numbers_by_member
        return order[bounds[member] : bounds[member + 1]]


class GroupAssignment(Mapping[str, Assignment]):
    """The assignments of all members of a group. Built from single assignments, or from a
    :class:`Placement`; then the :class:`Assignment` of a member is created only on demand.
    ``target`` is the placement that a cooperative strategy works towards: the one after all moving
    partitions have been handed over.
    """

    __slots__ = ("_written", "members", "notes", "placement", "target")

    def __init__(
        self,
        assignments: Mapping[str, Assignment] | Placement,
        *,
        target: Placement | None = None,
        notes: tuple[str, ...] = (),
    ) -> None:
        self.notes = tuple(notes or ())
        self.placement: Placement | None = None
        self._written: dict[str, Assignment] = {}
        if isinstance(assignments, Placement):
            self.placement = assignments
            self.members = assignments.members
        else:
            self._written = dict(assignments)
            self.members = tuple(self._written)
        self.target = target if target is not None else self.placement

    def __getitem__(self, member: str) -> Assignment:
        if self.placement is None:
            return self._written[member]
        numbers = self.placement.numbers_of(self.placement.index[member])
        return Assignment(self.placement.layout.partitions_at(numbers))

    def __iter__(self) -> Iterator[str]:
        return iter(self.members)

    def __len__(self) -> int:
        return len(self.members)

    def __repr__(self) -> str:
        shown = {member: self[member].partitions.by_topic() for member in self.members}
        return f"GroupAssignment({shown!r})"
