"""How long a rebalance is expected to take, and the downtime that it is expected to cause.

What-if (``whatif.py``) and ``rota plan`` use the same functions of :class:`GroupTiming`:

- Members learn of a rebalance from their next heartbeat. Heartbeats begin anew with each rebalance,
  so they are nearly simultaneous at first and drift apart with each interval.
- Eager: a member revokes its partitions when it learns of the rebalance, and gets partitions again
  when all have joined and the leader's assignment is there.
- Cooperative: only partitions that move are revoked, at the end of the first round. A member that
  has revoked joins again at once, and that starts the second round; the others learn of it one
  heartbeat interval later, because all heartbeats began anew with the first round.
- KIP-848: a partition that moves waits for the next heartbeat of its new owner. The broker computes
  a new assignment at most once in ``consumer.assignment.interval.ms`` (KIP-1263).
- The partitions of a member that left wait until the members have joined and are assigned; those of
  a member that crashed wait for the end of its session before.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import assert_never

from rota.engine.history.facts import DEFAULT_SESSION_TIMEOUT
from rota.engine.history.heartbeats import HEARTBEAT_STEP, Heartbeats
from rota.engine.history.policies import PolicyProtocol
from rota.engine.history.restarts import MembershipEvent

DEFAULT_SYNC_TIME = 20  # from the end of the join phase to the assignments, if unknown
RESPONSE_TIME = 5  # the time from the coordinator's response to the member's action
INITIAL_REBALANCE_DELAY = 3_000  # ``group.initial.rebalance.delay.ms``, for a group without members
MAX_USUAL_JOIN_TIME = 10_000  # longer join phases wait for a late member
#: Kafka's defaults of ``group.consumer.heartbeat.interval.ms``,
#: ``group.consumer.session.timeout.ms`` and, from Kafka 4.3,
#: ``group.consumer.assignment.interval.ms``.
CONSUMER_HEARTBEAT_INTERVAL = 5_000
CONSUMER_SESSION_TIMEOUT = 45_000
ASSIGNMENT_INTERVAL = 1_000
LONG_STABLE = 3_600_000  # after so long, heartbeats are spread over the whole interval


@dataclass(frozen=True, slots=True)
class GroupTiming:
    """The times of a group's protocol, in milliseconds; the defaults are Kafka's."""

    heartbeats: Heartbeats = field(default_factory=Heartbeats)
    sync_time: int = DEFAULT_SYNC_TIME
    session_timeout: int = DEFAULT_SESSION_TIMEOUT
    stable_time: int = LONG_STABLE

    @classmethod
    def from_history(cls, events: Iterable[MembershipEvent], heartbeats: Heartbeats) -> GroupTiming:
        known = [one.times for one in events if one.times is not None and one.rebalance is not None]
        second = sorted(
            join
            for times in known
            for join in times.later_joins
            if HEARTBEAT_STEP <= join < MAX_USUAL_JOIN_TIME
        )
        if second and not heartbeats.is_known:
            heartbeats = heartbeats.with_second_join(second[len(second) // 2])
        syncs = sorted(times.assigned - times.joined for times in known)
        sync = syncs[len(syncs) // 2] if syncs else DEFAULT_SYNC_TIME
        return cls(heartbeats, max(sync, 0))

    @property
    def second_join_time(self) -> int:
        """The time from the first round of a cooperative rebalance until all have joined again."""
        return self.heartbeats.interval + self.heartbeats.drift

    def join_time(self, members: int, since_last: int = LONG_STABLE) -> int:
        """Returns the time until the last member learns of a rebalance by its heartbeat.

        :param members: 0: a new member waits for others to join a group without members
        """
        if not members:
            return INITIAL_REBALANCE_DELAY
        return self.heartbeats.expect_waits(members, since_last).longest

    @property
    def absent_time(self) -> int:
        """From a silent member's end to that of its session, which began at its last heartbeat."""
        return self.session_timeout - self.heartbeats.interval // 2

    def revoked_time(
        self,
        protocol: PolicyProtocol,
        members: int,
        join_time: int,
        since_last: int = LONG_STABLE,
        sync_time: int | None = None,
    ) -> int:
        """Returns how long a revoked partition waits; ``members``: those that hear by heartbeat."""
        match protocol:
            case PolicyProtocol.CONSUMER:
                return CONSUMER_HEARTBEAT_INTERVAL // 2
            case PolicyProtocol.COOPERATIVE:
                return self.second_join_time + self.sync_time + RESPONSE_TIME
            case PolicyProtocol.EAGER:
                waits = self.heartbeats.expect_waits(members, since_last)
                synced = self.sync_time if sync_time is None else sync_time
                return waits.mean_revoked_time(join_time) + synced + RESPONSE_TIME
            case _:
                assert_never(protocol)

    def orphaned_time(self, protocol: PolicyProtocol, join_time: int) -> int:
        """Returns how long the partitions of a member that left are without a consumer."""
        if protocol is PolicyProtocol.CONSUMER:
            return CONSUMER_HEARTBEAT_INTERVAL // 2
        return join_time + self.sync_time + RESPONSE_TIME
