"""The topics that a member subscribes to, and changes of their metadata that require a
rebalance.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from rota.engine.member.events import CommandBuffer, RequestMetadata
from rota.engine.model.text import (
    INTERNAL_TOPICS,
    compile_pattern,
    find_string_problem,
    quote_shortened,
)
from rota.engine.model.topic import Cluster, TopicPartition
from rota.errors import InputError

#: For each topic that there is: its partition count, and its racks where they matter.
MetadataSnapshot: TypeAlias = Mapping[str, tuple[int, tuple[frozenset[str], ...]]]


class SubscriptionTracker:
    """Tracks the subscribed topics, the topics of the last join, and the metadata that the
    assignment used.

    ``rack`` is the member's own rack. Without one, a change of racks is no reason to rebalance. A
    pattern matches internal topics only with ``matches_internal``.
    """

    def __init__(
        self, outbox: CommandBuffer, rack: str | None, *, matches_internal: bool = False
    ) -> None:
        self.outbox = outbox
        self.rack = rack
        self.matches_internal = matches_internal
        self.cluster = Cluster({})
        self.topics: tuple[str, ...] = ()
        #: The topics that the last join named.
        self.joined: tuple[str, ...] | None = None
        self.subscribed = False
        #: No metadata is waited for.
        self.is_fresh = True
        self._pattern: re.Pattern[str] | None = None
        self._group_topics: frozenset[str] = frozenset()
        self._asked: frozenset[str] = frozenset()
        self._assigned_by: MetadataSnapshot | None = None
        self._is_refreshed = False
        self._reason: str | None = None
        self._looked = True

    # Subscription

    def subscribe(self, topics: Iterable[str], pattern: str | None) -> None:
        """Wants these topics, or those that match, from now on."""
        if pattern is not None:
            self._pattern = compile_pattern(pattern)
            self.topics = self._matches()
        else:
            wanted = tuple(sorted(set(topics)))
            _check_topic_names(wanted)
            self._pattern = None
            self.topics = wanted
        self.subscribed = True
        self._is_refreshed = True
        self._looked = False
        self.request()

    def unsubscribe(self) -> None:
        """Wants nothing from now on."""
        self._pattern = None
        self.topics = ()
        self.joined = None
        self.subscribed = False
        self.is_fresh = True
        self.end_lead()

    @property
    def has_pattern(self) -> bool:
        """The topics are those that match a pattern."""
        return self._pattern is not None

    def allows(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether the assigned topics are still subscribed and were part of the join, or
        match the pattern.
        """
        topics = {partition.topic for partition in partitions}
        if self._pattern is None:
            return topics <= set(self.topics).intersection(self.joined or ())
        return all(map(self._fits, topics))

    def is_ready(self) -> bool:
        """The topics to join with are known.

        A pattern is matched anew before each join: a new topic would otherwise set off one
        rebalance for each member that hears of it.
        """
        if self.has_pattern and not self._is_refreshed:
            self._is_refreshed = True
            self.request()
        return self.is_fresh or not self.has_pattern

    def note_join(self) -> None:
        """A join names the topics as they are now."""
        self._is_refreshed = False
        self.joined = self.topics
        self._looked = False

    def accept(self, partitions: Iterable[TopicPartition]) -> None:
        """Adds assigned topics that match the pattern but that this member's metadata did not
        have yet.
        """
        assert self.joined is not None
        new = {partition.topic for partition in partitions} - set(self.joined)
        if new and self._pattern is not None:
            self.topics = tuple(sorted(new.union(self.topics)))
            self.joined = tuple(sorted(new.union(self.joined)))
            self._looked = False
            self.request()

    def _fits(self, topic: str) -> bool:
        assert self._pattern is not None
        if topic in INTERNAL_TOPICS and not self.matches_internal:
            return False
        return self._pattern.fullmatch(topic) is not None and find_string_problem(topic) is None

    def _matches(self) -> tuple[str, ...]:
        return tuple(sorted(filter(self._fits, self.cluster.partitions)))

    # Metadata

    def request(self) -> None:
        """Asks for the metadata of all topics that matter."""
        self.is_fresh = False
        self._asked = self._group_topics.union(self.topics)
        self.outbox.put(RequestMetadata(None if self.has_pattern else tuple(sorted(self._asked))))

    def update(self, cluster: Cluster) -> None:
        """The metadata is this now."""
        self.cluster = cluster
        self._looked = False
        self.is_fresh = True
        if self.has_pattern:
            self.topics = self._matches()

    # The leader's watch

    def begin_lead(self, group_topics: Iterable[str]) -> None:
        """The member leads: what any member subscribes to matters, and must be known."""
        self._group_topics = frozenset(group_topics)
        self._looked = False
        if not self.has_pattern and not self._group_topics <= self._asked:
            self.request()

    def note_assignment(self) -> None:
        """The assignment was made, or kept, for the metadata as it is now."""
        self._assigned_by = self._snapshot()
        self._looked = False

    def end_lead(self) -> None:
        """The member leads no more, so the watch over others' topics ends."""
        self._group_topics = frozenset()
        self._assigned_by = None
        self._looked = False

    @property
    def reason(self) -> str | None:
        """Why the member must rejoin (subscription or metadata changed), or None."""
        if not self._looked:
            self._looked = True
            self._reason = self._look()
        return self._reason

    def _look(self) -> str | None:
        if self.joined is not None and self.joined != self.topics:
            return "the subscription changed"
        if self._assigned_by is not None and self._assigned_by != self._snapshot():
            return "the topics' metadata changed"
        return None

    def _snapshot(self) -> MetadataSnapshot:
        watched = self._group_topics.union(self.topics)
        counts, racks = self.cluster.partitions, self.cluster.racks
        return {
            topic: (counts[topic], tuple(map(frozenset, racks.get(topic, ()))) if self.rack else ())
            for topic in watched
            if topic in counts
        }


def _check_topic_names(topics: Iterable[str]) -> None:
    """Now, where the application hears of it: a join would be too late."""
    for topic in topics:
        problem = find_string_problem(topic)
        if problem is not None:
            raise InputError(f"topic {quote_shortened(topic)} {problem}")
