"""Error codes of a partition: which will pass, and what the others are to the caller."""

from __future__ import annotations

from typing import Final

from rota.errors import AuthorizationFailed, Code, Refused, UnknownTopic
from rota.model.topic import TopicPartition

REPLICA_NOT_AVAILABLE: Final = 9

PASSING: Final = frozenset({Code.UNKNOWN, Code.UNKNOWN_LEADER_EPOCH, Code.REQUEST_TIMED_OUT})
"""Nothing is wrong with the metadata: the broker is behind them, or in trouble itself."""
STALE: Final = frozenset(
    {
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.LEADER_NOT_AVAILABLE,
        Code.NOT_LEADER_OR_FOLLOWER,
        REPLICA_NOT_AVAILABLE,
        Code.NETWORK_EXCEPTION,
        Code.KAFKA_STORAGE_ERROR,
        Code.FETCH_SESSION_ID_NOT_FOUND,
        Code.INVALID_FETCH_SESSION_EPOCH,
        Code.FENCED_LEADER_EPOCH,
        Code.OFFSET_NOT_AVAILABLE,
        Code.UNKNOWN_TOPIC_ID,
        Code.INCONSISTENT_TOPIC_ID,
    }
)
"""The partition is led elsewhere, or by another epoch; its topic may be gone, or made anew."""
AGAIN: Final = PASSING | STALE
"""Worth another try, after a pause and with new metadata."""


def refusal(code: int, partition: TopicPartition, doing: str) -> Refused:
    """The error for a code that is not worth another try.

    :param doing: what was refused: "to fetch from", say
    """
    known = Code(code) if code in set(Code) else Code.UNKNOWN
    if code == Code.TOPIC_AUTHORIZATION_FAILED:
        text = f"no permission to read topic {partition.topic!r}: {doing} {partition} was refused"
        return AuthorizationFailed(known, text)
    if code == Code.INVALID_TOPIC_EXCEPTION:
        return UnknownTopic(known, f"no topic can have the name {partition.topic!r}")
    name = known.name if known == code else "one that Rota does not know"
    return Refused(known, f"{doing} {partition} was refused with error {code} ({name})")
