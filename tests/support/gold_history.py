"""The history of a made-up group: members come and go, and a real strategy places partitions."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rota.engine.assignors.registry import resolve_strategy
from rota.engine.history.facts import (
    Generation,
    GenerationChange,
    GenerationMember,
    GroupType,
    LogLine,
    PartitionOwnership,
)
from rota.engine.history.generations import OwnershipTracker
from rota.engine.model.member import Subscription
from rota.engine.model.topic import Cluster, Partitions

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
SESSION = 45 * SECOND


@dataclass(kw_only=True)
class History:
    """A classic group; every change of its members is a rebalance that is over at once.

    Times are milliseconds since 1970, and do not run backwards.
    """

    group: str
    topics: Mapping[str, int]
    strategy: str = "range"
    protocol_type: str = "consumer"
    library: str | None = "java"
    sampled: bool = False
    seed: int = 0
    generations: list[Generation] = field(default_factory=list)
    lines: list[LogLine] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(f"{self.seed} {self.group}")
        #: The member id of each client that is there.
        self._here: dict[str, str] = {}
        self._ledger = OwnershipTracker(self.group)

    def join(self, clients: Iterable[str], at: int, *, stated: bool = False) -> None:
        """Clients come, each with a new member id."""
        ids = {client: f"{client}-{self._id()}" for client in clients}
        self._here |= ids
        self._settle(at, f"Adding new member {next(iter(ids.values()))}" if stated else None)

    def leave(self, clients: Iterable[str], at: int, *, stated: bool = False) -> None:
        """Clients are closed, and say so."""
        gone = [self._here.pop(client) for client in clients]
        self._settle(at, f"Removing member {gone[0]} on LeaveGroup" if stated else None)

    def restart(self, client: str, at: int, *, away: int, stated: bool = False) -> None:
        """A client is closed, and is back after a while."""
        self.leave([client], at, stated=stated)
        self.join([client], at + away, stated=stated)

    def deploy(self, at: int, *, away: int = 8 * SECOND, apart: int = 40 * SECOND) -> int:
        """All clients are restarted one after the other; when it is over."""
        for client in sorted(self._here):
            self.restart(client, at, away=away)
            at += apart
        return at

    def flap(self, client: str, at: int, times: int, *, every: int = 24 * MINUTE) -> None:
        """A client comes and goes, again and again, and is there half of the time."""
        for begin in range(at, at + times * every, every):
            self.join([client], begin)
            self.leave([client], begin + every // 2)

    @property
    def ownership(self) -> list[PartitionOwnership]:
        """Who had what from when to when."""
        return self._ledger.close_all()

    def _id(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def _settle(self, at: int, reason: str | None) -> None:
        number = len(self.generations) + 1
        if reason is not None:
            self._log(at, number, reason)
        held = self._placed()
        members = tuple(
            GenerationMember(
                member_id=member_id,
                client_id=client,
                client_host=f"/10.0.{len(client) % 250}.{sum(map(ord, client)) % 250}",
                session_timeout=SESSION,
                rebalance_timeout=5 * MINUTE,
                topics=tuple(self.topics) if held else (),
                assigned=held.get(member_id, {}),
                library=self.library,
            )
            for client, member_id in sorted(self._here.items())
        )
        self.generations.append(
            Generation(
                group=self.group,
                kind=GroupType.CLASSIC,
                incarnation=0,
                generation=number,
                change=GenerationChange.REBALANCED if members else GenerationChange.EMPTIED,
                at=at,
                state_at=None if self.sampled else at - 30,
                offset=10 * number,
                protocol_type=self.protocol_type,
                strategy=self.strategy if members else None,
                leader=members[0].member_id if members else None,
                members=members,
                sampled=self.sampled,
                not_before=at - 30 * SECOND if self.sampled else None,
            )
        )
        if held or not members:
            self._ledger.keep_only({member.member_id for member in members}, at)
            for member in members:
                self._ledger.set_owned(member, member.assigned, at, number)

    def _placed(self) -> dict[str, dict[str, tuple[int, ...]]]:
        """What every member is given, by its id; nothing where they do not share partitions."""
        if self.protocol_type != "consumer":
            return {}
        return assign_partitions(
            self.strategy, self.topics, {one: {} for one in self._here.values()}
        )

    def _log(self, at: int, number: int, reason: str) -> None:
        def line(when: int, what: str, generation: int, why: str | None, text: str) -> LogLine:
            return LogLine(
                at=when, group=self.group, what=what, generation=generation, reason=why, text=text
            )

        text = f"Preparing to rebalance group {self.group}: {reason}"
        self.lines.append(line(at - 120, "preparing", number - 1, reason, text))
        text = f"Stabilized group {self.group} generation {number}"
        self.lines.append(line(at - 30, "stabilized", number, None, text))


def assign_partitions(
    strategy: str,
    topics: Mapping[str, int],
    owned: Mapping[str, Mapping[str, Sequence[int]]],
) -> dict[str, dict[str, tuple[int, ...]]]:
    """What a strategy gives to members of these ids, by what each had."""
    subscriptions = {
        member: Subscription(topics=tuple(topics), owned=Partitions.of(had), generation=1)
        for member, had in owned.items()
    }
    found = resolve_strategy(strategy, solver="kafka").assign(Cluster(topics), subscriptions)
    return {
        member: {
            topic: tuple(sorted(int(number) for number in numbers))
            for topic, numbers in found[member].partitions.by_topic().items()
        }
        for member in owned
    }
