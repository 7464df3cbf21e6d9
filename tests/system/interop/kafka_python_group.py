"""A consumer group of kafka-python's own consumers, without a broker.

Each member is a real ``KafkaConsumer``; what a broker would do in a rebalance (carry the
subscriptions to the leader and the assignments back, as bytes) is done here.
"""

# mypy: disable-error-code="no-untyped-call"
# (the library has no types)
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kafka import KafkaConsumer
from kafka.net.compat import KafkaNetClient
from kafka.protocol.consumer.group import JoinGroupResponse
from kafka.protocol.metadata import MetadataResponse

VERSION = 7
Given = dict[str, set[tuple[str, int]]]


class Offline(KafkaNetClient):
    """Never asks a broker for metadata, so never connects."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.cluster.start_refresh_loop = lambda: None


@contextmanager
def consumer(topics: Sequence[str], strategies: Sequence[Any]) -> Iterator[KafkaConsumer]:
    """A consumer without a broker."""
    made = KafkaConsumer(
        *topics,
        group_id="g",
        bootstrap_servers="127.0.0.1:1",
        api_version=(2, 8),
        kafka_client=Offline,
        enable_auto_commit=False,
        partition_assignment_strategy=strategies,
    )
    try:
        yield made
    finally:
        made.close(autocommit=False)


def metadata(partitions: Mapping[str, int], racks: Sequence[str] = ("r0",)) -> MetadataResponse:
    """One broker in each rack; partition p has its replica on broker p, going round."""
    topic_type = MetadataResponse.MetadataResponseTopic
    return MetadataResponse(
        version=VERSION,
        throttle_time_ms=0,
        brokers=[
            MetadataResponse.MetadataResponseBroker(
                node_id=node, host="none", port=1, rack=rack, version=VERSION
            )
            for node, rack in enumerate(racks)
        ],
        cluster_id="c",
        controller_id=0,
        topics=[
            topic_type(
                error_code=0,
                name=topic,
                is_internal=topic.startswith("__"),
                version=VERSION,
                partitions=[
                    topic_type.MetadataResponsePartition(
                        error_code=0,
                        partition_index=number,
                        leader_id=number % len(racks),
                        leader_epoch=0,
                        replica_nodes=[number % len(racks)],
                        isr_nodes=[number % len(racks)],
                        offline_replicas=[],
                        version=VERSION,
                    )
                    for number in range(count)
                ],
            )
            for topic, count in partitions.items()
        ],
    )


def sent_subscription(member: KafkaConsumer, strategy: str) -> bytes:
    """What a consumer sends in its join request for a strategy."""
    sent: bytes = dict(member._coordinator.group_protocols())[strategy].encode()
    return sent


def assignments(
    leader: KafkaConsumer,
    strategy: str,
    joined: Mapping[str, bytes],
    cluster: MetadataResponse,
    group_instance_ids: Mapping[str, str] | None = None,
) -> dict[str, bytes]:
    """What the leader sends back, once it knows these subscriptions."""
    entry = JoinGroupResponse.JoinGroupResponseMember
    leader._coordinator._cluster.update_metadata(cluster)
    members = [
        entry(member_id=name, group_instance_id=(group_instance_ids or {}).get(name), metadata=sent)
        for name, sent in joined.items()
    ]
    given = leader._coordinator._perform_assignment("leader", strategy, members)
    return {name: assignment.encode() for name, assignment in given.items()}


def complete_rebalance(
    member: KafkaConsumer, strategy: str, assignment: bytes, generation: int
) -> None:
    """The end of a rebalance on one member."""
    coordinator = member._coordinator
    coordinator._net.run(
        coordinator._on_join_complete_async, generation, "member", strategy, assignment
    )


def rebalance(
    group: Mapping[str, KafkaConsumer],
    strategy: str,
    cluster: MetadataResponse,
    generation: int,
    group_instance_ids: Mapping[str, str] | None = None,
) -> Given:
    """One rebalance of the whole group, led by its first member; what each owns after it."""
    joined = {name: sent_subscription(member, strategy) for name, member in group.items()}
    leader = next(iter(group.values()))
    given = assignments(leader, strategy, joined, cluster, group_instance_ids)
    for name, member in group.items():
        complete_rebalance(member, strategy, given[name], generation)
    return {name: {tuple(tp) for tp in member.assignment()} for name, member in group.items()}
