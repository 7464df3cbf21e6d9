"""Who owned which partition from when to when."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from rota.replay.fact import GenerationMember, Held, Ownership

NOTHING: Held = {}


@dataclass(slots=True)
class _Tenure:
    """One member's time with one partition."""

    owner: GenerationMember
    topic: str
    partition: int
    since: int
    from_generation: int
    to_generation: int
    until: int | None = None


class Ledger:
    """What every member has, written up as it changes.

    Time does not run backwards here: where a record's clock does, the latest time seen counts, so
    that nobody's time with a partition ends before it began.
    """

    def __init__(self) -> None:
        self._now = 0
        self._owners: dict[str, GenerationMember] = {}
        self._held: dict[str, Held] = {}
        self._generation: dict[str, int] = {}
        """The last one in which a member had what it has."""
        self._open: dict[tuple[str, int, str], _Tenure] = {}
        self._ended: dict[tuple[str, int, str], _Tenure] = {}
        """Those that ended just now: they may go on."""
        self._over: list[_Tenure] = []

    def hold(self, member: GenerationMember, held: Held, at: int, generation: int) -> None:
        """From now on a member has just these partitions."""
        self._pass(at)
        member_id = member.member_id
        had = self._held.get(member_id, NOTHING)
        self._owners[member_id] = member
        if had is not held and had != held:
            now, before = _pairs(held), _pairs(had)
            for topic, partition in sorted(before - now):
                self._end((topic, partition, member_id))
            for topic, partition in sorted(now - before):
                self._begin((topic, partition, member_id), generation)
        self._held[member_id] = held
        self._generation[member_id] = generation

    def keep(self, member_ids: Collection[str], at: int) -> None:
        """All other members have nothing any more."""
        for member_id in sorted(self._held.keys() - member_ids):
            self.drop(member_id, at)

    def drop(self, member_id: str, at: int) -> None:
        """A member has nothing any more."""
        self._pass(at)
        for topic, partition in sorted(_pairs(self._held.pop(member_id, NOTHING))):
            self._end((topic, partition, member_id))

    def _pass(self, at: int) -> None:
        """Time goes by: what ended before is over."""
        if at > self._now:
            self._now = at
            self._over += (one for one in self._ended.values() if one.until != one.since)
            self._ended.clear()

    def _begin(self, key: tuple[str, int, str], generation: int) -> None:
        ended = self._ended.pop(key, None)
        if ended is not None:
            # taken and given in the same moment: a group that became one of the other kind
            ended.until = None
            self._open[key] = ended
            return
        topic, partition, member_id = key
        self._open[key] = _Tenure(
            self._owners[member_id], topic, partition, self._now, generation, generation
        )

    def _end(self, key: tuple[str, int, str]) -> None:
        tenure = self._open.pop(key)
        tenure.until = self._now
        tenure.to_generation = self._generation[key[2]]
        self._ended[key] = tenure

    def ended(self) -> int:
        """How many there are that are over, and were not taken yet."""
        return len(self._over)

    def take_ended(self, group: str) -> list[Ownership]:
        """What was written up and is over, by partition and time; it is forgotten here."""
        over, self._over = self._over, []
        return _rows(group, over)

    def close(self, group: str) -> list[Ownership]:
        """All that was not taken yet; what is still held has no end."""
        for (_, _, member_id), tenure in self._open.items():
            tenure.to_generation = self._generation[member_id]
        just = (one for one in self._ended.values() if one.until != one.since)
        return _rows(group, [*self._over, *just, *self._open.values()])


def _rows(group: str, tenures: list[_Tenure]) -> list[Ownership]:
    return [
        Ownership(
            group=group,
            topic=tenure.topic,
            partition=tenure.partition,
            member_id=tenure.owner.member_id,
            client_id=tenure.owner.client_id,
            client_host=tenure.owner.client_host,
            static_id=tenure.owner.static_id,
            since=tenure.since,
            until=tenure.until,
            from_generation=tenure.from_generation,
            to_generation=tenure.to_generation,
        )
        for tenure in sorted(tenures, key=_order)
    ]


def _pairs(held: Held) -> set[tuple[str, int]]:
    return {(topic, partition) for topic, numbers in held.items() for partition in numbers}


def _order(tenure: _Tenure) -> tuple[str, int, int, str]:
    return tenure.topic, tenure.partition, tenure.since, tenure.owner.member_id
