"""Commits of a member: synchronous, asynchronous and automatic, and those before a revocation.

An asynchronous commit is sent once. Its callback waits for the application's next poll, commit or
close; callbacks run in the order in which the commits completed. A synchronous commit is retried
until its deadline, and returns after all earlier asynchronous commits and their callbacks. Other
commits have no callback; their failures are logged.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import assert_never

from rota.engine.member import events
from rota.engine.member.state import (
    NO_IDENTITY,
    MemberIdentity,
    MemberSession,
    MemberState,
    describe_refusal,
    format_code,
    make_fatal_error,
)
from rota.engine.member.subscription import SubscriptionTracker
from rota.engine.model.request import OffsetCommit
from rota.engine.model.response import OffsetCommitResult
from rota.engine.model.text import list_first_names
from rota.engine.model.topic import OffsetAndMetadata, TopicPartition
from rota.errors import (
    AuthorizationFailed,
    Code,
    CommitFailed,
    Fenced,
    GroupError,
    RebalanceInProgress,
    RetriableCommitFailed,
    RotaError,
    TimedOut,
)

PartitionOffsets = Mapping[TopicPartition, OffsetAndMetadata]

PartitionCodes = Mapping[TopicPartition, Code]


class CommitKind(enum.Enum):
    SYNC = "synchronous"
    ASYNC = "asynchronous"
    AUTOMATIC = "automatic"
    REVOCATION = "before a revocation"


@dataclass(slots=True, eq=False)
class PendingCommit:
    sequence_number: int  # the position of the commit in the order of the calls
    kind: CommitKind
    offsets: PartitionOffsets
    commit_id: int = 0
    deadline: int = 0
    request_id: int | None = None  # the request in flight
    retry_at: int | None = None
    failures: int = 0
    is_done: bool = False
    error: Exception | None = None


class CommitManager:
    def __init__(
        self,
        session: MemberSession,
        subscription: SubscriptionTracker,
        consumed: Callable[[], PartitionOffsets],
    ) -> None:
        self.session = session
        self.commands = session.commands
        self.subscription = subscription
        self.get_consumed_offsets = consumed
        #: ``auto.commit.interval.ms`` is over; the next poll commits.
        self.is_auto_commit_due = False
        #: Commits that are not complete, in the order of the calls.
        self._active: list[PendingCommit] = []
        #: Complete synchronous commits that wait for earlier asynchronous ones.
        self._waiting_for_earlier: list[PendingCommit] = []
        #: Complete asynchronous commits whose callback has not run, in the order of completion.
        self._pending_callbacks: list[PendingCommit] = []

    def start_requested_commit(self, asked: events.CommitRequested) -> None:
        self.run_callbacks()
        offsets = self.get_consumed_offsets() if asked.offsets is None else asked.offsets
        kind = CommitKind.ASYNC if asked.deadline is None else CommitKind.SYNC
        self.start_commit(kind, offsets, asked.commit_id, asked.deadline or 0)

    def commit_automatically(self) -> None:
        self.restart_auto_commit()
        if offsets := self.get_consumed_offsets():
            self.start_commit(CommitKind.AUTOMATIC, offsets)

    def restart_auto_commit(self) -> None:
        self.is_auto_commit_due = False
        if self.session.config.auto_commit:
            self._start_auto_commit_timer(self.session.config.auto_commit_interval)

    @property
    def is_idle(self) -> bool:
        return not self._active and not self._waiting_for_earlier

    @property
    def wants_coordinator(self) -> bool:
        return any(one.request_id is None and one.retry_at is None for one in self._active)

    @property
    def has_callbacks(self) -> bool:
        return bool(self._pending_callbacks)

    def run_callbacks(self) -> None:
        """Runs the callbacks of completed commits, inside a call of the application."""
        for done in self._pending_callbacks:
            self.commands.add(events.RunCommitCallback(done.commit_id, done.offsets, done.error))
        self._pending_callbacks.clear()

    def _start_auto_commit_timer(self, delay: int) -> None:
        # at least 1 ms, because a timer that is always due would never let the poll return
        self.commands.start_timer(events.MemberTimer.COMMIT, self.commands.now + max(delay, 1))

    def start_commit(
        self, kind: CommitKind, offsets: PartitionOffsets, commit_id: int = 0, waits_until: int = 0
    ) -> PendingCommit:
        commit = PendingCommit(self.commands.next_id(), kind, dict(offsets), commit_id, waits_until)
        self._active.append(commit)
        self._try_to_send(commit)
        self._set_timer()
        return commit

    def _try_to_send(self, commit: PendingCommit) -> None:
        commit.retry_at = None
        session, config = self.session, self.session.config
        subscribed = self.subscription.is_subscribed
        refusal = session.find_commit_problem(subscribed)
        if refusal is not None or not commit.offsets:
            self._finish_commit(commit, refusal if commit.offsets else None)
        elif session.coordinator_known:
            identity = session.identity if subscribed else NO_IDENTITY
            commit.request_id = session.send(
                OffsetCommit(
                    group=config.group,
                    generation=identity.generation,
                    member_id=identity.member_id,
                    group_instance_id=config.group_instance_id if subscribed else None,
                    offsets=commit.offsets,
                )
            )

    def send_unsent_commits(self) -> None:
        for commit in list(self._active):
            if commit.request_id is None and commit.retry_at is None:
                self._try_to_send(commit)
        self._set_timer()

    def fail_unsent_commits(self, error: Exception | None = None) -> None:
        """Retries only synchronous commits: others could overwrite a later one."""
        for commit in list(self._active):
            if commit.request_id is None and (commit.retry_at is None or error is not None):
                missing = RetriableCommitFailed(
                    self._add_group_prefix("the coordinator was not found"),
                    Code.COORDINATOR_NOT_AVAILABLE,
                )
                self._finish_commit(commit, error or missing)
        self._set_timer()

    def handle_response(
        self, number: int, response: OffsetCommitResult, sender: MemberIdentity
    ) -> None:
        commit = self._find_by_request(number)
        if commit is not None:
            codes = response.codes
            if commit.kind is CommitKind.REVOCATION:
                codes = self._ignore_deleted_topics(codes)
            self.end_request(number, self._find_error(codes, sender))

    def _ignore_deleted_topics(self, codes: PartitionCodes) -> PartitionCodes:
        """Skips offsets of deleted topics; Java retries until ``max.poll.interval.ms`` is over."""
        gone = sorted(at for at, code in codes.items() if code == Code.UNKNOWN_TOPIC_OR_PARTITION)
        if gone:
            names = list_first_names(list(map(str, gone)))
            text = f"no offset is committed for {names}: there is no such partition any more"
            self.commands.add(events.MemberNote(text, is_warning=True))
        return {at: code for at, code in codes.items() if code != Code.UNKNOWN_TOPIC_OR_PARTITION}

    def handle_no_response(self, number: int) -> None:
        """Handles a commit without a response; its offsets may be stored nevertheless."""
        text = self._add_group_prefix("the coordinator did not answer")
        self.end_request(number, RetriableCommitFailed(text, Code.REQUEST_TIMED_OUT))

    def end_request(self, number: int, error: Exception | None) -> None:
        """Ends the commit that sent this request, or schedules a retry."""
        commit = self._find_by_request(number)
        if commit is not None:
            commit.request_id = None
            self._finish_commit(commit, error)
            self._set_timer()

    def _find_by_request(self, number: int) -> PendingCommit | None:
        return next((one for one in self._active if one.request_id == number), None)

    def _find_error(self, codes: PartitionCodes, sender: MemberIdentity) -> RotaError | None:
        """Returns the error of the first refused partition, as in Kafka; permissions come last."""
        forbidden: set[str] = set()
        for at, code in sorted(codes.items()):
            if code == Code.TOPIC_AUTHORIZATION_FAILED:
                forbidden.add(at.topic)
            elif code:
                return self._make_error(at, code, sender)
        if forbidden:
            text = f"no permission to commit for {', '.join(sorted(forbidden))}"
            text = self._add_group_prefix(text)
            return AuthorizationFailed(Code.TOPIC_AUTHORIZATION_FAILED, text)
        self.session.reset_backoff()
        return None

    def _make_error(self, at: TopicPartition, code: int, sender: MemberIdentity) -> RotaError:
        session = self.session
        why = f"commit of {at} refused with {format_code(code)}"
        said = self._add_group_prefix(why)
        same = sender == session.identity and sender != NO_IDENTITY
        match code:
            case Code.COORDINATOR_LOAD_IN_PROGRESS | Code.UNKNOWN_TOPIC_OR_PARTITION:
                return RetriableCommitFailed(said, code)
            case Code.COORDINATOR_NOT_AVAILABLE | Code.NOT_COORDINATOR | Code.REQUEST_TIMED_OUT:
                session.lose_coordinator(why)
                return RetriableCommitFailed(said, code)
            case Code.FENCED_INSTANCE_ID if same:
                session.fence("commit refused")
                return Fenced(str(session.fenced), code)
            case Code.REBALANCE_IN_PROGRESS:
                if same and session.state is MemberState.STABLE:
                    reason = "offset commit failed since group is already rebalancing"
                    session.request_rejoin(reason)
                return RebalanceInProgress(f"{said}: poll, then commit again", code)
            case Code.FENCED_INSTANCE_ID | Code.UNKNOWN_MEMBER_ID | Code.ILLEGAL_GENERATION:
                return self._make_outdated_error(why, code, sender)
            case _:
                return make_fatal_error(session.config, f"commit of {at}", code)

    def _make_outdated_error(self, why: str, code: int, sender: MemberIdentity) -> GroupError:
        """Returns the error of a commit of an earlier generation; unlike Java keeps a later one."""
        session, error = self.session, self._add_group_prefix(why)
        if session.state is MemberState.JOINING:
            return RebalanceInProgress(f"{error}: poll, then commit again", code)
        same = sender == session.identity and sender != NO_IDENTITY
        if same and session.state is MemberState.STABLE:
            keep = code == Code.ILLEGAL_GENERATION
            session.reset_generation(describe_refusal("OFFSET_COMMIT", code), keep_id=keep)
            return CommitFailed(self._add_group_prefix(session.explain_loss()), code)
        if session.identity.generation > sender.generation >= 0:
            return CommitFailed(
                f"{error}: it was sent as of generation {sender.generation}, and this member is in "
                f"generation {session.identity.generation} by now",
                code,
            )
        if session.loss is None:  # sent without a member id, to a group with members
            text = f"{error}: the group has members, and this consumer is not one of them"
            return CommitFailed(text, code)
        return CommitFailed(f"{error}: {session.explain_loss()}", code)

    def _finish_commit(self, commit: PendingCommit, error: Exception | None) -> None:
        may_retry = commit.kind is CommitKind.SYNC and self.commands.now < commit.deadline
        if may_retry and isinstance(error, RetriableCommitFailed):
            if commit.failures == 0:
                self._note("commit is tried again until its time is over", error)
            commit.retry_at = self.commands.now + self.session.retry_delay(commit.failures)
            commit.failures += 1
            commit.error = error
            return
        self._active.remove(commit)
        commit.is_done, commit.error = True, error
        if error is None and (commit.offsets or commit.kind is CommitKind.ASYNC):
            self.commands.add(events.CallInterceptors(commit.offsets))
        match commit.kind:
            case CommitKind.SYNC:
                self._waiting_for_earlier.append(commit)
            case CommitKind.ASYNC:
                self._pending_callbacks.append(commit)
            case CommitKind.AUTOMATIC if error is not None:
                self._note("automatic commit failed", error)
                if isinstance(error, RetriableCommitFailed):
                    self._start_auto_commit_timer(self.session.config.retry_backoff)
            case CommitKind.REVOCATION if error is not None:
                self._note("commit before the revocation failed", error)
            case CommitKind.AUTOMATIC | CommitKind.REVOCATION:
                pass
            case _:
                assert_never(commit.kind)

    def handle_sync_commit_timer(self) -> None:
        """Retries synchronous commits, or ends them at their deadline."""
        now = self.commands.now
        for commit in [one for one in self._active if one.kind is CommitKind.SYNC]:
            if commit.deadline <= now:
                self._finish_commit(commit, self._make_timeout_error(commit))
            elif commit.retry_at is not None and commit.retry_at <= now:
                self._try_to_send(commit)
        self._set_timer()

    def finish_all_commits(self) -> None:
        self.time_out_commits(*self._active)
        for commit in self._waiting_for_earlier:
            commit.deadline = self.commands.now
        self.finish_sync_commits()
        self.run_callbacks()

    def time_out_commits(self, *commits: PendingCommit) -> None:
        for commit in commits:
            if not commit.is_done:
                self._finish_commit(commit, self._make_timeout_error(commit))
        self._set_timer()

    def time_out_unsent_commits(self) -> None:
        self.time_out_commits(*(one for one in self._active if one.request_id is None))

    def _make_timeout_error(self, commit: PendingCommit) -> TimedOut:
        error = "" if commit.error is None else self._remove_group_prefix(commit.error)
        reason = "; ".join(filter(None, (error, self.session.coordinator_problem)))
        text = f"the commit could not be stored in time{reason and f': {reason}'}"
        return TimedOut(self._add_group_prefix(text))

    def _note(self, what: str, error: Exception) -> None:
        text = f"{what}: {self._remove_group_prefix(error)}"
        self.commands.add(events.MemberNote(text, is_warning=True))

    def _add_group_prefix(self, text: str) -> str:
        """Adds the group to an error text, because an application may have several consumers."""
        return f"group {self.session.config.group!r}: {text}"

    def _remove_group_prefix(self, error: Exception) -> str:
        """Removes the group from a note's text, because the log adds it."""
        return str(error).removeprefix(self._add_group_prefix(""))

    def finish_sync_commits(self) -> None:
        """Ends synchronous commits after all earlier asynchronous ones and their callbacks."""
        if self.session.fenced is not None:
            self.send_unsent_commits()  # that is, they are refused
        for commit in list(self._waiting_for_earlier):
            earlier = any(
                one.kind is CommitKind.ASYNC and one.sequence_number < commit.sequence_number
                for one in self._active
            )
            if not earlier or commit.deadline <= self.commands.now:
                self._waiting_for_earlier.remove(commit)
                self.run_callbacks()
                self.commands.add(events.FinishSyncCommit(commit.commit_id, commit.error))
                self._set_timer()

    def _set_timer(self) -> None:
        if (due := self._next_due()) is None:
            self.commands.stop_timer(events.MemberTimer.SYNC_COMMIT)
        else:
            self.commands.start_timer(events.MemberTimer.SYNC_COMMIT, due)

    def _next_due(self) -> int | None:
        """The first retry or deadline of all synchronous commits."""
        waiting = [one for one in self._active if one.kind is CommitKind.SYNC]
        times = [one.deadline for one in (*waiting, *self._waiting_for_earlier)]
        times += [one.retry_at for one in waiting if one.retry_at is not None]
        return min(times, default=None)

    def check_invariants(self) -> None:
        timers, due = self.commands.timers, self._next_due()
        assert timers.get(events.MemberTimer.SYNC_COMMIT) == due, "commits without their timer"
        for commit in self._active:
            assert not commit.is_done
            assert commit.request_id is None or commit.request_id in self.session.in_flight
            assert commit.request_id is None or commit.retry_at is None
        assert events.MemberTimer.COMMIT not in timers or self.session.config.auto_commit
