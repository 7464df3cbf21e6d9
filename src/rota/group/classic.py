"""A group of the classic protocol: its members and what is known of them. No policy."""

from __future__ import annotations

from collections import Counter

from rota.errors import Code, FormatError
from rota.formats import subscription
from rota.group.election import elect
from rota.group.state import MOVES, State
from rota.model.entry import NO_TIMESTAMP, GroupSaved, OffsetCommitted, SavedMember
from rota.model.reply import JoinedMember
from rota.model.request import CONSUMER, Join, Protocol
from rota.model.topic import TopicPartition

LAST_GENERATION = 2**31 - 1


class GroupMember:
    """A member as the coordinator knows it."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "is_new",
        "join_token",
        "member_id",
        "protocols",
        "rebalance_timeout",
        "session_timeout",
        "static_id",
        "sync_token",
    )

    def __init__(self, member_id: str, request: Join) -> None:
        self.member_id = member_id
        self.static_id = request.static_id
        self.client_id = request.client_id
        self.client_host = request.client_host
        self.session_timeout = request.session_timeout
        self.rebalance_timeout = request.rebalance_timeout
        self.protocols = request.protocols
        self.assignment = b""
        self.is_new = True
        """Its first join is not complete yet: it cannot have sent a heartbeat."""
        self.join_token: int | None = None
        """The join request that waits for the end of the join phase."""
        self.sync_token: int | None = None
        """The sync request that waits for the leader's assignment."""

    @classmethod
    def loaded(cls, saved: SavedMember, entry: GroupSaved) -> GroupMember:
        """From the journal, where only the elected strategy's metadata is kept."""
        timeout = saved.rebalance_timeout
        protocols = (Protocol(entry.protocol or "", saved.subscription),)
        request = Join(
            group=entry.group,
            static_id=saved.static_id,
            protocols=protocols,
            session_timeout=saved.session_timeout,
            rebalance_timeout=saved.session_timeout if timeout == -1 else timeout,
            client_id=saved.client_id,
            client_host=saved.client_host,
        )
        member = cls(saved.member_id, request)
        member.is_new = False
        return member

    @property
    def excused(self) -> bool:
        """Waits for the coordinator, so its silence is not its fault."""
        return not self.is_new and (self.join_token is not None or self.sync_token is not None)

    @property
    def strategies(self) -> frozenset[str]:
        """Those it supports; one that it lists twice counts once (in Kafka the group is stuck)."""
        return frozenset(name for name, _ in self.protocols)

    def metadata(self, protocol: str | None) -> bytes:
        """What it tells the leader under a strategy."""
        return next((data for name, data in self.protocols if name == protocol), b"")

    def saved(self, protocol: str | None, assignment: bytes) -> SavedMember:
        """As the journal keeps it, with what it is given."""
        return SavedMember(
            member_id=self.member_id,
            static_id=self.static_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout,
            session_timeout=self.session_timeout,
            subscription=self.metadata(protocol),
            assignment=assignment,
        )

    def update(self, request: Join) -> None:
        """Takes over what a join says."""
        self.protocols = request.protocols
        self.session_timeout = request.session_timeout
        self.rebalance_timeout = request.rebalance_timeout


class Group:
    """One group. ``members`` is in the order in which they joined."""

    __slots__ = (
        "_support",
        "generation",
        "initial_delay_left",
        "leader",
        "members",
        "name",
        "newcomer",
        "offsets",
        "pending",
        "pending_sync",
        "previous",
        "protocol",
        "protocol_type",
        "state",
        "static_ids",
        "subscribed",
        "timestamp",
        "waiting",
    )

    def __init__(self, name: str, timestamp: int = NO_TIMESTAMP) -> None:
        self.name = name
        self.state = State.EMPTY
        self.previous = State.DEAD
        self.timestamp = timestamp
        """When it came into its state."""
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, GroupMember] = {}
        self.static_ids: dict[str, str] = {}
        """The member id of each static id."""
        self.pending: dict[str, None] = {}
        """Ids given out to members that have not joined with them yet, in order."""
        self.pending_sync: dict[str, None] = {}
        """Members that have not sent their sync in this generation, in order."""
        self.waiting = 0
        """How many members' joins wait for the end of the join phase."""
        self.newcomer = False
        """Somebody came during the initial delay, so it may be extended."""
        self.initial_delay_left = 0
        self.subscribed: frozenset[str] | None = None
        """The topics of all members; None where they cannot be told."""
        self.offsets: dict[TopicPartition, OffsetCommitted] = {}
        self._support: Counter[str] = Counter()

    def move(self, state: State, now: int) -> None:
        """The only place that changes a state of a group that runs."""
        if (self.state, state) not in MOVES:
            raise AssertionError(f"group {self.name!r}: no move {self.state} -> {state}")
        self.previous = self.state
        self.state = state
        self.timestamp = now

    # who is in it

    @property
    def is_initial(self) -> bool:
        """In the join phase of a group that was empty before."""
        return self.state is State.PREPARING and self.previous is State.EMPTY

    @property
    def all_joined(self) -> bool:
        """Nobody has to be waited for."""
        return self.waiting == len(self.members) and not self.pending

    @property
    def rebalance_timeout(self) -> int:
        """The longest among its members."""
        return max((member.rebalance_timeout for member in self.members.values()), default=0)

    def add(self, member: GroupMember, protocol_type: str, token: int) -> None:
        """Takes in a member whose join waits; the first one says of what type the group is."""
        if not self.members:
            self.protocol_type = protocol_type
        self.members[member.member_id] = member
        if member.static_id is not None:
            self.static_ids[member.static_id] = member.member_id
        self._support.update(member.strategies)
        self.leader = self.leader or member.member_id
        self.pending.pop(member.member_id, None)
        self.park_join(member, token)

    def park_join(self, member: GroupMember, token: int) -> None:
        """Lets a join wait for the end of the join phase."""
        assert member.join_token is None
        self.waiting += 1
        member.join_token = token

    def unpark_join(self, member: GroupMember) -> int | None:
        """The token of the join that waits, if one does; it waits no longer."""
        token = member.join_token
        if token is not None:
            self.waiting -= 1
            member.join_token = None
        return token

    def update(self, member: GroupMember, request: Join) -> None:
        """A member joins again."""
        self._unlist(member)
        member.update(request)
        self._support.update(member.strategies)

    def remove(self, member: GroupMember) -> None:
        """A member is gone; the first of the rest leads if it was the leader."""
        del self.members[member.member_id]
        if member.static_id is not None:
            del self.static_ids[member.static_id]
        self.unpark_join(member)
        self._unlist(member)
        self.pending_sync.pop(member.member_id, None)
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def replace(self, old: GroupMember, new: GroupMember) -> None:
        """A static member comes back under a new member id and keeps its place in the order."""
        self.unpark_join(old)
        self._unlist(old)
        self._support.update(new.strategies)
        self.members = {
            (new.member_id if key == old.member_id else key): (new if member is old else member)
            for key, member in self.members.items()
        }
        self.pending_sync.pop(old.member_id, None)
        if new.static_id is not None:
            self.static_ids[new.static_id] = new.member_id
        if self.leader == old.member_id:
            self.leader = new.member_id

    def drop_pending(self, member_id: str) -> bool:
        """An id that was given out is not used; says whether it was such a one."""
        known = member_id in self.pending
        self.pending.pop(member_id, None)
        return known

    def check_member(self, member_id: str, static_id: str | None) -> Code:
        """Whether a request comes from a member, and not from one that was replaced."""
        if static_id is not None:
            holder = self.static_ids.get(static_id)
            if holder is None:
                return Code.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return Code.FENCED_INSTANCE_ID
        return Code.NONE if member_id in self.members else Code.UNKNOWN_MEMBER_ID

    def elect_leader(self) -> bool:
        """Makes sure that a member who has joined leads; False if none has."""
        leader = self.members.get(self.leader or "")
        if leader is None or leader.join_token is None:
            joined = (key for key, member in self.members.items() if member.join_token is not None)
            self.leader = next(joined, self.leader)
        return self.waiting > 0

    # what strategy it uses

    def _unlist(self, member: GroupMember) -> None:
        """Its strategies do not count any more; those that nobody names are forgotten."""
        self._support.subtract(member.strategies)
        self._support = +self._support

    @property
    def strategies(self) -> list[str]:
        """Those that every member supports."""
        return sorted(name for name, count in self._support.items() if count == len(self.members))

    def accepts(self, protocol_type: str, protocols: tuple[Protocol, ...]) -> bool:
        """Whether a member with these strategies leaves one that everybody supports."""
        if self.state is State.EMPTY:
            return bool(protocol_type and protocols)
        everybody = len(self.members)
        return self.protocol_type == protocol_type and any(
            self._support[name] == everybody for name, _ in protocols
        )

    def elect_strategy(self, instead: tuple[GroupMember, GroupMember] | None = None) -> str:
        """The strategy of the next generation, or what it would be with one member for another."""
        old, new = instead or (None, None)
        members = [new if new and m is old else m for m in self.members.values()]
        ballots = [[name for name, _ in member.protocols] for member in members]
        return elect(ballots, list(self.members).index(self.leader or ""))

    def next_generation(self, now: int) -> None:
        """The join phase is over."""
        self.generation = 0 if self.generation == LAST_GENERATION else self.generation + 1
        self.protocol = self.elect_strategy() if self.members else None
        self.subscribed = self._all_topics()
        self.pending_sync = dict.fromkeys(self.members)
        self.move(State.COMPLETING if self.members else State.EMPTY, now)

    def _all_topics(self) -> frozenset[str] | None:
        if self.protocol_type != CONSUMER:
            return None
        topics: set[str] = set()
        try:
            for member in self.members.values():
                topics.update(subscription.topics_of(member.metadata(self.protocol)))
        except FormatError:
            return None
        return frozenset(topics)

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member reads this topic, as far as can be told."""
        if self.subscribed is None:
            return self.protocol_type == CONSUMER
        return topic in self.subscribed

    # what the journal says of it

    def saved(self, assignments: dict[str, bytes]) -> GroupSaved:
        """The generation, as the journal keeps it."""
        return GroupSaved(
            group=self.name,
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            state_timestamp=self.timestamp,
            members=tuple(
                member.saved(self.protocol, assignments.get(member.member_id, b""))
                for member in self.members.values()
            ),
        )

    @classmethod
    def loaded(cls, entry: GroupSaved, offsets: dict[TopicPartition, OffsetCommitted]) -> Group:
        """As it comes out of the journal: stable, or empty.

        What no coordinator writes, a damaged or foreign journal may hold: of members with one id
        or static id the last counts, members without a strategy are none, and somebody leads.
        """
        group = cls(entry.group, entry.state_timestamp)
        group.generation = entry.generation
        group.protocol_type = entry.protocol_type or None
        group.protocol = entry.protocol
        group.offsets = offsets
        listed = {saved.static_id or saved.member_id: saved for saved in entry.members}
        for saved in listed.values() if entry.protocol is not None else ():
            member = GroupMember.loaded(saved, entry)
            member.assignment = saved.assignment
            group.members[member.member_id] = member
            if member.static_id is not None:
                group.static_ids[member.static_id] = member.member_id
            group._support.update(member.strategies)
        group.state = State.STABLE if group.members else State.EMPTY
        group.leader = (
            entry.leader if entry.leader in group.members else next(iter(group.members), None)
        )
        group.subscribed = group._all_topics()
        return group

    def joined_members(self) -> tuple[JoinedMember, ...]:
        """All members, as the leader is told of them."""
        return tuple(
            JoinedMember(
                member_id=member.member_id,
                static_id=member.static_id,
                metadata=member.metadata(self.protocol),
            )
            for member in self.members.values()
        )

    def check_invariants(self) -> None:
        """Raises where the books do not agree with each other."""
        members = self.members.values()
        assert self.waiting == sum(member.join_token is not None for member in members)
        assert self._support == Counter(name for m in members for name in m.strategies)
        assert self.static_ids == {
            m.static_id: m.member_id for m in members if m.static_id is not None
        }
        assert self.pending_sync.keys() <= self.members.keys()
        assert self.pending.keys().isdisjoint(self.members)
        assert (self.leader in self.members) if self.members else self.leader is None
        assert 0 <= self.generation <= LAST_GENERATION
        parked_syncs = [member for member in members if member.sync_token is not None]
        match self.state:
            case State.EMPTY | State.DEAD:
                assert not self.members
            case State.PREPARING:
                assert not parked_syncs
            case State.COMPLETING:
                assert self.members
                assert self.waiting == 0
                assert self.protocol in self.strategies
            case State.STABLE:
                assert self.members
                assert self.waiting == 0
                assert not parked_syncs
                assert self.protocol in self.strategies
