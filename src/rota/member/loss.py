"""Why a member is no longer of its generation: which deadline was missed, and what to set."""

from __future__ import annotations

from dataclasses import dataclass, field

from rota.model.config import MemberConfig


def seconds(milliseconds: int) -> str:
    """For people: ``12.3 s``."""
    return f"{milliseconds / 1000:.1f} s"


@dataclass(slots=True)
class Presence:
    """When the application last was in a poll, and when the coordinator last answered."""

    left_poll: int | None = None
    """None: it is inside one, or has not polled."""
    heard: int = 0
    polled_late: bool = False
    """The application did not poll in time; forgotten with the next generation."""
    silence: int = field(default=0, init=False)
    """How long the application had been away when it polled again, if it was late."""

    def enter_poll(self, now: int) -> None:
        """The application polls."""
        if self.left_poll is not None and self.polled_late and not self.silence:
            self.silence = now - self.left_poll
        self.left_poll = None

    def leave_poll(self, now: int) -> None:
        """The application works on what it got."""
        self.left_poll = now

    def renew(self, now: int) -> None:
        """A new generation: what was missed before does not count any more."""
        self.heard = now
        self.polled_late = False
        self.silence = 0

    def absence(self, now: int) -> int:
        """How long the application has not polled, or had not when it was late."""
        return self.silence or (0 if self.left_poll is None else now - self.left_poll)


@dataclass(frozen=True, slots=True)
class Loss:
    """A generation was given up."""

    reason: str
    generation: int
    silent_for: int
    """How long no heartbeat had been answered."""
    left: bool = False
    """By the member's own will; else the coordinator said so."""


def explain(loss: Loss | None, presence: Presence, config: MemberConfig, now: int) -> str:
    """What the application should know who commits for a generation that it is not of."""
    if loss is None:
        return "this member has not joined the group: poll first"
    if presence.polled_late:
        return _late_poll(presence.absence(now), config.max_poll_interval)
    if loss.left:
        return f"this member has left the group: {loss.reason}"
    was = f"generation {loss.generation} of this member is over ({loss.reason})"
    # the broker counts from when it heard of the member, which is a bit before the answer came
    if loss.silent_for + config.heartbeat_interval >= config.session_timeout:
        return f"{was}: {_silence(loss.silent_for, config.session_timeout)}"
    return (
        f"{was}, though a heartbeat was answered {seconds(loss.silent_for)} before: neither "
        "session.timeout.ms nor max.poll.interval.ms was missed. The member was removed by "
        "an administrator, or the coordinator has lost its group"
    )


def _late_poll(absence: int, allowed: int) -> str:
    return (
        f"the application has not polled for {seconds(absence)}, "
        f"{seconds(max(absence - allowed, 0))} longer than max.poll.interval.ms = {allowed} allows,"
        " so the member left the group. Set max.poll.interval.ms higher, or max.poll.records lower"
        " for less work between two polls"
    )


def _silence(silence: int, allowed: int) -> str:
    return (
        f"no heartbeat was answered for {seconds(silence)}, and after session.timeout.ms = "
        f"{allowed} the coordinator gives a member up. Did the process or the network stand still "
        "for so long? Then set session.timeout.ms higher"
    )
