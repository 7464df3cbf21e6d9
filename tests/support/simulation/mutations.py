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

from rota.assignors import cooperative, rules
from rota.errors import Code
from rota.group import offset, presence, rebalance, static, sync
from rota.group.classic import Group, GroupMember
from rota.group.coordinator import Coordinator
from rota.group.event import (
    Appended,
    AppendFailed,
    Command,
    Event,
    Happened,
    TimerKind,
)
from rota.group.turn import Then, Turn
from rota.member.commit import Commits
from rota.member.event import Call, RunCallback
from rota.member.handover import Handover, Steps
from rota.member.join import Joiner
from rota.member.session import Identity, Session
from rota.member.watch import Watch
from rota.model.entry import ClassicEntry, GroupSaved, OffsetCommitted
from rota.model.reply import HeartbeatReply, LeaveReply
from rota.model.request import CommitOffsets, Heartbeat, Leave, Sync
from rota.model.topic import TopicPartition


@dataclass(frozen=True, slots=True)
class Mutation:
    """A way to break the engine, and the rules that show it."""

    name: str
    breaks: Callable[[], tuple[tuple[Any, str, Any], ...]]
    """What is put in the place of what."""
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
    append = Turn.append

    def hasty(turn: Turn, entries: tuple[ClassicEntry, ...], then: Then = lambda *_: None) -> None:
        if isinstance(entries[0], OffsetCommitted):
            then(turn, Code.NONE)
            append(turn, entries)
        else:
            append(turn, entries, then)

    return ((Turn, "append", hasty),)


@mutation("no success before the journal", "failed appends are told")
def a_failed_append_counts() -> Any:
    handle = Coordinator.handle

    def hopeful(coordinator: Coordinator, event: Event, now: int) -> list[Command]:
        if isinstance(event, AppendFailed):
            event = Appended(event.ticket)
        return handle(coordinator, event, now)

    return ((Coordinator, "handle", hopeful),)


@mutation("a restart is a replay")
def a_replay_forgets_a_member() -> Any:
    loaded = Group.loaded

    def short(entry: GroupSaved, offsets: dict[TopicPartition, OffsetCommitted]) -> Group:
        if len(entry.members) > 1 and entry.leader != entry.members[-1].member_id:
            entry = dataclasses.replace(entry, members=entry.members[:-1])
        return loaded(entry, offsets)

    return ((Group, "loaded", short),)


@mutation("a restart is a replay")
def a_new_generation_forgets_the_offsets() -> Any:
    loaded = Group.loaded
    return ((Group, "loaded", lambda entry, offsets: loaded(entry, {})),)


@mutation("sessions start after a load")
def sessions_do_not_start_after_a_load() -> Any:
    serve = Coordinator._serve

    def silent(coordinator: Coordinator, turn: Turn) -> None:
        with mock.patch.object(Turn, "start_session"):
            serve(coordinator, turn)

    return ((Coordinator, "_serve", silent),)


@mutation("failed appends are told")
def a_failed_assignment_does_not_start_the_rebalance_again() -> Any:
    stored = sync._stored

    def resigned(
        turn: Turn, group: Group, leader: str, assignments: dict[str, bytes], code: Code
    ) -> None:
        if not code:
            stored(turn, group, leader, assignments, code)

    return ((sync, "_stored", resigned),)


@mutation("everybody is answered", "nobody is thrown out")
def what_waits_for_an_append_is_forgotten() -> Any:
    settle = Coordinator._settle

    def forgetful(coordinator: Coordinator, turn: Turn, ticket: int, code: Code) -> None:
        for lane in coordinator._lanes.values():
            lane.queue.clear()
        settle(coordinator, turn, ticket, code)

    return ((Coordinator, "_settle", forgetful),)


# generations


@mutation("commits are of the generation")
def any_generation_may_commit() -> Any:
    judged = offset._refusal

    def lenient(group: Group | None, request: CommitOffsets) -> Code:
        code = judged(group, request)
        return Code.NONE if code is Code.ILLEGAL_GENERATION else code

    return ((offset, "_refusal", lenient),)


@mutation("AssertionError", "no success before the journal")
def a_leader_may_assign_for_an_old_generation() -> Any:
    def lenient(group: Group, request: Sync) -> Code:
        return group.check_member(request.member_id, request.static_id)

    return ((sync, "_refusal", lenient),)


@mutation("generations rise by one")
def a_generation_keeps_its_number() -> Any:
    following = Group.next_generation

    def same(group: Group, now: int) -> None:
        number = group.generation
        following(group, now)
        if number > 1:
            group.generation = number

    return ((Group, "next_generation", same),)


# who is there


@mutation("who is fenced is told")
def nobody_is_fenced() -> Any:
    def lenient(group: Group, member_id: str, static_id: str | None) -> Code:
        return Code.NONE if member_id in group.members else Code.UNKNOWN_MEMBER_ID

    return ((Group, "check_member", lenient),)


@mutation("who is fenced is told", "everybody is answered")
def who_is_replaced_is_not_told() -> Any:
    def quiet(turn: Turn, group: Group, old: GroupMember, new: GroupMember) -> None:
        turn.stop(TimerKind.SESSION, group, old.member_id)
        group.replace(old, new)
        turn.start_session(group, new)
        turn.note(Happened.REPLACED, group, f"{old.member_id} by {new.member_id}")

    return ((static, "_take_over", quiet),)


@mutation("heartbeats tell of a rebalance")
def heartbeats_do_not_tell_of_a_rebalance() -> Any:
    return ((presence, "_REBALANCING", HeartbeatReply()),)


@mutation("groups get stable", "everybody is answered", "members get stable")
def ids_that_were_given_out_are_waited_for_without_end() -> Any:
    ended = presence.session_ended
    up = rebalance.join_time_is_up

    def forgetful(turn: Turn, group: Group, member_id: str) -> None:
        if member_id not in group.pending:
            ended(turn, group, member_id)

    def patient(turn: Turn, group: Group) -> None:
        if group.is_initial or not group.pending:
            up(turn, group)

    return ((presence, "session_ended", forgetful), (rebalance, "join_time_is_up", patient))


@mutation("everybody is answered")
def who_joins_twice_is_answered_once() -> Any:
    from rota.group import join

    def forgetful(turn: Turn, group: Group, member: GroupMember) -> None:
        group.unpark_join(member)

    return ((join, "supersede", forgetful),)


@mutation("what is stable is stored")
def a_member_may_leave_without_a_rebalance() -> Any:
    def quiet(turn: Turn, group: Group, token: int, request: Leave) -> None:
        codes = []
        for leaver in request.members:
            code = presence._go(turn, group, leaver)
            codes.append(presence._left(leaver, code))
        turn.answer(token, LeaveReply(members=tuple(codes)))

    leave = presence.leave

    def lazy(turn: Turn, group: Group | None, token: int, request: Leave) -> None:
        if group is None or len(group.members) < 3:
            leave(turn, group, token, request)
        else:
            quiet(turn, group, token, request)

    return ((presence, "leave", lazy),)


@mutation("nobody is thrown out", "who was heard is not silent")
def heartbeats_do_not_keep_a_session_alive() -> Any:
    beat = presence.heartbeat

    def deaf(turn: Turn, group: Group | None, token: int, request: Heartbeat) -> None:
        with mock.patch.object(Turn, "start_session"):
            beat(turn, group, token, request)

    return ((presence, "heartbeat", deaf),)


# members


@mutation("everything has an owner")
def there_is_no_second_round() -> Any:
    request = Session.request_rejoin

    def lazy(session: Session, reason: str) -> None:
        if reason != "partitions were taken away":
            request(session, reason)

    return ((Session, "request_rejoin", lazy),)


@mutation("commits end once")
def commits_are_told_of_twice() -> Any:
    run = Commits.run_callbacks

    def stuttering(commits: Commits) -> None:
        completed = list(commits._completed)
        run(commits)
        for done in completed:
            commits.outbox.put(RunCallback(done.commit_id, done.offsets, done.error))

    return ((Commits, "run_callbacks", stuttering),)


@mutation("no handover in one round")
def cooperative_members_are_given_at_once_what_others_hold() -> Any:
    def nothing(problem: object, owners: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        return np.zeros(len(owners), dtype=np.bool_)

    return ((cooperative, "held_by_another", nothing), (rules, "held_by_another", nothing))


@mutation("only what is owned is revoked", "listeners are told first")
def what_is_lost_is_kept() -> Any:
    give_up = Handover._give_up

    def stubborn(handover: Handover, call: Call, partitions: tuple[TopicPartition, ...]) -> Steps:
        if call is Call.LOST:
            yield from handover._call(call, partitions)
        else:
            yield from give_up(handover, call, partitions)

    return ((Handover, "_give_up", stubborn),)


@mutation("eager joins with nothing")
def eager_members_keep_what_they_own() -> Any:
    def lazy(handover: Handover) -> Steps:
        yield from ()

    return ((Handover, "prepare", lazy),)


@mutation("nobody is thrown out", "everybody is answered")
def members_do_not_listen_to_their_heartbeats() -> Any:
    answered = Session.heartbeat_answered

    def deaf(session: Session, code: int, sender: Identity) -> None:
        hears = code != Code.REBALANCE_IN_PROGRESS
        answered(session, code if hears else Code.NONE, sender)

    return ((Session, "heartbeat_answered", deaf),)


@mutation("everything has an owner", "owners subscribe")
def leaders_do_not_see_new_partitions() -> Any:
    def blind(watch: Watch) -> str | None:
        changed = watch.joined is not None and watch.joined != watch.topics
        return "the subscription changed" if changed else None

    return ((Watch, "_look", blind),)


@mutation("generations are bounded by events", "no rebalance without a reason")
def members_join_again_for_nothing() -> Any:
    joined = Joiner.synced

    def restless(joiner: Joiner, reply: Any) -> None:
        joined(joiner, reply)
        joiner.session.request_rejoin("for nothing")

    return ((Joiner, "synced", restless),)
