"""Why a group rebalanced, as far as the journal alone can tell.

The journal has no reasons. What it proves, or all but proves, is a cause; where two causes would
have left the same entries it is unknown, and the better guess is told as such.

Known are

- **joined**: members came to an empty group, or came while nothing else differs;
- **subscription changed**, **partitions added**: the same members, and that is what differs;
- **strategy changed**: the same members, and another strategy in use;
- **leader rejoined**: the same members, and partitions they asked for are no more: who is told of
  that, and acts, is the leader;
- **left**: members are gone, nothing else differs, and each of them committed so shortly before
  that its session cannot have been over, and had polled: it joined not long before that, or its
  last commit came too early in a steady rhythm, as that of a client that is closed does.

Not known is

- which was first, where members came and went in one rebalance, or where attempts are not seen;
- whether a member fell silent, polled too late, or left after a while without a commit. One that
  commits only what is new stops when nothing is new, and the others may keep a rebalance waiting
  for as long as a session: all three look alike;
- what happened where nothing differs: a member may have come and gone before the others joined;
- how a member of a consumer group went: its session timeout is not in the journal.

A coordinator that stops in the middle of a rebalance leaves no trace: the group is as before, and
begins again. What shows then is taken for the cause, though it may not be what it began with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from rota.replay.change import Change, change
from rota.replay.commit import Commits, is_out_of_rhythm, latest
from rota.replay.course import ahead
from rota.replay.fact import (
    Cause,
    Evidence,
    Explanation,
    Generation,
    GenerationMember,
    Kind,
    Mark,
    Step,
)
from rota.replay.library import NEVER_LATE

FRESH = 2 / 3
"""A commit tells that a member was there if it is younger than this share of its timeouts. Not the
whole: a commit in a transaction is no sign of life to the broker, so that the session may be older
by a heartbeat, which is to be at most a third of it."""
YOUNG = 1 / 2
"""A member polls to join. Not long after it has joined, its poll interval cannot be over; half of
that, for it may have asked to join well before the others did. A commit alone does not tell that it
polled: there are applications that commit while they are slow."""
SHORTEST_SESSION = 6_000
"""Of a consumer group, for a guess: brokers allow less only if told to."""

_Told: TypeAlias = tuple[Cause, Cause | None, str]


def explain(step: Step, commits: Commits) -> Explanation:
    """What the journal says about a step."""
    before, first, after = step.before, step.rounds[0], step.after
    case = None
    if before is not None:
        case = _Case(before, first, change(before, first, after), commits)
    cause, likely, reason = _from_nothing(step) if case is None else _cause(case)
    earliest, last = _start(step, case)
    has_joined = after.kind is Kind.CLASSIC and after.mark is Mark.SETTLED
    return Explanation(
        cause=cause,
        evidence=Evidence.SAMPLED if after.sampled else Evidence.INFERRED,
        likely=likely,
        reason=reason,
        joined_at=after.state_at if has_joined else None,
        earliest_start=earliest,
        latest_start=last,
    )


@dataclass(frozen=True, slots=True)
class _Case:
    """Two generations that follow each other, and what there is to tell why."""

    before: Generation
    first: Generation
    differs: Change
    commits: Commits

    @property
    def until(self) -> int:
        """It had begun by then."""
        return _joined(self.first)

    def last_commit(self, member: GenerationMember) -> int | None:
        """When a member of the generation before committed last."""
        return latest(self.commits, member.assigned, self.until, since=self.before.at)

    @property
    def gap(self) -> str | None:
        """Why it is not known what led from one to the other."""
        if self.before.sampled or self.first.sampled:
            return "what happened between two samples is not known"
        if ahead(self.first.generation, self.before.generation) != 1:
            return "generations in between were not saved"
        if self.differs.due:
            return "another round was to follow anyway"
        if self.differs.astray:
            return f"{_named(self.differs.astray, 'had lost what it had')}, and may have been first"
        return None


def _from_nothing(step: Step) -> _Told:
    """Where there is no generation before."""
    if step.known_before:
        return Cause.JOINED, None, "the group was empty before"
    return Cause.UNKNOWN, None, "the generation before is not in the evidence"


def _cause(case: _Case) -> _Told:
    differs = case.differs
    cause: Cause | None = None
    if case.gap is not None:
        reason = case.gap
    elif differs.same_members:
        cause, reason = _same_members(case)
    elif not differs.came and not differs.renewed:
        cause, reason = _went(case)
    elif differs.went or differs.renewed:
        reason = "members came and went in one rebalance"
    else:
        cause, reason = _came(case)
    return (cause, None, reason) if cause else (Cause.UNKNOWN, _guess(case), reason)


def _came(case: _Case) -> tuple[Cause | None, str]:
    """Members came, and nobody went."""
    differs, who = case.differs, _named(case.differs.came, "joined")
    if not differs.same_work:
        return None, f"{who}, and more has changed"
    return Cause.JOINED, who


def _same_members(case: _Case) -> tuple[Cause | None, str]:
    """Nobody came or went."""
    differs = case.differs
    reason = "nothing differs from the generation before"
    cause = None
    if not differs.readable:
        reason = "the same members; what they asked for cannot be read"
    elif differs.resubscribed or differs.found:
        who = _named(differs.resubscribed, "asked for other topics")
        reason = who or f"new topics: {', '.join(differs.found)}"
        cause = Cause.SUBSCRIPTION
        if differs.grown or differs.strategy:
            cause, reason = None, f"{reason}, and more has changed"
    elif differs.grown:
        reason = f"more partitions: {', '.join(differs.grown)}"
        cause = None if differs.regained else Cause.PARTITIONS
    elif differs.strategy:
        cause, reason = Cause.STRATEGY, "another strategy with the same members"
    elif differs.shrunk:
        reason = f"fewer partitions: {', '.join(differs.shrunk)}"
        cause = Cause.LEADER if case.first.kind is Kind.CLASSIC else None
    return cause, reason


def _went(case: _Case) -> tuple[Cause | None, str]:
    """Members went, and nobody came."""
    differs, who = case.differs, _named(case.differs.went, "gone")
    if not differs.same_work:
        return None, f"{who}, and more has changed"
    if Kind.CONSUMER in (case.before.kind, case.first.kind):
        return None, f"{who}: by itself or put out"
    if all(_was_there(case, member) for member in differs.went):
        return Cause.LEFT, f"{who}, soon after a commit"
    return None, f"{who}, some time after its last commit"


def _was_there(case: _Case, member: GenerationMember) -> bool:
    """Shortly before, so that it was neither silent nor polling too late."""
    session, poll = member.session_timeout, member.rebalance_timeout
    committed = case.last_commit(member)
    if session is None or poll is None or committed is None:
        return False
    if member.static_id is not None or member.library in NEVER_LATE:
        return case.until - committed < session * FRESH  # such do not leave for polling too late
    if case.until - committed >= min(session, poll) * FRESH:
        return False
    if case.until - _joined(case.before) < poll * YOUNG:
        return True
    return is_out_of_rhythm(case.commits, member.assigned, case.until, case.before.at)


def _guess(case: _Case) -> Cause:
    """What is the likeliest, where it is not known."""
    differs = case.differs
    if differs.went:
        return _likely_end(case, differs.went[0])
    if differs.renewed:
        return Cause.STRATEGY if differs.strategy else Cause.SILENT
    if differs.came:
        return Cause.JOINED
    if differs.resubscribed or differs.found:
        return Cause.SUBSCRIPTION
    return Cause.PARTITIONS if differs.grown else Cause.LEADER


def _likely_end(case: _Case, member: GenerationMember) -> Cause:
    """How a member went, by how long it had not committed."""
    is_static = member.static_id is not None
    if case.before.kind is Kind.CONSUMER and is_static:
        return Cause.SILENT  # it is only away, until its session is over
    committed = case.last_commit(member)
    if committed is None:
        return Cause.SILENT if is_static else Cause.LEFT
    quiet, poll = case.until - committed, member.rebalance_timeout
    if not is_static and poll is not None and quiet >= poll:
        return Cause.SLOW_POLL
    session = SHORTEST_SESSION if member.session_timeout is None else member.session_timeout
    return Cause.SILENT if quiet >= session else Cause.LEFT


def _start(step: Step, case: _Case | None) -> tuple[int | None, int]:
    """Between when and when it began.

    Members commit while they are called to join, so that a commit does not tell that the group was
    still at rest; only those who are gone had not gone yet when they committed.
    """
    until = _joined(step.rounds[0])
    if step.rounds[0].sampled:
        return step.rounds[0].not_before, until
    if step.after.kind is Kind.CONSUMER and not step.unseen:
        return until, until  # the epoch's own entry
    if case is None:
        return None, until
    earliest, differs = case.before.at, case.differs
    if case.gap is None and differs.went and not differs.came and not differs.renewed:
        # of one that never committed nothing is known: it may have gone at once
        ends = [case.last_commit(member) or 0 for member in differs.went]
        earliest = max(earliest, min(ends))
    return min(earliest, until), until


def _joined(generation: Generation) -> int:
    """When all had joined it; when the last was gone; when the epoch was raised."""
    if generation.mark is Mark.EMPTIED or generation.state_at is None:
        return generation.at
    return generation.state_at


def _named(members: tuple[GenerationMember, ...], what: str) -> str:
    """The first of them, and how many more."""
    if not members:
        return ""
    names = sorted(one.static_id or one.client_id or one.member_id for one in members)
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{names[0]}{more} {what}"
