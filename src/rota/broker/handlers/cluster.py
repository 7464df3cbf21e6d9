"""DescribeCluster and ListPartitionReassignments: a cluster of one node, where nothing moves."""

from __future__ import annotations

from rota.broker.call import Call
from rota.broker.dispatch import Handler
from rota.broker.part import Parts
from rota.errors import Code
from rota.wire.api import Api
from rota.wire.message import (
    DescribeClusterResponse,
    ListPartitionReassignmentsResponse,
    Message,
)

NOT_ASKED = -(2**31)
"""In the place of authorized operations, where nobody asked for them."""
BROKERS = 1
"""The kind of endpoints that a broker tells of; 2 would be controllers."""


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


# Operations by their numbers in Kafka's ACLs: 3 read, 4 write, 5 create, 6 delete, 7 alter,
# 8 describe, 9 cluster action, 10 describe configs, 11 alter configs, 12 idempotent write.
# Rota has no ACLs: who may connect may do all that there is for a kind of resource.
TOPIC_OPERATIONS = _bits(3, 4, 5, 6, 7, 8, 10, 11)
CLUSTER_OPERATIONS = _bits(5, 7, 8, 9, 10, 11, 12)


def handle_cluster(parts: Parts, call: Call) -> None:
    """Describes the one node."""
    request = call.request
    if call.version >= 1 and request.endpoint_type != BROKERS:
        # codes as in KIP-919: this endpoint is a broker's, or there is no such kind
        mismatch = request.endpoint_type == 2
        code = Code.MISMATCHED_ENDPOINT_TYPE if mismatch else Code.UNSUPPORTED_ENDPOINT_TYPE
        text = f"this is a broker, and endpoints of kind {request.endpoint_type} were asked for"
        return call.answer(_refused(code, text))
    host, port = parts.address
    node = parts.config.node_id
    asked = request.include_cluster_authorized_operations
    return call.answer(
        DescribeClusterResponse(
            error_code=Code.NONE,
            error_message=None,
            endpoint_type=BROKERS,
            cluster_id=parts.topics.cluster_id,
            controller_id=node,
            brokers=[
                DescribeClusterResponse.DescribeClusterBroker(
                    broker_id=node, host=host, port=port, rack=None, is_fenced=False
                )
            ],
            cluster_authorized_operations=CLUSTER_OPERATIONS if asked else NOT_ASKED,
        )
    )


def refuse_cluster(_: Call, code: Code) -> Message:
    """The whole answer has the error."""
    return _refused(code, None)


def _refused(code: Code, text: str | None) -> Message:
    return DescribeClusterResponse(
        error_code=code, error_message=text, cluster_id="", controller_id=-1, brokers=[]
    )


def handle_reassignments(_: Parts, call: Call) -> None:
    """There are none."""
    call.answer(
        ListPartitionReassignmentsResponse(error_code=Code.NONE, error_message=None, topics=[])
    )


def refuse_reassignments(_: Call, code: Code) -> Message:
    """The whole answer has the error."""
    return ListPartitionReassignmentsResponse(error_code=code, error_message=None, topics=[])


HANDLERS = (
    Handler(
        api=Api.DESCRIBE_CLUSTER,
        lowest=0,
        highest=2,
        handle=handle_cluster,
        refuse=refuse_cluster,
    ),
    Handler(
        api=Api.LIST_PARTITION_REASSIGNMENTS,
        lowest=0,
        highest=0,
        handle=handle_reassignments,
        refuse=refuse_reassignments,
    ),
)
