"""Why a group rebalanced, and how that is known.

Start with :func:`explain_rebalance`. Where the broker's log has lines about a rebalance, the log
states the cause; else the cause is inferred from the journal. The two are never mixed: the journal
does not correct a stated cause, and an inferred cause is not presented as stated.

**Stated by the log.** The first call to join names the cause; what else happened in the same
rebalance is reported beside it. A rebalance in which another strategy came into use is
still one of a member that joined or left, if the log says so; "strategy changed" is the cause only
where a member that was already there came with other strategies.

Some lines leave a cause open, and the generations decide:

- a leader that rejoins because "cached metadata has changed" has seen partitions added, a new topic
  that a pattern matches (its subscription changed), or a change that does not matter to the group;
- the broker of a consumer group does not log why it raised the epoch, unless a member came or went:
  else a subscription changed, or partitions were added;
- a member that left without a reason may have left because it polled too late: clients before 3.2,
  clients other than Java's and members of consumer groups give no reason. A member that joined
  within its poll interval has polled; one whose last commit was out of its rhythm, at the moment it
  left, was closed; one that comes back to a consumer group under the same id was not closed. Where
  that decides nothing, the cause is unknown.

**Inferred from the journal.** The journal has no reasons. What it proves, or all but proves, is a
cause; where two causes would have left the same entries the cause is unknown, and the better guess
is reported as a guess. Known causes are

- **joined**: members came to an empty group, or came while nothing else differs;
- **subscription changed**, **partitions added**: the same members, and that is what differs;
- **strategy changed**: the same members, and another strategy in use;
- **leader rejoined**: the same members, and partitions they asked for no longer exist: the leader
  learns that, and acts;
- **left**: members are gone, nothing else differs, and each of them committed so shortly before
  that its session cannot have expired, and had polled: it joined not long before that, or its last
  commit came too early in a steady rhythm, as the last commit of a client that is closed does.

Not known is

- which was first, where members came and went in one rebalance, or where attempts are not seen;
- whether a member fell silent, polled too late, or left after a while without a commit. A client
  that commits only new offsets stops when nothing is new, and the others may keep a rebalance
  waiting for as long as a session: all three look alike;
- what happened where nothing differs: a member may have come and gone before the others joined;
- how a member of a consumer group went: its session timeout is not in the journal.

A coordinator that stops in the middle of a rebalance leaves no trace: the group is as before, and
begins again. The cause found is then that of the second attempt, which may differ from the first.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from rota.engine.history.client_settings import NO_POLL_LIMIT_LIBRARIES
from rota.engine.history.facts import (
    EvidenceType,
    Explanation,
    Generation,
    GenerationMark,
    GenerationMember,
    GroupType,
    LogLine,
    PartitionsByTopic,
    Rebalance,
    RebalanceCause,
)
from rota.engine.history.generations import generation_distance
from rota.engine.history.rebalances import GenerationDiff, diff_generations

#: The times of each partition's commits, in ascending order.
CommitTimes: TypeAlias = Mapping[tuple[str, int], npt.NDArray[np.int64]]
PartitionCodes: TypeAlias = npt.NDArray[np.int32]
Int64Array: TypeAlias = npt.NDArray[np.int64]
LATEST_TIME = np.iinfo(np.int64).max
#: Commits that are this close count as one.
SAME_COMMIT_GAP = 10
#: Number of equal gaps that make a rhythm.
MIN_RHYTHM_GAPS = 4
#: By how much the longest time between two commits may exceed the shortest.
MAX_RHYTHM_RATIO = 1.25
#: Number of a partition's last commits that are checked for a rhythm.
MAX_RHYTHM_COMMITS = 64
#: A commit that comes before this share of the shortest time is out of the rhythm.
EARLY_COMMIT_SHARE = 0.9


def find_last_commit(
    commits: CommitTimes,
    held: PartitionsByTopic,
    until: int = LATEST_TIME,
    since: int | None = None,
) -> int | None:
    """Returns when these partitions were last committed, up to ``until`` and after ``since``."""
    newest: int | None = None
    for topic, numbers in held.items():
        for number in numbers:
            times = commits.get((topic, number))
            if times is None:
                continue
            position = int(np.searchsorted(times, until, side="right"))
            if position and (newest is None or times[position - 1] > newest):
                newest = int(times[position - 1])
    return None if newest is None or (since is not None and newest <= since) else newest


def is_last_commit_early(
    commits: CommitTimes, held: PartitionsByTopic, until: int, since: int
) -> bool:
    """Whether the last commit of these partitions came too early in a rhythm that was steady.

    A client that commits from time to time commits once more when it is closed, whenever that is.
    One that dies, or polls no more, does not; and if its application or a thread of its own goes on
    to commit meanwhile, its last commit is in the rhythm.
    """
    found = [
        times[np.searchsorted(times, since, side="right") : np.searchsorted(times, until, "right")]
        for topic, numbers in held.items()
        for number in numbers
        if (times := commits.get((topic, number))) is not None
    ]
    if not found:
        return False
    times = np.unique(np.concatenate([one[-MAX_RHYTHM_COMMITS:] for one in found]))
    gaps = np.diff(times)
    gaps = gaps[gaps > SAME_COMMIT_GAP]
    if len(gaps) <= MIN_RHYTHM_GAPS:
        return False
    last, before = gaps[-1], gaps[-1 - MIN_RHYTHM_GAPS : -1]
    return bool(
        before.max() <= before.min() * MAX_RHYTHM_RATIO and last < before.min() * EARLY_COMMIT_SHARE
    )


def list_query_times(generations: Iterable[Generation], lines: Iterable[LogLine]) -> Int64Array:
    """Returns the times at which the commits before them are needed to explain rebalances."""
    found = {line.at for line in lines}
    for generation in generations:
        found.add(generation.at)
        if generation.state_at is not None:
            found.add(generation.state_at)
    return np.array(sorted(found), dtype=np.int64)


def select_commits(
    partition: PartitionCodes, at: Int64Array, asked: Int64Array
) -> npt.NDArray[np.intp]:
    """Returns the commits that can matter, by partition and time.

    These are a partition's last commits up to each query time, and up to the end.
    """
    order = np.lexsort((at, partition))
    partition, at = partition[order], at[order]
    before = np.searchsorted(asked, at)
    changes = (np.diff(partition) != 0) | (np.diff(before) != 0)
    ends = np.append(np.flatnonzero(changes) + 1, len(order))
    sizes = np.diff(ends, prepend=0)
    kept = np.repeat(ends, sizes) - np.arange(len(order)) <= MAX_RHYTHM_COMMITS
    return order[kept]


#: Largest difference between the times of a line and its journal entry.
LOG_TIME_SLACK = 1_000
#: A line with the same generation that is this much older is of a former life of the group.
FORMER_LIFE_AGE = 10_000
#: How long after its last commit a client that is closed leaves.
MAX_CLOSE_DELAY = 250
#: Number of further reasons in an explanation.
MAX_FURTHER_REASONS = 5
NO_REASON = "not provided"
POLL_TIMEOUT_REASON = "poll timeout has expired"
SECOND_ROUND_REASON = "need to revoke partitions"

#: How a client's reason begins where it only asks again, and the reason that it had is lost.
RETRY_REASONS = (
    "encountered ",
    "rebalance failed due to ",
    "group is already rebalancing",
    "offset commit failed since ",
)

_ENDING_LINES = frozenset(("assigned", "emptied"))

#: Reasons that leave nothing open. Ids may hold any words: so the whole is looked at.
_CLEAR_REASONS = (
    (re.compile(r"Adding new member .*", re.DOTALL), RebalanceCause.JOINED),
    (
        re.compile(r"[rR]emoving member .* on heartbeat expiration\.?", re.DOTALL),
        RebalanceCause.SILENT,
    ),
    (
        re.compile(r"Removing .* on pending sync request expiration\.?", re.DOTALL),
        RebalanceCause.SILENT,
    ),
    (re.compile(r"Group's selectedProtocol will change .*", re.DOTALL), RebalanceCause.STRATEGY),
)

_LEAVE_REASON = re.compile(
    r"explicit `LeaveGroup` request for \(.*\) members\.?|[rR]emoving member .* on LeaveGroup\.?",
    re.DOTALL,
)

_LEADER_REASON = re.compile(r"[lL]eader .* re-joining group during \w+", re.DOTALL)

_StatedCause: TypeAlias = tuple[RebalanceCause, RebalanceCause | None, str]


@dataclass(frozen=True, slots=True)
class _LogEvidence:
    """A rebalance and the evidence that explains it."""

    step: Rebalance
    commits: CommitTimes
    lines: Sequence[LogLine]
    #: Positions of the lines that call to join, or raise the epoch; at least one.
    calls: tuple[int, ...]
    #: None if there is no known generation before.
    change: GenerationDiff | None

    @property
    def first(self) -> LogLine:
        return self.lines[self.calls[0]]

    def lines_before_call(self) -> list[LogLine]:
        """Returns the lines that led to the first call, latest first."""
        found = []
        for position in range(self.calls[0] - 1, -1, -1):
            line = self.lines[position]
            if line.what in ("preparing", "epoch", "target", *_ENDING_LINES):
                break
            if line.at < self.first.at - LOG_TIME_SLACK:
                break
            found.append(line)
        return found

    def member(self, member_id: str | None) -> GenerationMember | None:
        members = self.step.before.members if self.step.before is not None else ()
        return next((one for one in members if one.member_id == member_id), None)


def explain_from_log(
    step: Rebalance, commits: CommitTimes, lines: Sequence[LogLine]
) -> Explanation | None:
    """Explains a rebalance by a group's log lines, in log order; None if they say nothing."""
    calls = _find_calls(step, lines)
    if not calls:
        return None
    diff = None
    if step.before is not None:
        diff = diff_generations(step.before, step.rounds[0], step.after)
    evidence = _LogEvidence(step, commits, lines, calls, diff)
    is_classic = step.after.kind is GroupType.CLASSIC
    cause, likely, text = _classic_cause(evidence) if is_classic else _consumer_cause(evidence)
    further = [
        _log_text(lines[call]) for call in calls[1:] if not _is_second_round_call(lines[call])
    ]
    return Explanation(
        cause=cause,
        evidence=EvidenceType.STATED,
        likely=likely,
        reason="; then: ".join([text, *further[:MAX_FURTHER_REASONS]]),
        started_at=evidence.first.at,
        joined_at=_find_stabilized_time(evidence) if is_classic else None,
    )


def find_base_generation(step: Rebalance) -> int:
    """Returns the generation a rebalance began from; the one before its own if not known."""
    known = step.from_generation
    return step.rounds[0].generation - 1 if known is None else known


def _find_calls(step: Rebalance, lines: Sequence[LogLine]) -> tuple[int, ...]:
    """The lines that called to join, or raised the epoch, from the first of a step to its last.

    They are looked for from the end: a group that was deleted begins its numbers anew, so that a
    line with a higher number than the one after it is of a former life.
    """
    base, end = find_base_generation(step), step.after
    what, low, high = "epoch", base + 1, end.generation
    if end.kind is GroupType.CLASSIC:  # a call to join names the generation before
        what, low, high = "preparing", base, end.generation - 1
    found: list[int] = []
    for position in range(bisect_right(lines, end.at + LOG_TIME_SLACK, key=_line_time) - 1, -1, -1):
        line = lines[position]
        number = line.generation
        if line.what == "deleted" or (
            step.before is not None and line.at + LOG_TIME_SLACK < step.before.at
        ):
            break
        if line.what == "loaded" and found:
            break  # what another coordinator had begun is forgotten: the group is loaded at rest
        if number is None:
            continue
        is_former = bool(found) or line.at < end.at - FORMER_LIFE_AGE
        if line.what == what:
            if number < low or (number > high and is_former):
                break
            if number <= high:
                found.append(position)
                high = number
        elif line.what in _ENDING_LINES and (number <= base or (number > high and is_former)):
            break
    return tuple(reversed(found))


def _line_time(line: LogLine) -> int:
    return line.at


def _find_stabilized_time(evidence: _LogEvidence) -> int | None:
    for line in islice(evidence.lines, evidence.calls[0], None):
        if line.at > evidence.step.after.at + LOG_TIME_SLACK:
            break
        if line.what == "stabilized" and line.generation == evidence.step.after.generation:
            return line.at
    return None


def _classic_cause(evidence: _LogEvidence) -> _StatedCause:
    """Finds the cause in the first call to join."""
    call = evidence.first
    text, reason = _log_text(call), call.reason or ""
    for shape, cause in _CLEAR_REASONS:
        if shape.fullmatch(reason):
            return cause, None, text
    if _LEAVE_REASON.fullmatch(reason):
        return _leave_cause(evidence, call)
    if reason.startswith("Downgrade group "):
        return _downgrade_cause(evidence, text)
    if reason.startswith("Updating metadata for ") or _LEADER_REASON.fullmatch(reason):
        return _rejoin_cause(evidence, call, text)
    return RebalanceCause.UNKNOWN, _cause_from_diff(evidence.change), text


def _leave_cause(evidence: _LogEvidence, call: LogLine) -> _StatedCause:
    """Finds the cause of a LeaveGroup request: the call has its reason, or the line before."""
    client, member_id, text = call.client_reason, call.member_id, _log_text(call)
    if client is None:
        gone = [line for line in evidence.lines_before_call() if line.what == "left"]
        if gone:
            client, member_id = gone[0].client_reason, gone[0].member_id
            text = f"{text} {_client_reason_text(client)}" if client else text
    if client is None or client == NO_REASON:
        return _leave_cause_without_reason(evidence, member_id, text)
    return (
        (RebalanceCause.SLOW_POLL if POLL_TIMEOUT_REASON in client else RebalanceCause.LEFT),
        None,
        text,
    )


def _leave_cause_without_reason(
    evidence: _LogEvidence, member_id: str | None, text: str
) -> _StatedCause:
    """Decides whether a member was closed or left because it polled too late."""
    at, member = evidence.first.at, evidence.member(member_id)
    if (
        member is None
        or member.group_instance_id is not None
        or member.library in NO_POLL_LIMIT_LIBRARIES
    ):
        return RebalanceCause.LEFT, None, text  # what is static falls silent
    interval = member.rebalance_timeout or 0
    if _find_last_join(evidence, member.member_id) > at - interval:
        return RebalanceCause.LEFT, None, text
    committed = find_last_commit(evidence.commits, member.assigned, at)
    is_quiet = committed is None or committed <= at - interval
    if evidence.step.before is not None and evidence.step.before.kind is GroupType.CONSUMER:
        return _consumer_leave_cause(evidence, member, text, is_quiet=is_quiet)
    if committed is not None and _is_close_commit(evidence, member, committed):
        return RebalanceCause.LEFT, None, text
    likely = RebalanceCause.SLOW_POLL if is_quiet and committed is not None else RebalanceCause.LEFT
    return RebalanceCause.UNKNOWN, likely, f"{text} It may have polled too late."


def _is_close_commit(evidence: _LogEvidence, member: GenerationMember, committed: int) -> bool:
    """Returns whether the member's last commit is the one that closing a consumer makes."""
    before, at = evidence.step.before, evidence.first.at
    assert before is not None
    in_time = at - committed <= MAX_CLOSE_DELAY
    return in_time and is_last_commit_early(evidence.commits, member.assigned, at, before.at)


def _consumer_leave_cause(
    evidence: _LogEvidence, member: GenerationMember, text: str, *, is_quiet: bool
) -> _StatedCause:
    """A process keeps its member id for life: a closed one does not come back under it."""
    is_back = any(
        line.what == "joined" and line.member_id == member.member_id
        for line in islice(evidence.lines, evidence.calls[0], None)
    )
    # where nobody commits, that it did not says nothing
    is_quiet = is_quiet and find_last_commit(evidence.commits, member.assigned) is not None
    if is_back and is_quiet:
        return RebalanceCause.SLOW_POLL, None, f"{text} It came back under the same member id."
    if is_back:  # or it had unsubscribed
        return (
            RebalanceCause.UNKNOWN,
            RebalanceCause.SLOW_POLL,
            f"{text} It came back under the same member id.",
        )
    if is_quiet:
        return (
            RebalanceCause.UNKNOWN,
            RebalanceCause.SLOW_POLL,
            f"{text} It had not committed for a long time.",
        )
    return RebalanceCause.LEFT, None, text


def _find_last_join(evidence: _LogEvidence, member_id: str) -> int:
    """Returns a time before the member's last JoinGroup request; 0 if not known."""
    before = evidence.step.before
    assert before is not None
    for position in range(evidence.calls[0] - 1, -1, -1):
        line = evidence.lines[position]
        if line.what == "joined" and line.member_id == member_id:
            return line.at
        if before.kind is GroupType.CLASSIC and line.what == "preparing":
            is_its_own = line.generation == before.generation - 1 and line.at <= before.at
            return line.at if is_its_own else 0
    return 0


def _downgrade_cause(evidence: _LogEvidence, text: str) -> _StatedCause:
    """Finds the cause if the last member of the consumer protocol is gone."""
    for line in evidence.lines_before_call():
        if line.what in ("left", "fenced"):
            cause, likely, more = _removal_cause(evidence, line)
            return cause, likely, f"{text} {more}"
    return RebalanceCause.UNKNOWN, _cause_from_diff(evidence.change), text


def _rejoin_cause(evidence: _LogEvidence, call: LogLine, text: str) -> _StatedCause:
    """Finds the cause if a member of the group joined again."""
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
    changed = any(one.member_id == call.member_id for one in diff.resubscribed)
    if changed or (diff.new_topics and "metadata" in client):
        return RebalanceCause.SUBSCRIPTION
    if is_leader:
        return RebalanceCause.PARTITIONS if diff.grown else None
    return RebalanceCause.STRATEGY if diff.strategy and diff.same_members else None


def _consumer_cause(evidence: _LogEvidence) -> _StatedCause:
    """Finds the cause in the line that raised the epoch first."""
    text = _log_text(evidence.first)
    if evidence.step.before is None and evidence.step.known_before:
        return RebalanceCause.JOINED, None, text
    for line in evidence.lines_before_call():
        match line.what:
            case "joined" if evidence.member(line.member_id) is None:  # else it only joined again
                return RebalanceCause.JOINED, None, line.text
            case "left" | "fenced":
                return _removal_cause(evidence, line)
            case "subscribed":
                return RebalanceCause.SUBSCRIPTION, None, line.text
            case "replaced" if evidence.change is not None and not evidence.change.resubscribed:
                return RebalanceCause.STRATEGY, None, line.text  # it came with the other protocol
            case "scanned":
                text = f"{line.text} {text}"
                break
            case _:
                continue
    cause = _cause_from_diff(evidence.change)
    return cause or RebalanceCause.UNKNOWN, None, text


def _removal_cause(evidence: _LogEvidence, line: LogLine) -> _StatedCause:
    """Finds the cause if a member of a consumer group left or was removed."""
    if line.what == "fenced":
        late = "failed to transition" in (line.reason or "")  # it did not give up what it had to
        return (RebalanceCause.SLOW_POLL if late else RebalanceCause.SILENT), None, line.text
    if line.client_reason is not None and line.client_reason != NO_REASON:
        late = POLL_TIMEOUT_REASON in line.client_reason
        return (RebalanceCause.SLOW_POLL if late else RebalanceCause.LEFT), None, line.text
    return _leave_cause_without_reason(evidence, line.member_id, line.text)


def _cause_from_diff(diff: GenerationDiff | None) -> RebalanceCause | None:
    """Returns the cause that the generations show, where a line leaves it open."""
    if diff is None:
        return None
    if diff.joined and not diff.gone:
        return RebalanceCause.JOINED
    if diff.resubscribed or diff.new_topics:
        return RebalanceCause.SUBSCRIPTION
    return RebalanceCause.PARTITIONS if diff.grown else None


def _is_second_round_call(call: LogLine) -> bool:
    return SECOND_ROUND_REASON in (call.client_reason or "")


def _log_text(call: LogLine) -> str:
    if call.what != "preparing" or not call.reason:
        return call.text
    if not call.client_reason:
        return call.reason
    return f"{call.reason}; {_client_reason_text(call.client_reason)}"


def _client_reason_text(reason: str) -> str:
    return f"client reason: {reason}"


#: A commit proves that a member was alive if it is younger than this share of its timeouts. The
#: share is below 1 because a commit in a transaction does not extend the session; the last
#: heartbeat may be older by one interval, which is at most a third of the session timeout.
FRESH_COMMIT_SHARE = 2 / 3
#: A member polls to join. Not long after it has joined, its poll interval cannot be over; half of
#: that, for it may have asked to join well before the others did. A commit alone does not tell that
#: it polled: there are applications that commit while they are slow.
YOUNG_MEMBER_SHARE = 1 / 2
#: Of a consumer group, for a guess: brokers allow less only if told to.
MIN_CONSUMER_SESSION = 6_000

_InferredCause: TypeAlias = tuple[RebalanceCause, RebalanceCause | None, str]


def explain_from_journal(step: Rebalance, commits: CommitTimes) -> Explanation:
    before, first, after = step.before, step.rounds[0], step.after
    case = None
    if before is not None:
        case = _JournalCase(before, first, diff_generations(before, first, after), commits)
    cause, likely, reason = _cause_without_before(step) if case is None else _journal_cause(case)
    earliest, last = _start_bounds(step, case)
    has_joined = after.kind is GroupType.CLASSIC and after.mark is GenerationMark.SETTLED
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
    """Two consecutive generations and the evidence about the rebalance between them."""

    before: Generation
    first: Generation
    diff: GenerationDiff
    commits: CommitTimes

    @property
    def until(self) -> int:
        """The latest time at which the rebalance can have begun."""
        return _joined_time(self.first)

    def last_commit(self, member: GenerationMember) -> int | None:
        return find_last_commit(self.commits, member.assigned, self.until, since=self.before.at)

    @property
    def gap(self) -> str | None:
        """Why the cause cannot be inferred; None if it can."""
        if self.before.sampled or self.first.sampled:
            return "what happened between two samples is not known"
        if generation_distance(self.first.generation, self.before.generation) != 1:
            return "generations in between were not saved"
        if self.diff.is_round_due:
            return "another cooperative round was due"
        if self.diff.lost_members:
            return (
                f"{_describe_members(self.diff.lost_members, 'had lost its partitions')}, and "
                "may have been the cause"
            )
        return None


def _cause_without_before(step: Rebalance) -> _InferredCause:
    if step.known_before:
        return RebalanceCause.JOINED, None, "the group was empty before"
    return RebalanceCause.UNKNOWN, None, "the journal does not have the generation before"


def _journal_cause(case: _JournalCase) -> _InferredCause:
    diff = case.diff
    cause: RebalanceCause | None = None
    if case.gap is not None:
        reason = case.gap
    elif diff.same_members:
        cause, reason = _same_members_cause(case)
    elif not diff.joined and not diff.returned_static:
        cause, reason = _departure_cause(case)
    elif diff.gone or diff.returned_static:
        reason = "members joined and left in one rebalance"
    else:
        cause, reason = _join_cause(case)
    return (cause, None, reason) if cause else (RebalanceCause.UNKNOWN, _guess_cause(case), reason)


def _join_cause(case: _JournalCase) -> tuple[RebalanceCause | None, str]:
    """Members joined and none left."""
    diff, who = case.diff, _describe_members(case.diff.joined, "joined")
    if not diff.same_work:
        return None, f"{who}, and more changed"
    return RebalanceCause.JOINED, who


def _same_members_cause(case: _JournalCase) -> tuple[RebalanceCause | None, str]:
    """No member joined or left."""
    diff = case.diff
    reason = "nothing changed since the generation before"
    cause = None
    if not diff.readable:
        reason = "the same members; their subscriptions cannot be decoded"
    elif diff.resubscribed or diff.new_topics:
        who = _describe_members(diff.resubscribed, "subscribed to other topics")
        reason = who or f"new topics: {', '.join(diff.new_topics)}"
        cause = RebalanceCause.SUBSCRIPTION
        if diff.grown or diff.strategy:
            cause, reason = None, f"{reason}, and more changed"
    elif diff.grown:
        reason = f"more partitions: {', '.join(diff.grown)}"
        cause = None if diff.was_owned_before else RebalanceCause.PARTITIONS
    elif diff.strategy:
        cause, reason = RebalanceCause.STRATEGY, "another strategy with the same members"
    elif diff.shrunk:
        reason = f"fewer partitions: {', '.join(diff.shrunk)}"
        cause = RebalanceCause.LEADER if case.first.kind is GroupType.CLASSIC else None
    return cause, reason


def _departure_cause(case: _JournalCase) -> tuple[RebalanceCause | None, str]:
    """Members left and none joined."""
    diff, who = case.diff, _describe_members(case.diff.gone, "gone")
    if not diff.same_work:
        return None, f"{who}, and more changed"
    if GroupType.CONSUMER in (case.before.kind, case.first.kind):
        return None, f"{who}: it left or was removed"
    if all(_was_active(case, member) for member in diff.gone):
        return RebalanceCause.LEFT, f"{who}, soon after a commit"
    return None, f"{who}, some time after its last commit"


def _was_active(case: _JournalCase, member: GenerationMember) -> bool:
    """Whether a member was active shortly before, so that it was neither silent nor polling
    too late.
    """
    session, poll = member.session_timeout, member.rebalance_timeout
    committed = case.last_commit(member)
    if session is None or poll is None or committed is None:
        return False
    if member.group_instance_id is not None or member.library in NO_POLL_LIMIT_LIBRARIES:
        # such members do not leave because they polled too late
        return case.until - committed < session * FRESH_COMMIT_SHARE
    if case.until - committed >= min(session, poll) * FRESH_COMMIT_SHARE:
        return False
    if case.until - _joined_time(case.before) < poll * YOUNG_MEMBER_SHARE:
        return True
    return is_last_commit_early(case.commits, member.assigned, case.until, case.before.at)


def _guess_cause(case: _JournalCase) -> RebalanceCause:
    """Returns the likeliest cause where it is not known."""
    diff = case.diff
    if diff.gone:
        return _guess_departure(case, diff.gone[0])
    if diff.returned_static:
        return RebalanceCause.STRATEGY if diff.strategy else RebalanceCause.SILENT
    if diff.joined:
        return RebalanceCause.JOINED
    if diff.resubscribed or diff.new_topics:
        return RebalanceCause.SUBSCRIPTION
    return RebalanceCause.PARTITIONS if diff.grown else RebalanceCause.LEADER


def _guess_departure(case: _JournalCase, member: GenerationMember) -> RebalanceCause:
    """Guesses how a member left from the time since its last commit."""
    is_static = member.group_instance_id is not None
    if case.before.kind is GroupType.CONSUMER and is_static:
        return RebalanceCause.SILENT  # it is only away, until its session is over
    committed = case.last_commit(member)
    if committed is None:
        return RebalanceCause.SILENT if is_static else RebalanceCause.LEFT
    quiet, poll = case.until - committed, member.rebalance_timeout
    if not is_static and poll is not None and quiet >= poll:
        return RebalanceCause.SLOW_POLL
    session = MIN_CONSUMER_SESSION if member.session_timeout is None else member.session_timeout
    return RebalanceCause.SILENT if quiet >= session else RebalanceCause.LEFT


def _start_bounds(step: Rebalance, case: _JournalCase | None) -> tuple[int | None, int]:
    """Between when and when it began.

    Members commit while they are called to join, so that a commit does not tell that the group was
    still at rest; only those who are gone had not gone yet when they committed.
    """
    until = _joined_time(step.rounds[0])
    if step.rounds[0].sampled:
        return step.rounds[0].not_before, until
    if step.after.kind is GroupType.CONSUMER and not step.unseen:
        return until, until  # the epoch's own entry
    if case is None:
        return None, until
    earliest, diff = case.before.at, case.diff
    if case.gap is None and diff.gone and not diff.joined and not diff.returned_static:
        # of one that never committed nothing is known: it may have gone at once
        ends = [case.last_commit(member) or 0 for member in diff.gone]
        earliest = max(earliest, min(ends))
    return min(earliest, until), until


def _joined_time(generation: Generation) -> int:
    """Returns when all had joined, when the last had left, or when the epoch was raised."""
    if generation.mark is GenerationMark.EMPTIED or generation.state_at is None:
        return generation.at
    return generation.state_at


def _describe_members(members: tuple[GenerationMember, ...], what: str) -> str:
    if not members:
        return ""
    names = sorted(one.group_instance_id or one.client_id or one.member_id for one in members)
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{names[0]}{more} {what}"


def explain_rebalance(
    step: Rebalance, commits: CommitTimes, lines: Sequence[LogLine] = ()
) -> Explanation:
    """Why a step was taken.

    ``commits`` are those of the group, ``lines`` the broker's about it in the order of its log: by
    time, and as they stood in the file where times are equal.
    """
    found = explain_from_log(step, commits, lines) if _has_real_numbers(step.after) else None
    return found or explain_from_journal(step, commits)


def _has_real_numbers(generation: Generation) -> bool:
    """Lines are matched by generation, which samples of a classic group do not have."""
    return not generation.sampled or generation.kind is GroupType.CONSUMER
