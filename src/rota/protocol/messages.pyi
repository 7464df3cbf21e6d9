# Made by `make docs` from the schemas of kafka-python 3.0.12. Do not edit.

from collections.abc import Mapping
from typing import Any

from rota.engine.formats.buffer import Bytes
from rota.protocol.schemas import CLIENT_ONLY_APIS as CLIENT_ONLY_APIS
from rota.protocol.schemas import ZERO_UUID as ZERO_UUID
from rota.protocol.schemas import Api as Api
from rota.protocol.schemas import Message as Message
from rota.protocol.schemas import Request as Request

classes_by_api: Mapping[int, tuple[type[Request[Any]], type[Message]]]

class ProduceResponse(Message):
    responses: list[ProduceResponse.TopicProduceResponse] = ...
    throttle_time_ms: int = 0
    node_endpoints: list[ProduceResponse.NodeEndpoint] = ...

    class TopicProduceResponse(Message):
        name: str = ""
        topic_id: bytes = ...
        partition_responses: list[ProduceResponse.PartitionProduceResponse] = ...

    class NodeEndpoint(Message):
        node_id: int = 0
        host: str = ""
        port: int = 0
        rack: str | None = None

    class PartitionProduceResponse(Message):
        index: int = 0
        error_code: int = 0
        base_offset: int = 0
        log_append_time_ms: int = -1
        log_start_offset: int = -1
        record_errors: list[ProduceResponse.BatchIndexAndErrorMessage] = ...
        error_message: str | None = None
        current_leader: ProduceResponse.LeaderIdAndEpoch | None = ...

    class BatchIndexAndErrorMessage(Message):
        batch_index: int = 0
        batch_index_error_message: str | None = None

    class LeaderIdAndEpoch(Message):
        leader_id: int = -1
        leader_epoch: int = -1

class ProduceRequest(Request[ProduceResponse]):
    transactional_id: str | None = None
    acks: int = 0
    timeout_ms: int = 0
    topic_data: list[ProduceRequest.TopicProduceData] = ...

    class TopicProduceData(Message):
        name: str = ""
        topic_id: bytes = ...
        partition_data: list[ProduceRequest.PartitionProduceData] = ...

    class PartitionProduceData(Message):
        index: int = 0
        records: Bytes | None = None

class FetchResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    session_id: int = 0
    responses: list[FetchResponse.FetchableTopicResponse] = ...
    node_endpoints: list[FetchResponse.NodeEndpoint] = ...

    class FetchableTopicResponse(Message):
        topic: str = ""
        topic_id: bytes = ...
        partitions: list[FetchResponse.PartitionData] = ...

    class NodeEndpoint(Message):
        node_id: int = 0
        host: str = ""
        port: int = 0
        rack: str | None = None

    class PartitionData(Message):
        partition_index: int = 0
        error_code: int = 0
        high_watermark: int = 0
        last_stable_offset: int = -1
        log_start_offset: int = -1
        diverging_epoch: FetchResponse.EpochEndOffset | None = ...
        current_leader: FetchResponse.LeaderIdAndEpoch | None = ...
        snapshot_id: FetchResponse.SnapshotId | None = ...
        aborted_transactions: list[FetchResponse.AbortedTransaction] | None = ...
        preferred_read_replica: int = -1
        records: Bytes | None = None

    class EpochEndOffset(Message):
        epoch: int = -1
        end_offset: int = -1

    class LeaderIdAndEpoch(Message):
        leader_id: int = -1
        leader_epoch: int = -1

    class SnapshotId(Message):
        end_offset: int = -1
        epoch: int = -1

    class AbortedTransaction(Message):
        producer_id: int = 0
        first_offset: int = 0

class FetchRequest(Request[FetchResponse]):
    cluster_id: str | None = None
    replica_id: int = -1
    replica_state: FetchRequest.ReplicaState | None = ...
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 2147483647
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1
    topics: list[FetchRequest.FetchTopic] = ...
    forgotten_topics_data: list[FetchRequest.ForgottenTopic] = ...
    rack_id: str = ""

    class ReplicaState(Message):
        replica_id: int = -1
        replica_epoch: int = -1

    class FetchTopic(Message):
        topic: str = ""
        topic_id: bytes = ...
        partitions: list[FetchRequest.FetchPartition] = ...

    class ForgottenTopic(Message):
        topic: str = ""
        topic_id: bytes = ...
        partitions: list[int] = ...

    class FetchPartition(Message):
        partition: int = 0
        current_leader_epoch: int = -1
        fetch_offset: int = 0
        last_fetched_epoch: int = -1
        log_start_offset: int = -1
        partition_max_bytes: int = 0
        replica_directory_id: bytes = ...
        high_watermark: int = 9223372036854775807

class ListOffsetsResponse(Message):
    throttle_time_ms: int = 0
    topics: list[ListOffsetsResponse.ListOffsetsTopicResponse] = ...

    class ListOffsetsTopicResponse(Message):
        name: str = ""
        partitions: list[ListOffsetsResponse.ListOffsetsPartitionResponse] = ...

    class ListOffsetsPartitionResponse(Message):
        partition_index: int = 0
        error_code: int = 0
        old_style_offsets: list[int] = ...
        timestamp: int = -1
        offset: int = -1
        leader_epoch: int = -1

class ListOffsetsRequest(Request[ListOffsetsResponse]):
    replica_id: int = 0
    isolation_level: int = 0
    topics: list[ListOffsetsRequest.ListOffsetsTopic] = ...
    timeout_ms: int = 0

    class ListOffsetsTopic(Message):
        name: str = ""
        partitions: list[ListOffsetsRequest.ListOffsetsPartition] = ...

    class ListOffsetsPartition(Message):
        partition_index: int = 0
        current_leader_epoch: int = -1
        timestamp: int = 0
        max_num_offsets: int = 1

class MetadataResponse(Message):
    throttle_time_ms: int = 0
    brokers: list[MetadataResponse.MetadataResponseBroker] = ...
    cluster_id: str | None = None
    controller_id: int = -1
    topics: list[MetadataResponse.MetadataResponseTopic] = ...
    cluster_authorized_operations: int = -2147483648
    error_code: int = 0

    class MetadataResponseBroker(Message):
        node_id: int = 0
        host: str = ""
        port: int = 0
        rack: str | None = None

    class MetadataResponseTopic(Message):
        error_code: int = 0
        name: str | None = ""
        topic_id: bytes = ...
        is_internal: bool = False
        partitions: list[MetadataResponse.MetadataResponsePartition] = ...
        topic_authorized_operations: int = -2147483648

    class MetadataResponsePartition(Message):
        error_code: int = 0
        partition_index: int = 0
        leader_id: int = 0
        leader_epoch: int = -1
        replica_nodes: list[int] = ...
        isr_nodes: list[int] = ...
        offline_replicas: list[int] = ...

class MetadataRequest(Request[MetadataResponse]):
    topics: list[MetadataRequest.MetadataRequestTopic] | None = ...
    allow_auto_topic_creation: bool = True
    include_cluster_authorized_operations: bool = False
    include_topic_authorized_operations: bool = False

    class MetadataRequestTopic(Message):
        topic_id: bytes = ...
        name: str | None = ""

class OffsetCommitResponse(Message):
    throttle_time_ms: int = 0
    topics: list[OffsetCommitResponse.OffsetCommitResponseTopic] = ...

    class OffsetCommitResponseTopic(Message):
        name: str = ""
        topic_id: bytes = ...
        partitions: list[OffsetCommitResponse.OffsetCommitResponsePartition] = ...

    class OffsetCommitResponsePartition(Message):
        partition_index: int = 0
        error_code: int = 0

class OffsetCommitRequest(Request[OffsetCommitResponse]):
    group_id: str = ""
    generation_id_or_member_epoch: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    retention_time_ms: int = -1
    topics: list[OffsetCommitRequest.OffsetCommitRequestTopic] = ...

    class OffsetCommitRequestTopic(Message):
        name: str = ""
        topic_id: bytes = ...
        partitions: list[OffsetCommitRequest.OffsetCommitRequestPartition] = ...

    class OffsetCommitRequestPartition(Message):
        partition_index: int = 0
        committed_offset: int = 0
        committed_leader_epoch: int = -1
        commit_timestamp: int = -1
        committed_metadata: str | None = ""

class OffsetFetchResponse(Message):
    throttle_time_ms: int = 0
    topics: list[OffsetFetchResponse.OffsetFetchResponseTopic] = ...
    error_code: int = 0
    groups: list[OffsetFetchResponse.OffsetFetchResponseGroup] = ...

    class OffsetFetchResponseTopic(Message):
        name: str = ""
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartition] = ...

    class OffsetFetchResponseGroup(Message):
        group_id: str = ""
        topics: list[OffsetFetchResponse.OffsetFetchResponseTopics] = ...
        error_code: int = 0

    class OffsetFetchResponsePartition(Message):
        partition_index: int = 0
        committed_offset: int = 0
        committed_leader_epoch: int = -1
        metadata: str | None = ""
        error_code: int = 0

    class OffsetFetchResponseTopics(Message):
        name: str = ""
        topic_id: bytes = ...
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartitions] = ...

    class OffsetFetchResponsePartitions(Message):
        partition_index: int = 0
        committed_offset: int = 0
        committed_leader_epoch: int = -1
        metadata: str | None = ""
        error_code: int = 0

class OffsetFetchRequest(Request[OffsetFetchResponse]):
    group_id: str = ""
    topics: list[OffsetFetchRequest.OffsetFetchRequestTopic] | None = ...
    groups: list[OffsetFetchRequest.OffsetFetchRequestGroup] = ...
    require_stable: bool = False

    class OffsetFetchRequestTopic(Message):
        name: str = ""
        partition_indexes: list[int] = ...

    class OffsetFetchRequestGroup(Message):
        group_id: str = ""
        member_id: str | None = None
        member_epoch: int = -1
        topics: list[OffsetFetchRequest.OffsetFetchRequestTopics] | None = ...

    class OffsetFetchRequestTopics(Message):
        name: str = ""
        topic_id: bytes = ...
        partition_indexes: list[int] = ...

class FindCoordinatorResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    node_id: int = 0
    host: str = ""
    port: int = 0
    coordinators: list[FindCoordinatorResponse.Coordinator] = ...

    class Coordinator(Message):
        key: str = ""
        node_id: int = 0
        host: str = ""
        port: int = 0
        error_code: int = 0
        error_message: str | None = ""

class FindCoordinatorRequest(Request[FindCoordinatorResponse]):
    key: str = ""
    key_type: int = 0
    coordinator_keys: list[str] = ...

class JoinGroupResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = ""
    leader: str = ""
    skip_assignment: bool = False
    member_id: str = ""
    members: list[JoinGroupResponse.JoinGroupResponseMember] = ...

    class JoinGroupResponseMember(Message):
        member_id: str = ""
        group_instance_id: str | None = None
        metadata: bytes = b""

class JoinGroupRequest(Request[JoinGroupResponse]):
    group_id: str = ""
    session_timeout_ms: int = 0
    rebalance_timeout_ms: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    protocol_type: str = ""
    protocols: list[JoinGroupRequest.JoinGroupRequestProtocol] = ...
    reason: str | None = None

    class JoinGroupRequestProtocol(Message):
        name: str = ""
        metadata: bytes = b""

class HeartbeatResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0

class HeartbeatRequest(Request[HeartbeatResponse]):
    group_id: str = ""
    generation_id: int = 0
    member_id: str = ""
    group_instance_id: str | None = None

class LeaveGroupResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    members: list[LeaveGroupResponse.MemberResponse] = ...

    class MemberResponse(Message):
        member_id: str = ""
        group_instance_id: str | None = ""
        error_code: int = 0

class LeaveGroupRequest(Request[LeaveGroupResponse]):
    group_id: str = ""
    member_id: str = ""
    members: list[LeaveGroupRequest.MemberIdentity] = ...

    class MemberIdentity(Message):
        member_id: str = ""
        group_instance_id: str | None = None
        reason: str | None = None

class SyncGroupResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""

class SyncGroupRequest(Request[SyncGroupResponse]):
    group_id: str = ""
    generation_id: int = 0
    member_id: str = ""
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: list[SyncGroupRequest.SyncGroupRequestAssignment] = ...

    class SyncGroupRequestAssignment(Message):
        member_id: str = ""
        assignment: bytes = b""

class DescribeGroupsResponse(Message):
    throttle_time_ms: int = 0
    groups: list[DescribeGroupsResponse.DescribedGroup] = ...

    class DescribedGroup(Message):
        error_code: int = 0
        error_message: str | None = None
        group_id: str = ""
        group_state: str = ""
        protocol_type: str = ""
        protocol_data: str = ""
        members: list[DescribeGroupsResponse.DescribedGroupMember] = ...
        authorized_operations: int = -2147483648

    class DescribedGroupMember(Message):
        member_id: str = ""
        group_instance_id: str | None = None
        client_id: str = ""
        client_host: str = ""
        member_metadata: bytes = b""
        member_assignment: bytes = b""

class DescribeGroupsRequest(Request[DescribeGroupsResponse]):
    groups: list[str] = ...
    include_authorized_operations: bool = False

class ListGroupsResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    groups: list[ListGroupsResponse.ListedGroup] = ...

    class ListedGroup(Message):
        group_id: str = ""
        protocol_type: str = ""
        group_state: str = ""
        group_type: str = ""

class ListGroupsRequest(Request[ListGroupsResponse]):
    states_filter: list[str] = ...
    types_filter: list[str] = ...

class SaslHandshakeResponse(Message):
    error_code: int = 0
    mechanisms: list[str] = ...

class SaslHandshakeRequest(Request[SaslHandshakeResponse]):
    mechanism: str = ""

class ApiVersionsResponse(Message):
    error_code: int = 0
    api_keys: list[ApiVersionsResponse.ApiVersion] = ...
    throttle_time_ms: int = 0
    supported_features: list[ApiVersionsResponse.SupportedFeatureKey] = ...
    finalized_features_epoch: int = -1
    finalized_features: list[ApiVersionsResponse.FinalizedFeatureKey] = ...
    zk_migration_ready: bool = False

    class ApiVersion(Message):
        api_key: int = 0
        min_version: int = 0
        max_version: int = 0

    class SupportedFeatureKey(Message):
        name: str = ""
        min_version: int = 0
        max_version: int = 0

    class FinalizedFeatureKey(Message):
        name: str = ""
        max_version_level: int = 0
        min_version_level: int = 0

class ApiVersionsRequest(Request[ApiVersionsResponse]):
    client_software_name: str = ""
    client_software_version: str = ""

class CreateTopicsResponse(Message):
    throttle_time_ms: int = 0
    topics: list[CreateTopicsResponse.CreatableTopicResult] = ...

    class CreatableTopicResult(Message):
        name: str = ""
        topic_id: bytes = ...
        error_code: int = 0
        error_message: str | None = ""
        topic_config_error_code: int = 0
        num_partitions: int = -1
        replication_factor: int = -1
        configs: list[CreateTopicsResponse.CreatableTopicConfigs] | None = ...

    class CreatableTopicConfigs(Message):
        name: str = ""
        value: str | None = ""
        read_only: bool = False
        config_source: int = -1
        is_sensitive: bool = False

class CreateTopicsRequest(Request[CreateTopicsResponse]):
    topics: list[CreateTopicsRequest.CreatableTopic] = ...
    timeout_ms: int = 60000
    validate_only: bool = False

    class CreatableTopic(Message):
        name: str = ""
        num_partitions: int = 0
        replication_factor: int = 0
        assignments: list[CreateTopicsRequest.CreatableReplicaAssignment] = ...
        configs: list[CreateTopicsRequest.CreatableTopicConfig] = ...

    class CreatableReplicaAssignment(Message):
        partition_index: int = 0
        broker_ids: list[int] = ...

    class CreatableTopicConfig(Message):
        name: str = ""
        value: str | None = ""

class DeleteTopicsResponse(Message):
    throttle_time_ms: int = 0
    responses: list[DeleteTopicsResponse.DeletableTopicResult] = ...

    class DeletableTopicResult(Message):
        name: str | None = ""
        topic_id: bytes = ...
        error_code: int = 0
        error_message: str | None = None

class DeleteTopicsRequest(Request[DeleteTopicsResponse]):
    topics: list[DeleteTopicsRequest.DeleteTopicState] = ...
    topic_names: list[str] = ...
    timeout_ms: int = 0

    class DeleteTopicState(Message):
        name: str | None = None
        topic_id: bytes = ...

class DeleteRecordsResponse(Message):
    throttle_time_ms: int = 0
    topics: list[DeleteRecordsResponse.DeleteRecordsTopicResult] = ...

    class DeleteRecordsTopicResult(Message):
        name: str = ""
        partitions: list[DeleteRecordsResponse.DeleteRecordsPartitionResult] = ...

    class DeleteRecordsPartitionResult(Message):
        partition_index: int = 0
        low_watermark: int = 0
        error_code: int = 0

class DeleteRecordsRequest(Request[DeleteRecordsResponse]):
    topics: list[DeleteRecordsRequest.DeleteRecordsTopic] = ...
    timeout_ms: int = 0

    class DeleteRecordsTopic(Message):
        name: str = ""
        partitions: list[DeleteRecordsRequest.DeleteRecordsPartition] = ...

    class DeleteRecordsPartition(Message):
        partition_index: int = 0
        offset: int = 0

class InitProducerIdResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    producer_id: int = -1
    producer_epoch: int = 0
    ongoing_txn_producer_id: int = -1
    ongoing_txn_producer_epoch: int = -1

class InitProducerIdRequest(Request[InitProducerIdResponse]):
    transactional_id: str | None = ""
    transaction_timeout_ms: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    enable2_pc: bool = False
    keep_prepared_txn: bool = False

class OffsetForLeaderEpochResponse(Message):
    throttle_time_ms: int = 0
    topics: list[OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult] = ...

    class OffsetForLeaderTopicResult(Message):
        topic: str = ""
        partitions: list[OffsetForLeaderEpochResponse.EpochEndOffset] = ...

    class EpochEndOffset(Message):
        error_code: int = 0
        partition: int = 0
        leader_epoch: int = -1
        end_offset: int = -1

class OffsetForLeaderEpochRequest(Request[OffsetForLeaderEpochResponse]):
    replica_id: int = -2
    topics: list[OffsetForLeaderEpochRequest.OffsetForLeaderTopic] = ...

    class OffsetForLeaderTopic(Message):
        topic: str = ""
        partitions: list[OffsetForLeaderEpochRequest.OffsetForLeaderPartition] = ...

    class OffsetForLeaderPartition(Message):
        partition: int = 0
        current_leader_epoch: int = -1
        leader_epoch: int = 0

class DescribeConfigsResponse(Message):
    throttle_time_ms: int = 0
    results: list[DescribeConfigsResponse.DescribeConfigsResult] = ...

    class DescribeConfigsResult(Message):
        error_code: int = 0
        error_message: str | None = ""
        resource_type: int = 0
        resource_name: str = ""
        configs: list[DescribeConfigsResponse.DescribeConfigsResourceResult] = ...

    class DescribeConfigsResourceResult(Message):
        name: str = ""
        value: str | None = ""
        read_only: bool = False
        config_source: int = -1
        is_default: bool = False
        is_sensitive: bool = False
        synonyms: list[DescribeConfigsResponse.DescribeConfigsSynonym] = ...
        config_type: int = 0
        documentation: str | None = ""

    class DescribeConfigsSynonym(Message):
        name: str = ""
        value: str | None = ""
        source: int = 0

class DescribeConfigsRequest(Request[DescribeConfigsResponse]):
    resources: list[DescribeConfigsRequest.DescribeConfigsResource] = ...
    include_synonyms: bool = False
    include_documentation: bool = False

    class DescribeConfigsResource(Message):
        resource_type: int = 0
        resource_name: str = ""
        configuration_keys: list[str] | None = ...

class AlterConfigsResponse(Message):
    throttle_time_ms: int = 0
    responses: list[AlterConfigsResponse.AlterConfigsResourceResponse] = ...

    class AlterConfigsResourceResponse(Message):
        error_code: int = 0
        error_message: str | None = ""
        resource_type: int = 0
        resource_name: str = ""

class AlterConfigsRequest(Request[AlterConfigsResponse]):
    resources: list[AlterConfigsRequest.AlterConfigsResource] = ...
    validate_only: bool = False

    class AlterConfigsResource(Message):
        resource_type: int = 0
        resource_name: str = ""
        configs: list[AlterConfigsRequest.AlterableConfig] = ...

    class AlterableConfig(Message):
        name: str = ""
        value: str | None = ""

class DescribeLogDirsResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    results: list[DescribeLogDirsResponse.DescribeLogDirsResult] = ...

    class DescribeLogDirsResult(Message):
        error_code: int = 0
        log_dir: str = ""
        topics: list[DescribeLogDirsResponse.DescribeLogDirsTopic] = ...
        total_bytes: int = -1
        usable_bytes: int = -1
        is_cordoned: bool = False

    class DescribeLogDirsTopic(Message):
        name: str = ""
        partitions: list[DescribeLogDirsResponse.DescribeLogDirsPartition] = ...

    class DescribeLogDirsPartition(Message):
        partition_index: int = 0
        partition_size: int = 0
        offset_lag: int = 0
        is_future_key: bool = False

class DescribeLogDirsRequest(Request[DescribeLogDirsResponse]):
    topics: list[DescribeLogDirsRequest.DescribableLogDirTopic] | None = ...

    class DescribableLogDirTopic(Message):
        topic: str = ""
        partitions: list[int] = ...

class SaslAuthenticateResponse(Message):
    error_code: int = 0
    error_message: str | None = ""
    auth_bytes: bytes = b""
    session_lifetime_ms: int = 0

class SaslAuthenticateRequest(Request[SaslAuthenticateResponse]):
    auth_bytes: bytes = b""

class CreatePartitionsResponse(Message):
    throttle_time_ms: int = 0
    results: list[CreatePartitionsResponse.CreatePartitionsTopicResult] = ...

    class CreatePartitionsTopicResult(Message):
        name: str = ""
        error_code: int = 0
        error_message: str | None = None

class CreatePartitionsRequest(Request[CreatePartitionsResponse]):
    topics: list[CreatePartitionsRequest.CreatePartitionsTopic] = ...
    timeout_ms: int = 0
    validate_only: bool = False

    class CreatePartitionsTopic(Message):
        name: str = ""
        count: int = 0
        assignments: list[CreatePartitionsRequest.CreatePartitionsAssignment] | None = ...

    class CreatePartitionsAssignment(Message):
        broker_ids: list[int] = ...

class DeleteGroupsResponse(Message):
    throttle_time_ms: int = 0
    results: list[DeleteGroupsResponse.DeletableGroupResult] = ...

    class DeletableGroupResult(Message):
        group_id: str = ""
        error_code: int = 0

class DeleteGroupsRequest(Request[DeleteGroupsResponse]):
    groups_names: list[str] = ...

class IncrementalAlterConfigsResponse(Message):
    throttle_time_ms: int = 0
    responses: list[IncrementalAlterConfigsResponse.AlterConfigsResourceResponse] = ...

    class AlterConfigsResourceResponse(Message):
        error_code: int = 0
        error_message: str | None = ""
        resource_type: int = 0
        resource_name: str = ""

class IncrementalAlterConfigsRequest(Request[IncrementalAlterConfigsResponse]):
    resources: list[IncrementalAlterConfigsRequest.AlterConfigsResource] = ...
    validate_only: bool = False

    class AlterConfigsResource(Message):
        resource_type: int = 0
        resource_name: str = ""
        configs: list[IncrementalAlterConfigsRequest.AlterableConfig] = ...

    class AlterableConfig(Message):
        name: str = ""
        config_operation: int = 0
        value: str | None = ""

class ListPartitionReassignmentsResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    topics: list[ListPartitionReassignmentsResponse.OngoingTopicReassignment] = ...

    class OngoingTopicReassignment(Message):
        name: str = ""
        partitions: list[ListPartitionReassignmentsResponse.OngoingPartitionReassignment] = ...

    class OngoingPartitionReassignment(Message):
        partition_index: int = 0
        replicas: list[int] = ...
        adding_replicas: list[int] = ...
        removing_replicas: list[int] = ...

class ListPartitionReassignmentsRequest(Request[ListPartitionReassignmentsResponse]):
    timeout_ms: int = 60000
    topics: list[ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics] | None = ...

    class ListPartitionReassignmentsTopics(Message):
        name: str = ""
        partition_indexes: list[int] = ...

class OffsetDeleteResponse(Message):
    error_code: int = 0
    throttle_time_ms: int = 0
    topics: list[OffsetDeleteResponse.OffsetDeleteResponseTopic] = ...

    class OffsetDeleteResponseTopic(Message):
        name: str = ""
        partitions: list[OffsetDeleteResponse.OffsetDeleteResponsePartition] = ...

    class OffsetDeleteResponsePartition(Message):
        partition_index: int = 0
        error_code: int = 0

class OffsetDeleteRequest(Request[OffsetDeleteResponse]):
    group_id: str = ""
    topics: list[OffsetDeleteRequest.OffsetDeleteRequestTopic] = ...

    class OffsetDeleteRequestTopic(Message):
        name: str = ""
        partitions: list[OffsetDeleteRequest.OffsetDeleteRequestPartition] = ...

    class OffsetDeleteRequestPartition(Message):
        partition_index: int = 0

class DescribeClusterResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    endpoint_type: int = 1
    cluster_id: str = ""
    controller_id: int = -1
    brokers: list[DescribeClusterResponse.DescribeClusterBroker] = ...
    cluster_authorized_operations: int = -2147483648

    class DescribeClusterBroker(Message):
        broker_id: int = 0
        host: str = ""
        port: int = 0
        rack: str | None = None
        is_fenced: bool = False

class DescribeClusterRequest(Request[DescribeClusterResponse]):
    include_cluster_authorized_operations: bool = False
    endpoint_type: int = 1
    include_fenced_brokers: bool = False

class ConsumerGroupDescribeResponse(Message):
    throttle_time_ms: int = 0
    groups: list[ConsumerGroupDescribeResponse.DescribedGroup] = ...

    class DescribedGroup(Message):
        error_code: int = 0
        error_message: str | None = None
        group_id: str = ""
        group_state: str = ""
        group_epoch: int = 0
        assignment_epoch: int = 0
        assignor_name: str = ""
        members: list[ConsumerGroupDescribeResponse.Member] = ...
        authorized_operations: int = -2147483648

    class Member(Message):
        member_id: str = ""
        instance_id: str | None = None
        rack_id: str | None = None
        member_epoch: int = 0
        client_id: str = ""
        client_host: str = ""
        subscribed_topic_names: list[str] = ...
        subscribed_topic_regex: str | None = None
        assignment: ConsumerGroupDescribeResponse.Assignment = ...
        target_assignment: ConsumerGroupDescribeResponse.Assignment = ...
        member_type: int = -1

    class Assignment(Message):
        topic_partitions: list[ConsumerGroupDescribeResponse.TopicPartitions] = ...

    class TopicPartitions(Message):
        topic_id: bytes = ...
        topic_name: str = ""
        partitions: list[int] = ...

class ConsumerGroupDescribeRequest(Request[ConsumerGroupDescribeResponse]):
    group_ids: list[str] = ...
    include_authorized_operations: bool = False

class DescribeTopicPartitionsResponse(Message):
    throttle_time_ms: int = 0
    topics: list[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic] = ...
    next_cursor: DescribeTopicPartitionsResponse.Cursor | None = ...

    class DescribeTopicPartitionsResponseTopic(Message):
        error_code: int = 0
        name: str | None = ""
        topic_id: bytes = ...
        is_internal: bool = False
        partitions: list[
            DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition
        ] = ...
        topic_authorized_operations: int = -2147483648

    class Cursor(Message):
        topic_name: str = ""
        partition_index: int = 0

    class DescribeTopicPartitionsResponsePartition(Message):
        error_code: int = 0
        partition_index: int = 0
        leader_id: int = 0
        leader_epoch: int = -1
        replica_nodes: list[int] = ...
        isr_nodes: list[int] = ...
        eligible_leader_replicas: list[int] | None = None
        last_known_elr: list[int] | None = None
        offline_replicas: list[int] = ...

class DescribeTopicPartitionsRequest(Request[DescribeTopicPartitionsResponse]):
    topics: list[DescribeTopicPartitionsRequest.TopicRequest] = ...
    response_partition_limit: int = 2000
    cursor: DescribeTopicPartitionsRequest.Cursor | None = ...

    class TopicRequest(Message):
        name: str = ""

    class Cursor(Message):
        topic_name: str = ""
        partition_index: int = 0
