"""Who would have owned which partition, had the advised policy been in use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rota.model.membership import UNASSIGNED
from rota.model.topic import IntArray
from rota.replay.advice import CHANGE
from rota.replay.fact import Advice, Advised, Generation, GenerationMember, Step
from rota.replay.policy import parse
from rota.replay.restart import Causes
from rota.replay.scene import Board
from rota.replay.whatif import Again


def advised(
    generations: Sequence[Generation],
    steps: Sequence[Step],
    advice: Advice,
    causes: Causes | None = None,
    topic_ids: Mapping[str, bytes] | None = None,
) -> list[Advised]:
    """All rows of a group, by partition and time; none where nothing should be changed.

    Times are those at which gold/whatif says that it happens. When the rounds of a cooperative
    rebalance would have been is not known, so that a partition changes hands at once.

    :param generations: everything that is known of the group, in the order of the journal
    :param steps: all its rebalances
    """
    if advice.verdict != CHANGE:
        return []
    board, course = Again(generations, steps, causes, topic_ids).owners(parse(advice.policy))
    ledger = _Ledger(board)
    for at, owners in course:
        ledger.hold(at, owners)
    return ledger.close(advice.group, _first_seen(generations))


def _first_seen(generations: Sequence[Generation]) -> dict[str, GenerationMember]:
    """Members by id, as they were when they came."""
    found: dict[str, GenerationMember] = {}
    for generation in generations:
        for member in generation.members:
            found.setdefault(member.member_id, member)
    return found


@dataclass(slots=True)
class _Ledger:
    """Tenures, as numbers of a board. Time does not run backwards here: where a record's clock
    does, the latest time seen counts.
    """

    board: Board
    _now: int = -(1 << 62)
    _owners: IntArray = field(init=False)
    _since: np.ndarray[tuple[int], np.dtype[np.int64]] = field(init=False)
    _over: list[tuple[int, int, int, int | None]] = field(default_factory=list)
    """Partition, owner, since, until."""

    def __post_init__(self) -> None:
        self._owners = np.full(self.board.layout.size, UNASSIGNED, dtype=np.int32)
        self._since = np.zeros(self.board.layout.size, dtype=np.int64)

    def hold(self, at: int, owners: IntArray) -> None:
        """From now on partitions have these owners."""
        self._now = max(self._now, at)
        changed = np.flatnonzero(owners != self._owners)
        for place in changed[self._owners[changed] != UNASSIGNED].tolist():
            since = int(self._since[place])
            if since < self._now:
                self._over.append((place, int(self._owners[place]), since, self._now))
        self._since[changed] = self._now
        self._owners = owners

    def close(self, group: str, members: Mapping[str, GenerationMember]) -> list[Advised]:
        """All tenures; those that last have no end."""
        for place in np.flatnonzero(self._owners != UNASSIGNED).tolist():
            self._over.append((place, int(self._owners[place]), int(self._since[place]), None))
        layout = self.board.layout
        found = []
        for place, owner, since, until in sorted(self._over, key=lambda one: (one[0], one[2])):
            topic = int(layout.topic_of[place])
            member = members[self.board.member_id(owner)]
            found.append(
                Advised(
                    group=group,
                    topic=layout.topics[topic],
                    partition=place - int(layout.starts[topic]),
                    member_id=member.member_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    since=since,
                    until=until,
                )
            )
        return found
