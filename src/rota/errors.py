"""All errors that Rota raises on purpose. Their common base is :class:`RotaError`."""

from __future__ import annotations

import enum
from typing import TypeVar

ErrorT = TypeVar("ErrorT", bound="RotaError")


class Code(enum.IntEnum):
    """The error codes of Kafka that a single-node broker returns or that clients handle."""

    UNKNOWN = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    KAFKA_STORAGE_ERROR = 56
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    PRODUCER_FENCED = 90
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115


class RotaError(Exception):
    """Base of every error that Rota raises on purpose."""

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions are pickled with args alone, which are not the arguments of all constructors.
        return _restore_error, (type(self), self.args, vars(self))


def _restore_error(
    cls: type[ErrorT], args: tuple[object, ...], attributes: dict[str, object]
) -> ErrorT:
    error = cls.__new__(cls, *args)
    vars(error).update(attributes)
    return error


class InputError(RotaError):
    """The caller's input is wrong. The message names the wrong value and its place."""


class UnknownStrategy(InputError):
    """No strategy has this name, or it cannot be loaded. The message lists the known strategies."""


class UnknownSolver(InputError):
    """The sticky strategies have no solver with this name."""


class Unreachable(RotaError):
    """A file, a server or a program cannot be reached or read. The message says what to do."""


class DiskError(Unreachable):
    """Reading or writing a file failed. The message names the file and the reason."""

    def __init__(self, message: str, *, full: bool = False) -> None:
        super().__init__(message)
        #: The disk has no space left.
        self.full = full


class MissingExtra(Unreachable, ImportError):
    """A package that this part of Rota needs is missing. The message says how to install it."""


class NotKafka(Unreachable):
    """The server at this address is not a Kafka broker. The message names the probable server."""

    def __init__(self, message: str, *, certain: bool = True) -> None:
        super().__init__(message)
        #: The server sent bytes that no Kafka sends. False: it was silent, or hung up at once.
        self.certain = certain


class Untrusted(Unreachable):
    """The TLS handshake failed: one side does not trust the certificate of the other."""


class TimedOut(Unreachable):
    """No response came in time, or an expected state was not reached in time."""


class FormatError(RotaError):
    """Bytes do not follow their format: truncated, negative lengths, impossible counts."""


class StrategyError(RotaError):
    """A strategy, usually a custom one, failed or returned an invalid assignment."""


class StrategyFailed(StrategyError):
    """The strategy raised an exception, which is the cause of this error."""


class BrokenRule(StrategyError):
    """The strategy's result breaks a rule that every assignment must keep."""

    def __init__(self, strategy: str, rule: str, detail: str) -> None:
        super().__init__(f"strategy {strategy!r} broke the rule {rule!r}: {detail}")
        self.strategy = strategy
        self.rule = rule
        self.detail = detail


class Refused(RotaError):
    """A broker refused a request. ``code`` is Kafka's error code."""

    def __init__(
        self, code: Code, message: str, *, records: tuple[tuple[int, str], ...] = ()
    ) -> None:
        super().__init__(message)
        self.code = code
        #: The refused records of a batch: their position in it, and the reason.
        self.records = records


class AuthenticationFailed(Refused):
    """The broker does not accept these credentials, or does not support the mechanism."""


class AuthorizationFailed(Refused):
    """The user has no permission. The message names the topic or the group."""


class UnknownTopic(Refused):
    """The topic does not exist, or its name is not allowed."""


class NoOffset(Refused):
    """No offset to start reading from: none is committed, or it is out of range, and
    ``auto.offset.reset`` is ``none``. The message names the partitions.
    """


class RecordError(RotaError):
    """A record or a batch cannot be decoded. To continue after it, seek to :attr:`next_offset`."""

    def __init__(
        self, topic: str, partition: int, offset: int, problem: str, *, next_offset: int
    ) -> None:
        super().__init__(f"{topic}-{partition} at offset {offset}: {problem}")
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.problem = problem
        #: The first offset behind the record or batch.
        self.next_offset = next_offset


class Interrupted(RotaError):
    """``wakeup`` was called from another thread, or from a signal handler."""


class GroupError(RotaError):
    """The group coordinator refused a request. ``code`` is Kafka's error code."""

    def __init__(self, message: str, code: int = Code.UNKNOWN) -> None:
        super().__init__(message)
        self.code = code


class CommitFailed(GroupError):
    """The group continues without this member; its partitions belong to other members now."""


class RebalanceInProgress(GroupError):
    """The commit came during a rebalance. Poll until the rebalance is over, then commit again."""


class RetriableCommitFailed(GroupError):
    """An asynchronous commit failed for a temporary reason. It is not retried automatically."""


class Fenced(GroupError):
    """Another process has joined with this member's ``group.instance.id``; this one must stop."""


class InconsistentProtocol(GroupError):
    """The member and the group have no strategy in common. The message lists the member's."""
