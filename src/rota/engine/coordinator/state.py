"""The states of a classic group, the legal transitions, and the group itself.

A first member joins an *empty* group, or something changes in a *stable* group: it is then
*preparing a rebalance*, and waits for all members to join again, at most for the longest rebalance
timeout among them. A new generation begins. It is *completing the rebalance* while the leader
computes the assignment, and *stable* once that is in the journal and sent to the members. When the
last member goes, the group is *empty*: its offsets stay until they expire. A group that was
deleted, or moved to another coordinator, is *dead*.

The join phase exists in memory only, and a restart forgets it. A restart keeps what the journal
holds: the last generation that became stable or empty, and the offsets.

``GROUP_TRANSITIONS`` lists the legal transitions: :meth:`ClassicGroup.transition_to` makes no
other, and nothing else changes the state of a running group. What each request and each timer does
in each state is a table of ``docs/state_outcomes.py``. A test drives the coordinator into every
cell, and docs/architecture.md shows both tables.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rota.engine.formats import consumer_protocol
from rota.engine.model.journal_entry import (
    NO_TIMESTAMP,
    GroupMetadataEntry,
    GroupMetadataMember,
    OffsetCommitEntry,
)
from rota.engine.model.request import CONSUMER_PROTOCOL_TYPE, JoinGroup, JoinGroupProtocol
from rota.engine.model.topic import TopicPartition
from rota.errors import Code, FormatError


class GroupState(enum.Enum):
    """The state of a group; the values are Kafka's names."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_EMPTY, _PREPARING, _COMPLETING, _STABLE, _DEAD = GroupState

GROUP_TRANSITIONS: dict[tuple[GroupState, GroupState], str] = {
    (_EMPTY, _PREPARING): "a first member joins",
    (_STABLE, _PREPARING): "a member joins, leaves, times out or has other topics",
    (_COMPLETING, _PREPARING): "a member joins, leaves or times out, or the append fails",
    (_PREPARING, _COMPLETING): "all members have joined, or the rebalance timeout is over",
    (_PREPARING, _EMPTY): "no member is left",
    (_COMPLETING, _STABLE): "the leader's assignment is in the journal",
    (_EMPTY, _DEAD): "deleted, expired, or moved to another coordinator",
    (_PREPARING, _DEAD): "moved to another coordinator",
    (_COMPLETING, _DEAD): "moved to another coordinator",
    (_STABLE, _DEAD): "moved to another coordinator",
}


def select_protocol(ballots: Sequence[Sequence[str]], leader: int) -> str:
    """Selects the strategy of a generation: each member votes for the first of its list that all
    support. On a tie the first in the leader's list wins (Kafka: the order of a hash map decides).
    """
    candidates = set(ballots[0]).intersection(*ballots[1:])
    votes = Counter(next(name for name in ballot if name in candidates) for ballot in ballots)
    most = max(votes.values())
    return next(name for name in ballots[leader] if votes[name] == most)


MAX_GENERATION = 2**31 - 1


@dataclass(slots=True, eq=False)
class ClassicGroupMember:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout: int
    rebalance_timeout: int
    protocols: tuple[JoinGroupProtocol, ...]
    assignment: bytes = b""
    is_new: bool = True  # its first join is not complete yet: it cannot have sent a heartbeat
    join_token: int | None = None  # the join request that waits for the end of the join phase
    sync_token: int | None = None  # the sync request that waits for the leader's assignment

    @classmethod
    def from_request(cls, member_id: str, request: JoinGroup) -> ClassicGroupMember:
        return cls(
            member_id,
            request.group_instance_id,
            request.client_id,
            request.client_host,
            request.session_timeout,
            request.rebalance_timeout,
            request.protocols,
        )

    @classmethod
    def from_entry(cls, saved: GroupMetadataMember, protocol: str | None) -> ClassicGroupMember:
        """Restores a member. The journal has only the metadata of the selected strategy."""
        timeout = saved.rebalance_timeout
        return cls(
            saved.member_id,
            saved.group_instance_id,
            saved.client_id,
            saved.client_host,
            saved.session_timeout,
            saved.session_timeout if timeout == -1 else timeout,
            (JoinGroupProtocol(protocol or "", saved.subscription),),
            saved.assignment,
            is_new=False,
        )

    @property
    def is_waiting_for_response(self) -> bool:
        """Whether the member waits for a response, and so sends no heartbeats."""
        return not self.is_new and (self.join_token is not None or self.sync_token is not None)

    @property
    def strategies(self) -> frozenset[str]:
        """The supported strategies, each once. (In Kafka, one listed twice blocks the group.)"""
        return frozenset(name for name, _ in self.protocols)

    def metadata_for(self, protocol: str | None) -> bytes:
        return next((data for name, data in self.protocols if name == protocol), b"")

    def to_entry_member(self, protocol: str | None, assignment: bytes) -> GroupMetadataMember:
        return GroupMetadataMember(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout,
            session_timeout=self.session_timeout,
            subscription=self.metadata_for(protocol),
            assignment=assignment,
        )

    def update(self, request: JoinGroup) -> None:
        self.protocols = request.protocols
        self.session_timeout = request.session_timeout
        self.rebalance_timeout = request.rebalance_timeout


@dataclass(slots=True, eq=False)
class ClassicGroup:
    """A classic group. ``members`` is in the order in which the members joined."""

    name: str
    state_timestamp: int = NO_TIMESTAMP
    state: GroupState = GroupState.EMPTY
    previous_state: GroupState = GroupState.DEAD
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, ClassicGroupMember] = field(default_factory=dict)
    group_instance_ids: dict[str, str] = field(default_factory=dict)  # member id by static id
    #: Ids that were sent to members that have not joined with them yet, in order.
    pending_join_members: dict[str, None] = field(default_factory=dict)
    #: Members that have not sent SyncGroup in this generation, in order.
    pending_sync_members: dict[str, None] = field(default_factory=dict)
    waiting_join_count: int = 0  # the number of JoinGroups that wait for the end of the join phase
    new_member_added: bool = False  # joined during the initial delay, which may grow
    initial_delay_remaining: int = 0
    #: The topics of all members; None if a subscription cannot be decoded.
    subscribed_topics: frozenset[str] | None = None
    offsets: dict[TopicPartition, OffsetCommitEntry] = field(default_factory=dict)
    _supporters_by_protocol: Counter[str] = field(default_factory=Counter)

    def transition_to(self, state: GroupState, now: int) -> None:
        if (self.state, state) not in GROUP_TRANSITIONS:
            raise AssertionError(f"group {self.name!r}: no move {self.state} -> {state}")
        self.previous_state = self.state
        self.state = state
        self.state_timestamp = now

    @property
    def is_initial_rebalance(self) -> bool:
        """Whether the group is in the join phase of its first rebalance since it was empty."""
        return self.state is GroupState.PREPARING and self.previous_state is GroupState.EMPTY

    @property
    def has_all_members_joined(self) -> bool:
        """Whether all members, and all ids that were given out, have joined."""
        return self.waiting_join_count == len(self.members) and not self.pending_join_members

    @property
    def rebalance_timeout(self) -> int:
        return max((member.rebalance_timeout for member in self.members.values()), default=0)

    def add_member(self, member: ClassicGroupMember, protocol_type: str, token: int) -> None:
        """Adds a member whose JoinGroup waits. The first member sets the protocol type."""
        if not self.members:
            self.protocol_type = protocol_type
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.group_instance_ids[member.group_instance_id] = member.member_id
        self._supporters_by_protocol.update(member.strategies)
        self.leader = self.leader or member.member_id
        self.pending_join_members.pop(member.member_id, None)
        self.set_waiting_join(member, token)

    def set_waiting_join(self, member: ClassicGroupMember, token: int) -> None:
        assert member.join_token is None
        self.waiting_join_count += 1
        member.join_token = token

    def take_waiting_join(self, member: ClassicGroupMember) -> int | None:
        token = member.join_token
        if token is not None:
            self.waiting_join_count -= 1
            member.join_token = None
        return token

    def update_member(self, member: ClassicGroupMember, request: JoinGroup) -> None:
        self._remove_supporter(member)
        member.update(request)
        self._supporters_by_protocol.update(member.strategies)

    def remove_member(self, member: ClassicGroupMember) -> None:
        """Removes a member. If it was the leader, the first remaining member becomes the leader."""
        del self.members[member.member_id]
        if member.group_instance_id is not None:
            del self.group_instance_ids[member.group_instance_id]
        self.take_waiting_join(member)
        self._remove_supporter(member)
        self.pending_sync_members.pop(member.member_id, None)
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def replace_static_member(self, old: ClassicGroupMember, new: ClassicGroupMember) -> None:
        """Keeps the member's place in the order."""
        self.take_waiting_join(old)
        self._remove_supporter(old)
        self._supporters_by_protocol.update(new.strategies)
        members = (new if member is old else member for member in self.members.values())
        self.members = {member.member_id: member for member in members}
        self.pending_sync_members.pop(old.member_id, None)
        if new.group_instance_id is not None:
            self.group_instance_ids[new.group_instance_id] = new.member_id
        if self.leader == old.member_id:
            self.leader = new.member_id

    def remove_pending_join_member(self, member_id: str) -> bool:
        """Removes an id that was given out but not used. Returns whether there was such an id."""
        return self.pending_join_members.pop(member_id, False) is None

    def check_member(self, member_id: str, group_instance_id: str | None) -> Code:
        """Returns NONE for a current member, else UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
        if group_instance_id is not None:
            holder = self.group_instance_ids.get(group_instance_id)
            if holder is None:
                return Code.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return Code.FENCED_INSTANCE_ID
        return Code.NONE if member_id in self.members else Code.UNKNOWN_MEMBER_ID

    def elect_joined_leader(self) -> bool:
        """Elects a leader that has joined. Returns whether any member has joined."""
        leader = self.members.get(self.leader or "")
        if leader is None or leader.join_token is None:
            joined = (key for key, member in self.members.items() if member.join_token is not None)
            self.leader = next(joined, self.leader)
        return self.waiting_join_count > 0

    def _remove_supporter(self, member: ClassicGroupMember) -> None:
        self._supporters_by_protocol.subtract(member.strategies)
        self._supporters_by_protocol = +self._supporters_by_protocol

    @property
    def common_strategies(self) -> list[str]:
        counts = self._supporters_by_protocol.items()
        return sorted(name for name, count in counts if count == len(self.members))

    def accepts(self, protocol_type: str, protocols: tuple[JoinGroupProtocol, ...]) -> bool:
        """Whether all members support one of these strategies, and the protocol type fits."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type and protocols)
        count = len(self.members)
        return self.protocol_type == protocol_type and any(
            self._supporters_by_protocol[name] == count for name, _ in protocols
        )

    def select_strategy(self, members: Iterable[ClassicGroupMember]) -> str:
        ballots = [[name for name, _ in member.protocols] for member in members]
        return select_protocol(ballots, list(self.members).index(self.leader or ""))

    def start_next_generation(self, now: int) -> None:
        """Starts the next generation, or empties a group without members."""
        self.generation = 0 if self.generation == MAX_GENERATION else self.generation + 1
        self.protocol = self.select_strategy(self.members.values()) if self.members else None
        self.subscribed_topics = self._find_subscribed_topics()
        self.pending_sync_members = dict.fromkeys(self.members)
        self.transition_to(GroupState.COMPLETING if self.members else GroupState.EMPTY, now)

    def _find_subscribed_topics(self) -> frozenset[str] | None:
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        decode = consumer_protocol.decode_subscribed_topics
        try:
            topics = [
                decode(member.metadata_for(self.protocol)) for member in self.members.values()
            ]
        except FormatError:
            return None
        return frozenset().union(*topics)

    def is_subscribed_to_topic(self, topic: str) -> bool:
        """Whether a member reads this topic; True if a subscription cannot be decoded."""
        if self.subscribed_topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return topic in self.subscribed_topics

    def to_entry(self, assignments: Mapping[str, bytes] | None = None) -> GroupMetadataEntry:
        members = self.members.values()
        if assignments is None:
            assignments = {member.member_id: member.assignment for member in members}
        return GroupMetadataEntry(
            group=self.name,
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            state_timestamp=self.state_timestamp,
            members=tuple(
                member.to_entry_member(self.protocol, assignments.get(member.member_id, b""))
                for member in members
            ),
        )

    @classmethod
    def from_entry(
        cls, entry: GroupMetadataEntry, offsets: dict[TopicPartition, OffsetCommitEntry]
    ) -> ClassicGroup:
        """Restores a group from the journal, as stable or empty. In a damaged one the last member
        with an id counts, members without a strategy are dropped, and the first one leads if the
        leader is missing.
        """
        group = cls(entry.group, entry.state_timestamp)
        group.generation = entry.generation
        group.protocol_type = entry.protocol_type or None
        group.protocol = entry.protocol
        group.offsets = offsets
        listed = {saved.group_instance_id or saved.member_id: saved for saved in entry.members}
        for saved in listed.values() if entry.protocol is not None else ():
            member = ClassicGroupMember.from_entry(saved, entry.protocol)
            group.members[member.member_id] = member
            if member.group_instance_id is not None:
                group.group_instance_ids[member.group_instance_id] = member.member_id
            group._supporters_by_protocol.update(member.strategies)
        group.state = GroupState.STABLE if group.members else GroupState.EMPTY
        first = next(iter(group.members), None)
        group.leader = entry.leader if entry.leader in group.members else first
        group.subscribed_topics = group._find_subscribed_topics()
        return group

    def check_invariants(self) -> None:
        members = self.members.values()
        assert self.waiting_join_count == sum(member.join_token is not None for member in members)
        supported = Counter(name for member in members for name in member.strategies)
        assert self._supporters_by_protocol == supported
        static = [m for m in members if m.group_instance_id is not None]
        assert self.group_instance_ids == {m.group_instance_id: m.member_id for m in static}
        assert self.pending_sync_members.keys() <= self.members.keys()
        assert self.pending_join_members.keys().isdisjoint(self.members)
        assert (self.leader in self.members) if self.members else self.leader is None
        assert 0 <= self.generation <= MAX_GENERATION
        syncs_wait = any(member.sync_token is not None for member in members)
        assert self.state is GroupState.COMPLETING or not syncs_wait
        if self.state in (GroupState.EMPTY, GroupState.DEAD):
            assert not self.members
        elif self.state is not GroupState.PREPARING:
            assert self.members
            assert self.waiting_join_count == 0
            assert self.protocol in self.common_strategies
