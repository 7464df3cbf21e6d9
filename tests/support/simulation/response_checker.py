"""What a coordinator says is done must be true: in the journal, and of this generation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from rota.engine.coordinator.state import GroupState
from rota.engine.model.journal_entry import OffsetCommitEntry
from rota.engine.model.request import (
    DeleteGroups,
    GroupRequest,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    SyncGroup,
)
from rota.engine.model.response import (
    DeleteGroupsResult,
    GroupResponse,
    HeartbeatResult,
    JoinGroupResult,
    LeaveGroupResult,
    OffsetCommitResult,
    OffsetDeleteResult,
    OffsetFetchResult,
    SyncGroupResult,
)
from rota.engine.model.topic import TopicPartition
from tests.support.simulation.rule import must
from tests.support.simulation.stored import Stored


@dataclass(slots=True)
class LiveGroup:
    """A group as its notes tell of it."""

    state: GroupState
    generation: int
    incarnation: int


class JoinedMember(NamedTuple):
    """An answer to a join."""

    reply: JoinGroupResult
    incarnation: int
    #: Which coordinator gave it.
    life: int


class ResponseChecker:
    """Checks answers of success against the journal and the notes."""

    def __init__(self) -> None:
        self.stored = Stored()
        self.live: dict[str, LiveGroup] = {}
        #: How many coordinators there have been.
        self.lives = 0
        #: What each successful answer to a join told of, by the answer's id.
        self.told: dict[int, JoinedMember] = {}

    def check(self, request: GroupRequest, reply: GroupResponse, *, written: bool) -> None:
        """Whatever is told of as done is in the journal.

        ``written`` says of a commit that its entries were just written.
        """
        match request, reply:
            case JoinGroup(), JoinGroupResult():
                self._joined(request, reply)
            case SyncGroup(), SyncGroupResult():
                self._synced(request, reply)
            case Heartbeat(), HeartbeatResult():
                self._beaten(request)
            case OffsetCommit(), OffsetCommitResult():
                must(written, "no success before the journal", request)
            case LeaveGroup(), LeaveGroupResult():
                self._left(request, reply)
            case OffsetFetch(), OffsetFetchResult():
                self._fetched(request, reply)
            case DeleteGroups(), DeleteGroupsResult():
                kept = [name for name, code in reply.codes.items() if not code]
                gone = self.stored.groups.keys().isdisjoint(kept)
                must(gone, "no success before the journal", request)
            case OffsetDelete(), OffsetDeleteResult():
                offsets = self._offsets(request.group)
                gone = not any(tp in offsets for tp, code in reply.codes.items() if not code)
                must(gone, "no success before the journal", request)
            case _:
                pass

    def _offsets(self, group: str) -> dict[TopicPartition, OffsetCommitEntry]:
        known = self.stored.groups.get(group)
        return known.offsets if known else {}

    def _joined(self, request: JoinGroup, reply: JoinGroupResult) -> None:
        live, known = self.live[request.group], self.stored.groups.get(request.group)
        must(known is not None, "no success before the journal", request)
        assert known is not None
        self.told[id(reply)] = JoinedMember(reply, live.incarnation, self.lives)
        must(reply.generation == live.generation, "joins tell the generation", live, reply)
        must(
            live.state in (GroupState.COMPLETING, GroupState.STABLE),
            "joins end a join phase",
            live,
            reply,
        )
        if live.state is GroupState.STABLE:
            there = known.saved.generation == reply.generation and known.member(reply.member_id)
            must(there, "no success before the journal", request, reply)
        if reply.leader == reply.member_id and not reply.skip_assignment:
            ids = [member.member_id for member in reply.members]
            must(reply.member_id in ids, "leaders are told of all", reply)

    def _synced(self, request: SyncGroup, reply: SyncGroupResult) -> None:
        known = self.stored.groups[request.group]
        live = self.live[request.group]
        one = request.generation == known.saved.generation == live.generation
        must(one, "no success before the journal", request, live)
        member = known.member(request.member_id)
        must(member is not None, "no success before the journal", request)
        assert member is not None
        must(member.assignment == reply.assignment, "what is handed out is stored", member, reply)

    def _beaten(self, request: Heartbeat) -> None:
        live = self.live[request.group]
        right = request.generation == live.generation
        must(right, "heartbeats are of the generation", live, request)
        ready = live.state in (GroupState.COMPLETING, GroupState.STABLE)
        must(ready, "heartbeats tell of a rebalance", live, request)

    def _left(self, request: LeaveGroup, reply: LeaveGroupResult) -> None:
        if self.live[request.group].state is not GroupState.EMPTY:
            return  # that somebody left is not stored before the next generation is
        stored = self.stored.groups[request.group].saved.members
        for leaver in (one for one in reply.members if not one.code):
            there = [
                member
                for member in stored
                if member.member_id == leaver.member_id
                or (not leaver.member_id and member.group_instance_id == leaver.group_instance_id)
            ]
            must(not there, "no success before the journal", request, there)

    def _fetched(self, request: OffsetFetch, reply: OffsetFetchResult) -> None:
        kept = self._offsets(request.group)
        found = {tp: given.offset for tp, given in reply.offsets.items() if given is not None}
        asked = kept if request.partitions is None else request.partitions
        wanted = {tp: kept[tp].offset for tp in asked if tp in kept}
        must(found == wanted, "what is fetched is stored", found, wanted)
