"""The course of a group's life, as its generations come."""

from __future__ import annotations

from rota.replay.fact import Generation, GenerationMember, Kind, Mark, Written
from rota.replay.ownership import Ledger

_NUMBERS = 2**32


class Course:
    """What is known of a group so far: its generations, and who has what."""

    def __init__(self, group: str) -> None:
        self.group = group
        self._made: list[Generation] = []
        self.ledger = Ledger()
        self.life = 0
        self.last: Generation | None = None
        """The last generation of this life."""

    def add(self, generation: Generation) -> None:
        """A generation was saved."""
        self._made.append(generation)
        self.last = generation

    def take(self) -> list[Generation]:
        """Those that were saved since they were last taken."""
        made, self._made = self._made, []
        return made

    def begin_anew(self, at: int) -> None:
        """What follows has numbers of its own, and nobody of before is in it."""
        self.ledger.keep((), at)
        if self.last is not None:
            self.life += 1
            self.last = None

    def forget(self, written: Written, kind: Kind) -> None:
        """The group is deleted; a tombstone of nothing that was seen says nothing."""
        if self.last is not None:
            self.add(
                Generation(
                    group=self.group,
                    kind=kind,
                    life=self.life,
                    generation=self.last.generation,
                    mark=Mark.FORGOTTEN,
                    at=written.at,
                    offset=written.offset,
                    protocol_type=self.last.protocol_type,
                )
            )
        self.begin_anew(written.at)


def ahead(number: int, of: int) -> int:
    """How many numbers one generation is ahead of another, negative if it is behind.

    They are 32 bits wide, and after the highest comes the lowest, as in Kafka.
    """
    distance = (number - of) % _NUMBERS
    return distance if distance < _NUMBERS // 2 else distance - _NUMBERS


def key(member: GenerationMember) -> str:
    """What stays of a member when it comes back: its static id, if it has one."""
    return member.static_id or member.member_id
