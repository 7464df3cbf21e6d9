"""The engine, broken on purpose: each way is one that a person could write by mistake."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt

from rota.engine.assignors import interface, sticky
from rota.engine.coordinator import classic, offsets
from rota.engine.coordinator.coordinator import Coordinator
from rota.engine.coordinator.events import (
    AppendCallback,
    AppendFailed,
    AppendSucceeded,
    CoordinatorCommand,
    CoordinatorEvent,
    EventContext,
    GroupTimerKind,
)
from rota.engine.coordinator.state import ClassicGroup, ClassicGroupMember
from rota.engine.member.classic import AssignmentManager, Joiner, Procedure
from rota.engine.member.commits import CommitManager
from rota.engine.member.events import ListenerMethod, RunCommitCallback
from rota.engine.member.state import MemberIdentity, MemberSession
from rota.engine.member.subscription import SubscriptionTracker
from rota.engine.model.journal_entry import ClassicEntry, GroupMetadataEntry, OffsetCommitEntry
from rota.engine.model.request import Heartbeat, LeaveGroup, OffsetCommit, SyncGroup
from rota.engine.model.response import HeartbeatResult, LeaveGroupResult
from rota.engine.model.topic import TopicPartition
from rota.errors import Code


@dataclass(frozen=True, slots=True)
class Mutation:
    """A way to break the engine, and the rules that show it."""

    name: str
    #: What is put in the place of what.
    breaks: Callable[[], tuple[tuple[Any, str, Any], ...]]
    found_by: frozenset[str]

    def apply(self, stack: ExitStack) -> None:
        for owner, name, instead in self.breaks():
            stack.enter_context(mock.patch.object(owner, name, instead))


MUTATIONS: dict[str, Mutation] = {}


def mutation(*found_by: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    def add(breaks: Callable[[], Any]) -> Callable[[], Any]:
        name = breaks.__name__
        MUTATIONS[name] = Mutation(name, breaks, frozenset(found_by))
        return breaks

    return add


# the journal


@mutation("no success before the journal")
def commits_are_answered_before_they_are_stored() -> Any:
    append = EventContext.append_entries

    def hasty(
        context: EventContext,
        entries: tuple[ClassicEntry, ...],
        then: AppendCallback = lambda *_: None,
    ) -> None:
        if isinstance(entries[0], OffsetCommitEntry):
            then(context, Code.NONE)
            append(context, entries)
        else:
            append(context, entries, then)

    return ((EventContext, "append_entries", hasty),)


@mutation("no success before the journal", "failed appends are told")
def a_failed_append_counts() -> Any:
    handle = Coordinator.handle

    def hopeful(
        coordinator: Coordinator, event: CoordinatorEvent, now: int
    ) -> list[CoordinatorCommand]:
        if isinstance(event, AppendFailed):
            event = AppendSucceeded(event.append_id)
        return handle(coordinator, event, now)

    return ((Coordinator, "handle", hopeful),)


@mutation("a restart is a replay")
def a_replay_forgets_a_member() -> Any:
    loaded = ClassicGroup.from_entry

    def short(
        entry: GroupMetadataEntry, offsets: dict[TopicPartition, OffsetCommitEntry]
    ) -> ClassicGroup:
        if len(entry.members) > 1 and entry.leader != entry.members[-1].member_id:
            entry = dataclasses.replace(entry, members=entry.members[:-1])
        return loaded(entry, offsets)

    return ((ClassicGroup, "from_entry", short),)


@mutation("a restart is a replay")
def a_new_generation_forgets_the_offsets() -> Any:
    loaded = ClassicGroup.from_entry
    return ((ClassicGroup, "from_entry", lambda entry, offsets: loaded(entry, {})),)


@mutation("sessions start after a load")
def sessions_do_not_start_after_a_load() -> Any:
    serve = Coordinator._start_serving

    def silent(coordinator: Coordinator, context: EventContext) -> None:
        with mock.patch.object(EventContext, "restart_session_timer"):
            serve(coordinator, context)

    return ((Coordinator, "_start_serving", silent),)


@mutation("failed appends are told")
def a_failed_assignment_does_not_start_the_rebalance_again() -> Any:
    stored = classic._complete_sync

    def resigned(
        context: EventContext,
        group: ClassicGroup,
        leader: str,
        assignments: dict[str, bytes],
        code: Code,
    ) -> None:
        if not code:
            stored(context, group, leader, assignments, code)

    return ((classic, "_complete_sync", resigned),)


@mutation("everybody is answered", "nobody is thrown out")
def what_waits_for_an_append_is_forgotten() -> Any:
    settle = Coordinator._complete_append

    def forgetful(coordinator: Coordinator, context: EventContext, ticket: int, code: Code) -> None:
        for lane in coordinator._append_queues.values():
            lane.queue.clear()
        settle(coordinator, context, ticket, code)

    return ((Coordinator, "_complete_append", forgetful),)


# generations


@mutation("commits are of the generation")
def any_generation_may_commit() -> Any:
    judged = offsets._check_commit_request

    def lenient(group: ClassicGroup | None, request: OffsetCommit) -> Code:
        code = judged(group, request)
        return Code.NONE if code is Code.ILLEGAL_GENERATION else code

    return ((offsets, "_check_commit_request", lenient),)


@mutation("AssertionError", "no success before the journal")
def a_leader_may_assign_for_an_old_generation() -> Any:
    def lenient(group: ClassicGroup, request: SyncGroup) -> Code:
        return group.check_member(request.member_id, request.group_instance_id)

    return ((classic, "_check_sync_request", lenient),)


@mutation("generations rise by one")
def a_generation_keeps_its_number() -> Any:
    following = ClassicGroup.start_next_generation

    def same(group: ClassicGroup, now: int) -> None:
        number = group.generation
        following(group, now)
        if number > 1:
            group.generation = number

    return ((ClassicGroup, "start_next_generation", same),)


# who is there


@mutation("who is fenced is told")
def nobody_is_fenced() -> Any:
    def lenient(group: ClassicGroup, member_id: str, group_instance_id: str | None) -> Code:
        return Code.NONE if member_id in group.members else Code.UNKNOWN_MEMBER_ID

    return ((ClassicGroup, "check_member", lenient),)


@mutation("who is fenced is told", "everybody is answered")
def who_is_replaced_is_not_told() -> Any:
    def quiet(
        context: EventContext, group: ClassicGroup, old: ClassicGroupMember, new: ClassicGroupMember
    ) -> None:
        context.stop_timer(GroupTimerKind.SESSION, group, old.member_id)
        group.replace_static_member(old, new)
        context.restart_session_timer(group, new)

    return ((classic, "_swap_static_member", quiet),)


@mutation("heartbeats tell of a rebalance")
def heartbeats_do_not_tell_of_a_rebalance() -> Any:
    return ((classic, "_HEARTBEAT_REBALANCING", HeartbeatResult()),)


@mutation("groups get stable", "everybody is answered", "members get stable")
def ids_that_were_given_out_are_waited_for_without_end() -> Any:
    ended = classic.handle_session_timeout
    up = classic.handle_join_timeout

    def forgetful(context: EventContext, group: ClassicGroup, member_id: str) -> None:
        if member_id not in group.pending_join_members:
            ended(context, group, member_id)

    def patient(context: EventContext, group: ClassicGroup) -> None:
        if group.is_initial_rebalance or not group.pending_join_members:
            up(context, group)

    return (
        (classic, "handle_session_timeout", forgetful),
        (classic, "handle_join_timeout", patient),
    )


@mutation("everybody is answered")
def who_joins_twice_is_answered_once() -> Any:
    from rota.engine.coordinator import classic

    def forgetful(context: EventContext, group: ClassicGroup, member: ClassicGroupMember) -> None:
        group.take_waiting_join(member)

    return ((classic, "end_earlier_join", forgetful),)


@mutation("what is stable is stored")
def a_member_may_leave_without_a_rebalance() -> Any:
    def quiet(context: EventContext, group: ClassicGroup, token: int, request: LeaveGroup) -> None:
        codes = []
        for leaver in request.members:
            code = classic._remove_leaving_member(context, group, leaver)
            codes.append(classic._make_leaving_member_result(leaver, code))
        context.respond(token, LeaveGroupResult(members=tuple(codes)))

    leave = classic.handle_leave

    def lazy(
        context: EventContext, group: ClassicGroup | None, token: int, request: LeaveGroup
    ) -> None:
        if group is None or len(group.members) < 3:
            leave(context, group, token, request)
        else:
            quiet(context, group, token, request)

    return ((classic, "handle_leave", lazy),)


@mutation("nobody is thrown out", "who was heard is not silent")
def heartbeats_do_not_keep_a_session_alive() -> Any:
    beat = classic.handle_heartbeat

    def deaf(
        context: EventContext, group: ClassicGroup | None, token: int, request: Heartbeat
    ) -> None:
        with mock.patch.object(EventContext, "restart_session_timer"):
            beat(context, group, token, request)

    return ((classic, "handle_heartbeat", deaf),)


# members


@mutation("everything has an owner")
def there_is_no_second_round() -> Any:
    request = MemberSession.request_rejoin

    def lazy(session: MemberSession, reason: str) -> None:
        if reason != "need to revoke partitions and re-join":
            request(session, reason)

    return ((MemberSession, "request_rejoin", lazy),)


@mutation("commits end once")
def commits_are_told_of_twice() -> Any:
    run = CommitManager.run_callbacks

    def stuttering(commits: CommitManager) -> None:
        completed = list(commits._pending_callbacks)
        run(commits)
        for done in completed:
            commits.commands.add(RunCommitCallback(done.commit_id, done.offsets, done.error))

    return ((CommitManager, "run_callbacks", stuttering),)


@mutation("no handover in one round")
def cooperative_members_are_given_at_once_what_others_hold() -> Any:
    def nothing(problem: object, owners: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        return np.zeros(len(owners), dtype=np.bool_)

    return (
        (sticky, "find_owned_by_another", nothing),
        (interface, "find_owned_by_another", nothing),
    )


@mutation("only what is owned is revoked", "listeners are told first")
def what_is_lost_is_kept() -> Any:
    give_up = AssignmentManager._release_partitions

    def stubborn(
        handover: AssignmentManager, call: ListenerMethod, partitions: tuple[TopicPartition, ...]
    ) -> Procedure:
        if call is ListenerMethod.LOST:
            yield from handover._call_listener(call, partitions)
        else:
            yield from give_up(handover, call, partitions)

    return ((AssignmentManager, "_release_partitions", stubborn),)


@mutation("eager joins with nothing")
def eager_members_keep_what_they_own() -> Any:
    def lazy(handover: AssignmentManager) -> Procedure:
        yield from ()

    return ((AssignmentManager, "prepare_join", lazy),)


@mutation("nobody is thrown out", "everybody is answered")
def members_do_not_listen_to_their_heartbeats() -> Any:
    answered = MemberSession.handle_heartbeat_response

    def deaf(session: MemberSession, code: int, sender: MemberIdentity) -> None:
        hears = code != Code.REBALANCE_IN_PROGRESS
        answered(session, code if hears else Code.NONE, sender)

    return ((MemberSession, "handle_heartbeat_response", deaf),)


@mutation("everything has an owner", "owners subscribe")
def leaders_do_not_see_new_partitions() -> Any:
    def blind(watch: SubscriptionTracker) -> str | None:
        changed = watch.joined_topics is not None and watch.joined_topics != watch.topics
        return "the subscription changed" if changed else None

    return ((SubscriptionTracker, "_find_rejoin_reason", blind),)


@mutation("generations are bounded by events", "no rebalance without a reason")
def members_join_again_for_nothing() -> Any:
    joined = Joiner.handle_sync_response

    def restless(joiner: Joiner, reply: Any) -> None:
        joined(joiner, reply)
        joiner.session.request_rejoin("for nothing")

    return ((Joiner, "handle_sync_response", restless),)
