"""Every error Rota raises on purpose, in one tree.

::

    RotaError
    ├── InputError              what the caller gave is wrong; says what and where
    │   ├── UnknownStrategy     no such strategy, or it cannot be loaded
    │   └── UnknownSolver       no such solver of the sticky family
    ├── Unreachable             what is needed cannot be reached or read: a file, a server, Java
    │   ├── MissingExtra        a package that is not installed; an ImportError, too
    │   ├── DiskError           the machine refused to read or write a file of the data folder
    │   ├── NotKafka            something else than a Kafka listens at an address
    │   ├── Untrusted           TLS does not come about: a certificate is not accepted
    │   └── TimedOut            no answer came within the time that was given
    ├── FormatError             bytes that do not follow their format
    ├── StrategyError           a strategy did not do its duty
    │   ├── StrategyFailed      it raised
    │   └── BrokenRule          its result breaks a rule of a valid assignment
    ├── Refused                 a broker refuses what a request asks for; carries Kafka's code
    │   ├── AuthenticationFailed    wrong credentials, or a mechanism the broker has not
    │   ├── AuthorizationFailed     no permission for a topic, a group or the cluster
    │   ├── UnknownTopic        a topic that does not exist, or cannot
    │   └── NoOffset            no offset to read from: none committed, or out of range
    ├── RecordError             a record that cannot be decoded; names where it is
    ├── Interrupted             ``wakeup`` ended what the application was waiting for
    └── GroupError              a group's coordinator refused; carries Kafka's code
        ├── CommitFailed        the member is no longer of the generation it commits for
        ├── RebalanceInProgress     a commit came in the middle of a rebalance: poll, then commit
        ├── RetriableCommitFailed   an asynchronous commit failed, and may be tried again
        ├── Fenced              another process has taken this member's static id
        └── InconsistentProtocol    no strategy that all members support
"""

from __future__ import annotations

import enum
import functools


class Code(enum.IntEnum):
    """Kafka's error codes: those that a broker of one node gives, and that clients meet."""

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


class InputError(RotaError):
    """The caller's input is wrong. The message names what was wrong, and where."""


class UnknownStrategy(InputError):
    """A strategy that is not known or cannot be loaded. The message lists those that are."""


class UnknownSolver(InputError):
    """A solver that the sticky family does not have."""


class Unreachable(RotaError):
    """What is needed cannot be reached or read. The message says what to do."""


class DiskError(Unreachable):
    """The machine refused to read or write a file. The message names the file and the reason."""

    def __init__(self, message: str, *, full: bool = False) -> None:
        super().__init__(message)
        self.full = full
        """There is no space left."""


class MissingExtra(Unreachable, ImportError):
    """A package that this part of Rota needs is not installed. The message says how to get it."""


class NotKafka(Unreachable):
    """Something else listens at this address. The message names the address, and what it may be."""

    def __init__(self, message: str, *, certain: bool = True) -> None:
        super().__init__(message)
        self.certain = certain
        """It has said something that no Kafka says; else it was silent, or hung up at once."""


class Untrusted(Unreachable):
    """TLS does not come about: this client does not trust the broker, or the broker not this
    client. The message names the address and the reason.
    """


class TimedOut(Unreachable):
    """No answer within the time that was given. The message names what was waited for."""


class FormatError(RotaError):
    """Bytes that do not follow their format: truncated, negative lengths, impossible counts."""


class StrategyError(RotaError):
    """A strategy, usually a custom one, did not do its duty."""


class StrategyFailed(StrategyError):
    """The strategy raised; its exception is the cause of this one."""


class BrokenRule(StrategyError):
    """The strategy's result breaks a rule that every assignment must keep."""

    def __init__(self, strategy: str, rule: str, detail: str) -> None:
        super().__init__(f"strategy {strategy!r} broke the rule {rule!r}: {detail}")
        self.strategy = strategy
        self.rule = rule
        self.detail = detail

    def __reduce__(self) -> tuple[type[BrokenRule], tuple[str, str, str]]:
        return type(self), (self.strategy, self.rule, self.detail)


class Refused(RotaError):
    """A broker refuses what a request asks for; the message may be sent to the client."""

    def __init__(
        self, code: Code, message: str, *, records: tuple[tuple[int, str], ...] = ()
    ) -> None:
        super().__init__(message)
        self.code = code
        self.records = records
        """The numbers of the records in their batch that are the reason, with what is wrong."""


class AuthenticationFailed(Refused):
    """The broker does not take these credentials, or not by this mechanism."""


class AuthorizationFailed(Refused):
    """The user has no permission. The message names the topic or the group."""


class UnknownTopic(Refused):
    """A topic that does not exist, or that cannot have this name."""


class NoOffset(Refused):
    """Nothing says where to read on: no offset was committed, or it is out of range, and
    ``auto.offset.reset`` is ``none``. The message names the partitions.
    """


class RecordError(RotaError):
    """A record, or a batch of them, that cannot be decoded. To go on behind it, seek to
    :attr:`next_offset`.
    """

    def __init__(
        self, topic: str, partition: int, offset: int, problem: str, *, next_offset: int
    ) -> None:
        super().__init__(f"{topic}-{partition} at offset {offset}: {problem}")
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.problem = problem
        self.next_offset = next_offset
        """The first offset behind what cannot be decoded."""

    def __reduce__(self) -> tuple[object, ...]:
        made = functools.partial(type(self), next_offset=self.next_offset)
        return made, (self.topic, self.partition, self.offset, self.problem)


class Interrupted(RotaError):
    """``wakeup`` was called from another thread, or from a signal handler."""


class GroupError(RotaError):
    """A group's coordinator refused a request for good."""

    def __init__(self, message: str, code: int = Code.UNKNOWN) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[type[GroupError], tuple[str, int]]:
        return type(self), (str(self), self.code)


class CommitFailed(GroupError):
    """The group has gone on without this member: what it would commit belongs to others now."""


class RebalanceInProgress(GroupError):
    """The commit came in the middle of a rebalance. Poll until it is over, then commit again."""


class RetriableCommitFailed(GroupError):
    """An asynchronous commit failed for a reason that may pass; it is not tried again by itself."""


class Fenced(GroupError):
    """Another process has joined under this member's static id. It must stop."""


class InconsistentProtocol(GroupError):
    """The group has no strategy in common with this member. The message lists the member's own."""
