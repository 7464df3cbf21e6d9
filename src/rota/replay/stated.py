"""Why a group rebalanced, as the broker's log states it.

The first call to join names the cause; what else fell into the same rebalance is told beside it.
A rebalance in which another strategy came to be used is still one of a member that joined or left,
if that is what the log says; "strategy changed" is the cause only where a member that was already
there came with other strategies.

Some lines leave a cause open, and the generations decide:

- a leader that rejoins because "cached metadata has changed" has seen partitions added, a new topic
  that a pattern matches (its subscription changed), or what changed nothing for the group;
- a consumer group's broker does not log why it raised the epoch, unless a member came or went:
  else a subscription changed, or partitions were added;
- a member that left without a reason may have left because it polled too late: clients before 3.2,
  clients other than Java's and members of consumer groups give none. Whoever joined within its poll
  interval has polled; whose last commit came out of its rhythm, at the moment that it left, was
  closed; whoever comes back to a consumer group under the same id was not. Where that decides
  nothing, the cause is unknown.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

from rota.replay.change import Change, change
from rota.replay.commit import Commits, is_out_of_rhythm, latest
from rota.replay.fact import Cause, Evidence, Explanation, GenerationMember, Kind, LogLine, Step
from rota.replay.library import NEVER_LATE

SLACK = 1_000
"""How far a line may seem to be from the entry that it belongs to."""
FORMER = 10_000
"""A line with a step's number that is so much older is of a former life of the group."""
CLOSING = 250
"""How long after its last commit a client that is closed leaves."""
TOLD = 5
"""So many further reasons are told."""
NO_REASON = "not provided"
POLL_TIMEOUT = "poll timeout has expired"
SECOND_ROUND = "need to revoke partitions"
RETRIED = (
    "encountered ",
    "rebalance failed due to ",
    "group is already rebalancing",
    "offset commit failed since ",
)
"""How a client's reason begins where it only asks again, and the reason that it had is lost."""

_ENDS = frozenset(("assigned", "emptied"))
_PLAIN = (
    (re.compile(r"Adding new member .*", re.DOTALL), Cause.JOINED),
    (re.compile(r"[rR]emoving member .* on heartbeat expiration\.?", re.DOTALL), Cause.SILENT),
    (re.compile(r"Removing .* on pending sync request expiration\.?", re.DOTALL), Cause.SILENT),
    (re.compile(r"Group's selectedProtocol will change .*", re.DOTALL), Cause.STRATEGY),
)
"""Reasons that leave nothing open. Ids may hold any words: so the whole is looked at."""
_LEAVE = re.compile(
    r"explicit `LeaveGroup` request for \(.*\) members\.?|[rR]emoving member .* on LeaveGroup\.?",
    re.DOTALL,
)
_LEADER = re.compile(r"[lL]eader .* re-joining group during \w+", re.DOTALL)
_Told: TypeAlias = tuple[Cause, Cause | None, str]


@dataclass(frozen=True, slots=True)
class _Evidence:
    """A step with what there is to explain it by."""

    step: Step
    commits: Commits
    lines: Sequence[LogLine]
    calls: tuple[int, ...]
    """Which lines called the members to join, or raised the epoch: at least one."""
    change: Change | None
    """None where the generation before is none, or not known."""

    @property
    def first(self) -> LogLine:
        return self.lines[self.calls[0]]

    def just_before(self) -> list[LogLine]:
        """The lines that led to the first call, latest first; they were written with it."""
        found = []
        for position in range(self.calls[0] - 1, -1, -1):
            line = self.lines[position]
            if line.what in ("preparing", "epoch", "target", *_ENDS):
                break
            if line.at < self.first.at - SLACK:
                break
            found.append(line)
        return found

    def member(self, member_id: str | None) -> GenerationMember | None:
        """A member as it was before."""
        members = self.step.before.members if self.step.before is not None else ()
        return next((one for one in members if one.member_id == member_id), None)


def explain(step: Step, commits: Commits, lines: Sequence[LogLine]) -> Explanation | None:
    """What a group's lines, in the order of the log, say about a step; None if they say nothing."""
    calls = _calls(step, lines)
    if not calls:
        return None
    differs = None
    if step.before is not None:
        differs = change(step.before, step.rounds[0], step.after)
    seen = _Evidence(step, commits, lines, calls, differs)
    is_classic = step.after.kind is Kind.CLASSIC
    cause, likely, said = _classic(seen) if is_classic else _consumer(seen)
    further = [_words(lines[call]) for call in calls[1:] if not _is_second_round(lines[call])]
    return Explanation(
        cause=cause,
        evidence=Evidence.STATED,
        likely=likely,
        reason="; then: ".join([said, *further[:TOLD]]),
        started_at=seen.first.at,
        joined_at=_joined_at(seen) if is_classic else None,
    )


def base_generation(step: Step) -> int:
    """The generation that a step began from; where that is not known, the one before its own."""
    known = step.from_generation
    return step.rounds[0].generation - 1 if known is None else known


def _calls(step: Step, lines: Sequence[LogLine]) -> tuple[int, ...]:
    """The lines that called to join, or raised the epoch, from the first of a step to its last.

    They are looked for from the end: a group that was deleted begins its numbers anew, so that a
    line with a higher number than the one after it is of a former life.
    """
    base, end = base_generation(step), step.after
    what, low, high = "epoch", base + 1, end.generation
    if end.kind is Kind.CLASSIC:  # a call to join names the generation before
        what, low, high = "preparing", base, end.generation - 1
    found: list[int] = []
    for position in range(bisect_right(lines, end.at + SLACK, key=_at) - 1, -1, -1):
        line = lines[position]
        number = line.generation
        if line.what == "deleted" or (step.before is not None and line.at + SLACK < step.before.at):
            break
        if line.what == "loaded" and found:
            break  # what another coordinator had begun is forgotten: the group is loaded at rest
        if number is None:
            continue
        is_former = bool(found) or line.at < end.at - FORMER
        if line.what == what:
            if number < low or (number > high and is_former):
                break
            if number <= high:
                found.append(position)
                high = number
        elif line.what in _ENDS and (number <= base or (number > high and is_former)):
            break
    return tuple(reversed(found))


def _at(line: LogLine) -> int:
    return line.at


def _joined_at(seen: _Evidence) -> int | None:
    """When all had joined the last round."""
    for line in islice(seen.lines, seen.calls[0], None):
        if line.at > seen.step.after.at + SLACK:
            break
        if line.what == "stabilized" and line.generation == seen.step.after.generation:
            return line.at
    return None


def _classic(seen: _Evidence) -> _Told:
    """By the first call to join."""
    call = seen.first
    said, reason = _words(call), call.reason or ""
    for shape, cause in _PLAIN:
        if shape.fullmatch(reason):
            return cause, None, said
    if _LEAVE.fullmatch(reason):
        return _left(seen, call)
    if reason.startswith("Downgrade group "):
        return _downgraded(seen, said)
    if reason.startswith("Updating metadata for ") or _LEADER.fullmatch(reason):
        return _rejoined(seen, call, said)
    return Cause.UNKNOWN, _by_change(seen.change), said


def _left(seen: _Evidence, call: LogLine) -> _Told:
    """A member left by a request: the call gives its reason, or the line before does."""
    client, member_id, said = call.client_reason, call.member_id, _words(call)
    if client is None:
        gone = [line for line in seen.just_before() if line.what == "left"]
        if gone:
            client, member_id = gone[0].client_reason, gone[0].member_id
            said = f"{said} {_client(client)}" if client else said
    if client is None or client == NO_REASON:
        return _left_without_reason(seen, member_id, said)
    return (Cause.SLOW_POLL if POLL_TIMEOUT in client else Cause.LEFT), None, said


def _left_without_reason(seen: _Evidence, member_id: str | None, said: str) -> _Told:
    """It was closed, or it left by itself because it polled too late."""
    at, member = seen.first.at, seen.member(member_id)
    if member is None or member.static_id is not None or member.library in NEVER_LATE:
        return Cause.LEFT, None, said  # what is static falls silent
    interval = member.rebalance_timeout or 0
    if _joined_last(seen, member.member_id) > at - interval:
        return Cause.LEFT, None, said
    committed = latest(seen.commits, member.assigned, at)
    is_quiet = committed is None or committed <= at - interval
    if seen.step.before is not None and seen.step.before.kind is Kind.CONSUMER:
        return _left_consumer_group(seen, member, said, is_quiet=is_quiet)
    if committed is not None and _is_closing(seen, member, committed):
        return Cause.LEFT, None, said
    likely = Cause.SLOW_POLL if is_quiet and committed is not None else Cause.LEFT
    return Cause.UNKNOWN, likely, f"{said} It may have polled too late."


def _is_closing(seen: _Evidence, member: GenerationMember, committed: int) -> bool:
    """Its last commit was made to leave."""
    before, at = seen.step.before, seen.first.at
    assert before is not None
    in_time = at - committed <= CLOSING
    return in_time and is_out_of_rhythm(seen.commits, member.assigned, at, before.at)


def _left_consumer_group(
    seen: _Evidence, member: GenerationMember, said: str, *, is_quiet: bool
) -> _Told:
    """A process keeps its id for life: one that was closed does not come back under it."""
    is_back = any(
        line.what == "joined" and line.member_id == member.member_id
        for line in islice(seen.lines, seen.calls[0], None)
    )
    # where nobody commits, that it did not says nothing
    is_quiet = is_quiet and latest(seen.commits, member.assigned) is not None
    if is_back and is_quiet:
        return Cause.SLOW_POLL, None, f"{said} It came back under the same id."
    if is_back:  # or it had unsubscribed
        return Cause.UNKNOWN, Cause.SLOW_POLL, f"{said} It came back under the same id."
    if is_quiet:
        return Cause.UNKNOWN, Cause.SLOW_POLL, f"{said} It had not committed for long."
    return Cause.LEFT, None, said


def _joined_last(seen: _Evidence, member_id: str) -> int:
    """When it surely had not asked to join yet, the last time that it did; 0 if not known."""
    before = seen.step.before
    assert before is not None
    for position in range(seen.calls[0] - 1, -1, -1):
        line = seen.lines[position]
        if line.what == "joined" and line.member_id == member_id:
            return line.at
        if before.kind is Kind.CLASSIC and line.what == "preparing":
            is_its_own = line.generation == before.generation - 1 and line.at <= before.at
            return line.at if is_its_own else 0
    return 0


def _downgraded(seen: _Evidence, said: str) -> _Told:
    """The last member of the consumer protocol is gone, and the group is a classic one again."""
    for line in seen.just_before():
        if line.what in ("left", "fenced"):
            cause, likely, more = _gone(seen, line)
            return cause, likely, f"{said} {more}"
    return Cause.UNKNOWN, _by_change(seen.change), said


def _rejoined(seen: _Evidence, call: LogLine, said: str) -> _Told:
    """A member that was there joined again: with other topics, for new partitions, for nothing."""
    client, differs = call.client_reason or NO_REASON, seen.change
    is_leader = _LEADER.fullmatch(call.reason or "") is not None
    cause = None
    if client.startswith("subscription has changed") or "current subscription" in client:
        cause = Cause.SUBSCRIPTION
    elif client.startswith(RETRIED):
        likely = _by_change(differs) or (Cause.LEADER if is_leader else None)
        return Cause.UNKNOWN, likely, said
    elif differs is not None and SECOND_ROUND not in client:
        cause = _changed(differs, call, client, is_leader=is_leader)
    if cause is None and is_leader:
        cause = Cause.LEADER
    return (cause, None, said) if cause else (Cause.UNKNOWN, _by_change(differs), said)


def _changed(differs: Change, call: LogLine, client: str, *, is_leader: bool) -> Cause | None:
    """What a member that joined again did it for."""
    changed = any(one.member_id == call.member_id for one in differs.resubscribed)
    if changed or (differs.found and "metadata" in client):
        return Cause.SUBSCRIPTION
    if is_leader:
        return Cause.PARTITIONS if differs.grown else None
    return Cause.STRATEGY if differs.strategy and differs.same_members else None


def _consumer(seen: _Evidence) -> _Told:
    """By the line with which the epoch was raised first."""
    said = _words(seen.first)
    if seen.step.before is None and seen.step.known_before:
        return Cause.JOINED, None, said
    for line in seen.just_before():
        match line.what:
            case "joined" if seen.member(line.member_id) is None:  # else it only joined again
                return Cause.JOINED, None, line.text
            case "left" | "fenced":
                return _gone(seen, line)
            case "subscribed":
                return Cause.SUBSCRIPTION, None, line.text
            case "replaced" if seen.change is not None and not seen.change.resubscribed:
                return Cause.STRATEGY, None, line.text  # it came with the other protocol
            case "scanned":
                said = f"{line.text} {said}"
                break
            case _:
                continue
    cause = _by_change(seen.change)
    return cause or Cause.UNKNOWN, None, said


def _gone(seen: _Evidence, line: LogLine) -> _Told:
    """A consumer group's member left, or was put out."""
    if line.what == "fenced":
        late = "failed to transition" in (line.reason or "")  # it did not give up what it had to
        return (Cause.SLOW_POLL if late else Cause.SILENT), None, line.text
    if line.client_reason is not None and line.client_reason != NO_REASON:
        late = POLL_TIMEOUT in line.client_reason
        return (Cause.SLOW_POLL if late else Cause.LEFT), None, line.text
    return _left_without_reason(seen, line.member_id, line.text)


def _by_change(differs: Change | None) -> Cause | None:
    """What the generations show, where a line leaves it open."""
    if differs is None:
        return None
    if differs.came and not differs.went:
        return Cause.JOINED
    if differs.resubscribed or differs.found:
        return Cause.SUBSCRIPTION
    return Cause.PARTITIONS if differs.grown else None


def _is_second_round(call: LogLine) -> bool:
    return SECOND_ROUND in (call.client_reason or "")


def _words(call: LogLine) -> str:
    """The broker's own words."""
    if call.what != "preparing" or not call.reason:
        return call.text
    return f"{call.reason}{'; ' + _client(call.client_reason) if call.client_reason else ''}"


def _client(reason: str) -> str:
    return f"client reason: {reason}"
