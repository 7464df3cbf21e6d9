"""Why a group rebalanced, and how that is known. Start with :func:`explain_rebalance`.

If the broker's log has lines about a rebalance, the cause is *stated* by the log; otherwise it is
*inferred* from the journal, which never corrects a stated cause.

**Stated.** The first call to join names the cause; the reason lists the later calls too. A member
that joined or left is the cause even if another strategy came into use: "strategy changed" is the
cause only if a present member joined again with other strategies. If a line leaves the cause open,
the generations decide:

- A leader that rejoins because "cached metadata has changed" has seen new partitions, a new topic
  that its pattern matches (the subscription changed), or a change without effect on the group.
- The broker of a consumer group logs no reason for a new epoch unless a member joined or left.
  Otherwise a subscription changed or partitions were added.
- A member that left without a reason may have polled too late: Java clients before 3.2, other
  clients and members of consumer groups send no reason. A member that joined within its poll
  interval has polled. A member whose last commit broke its rhythm just before it left was closed. A
  member that comes back to a consumer group under the same id was not. Otherwise the cause is
  unknown.

**Inferred.** If two causes would leave the same entries in the journal, the cause is unknown, and
the likelier one is reported as a guess. Known causes are

- **joined**: members joined, and nothing else changed or the group was empty
- **subscription changed**, **partitions added**, **strategy changed**: the same members, and only
  this changed
- **leader rejoined**: the same members, and partitions of their topics no longer exist
- **left**: members left, nothing else changed, and each of them committed so recently that its
  session cannot have expired. It had also polled: it had joined recently, or its last commit came
  early in a steady rhythm, as when a client is closed

The cause is unknown if

- members joined and left in one rebalance, or generations are missing
- a member left some time after its last commit: a client may not commit while there are no records,
  and other members can delay a rebalance by a session timeout, so a silent member, a slow poll and
  a normal leave look alike
- nothing changed: a member may have joined and left before the others joined
- a member of a consumer group left: the journal does not contain its session timeout

The journal has no trace of a rebalance whose coordinator stopped: the next attempt is explained.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from rota.engine.history.client_settings import DEFAULT_POLL_INTERVAL, NO_POLL_LIMIT_LIBRARIES
from rota.engine.history.facts import (
    HEARTBEAT_INTERVAL,
    EvidenceType,
    Explanation,
    Generation,
    GenerationChange,
    GenerationMember,
    GroupType,
    LogLine,
    PartitionsByTopic,
    Rebalance,
    RebalanceCause,
)
from rota.engine.history.generations import CONNECT_PROTOCOL_TYPE, generation_distance
from rota.engine.history.rebalances import GenerationDiff, diff_generations

#: The times of each partition's commits, in ascending order.
CommitTimes: TypeAlias = Mapping[tuple[str, int], npt.NDArray[np.int64]]
PartitionCodes: TypeAlias = npt.NDArray[np.int32]
Int64Array: TypeAlias = npt.NDArray[np.int64]
LATEST_TIME = np.iinfo(np.int64).max
SAME_COMMIT_GAP = 10  # commits at most this far apart count as one
MIN_RHYTHM_GAPS = 4
MAX_RHYTHM_RATIO = 1.25  # largest ratio of the longest to the shortest gap of a rhythm
MAX_RHYTHM_COMMITS = 64
EARLY_COMMIT_SHARE = 0.9  # a gap below this share of the shortest one breaks the rhythm


def find_last_commit(
    commits: CommitTimes,
    assigned: PartitionsByTopic,
    until: int = LATEST_TIME,
    since: int | None = None,
) -> int | None:
    """Returns the time of the last commit of these partitions, after ``since`` up to ``until``."""
    newest = -LATEST_TIME if since is None else since
    newest_commit = None
    for times in _times_of(commits, assigned):
        position = int(np.searchsorted(times, until, side="right"))
        if position and times[position - 1] > newest:
            newest = newest_commit = int(times[position - 1])
    return newest_commit


def _times_of(commits: CommitTimes, assigned: PartitionsByTopic) -> Iterator[Int64Array]:
    pairs = ((topic, number) for topic, numbers in assigned.items() for number in numbers)
    return (commits[pair] for pair in pairs if pair in commits)


def is_last_commit_early(
    commits: CommitTimes,
    assigned: PartitionsByTopic,
    until: int,
    since: int,
) -> bool:
    """Returns whether the last commit broke a steady rhythm early, as that of a closing client."""
    return _last_gap_share(recent_commit_gaps(commits, assigned, until, since)) < EARLY_COMMIT_SHARE


def _last_gap_share(gaps: Int64Array) -> float:
    """Returns the last gap as a share of the shortest one before; NaN without a steady rhythm."""
    if len(gaps) <= MIN_RHYTHM_GAPS:
        return math.nan
    last, before = gaps[-1], gaps[-1 - MIN_RHYTHM_GAPS : -1]
    is_steady = before.max() <= before.min() * MAX_RHYTHM_RATIO
    return float(last / before.min()) if is_steady else math.nan


def recent_commit_gaps(
    commits: CommitTimes, assigned: PartitionsByTopic, until: int, since: int
) -> Int64Array:
    commit_times = [
        times[np.searchsorted(times, since, side="right") : np.searchsorted(times, until, "right")]
        for times in _times_of(commits, assigned)
    ]
    if not commit_times:
        return np.zeros(0, dtype=np.int64)
    times = np.unique(np.concatenate([one[-MAX_RHYTHM_COMMITS:] for one in commit_times]))
    gaps = np.diff(times)
    return gaps[gaps > SAME_COMMIT_GAP]


def list_query_times(generations: Iterable[Generation], lines: Iterable[LogLine]) -> Int64Array:
    """Returns the times that explanations look back from, to find the last commits before them."""
    times = {time for one in generations for time in (one.at, one.state_at) if time is not None}
    return np.array(sorted(times | {line.at for line in lines}), dtype=np.int64)


def select_commits(
    partition: PartitionCodes, at: Int64Array, query_times: Int64Array
) -> npt.NDArray[np.intp]:
    """Rows of each partition's last commits before query times, sorted by partition and time."""
    order = np.lexsort((at, partition))
    partition, at = partition[order], at[order]
    query_position = np.searchsorted(query_times, at)
    changes = (np.diff(partition) != 0) | (np.diff(query_position) != 0)
    ends = np.append(np.flatnonzero(changes) + 1, len(order))
    sizes = np.diff(ends, prepend=0)
    kept = np.repeat(ends, sizes) - np.arange(len(order)) <= MAX_RHYTHM_COMMITS
    return order[kept]


LOG_TIME_SLACK = 1_000  # largest difference between the times of a log line and its journal entry
#: A log line with the same generation that is this much older belongs to a former incarnation.
FORMER_INCARNATION_AGE = 10_000
MAX_CLOSE_DELAY = 250  # longest time from the last commit to the LeaveGroup request
MAX_FURTHER_REASONS = 5
NO_REASON = "not provided"
POLL_TIMEOUT_REASON = "poll timeout has expired"
SECOND_ROUND_REASON = "need to revoke partitions"

#: Prefixes of a client's reason when it retries a join; the reason of the first attempt is lost.
RETRY_REASONS = (
    "encountered ",
    "rebalance failed due to ",
    "group is already rebalancing",
    "offset commit failed since ",
)

_LINE_TIME = attrgetter("at")
_ENDING_LINES = frozenset(("assigned", "emptied"))

#: Reasons with only one possible cause. Member ids can contain any text: match the whole reason.
_CLEAR_REASONS = tuple(
    (re.compile(pattern, re.DOTALL), cause)
    for pattern, cause in (
        (r"Adding new member .*", RebalanceCause.JOINED),
        (r"[rR]emoving member .* on heartbeat expiration\.?", RebalanceCause.SESSION_TIMEOUT),
        (r"Removing .* on pending sync request expiration\.?", RebalanceCause.SESSION_TIMEOUT),
        (r"Group's selectedProtocol will change .*", RebalanceCause.STRATEGY),
    )
)

_LEAVE_REASON = re.compile(
    r"explicit `LeaveGroup` request for \(.*\) members\.?|[rR]emoving member .* on LeaveGroup\.?",
    re.DOTALL,
)

_LEADER_REASON = re.compile(r"[lL]eader .* re-joining group during \w+", re.DOTALL)

#: The cause, the likely cause if it is unknown, and the reason in words.
_Cause: TypeAlias = tuple[RebalanceCause, RebalanceCause | None, str]


@dataclass(frozen=True, slots=True)
class _LogEvidence:
    rebalance: Rebalance
    commits: CommitTimes
    lines: Sequence[LogLine]
    calls: tuple[int, ...]  # positions of lines that call for joins or raise the epoch
    change: GenerationDiff | None  # None if the generation before the rebalance is unknown

    @property
    def first_call(self) -> LogLine:
        return self.lines[self.calls[0]]

    def lines_before_call(self) -> list[LogLine]:
        """Returns the lines that led to the first call, latest first."""
        lines = []
        for position in range(self.calls[0] - 1, -1, -1):
            line = self.lines[position]
            is_old = line.at < self.first_call.at - LOG_TIME_SLACK
            if is_old or line.what in ("preparing", "epoch", "target", *_ENDING_LINES):
                break
            lines.append(line)
        return lines

    def member(self, member_id: str | None) -> GenerationMember | None:
        members = () if self.rebalance.before is None else self.rebalance.before.members
        return next((member for member in members if member.member_id == member_id), None)


def explain_from_log(
    rebalance: Rebalance, commits: CommitTimes, lines: Sequence[LogLine]
) -> Explanation | None:
    """Explains a rebalance from the group's log lines; None if they do not mention it."""
    calls = _find_calls(rebalance, lines) or _find_removals(rebalance, lines)
    if not calls:
        return None
    before, after = rebalance.before, rebalance.after
    diff = None if before is None else diff_generations(before, rebalance.rounds[0], after)
    evidence = _LogEvidence(rebalance, commits, lines, calls, diff)
    is_classic = after.kind is GroupType.CLASSIC
    cause, likely, text = _classic_cause(evidence) if is_classic else _consumer_cause(evidence)
    further = [
        _log_text(lines[call])
        for call in calls[1:]
        if SECOND_ROUND_REASON not in (lines[call].client_reason or "")
    ]
    return Explanation(
        cause=cause,
        evidence=EvidenceType.STATED,
        likely=likely,
        reason="; then: ".join([text, *further[:MAX_FURTHER_REASONS]]),
        started_at=evidence.first_call.at,
        joined_at=_find_stabilized_time(evidence) if is_classic else None,
    )


def _find_calls(rebalance: Rebalance, lines: Sequence[LogLine]) -> tuple[int, ...]:
    """Returns the lines that asked members to join or raised the epoch. Searched backwards, a line
    with a higher number than the next is of a former incarnation.
    """
    end, known = rebalance.after, rebalance.from_generation
    base = rebalance.rounds[0].generation - 1 if known is None else known
    what, low, high = "epoch", base + 1, end.generation
    if end.kind is GroupType.CLASSIC:  # a call to join names the generation before
        what, low, high = "preparing", base, end.generation - 1
    positions: list[int] = []
    for position in range(bisect_right(lines, end.at + LOG_TIME_SLACK, key=_LINE_TIME) - 1, -1, -1):
        line = lines[position]
        number = line.generation
        is_old = rebalance.before is not None and line.at + LOG_TIME_SLACK < rebalance.before.at
        if line.what == "deleted" or is_old:
            break
        if line.what == "loaded" and positions:
            break  # a new coordinator does not continue a rebalance of the one before
        if number is None:
            continue
        is_former = bool(positions) or line.at < end.at - FORMER_INCARNATION_AGE
        if line.what == what:
            if number < low or (number > high and is_former):
                break
            if number <= high:
                positions.append(position)
                high = number
        elif line.what in _ENDING_LINES and (number <= base or (number > high and is_former)):
            break
    return tuple(reversed(positions))


def _find_removals(rebalance: Rebalance, lines: Sequence[LogLine]) -> tuple[int, ...]:
    """Returns lines about leaves of share and streams groups: the log lacks the later epoch."""
    before, after = rebalance.before, rebalance.after
    if before is None or after.kind not in {GroupType.SHARE, GroupType.STREAMS}:
        return ()
    gone = {member.member_id for member in before.members}
    gone -= {member.member_id for member in after.members}
    first = bisect_left(lines, before.at - LOG_TIME_SLACK, key=_LINE_TIME)
    last = bisect_right(lines, after.at + LOG_TIME_SLACK, key=_LINE_TIME)
    return tuple(
        position
        for position in range(first, last)
        if lines[position].what in {"left", "fenced"} and lines[position].member_id in gone
    )


def _find_stabilized_time(evidence: _LogEvidence) -> int | None:
    end = evidence.rebalance.after
    last = bisect_right(evidence.lines, end.at + LOG_TIME_SLACK, key=_LINE_TIME)
    lines = islice(evidence.lines, evidence.calls[0], last)
    wanted = ("stabilized", end.generation)
    return next((line.at for line in lines if (line.what, line.generation) == wanted), None)


def _classic_cause(evidence: _LogEvidence) -> _Cause:
    call = evidence.first_call
    text, reason = _log_text(call), call.reason or ""
    for pattern, cause in _CLEAR_REASONS:
        if pattern.fullmatch(reason):
            return cause, None, text
    if _LEAVE_REASON.fullmatch(reason):
        return _leave_cause(evidence, call)
    if reason.startswith("Downgrade group "):
        return _downgrade_cause(evidence, text)
    if reason.startswith("Updating metadata for ") or _LEADER_REASON.fullmatch(reason):
        return _rejoin_cause(evidence, call, text)
    return RebalanceCause.UNKNOWN, _cause_from_diff(evidence.change), text


def _leave_cause(evidence: _LogEvidence, call: LogLine) -> _Cause:
    client, member_id, text = call.client_reason, call.member_id, _log_text(call)
    if client is None:
        leave_lines = [line for line in evidence.lines_before_call() if line.what == "left"]
        if leave_lines:
            client, member_id = leave_lines[0].client_reason, leave_lines[0].member_id
            text = f"{text} client reason: {client}" if client else text
    if client is None or client == NO_REASON:
        return _leave_cause_without_reason(evidence, member_id, text)
    return _cause_from_client_reason(client), None, text


def _cause_from_client_reason(reason: str) -> RebalanceCause:
    return RebalanceCause.SLOW_POLL if POLL_TIMEOUT_REASON in reason else RebalanceCause.LEFT


def _leave_cause_without_reason(evidence: _LogEvidence, member_id: str | None, text: str) -> _Cause:
    at, member = evidence.first_call.at, evidence.member(member_id)
    if member is None or not _leaves_on_slow_poll(member):
        return RebalanceCause.LEFT, None, text
    before, interval = evidence.rebalance.before, member.rebalance_timeout or 0
    if before is not None and before.kind is GroupType.SHARE:
        interval = DEFAULT_POLL_INTERVAL  # the journal does not have it
    if _find_last_join(evidence, member.member_id) > at - interval:
        return RebalanceCause.LEFT, None, text
    committed = find_last_commit(evidence.commits, member.assigned, at)
    is_quiet = committed is None or committed <= at - interval
    if before is not None and before.kind is GroupType.CONSUMER:
        return _consumer_leave_cause(evidence, member, text, is_quiet=is_quiet)
    if committed is not None and _is_close_commit(evidence, member, committed):
        return RebalanceCause.LEFT, None, text
    likely = RebalanceCause.SLOW_POLL if is_quiet and committed is not None else RebalanceCause.LEFT
    return RebalanceCause.UNKNOWN, likely, f"{text} It may have polled too late."


def _leaves_on_slow_poll(member: GenerationMember) -> bool:
    """Returns whether a slow poll makes the member leave; a static one stops its heartbeats."""
    return member.group_instance_id is None and member.library not in NO_POLL_LIMIT_LIBRARIES


def _is_close_commit(evidence: _LogEvidence, member: GenerationMember, committed: int) -> bool:
    before, at = evidence.rebalance.before, evidence.first_call.at
    assert before is not None
    in_time = at - committed <= MAX_CLOSE_DELAY
    return in_time and is_last_commit_early(evidence.commits, member.assigned, at, before.at)


def _consumer_leave_cause(
    evidence: _LogEvidence, member: GenerationMember, text: str, *, is_quiet: bool
) -> _Cause:
    """Decides the same for a consumer group: a closed member never comes back under its id."""
    is_back = any(
        line.what == "joined" and line.member_id == member.member_id
        for line in islice(evidence.lines, evidence.calls[0], None)
    )
    # a missing commit shows nothing if its partitions are never committed
    is_quiet = is_quiet and find_last_commit(evidence.commits, member.assigned) is not None
    if not is_back and not is_quiet:
        return RebalanceCause.LEFT, None, text
    why = "came back under the same member id" if is_back else "had not committed for a long time"
    text = f"{text} It {why}."
    if is_back and is_quiet:
        return RebalanceCause.SLOW_POLL, None, text
    return RebalanceCause.UNKNOWN, RebalanceCause.SLOW_POLL, text  # it may have unsubscribed


def _find_last_join(evidence: _LogEvidence, member_id: str) -> int:
    """Returns a time before the member's last JoinGroup request; 0 if unknown."""
    before = evidence.rebalance.before
    assert before is not None
    for position in range(evidence.calls[0] - 1, -1, -1):
        line = evidence.lines[position]
        if line.what == "joined" and line.member_id == member_id:
            return line.at
        if before.kind is GroupType.CLASSIC and line.what == "preparing":
            is_its_own = line.generation == before.generation - 1 and line.at <= before.at
            return line.at if is_its_own else 0
    return 0


def _downgrade_cause(evidence: _LogEvidence, text: str) -> _Cause:
    for line in evidence.lines_before_call():
        if line.what in ("left", "fenced"):
            cause, likely, removal_text = _removal_cause(evidence, line)
            return cause, likely, f"{text} {removal_text}"
    return RebalanceCause.UNKNOWN, _cause_from_diff(evidence.change), text


def _rejoin_cause(evidence: _LogEvidence, call: LogLine, text: str) -> _Cause:
    client, diff = call.client_reason or NO_REASON, evidence.change
    is_leader = _LEADER_REASON.fullmatch(call.reason or "") is not None
    cause = None
    if client.startswith("subscription has changed") or "current subscription" in client:
        cause = RebalanceCause.SUBSCRIPTION
    elif client.startswith(RETRY_REASONS):
        likely = _cause_from_diff(diff) or (RebalanceCause.LEADER if is_leader else None)
        return RebalanceCause.UNKNOWN, likely, text
    elif diff is not None and SECOND_ROUND_REASON not in client:
        cause = _rejoin_cause_from_diff(diff, call, client, is_leader=is_leader)
    if cause is None and is_leader:
        cause = RebalanceCause.LEADER
    return (cause, None, text) if cause else (RebalanceCause.UNKNOWN, _cause_from_diff(diff), text)


def _rejoin_cause_from_diff(
    diff: GenerationDiff, call: LogLine, client: str, *, is_leader: bool
) -> RebalanceCause | None:
    changed = any(member.member_id == call.member_id for member in diff.resubscribed)
    if changed or (diff.new_topics and "metadata" in client):
        return RebalanceCause.SUBSCRIPTION
    if is_leader:
        return RebalanceCause.PARTITIONS if diff.grown else None
    return RebalanceCause.STRATEGY if diff.strategy_changed and diff.same_members else None


def _consumer_cause(evidence: _LogEvidence) -> _Cause:
    text = _log_text(evidence.first_call)
    if evidence.rebalance.before is None and evidence.rebalance.known_before:
        return RebalanceCause.JOINED, None, text
    for line in (evidence.first_call, *evidence.lines_before_call()):
        match line.what:
            case "joined" if evidence.member(line.member_id) is None:  # otherwise it rejoined
                return RebalanceCause.JOINED, None, line.text
            case "left" | "fenced":
                return _removal_cause(evidence, line)
            case "subscribed" if evidence.member(line.member_id) is not None:  # otherwise it joins
                return RebalanceCause.SUBSCRIPTION, None, line.text
            case "replaced" if evidence.change is not None and not evidence.change.resubscribed:
                return RebalanceCause.STRATEGY, None, line.text  # it uses the other protocol now
            case "scanned":
                text = f"{line.text} {text}"
                break
            case _:
                continue
    cause = _cause_from_diff(evidence.change)
    return cause or RebalanceCause.UNKNOWN, None, text


def _removal_cause(evidence: _LogEvidence, line: LogLine) -> _Cause:
    if line.what == "fenced":
        late = "failed to transition" in (line.reason or "")  # it did not revoke its partitions
        cause = RebalanceCause.SLOW_POLL if late else RebalanceCause.SESSION_TIMEOUT
        return cause, None, line.text
    if line.client_reason is not None and line.client_reason != NO_REASON:
        return _cause_from_client_reason(line.client_reason), None, line.text
    return _leave_cause_without_reason(evidence, line.member_id, line.text)


def _cause_from_diff(diff: GenerationDiff | None) -> RebalanceCause | None:
    """Returns the cause that the generations show if the log line does not name one."""
    if diff is None:
        return None
    if diff.joined and not diff.left:
        return RebalanceCause.JOINED
    if diff.resubscribed or diff.new_topics:
        return RebalanceCause.SUBSCRIPTION
    return RebalanceCause.PARTITIONS if diff.grown else None


def _log_text(call: LogLine) -> str:
    if call.what != "preparing" or not call.reason:
        return call.text
    if not call.client_reason:
        return call.reason
    return f"{call.reason}; client reason: {call.client_reason}"


#: A commit younger than this share of the timeouts proves that the member was alive. Not 1: a
#: commit in a transaction does not extend the session, so the last heartbeat may be older by an
#: interval.
FRESH_COMMIT_SHARE = 2 / 3
#: A member that joined within this share of its poll interval has polled in time. Not 1: it may
#: have joined well before the others. A commit proves no poll: applications commit while they are
#: slow.
YOUNG_MEMBER_SHARE = 1 / 2
MIN_CONSUMER_SESSION = 6_000  # session timeout for guesses about consumer groups


def explain_from_journal(rebalance: Rebalance, commits: CommitTimes) -> Explanation:
    before, first, after = rebalance.before, rebalance.rounds[0], rebalance.after
    case = None
    if before is not None:
        case = _JournalCase(before, first, diff_generations(before, first, after), commits)
        cause, likely, reason = _journal_cause(case)
    elif rebalance.known_before:
        cause, likely, reason = RebalanceCause.JOINED, None, "the group was empty before"
    else:
        cause, likely = RebalanceCause.UNKNOWN, None
        reason = "the journal does not have the previous generation"
    earliest, last = _start_bounds(rebalance, case)
    has_joined = after.kind is GroupType.CLASSIC and after.change is GenerationChange.REBALANCED
    return Explanation(
        cause=cause,
        evidence=EvidenceType.SAMPLED if after.sampled else EvidenceType.INFERRED,
        likely=likely,
        reason=reason,
        joined_at=after.state_at if has_joined else None,
        earliest_start=earliest,
        latest_start=last,
    )


@dataclass(frozen=True, slots=True)
class _JournalCase:
    before: Generation
    first: Generation
    diff: GenerationDiff
    commits: CommitTimes

    @property
    def until(self) -> int:
        return _joined_time(self.first)

    def last_commit(self, member: GenerationMember) -> int | None:
        return find_last_commit(self.commits, member.assigned, self.until, since=self.before.at)

    @property
    def gap(self) -> str | None:
        """Why the cause cannot be inferred; None if it can."""
        if self.before.sampled or self.first.sampled:
            return "the events between two samples are unknown"
        if generation_distance(self.first.generation, self.before.generation) != 1:
            return "the generations in between are missing"
        if self.diff.is_round_due:
            return "another cooperative round was due"
        if self.diff.lost_members:
            members_text = _describe_members(self.diff.lost_members, "had lost its partitions")
            return f"{members_text}, and may have been the cause"
        return None


def _journal_cause(case: _JournalCase) -> _Cause:
    diff = case.diff
    cause: RebalanceCause | None = None
    if case.gap is not None:
        reason = case.gap
    elif diff.same_members:
        cause, reason = _same_members_cause(case)
    elif not diff.joined and not diff.returned_static:
        cause, reason = _departure_cause(case)
    elif diff.left or diff.returned_static:
        reason = "members joined and left in one rebalance"
    else:
        reason = _describe_members(diff.joined, "joined")
        if diff.same_work:
            cause = RebalanceCause.JOINED
        else:
            reason += ", and more changed"
    return (cause, None, reason) if cause else (RebalanceCause.UNKNOWN, _guess_cause(case), reason)


def _same_members_cause(case: _JournalCase) -> tuple[RebalanceCause | None, str]:
    diff = case.diff
    reason = "nothing changed since the previous generation"
    cause = None
    if case.first.protocol_type == CONNECT_PROTOCOL_TYPE:
        reason = "the same workers, connectors and tasks"
        if diff.work_changed:
            reason = "the same workers; other connectors or tasks"
    elif not diff.readable:
        reason = "the same members; their subscriptions cannot be decoded"
    elif diff.resubscribed or diff.new_topics:
        members_text = _describe_members(diff.resubscribed, "subscribed to other topics")
        reason = members_text or f"new topics: {', '.join(diff.new_topics)}"
        cause = RebalanceCause.SUBSCRIPTION
        if diff.grown or diff.strategy_changed:
            cause, reason = None, f"{reason}, and more changed"
    elif diff.grown:
        reason = f"more partitions: {', '.join(diff.grown)}"
        cause = None if diff.was_owned_before else RebalanceCause.PARTITIONS
    elif diff.strategy_changed:
        cause, reason = RebalanceCause.STRATEGY, "another strategy with the same members"
    elif diff.shrunk:
        reason = f"fewer partitions: {', '.join(diff.shrunk)}"
        cause = RebalanceCause.LEADER if case.first.kind is GroupType.CLASSIC else None
    return cause, reason


def _departure_cause(case: _JournalCase) -> tuple[RebalanceCause | None, str]:
    diff, members_text = case.diff, _describe_members(case.diff.left, "gone")
    if not diff.same_work:
        return None, f"{members_text}, and more changed"
    if {case.before.kind, case.first.kind} != {GroupType.CLASSIC}:
        return None, f"{members_text}: it left or was removed"
    if all(_was_active(case, member) for member in diff.left):
        return RebalanceCause.LEFT, f"{members_text}, soon after a commit"
    return None, f"{members_text}, some time after its last commit"


def _was_active(case: _JournalCase, member: GenerationMember) -> bool:
    session, poll = member.session_timeout, member.rebalance_timeout
    committed = case.last_commit(member)
    if session is None or poll is None or committed is None:
        return False
    if not _leaves_on_slow_poll(member):
        return case.until - committed < session * FRESH_COMMIT_SHARE
    if case.until - committed >= min(session, poll) * FRESH_COMMIT_SHARE:
        return False
    if case.until - _joined_time(case.before) < poll * YOUNG_MEMBER_SHARE:
        return True
    return is_last_commit_early(case.commits, member.assigned, case.until, case.before.at)


def _guess_cause(case: _JournalCase) -> RebalanceCause:
    diff = case.diff
    if diff.left:
        return _guess_departure(case, diff.left[0])
    if diff.returned_static:
        return RebalanceCause.STRATEGY if diff.strategy_changed else RebalanceCause.SESSION_TIMEOUT
    return _cause_from_diff(diff) or RebalanceCause.LEADER


def _guess_departure(case: _JournalCase, member: GenerationMember) -> RebalanceCause:
    is_static = member.group_instance_id is not None
    if case.before.kind is not GroupType.CLASSIC and is_static:
        return RebalanceCause.SESSION_TIMEOUT  # it stays in the group until its session expires
    committed = case.last_commit(member)
    if committed is None:
        return RebalanceCause.SESSION_TIMEOUT if is_static else RebalanceCause.LEFT
    quiet, poll = case.until - committed, member.rebalance_timeout
    if not is_static and poll is not None and quiet >= poll:
        return RebalanceCause.SLOW_POLL
    session = MIN_CONSUMER_SESSION if member.session_timeout is None else member.session_timeout
    if quiet >= session:
        return RebalanceCause.SESSION_TIMEOUT
    is_slow = _commits_to_the_end(case, member)
    return RebalanceCause.SLOW_POLL if is_slow else RebalanceCause.LEFT


def _commits_to_the_end(case: _JournalCase, member: GenerationMember) -> bool:
    """Returns whether a member that may have polled too late committed to the end in a steady
    rhythm. A closing client makes one more commit, and the rebalance follows within a heartbeat.
    """
    stayed, committed = case.until - _joined_time(case.before), case.last_commit(member)
    if not _leaves_on_slow_poll(member) or stayed < (member.rebalance_timeout or 0):
        return False
    gaps = recent_commit_gaps(case.commits, member.assigned, case.until, case.before.at)
    if not _last_gap_share(gaps) >= EARLY_COMMIT_SHARE or committed is None:
        return False
    return bool(gaps[-1] < HEARTBEAT_INTERVAL or case.until - committed > HEARTBEAT_INTERVAL)


def _start_bounds(rebalance: Rebalance, case: _JournalCase | None) -> tuple[int | None, int]:
    """Returns the earliest and the latest possible start. Members also commit after the call to
    join, but a member that left had not left when it committed.
    """
    until = _joined_time(rebalance.rounds[0])
    if rebalance.rounds[0].sampled:
        return rebalance.rounds[0].not_before, until
    if rebalance.after.kind is not GroupType.CLASSIC and not rebalance.unseen:
        return until, until  # the epoch's own entry
    if case is None:
        return None, until
    earliest, diff = case.before.at, case.diff
    if case.gap is None and diff.left and not diff.joined and not diff.returned_static:
        # a member that never committed may have left at once
        ends = [case.last_commit(member) or 0 for member in diff.left]
        earliest = max(earliest, min(ends))
    return min(earliest, until), until


def _joined_time(generation: Generation) -> int:
    """Returns when all members had joined, the last had left, or the epoch was raised."""
    if generation.change is GenerationChange.EMPTIED or generation.state_at is None:
        return generation.at
    return generation.state_at


def _describe_members(members: tuple[GenerationMember, ...], predicate: str) -> str:
    if not members:
        return ""
    names = sorted(one.group_instance_id or one.client_id or one.member_id for one in members)
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{names[0]}{more} {predicate}"


def explain_rebalance(
    rebalance: Rebalance, commits: CommitTimes, lines: Sequence[LogLine] = ()
) -> Explanation:
    # log lines are matched by generation, and samples of a classic group have no real numbers
    numbered = not rebalance.after.sampled or rebalance.after.kind is GroupType.CONSUMER
    explanation = explain_from_log(rebalance, commits, lines) if numbered else None
    return explanation or explain_from_journal(rebalance, commits)
