"""The topics that a member subscribes to, and changes of their metadata that need a rebalance."""

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

#: For each topic in the metadata: its partition count, and its racks if they matter.
MetadataSnapshot: TypeAlias = Mapping[str, tuple[int, tuple[frozenset[str], ...]]]


class SubscriptionTracker:
    """The subscribed topics, the topics of the last join, and the metadata that the assignment
    used. A change of racks is no reason to rebalance if the member has no ``rack``.
    """

    def __init__(
        self, commands: CommandBuffer, rack: str | None, *, matches_internal: bool = False
    ) -> None:
        self.commands = commands
        self.rack = rack
        self.matches_internal = matches_internal
        self.cluster = Cluster({})
        self.topics: tuple[str, ...] = ()
        self.joined_topics: tuple[str, ...] | None = None
        self.is_subscribed = False
        self.is_metadata_fresh = True  # the requested metadata has arrived
        self._pattern: re.Pattern[str] | None = None
        self._group_topics: frozenset[str] = frozenset()
        self._requested_topics: frozenset[str] = frozenset()
        self._assignment_snapshot: MetadataSnapshot | None = None
        self._is_refreshed = False
        self._rejoin_reason: str | None = None
        self._is_reason_current = True

    def subscribe(self, topics: Iterable[str], pattern: str | None) -> None:
        if pattern is not None:
            self._pattern = compile_pattern(pattern)
            self.topics = self._find_matching_topics()
        else:
            wanted = tuple(sorted(set(topics)))
            for topic in wanted:
                # here, because a JoinGroup would be too late
                if problem := find_string_problem(topic):
                    raise InputError(f"topic {quote_shortened(topic)} {problem}")
            self._pattern = None
            self.topics = wanted
        self.is_subscribed = True
        self._is_refreshed = True
        self._is_reason_current = False
        self.request_metadata()

    def unsubscribe(self) -> None:
        self._pattern = None
        self.topics = ()
        self.joined_topics = None
        self.is_subscribed = False
        self.is_metadata_fresh = True
        self.stop_leading()

    @property
    def has_pattern(self) -> bool:
        return self._pattern is not None

    def allows_assignment(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether the assigned topics are subscribed, and were when the member joined."""
        topics = {partition.topic for partition in partitions}
        if self._pattern is None:
            return topics <= set(self.topics).intersection(self.joined_topics or ())
        return all(map(self._matches_pattern, topics))

    def is_ready_to_join(self) -> bool:
        """A pattern is matched before each join: a new topic starts one rebalance for the group."""
        if self.has_pattern and not self._is_refreshed:
            self._is_refreshed = True
            self.request_metadata()
        return self.is_metadata_fresh or not self.has_pattern

    def record_join(self) -> None:
        self._is_refreshed = False
        self.joined_topics = self.topics
        self._is_reason_current = False

    def add_assigned_topics(self, partitions: Iterable[TopicPartition]) -> None:
        """Adds assigned topics that match the pattern and are not in the metadata yet."""
        assert self.joined_topics is not None
        new = {partition.topic for partition in partitions} - set(self.joined_topics)
        if new and self._pattern is not None:
            self.topics = tuple(sorted(new.union(self.topics)))
            self.joined_topics = tuple(sorted(new.union(self.joined_topics)))
            self._is_reason_current = False
            self.request_metadata()

    def _matches_pattern(self, topic: str) -> bool:
        assert self._pattern is not None
        if topic in INTERNAL_TOPICS and not self.matches_internal:
            return False
        return self._pattern.fullmatch(topic) is not None and find_string_problem(topic) is None

    def _find_matching_topics(self) -> tuple[str, ...]:
        return tuple(sorted(filter(self._matches_pattern, self.cluster.partitions)))

    def request_metadata(self) -> None:
        self.is_metadata_fresh = False
        self._requested_topics = self._group_topics.union(self.topics)
        topics = None if self.has_pattern else tuple(sorted(self._requested_topics))
        self.commands.add(RequestMetadata(topics))

    def update_metadata(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._is_reason_current = False
        self.is_metadata_fresh = True
        if self.has_pattern:
            self.topics = self._find_matching_topics()

    def start_leading(self, group_topics: Iterable[str]) -> None:
        """The leader needs the metadata of all topics that any member subscribes to."""
        self._group_topics = frozenset(group_topics)
        self._is_reason_current = False
        if not self.has_pattern and not self._group_topics <= self._requested_topics:
            self.request_metadata()

    def record_assignment(self) -> None:
        self._assignment_snapshot = self._snapshot()
        self._is_reason_current = False

    def stop_leading(self) -> None:
        """Forgets the topics of other members."""
        self._group_topics = frozenset()
        self._assignment_snapshot = None
        self._is_reason_current = False

    @property
    def rejoin_reason(self) -> str | None:
        """Why the member must rejoin (subscription or metadata changed), or None."""
        if not self._is_reason_current:
            self._is_reason_current = True
            self._rejoin_reason = self._find_rejoin_reason()
        return self._rejoin_reason

    def _find_rejoin_reason(self) -> str | None:
        if self.joined_topics is not None and self.joined_topics != self.topics:
            return "subscription has changed"
        if self._assignment_snapshot is not None and self._assignment_snapshot != self._snapshot():
            return "cached metadata has changed"
        return None

    def _snapshot(self) -> MetadataSnapshot:
        watched = self._group_topics.union(self.topics)
        counts, racks = self.cluster.partitions, self.cluster.racks
        return {
            topic: (counts[topic], tuple(map(frozenset, racks.get(topic, ()))) if self.rack else ())
            for topic in watched
            if topic in counts
        }
