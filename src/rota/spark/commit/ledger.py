"""What a group is to have committed: the ends of the last finished batch of each query.

A query keeps its id as long as its checkpoint, and has a new run with every start. Within a run
batches only go up; a new run may begin lower, where someone has set the checkpoint back. Each topic
belongs to one query: the first that has finished a batch of it, until that one ends.
"""

from __future__ import annotations

from dataclasses import dataclass

from rota.model.topic import TopicPartition
from rota.spark.commit.progress import Finished


@dataclass(frozen=True, slots=True)
class Conflict:
    """A query reads a topic whose offsets another one commits."""

    topic: str
    query: str
    owner: str


class Ledger:
    """The newest of each query, and whose each topic is."""

    def __init__(self) -> None:
        self._runs: dict[str, str] = {}
        """The newest run of each query."""
        self._newest: dict[str, Finished] = {}
        self._owners: dict[str, str] = {}
        self._ended: set[str] = set()

    def started(self, query: str, run: str) -> None:
        """A query runs, now or again."""
        self._runs[query] = run
        self._ended.discard(query)

    def ended(self, query: str, run: str) -> None:
        """It does not run any more; its topics are free for others."""
        if self._runs.get(query) == run:
            self._ended.add(query)

    def finished(self, done: Finished) -> list[Conflict] | None:
        """A batch is done. Tells which of its topics are others', or None if it is old news."""
        if not self._is_news(done):
            return None
        self._newest[done.query] = done
        self._runs.setdefault(done.query, done.run)
        conflicts = []
        for topic in sorted({place.topic for place in done.offsets}):
            holder = self._owners.setdefault(topic, done.query)
            if self._is_free(holder):
                self._owners[topic] = done.query
            elif holder != done.query:
                conflicts.append(Conflict(topic, done.query, holder))
        self._forget()
        return conflicts

    def _is_news(self, done: Finished) -> bool:
        known = self._newest.get(done.query)
        if known is None:
            return True
        if known.run == done.run:
            return done.batch > known.batch
        # the last words of a run may come after the first of the next
        return done.run == self._runs.get(done.query)

    def _is_free(self, query: str) -> bool:
        """Does it hold on to nothing? It has ended, or nothing but its checkpoint was seen."""
        return query in self._ended or not self._runs.get(query)

    def _forget(self) -> None:
        """Queries that hold on to nothing, and have nothing that is not another's by now."""
        owners = set(self._owners.values())
        for query in [each for each in self._newest if self._is_free(each) and each not in owners]:
            del self._newest[query]
            self._runs.pop(query, None)
            self._ended.discard(query)

    def target(self) -> dict[TopicPartition, int]:
        """What the group is to have."""
        return {
            place: offset
            for query, done in self._newest.items()
            for place, offset in done.offsets.items()
            if self._owners[place.topic] == query
        }
