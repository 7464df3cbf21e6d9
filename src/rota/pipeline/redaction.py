"""Replaces member ids, client ids, hosts and static ids by keyed hashes.

Within a run the same name has the same hash, so that everything can still be followed; without the
key, which is stored nowhere, nobody finds a name by trying.

Groups and topics keep their names. What members send to their leader in a format that is not
Kafka's own (the user data of Kafka Streams, everything of Kafka Connect) may name hosts, and is
left out; so are records that cannot be decoded. The metadata that clients add to a commit is hashed
as well.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import assert_never

from rota.engine.formats import consumer_protocol
from rota.engine.formats.consumer_protocol import HIGHEST_VERSION
from rota.engine.history.facts import LogLine
from rota.engine.history.samples import GroupSample
from rota.engine.model.consumer_group_entry import (
    ClassicMemberMetadata,
    ConsumerGroupMetadataEntry,
    ConsumerGroupMetadataTombstone,
    CurrentMemberAssignmentEntry,
    CurrentMemberAssignmentTombstone,
    MemberMetadataEntry,
    MemberMetadataTombstone,
    PartitionMetadataEntry,
    PartitionMetadataTombstone,
    RegularExpressionEntry,
    RegularExpressionTombstone,
    TargetAssignmentMemberEntry,
    TargetAssignmentMemberTombstone,
    TargetAssignmentMetadataEntry,
    TargetAssignmentMetadataTombstone,
)
from rota.engine.model.journal_entry import (
    GroupMetadataEntry,
    GroupMetadataMember,
    GroupMetadataTombstone,
    JournalEntry,
    OffsetCommitEntry,
    OffsetCommitTombstone,
    UnparsedEntry,
)
from rota.engine.model.request import JoinGroupProtocol
from rota.errors import FormatError

CONSUMER_PROTOCOL_TYPE = "consumer"

KNOWN_USER_DATA = frozenset({"sticky", "cooperative-sticky"})

HASH_DIGITS = 12

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"

# a broker ends an id with a UUID; members of consumer groups choose one of 22 characters
_MEMBER_IDS = re.compile(rf"[^\s:,;()\[\]]*{_UUID}|(?<![\w-])[\w-]{{22}}(?![\w-])")

_OTHER_NAMES = re.compile(
    r"((?:instance|client) ?(?:id|host)s?[ =:]+(?:Some\()?)([^\s,;()]+)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Redaction:
    """Replaces names by keyed hashes."""

    key: bytes

    def member(self, member_id: str) -> str:
        """A member id's hash."""
        return self._hash("member", member_id)

    def _hash(self, kind: str, name: str) -> str:
        if not name:
            return name
        made = hmac.new(self.key, f"{kind} {name}".encode(), hashlib.sha256).hexdigest()
        return f"{kind}#{made[:HASH_DIGITS]}"

    def _maybe(self, kind: str, name: str | None) -> str | None:
        return None if name is None else self._hash(kind, name)

    def entry(self, entry: JournalEntry) -> JournalEntry | None:
        """Returns the entry without names; None if it may hold names that cannot be found."""
        match entry:
            case OffsetCommitEntry():
                return replace(entry, metadata=self.metadata(entry.metadata))
            case GroupMetadataEntry():
                return self._group(entry)
            case MemberMetadataEntry():
                return self._membership(entry)
            case (
                MemberMetadataTombstone()
                | TargetAssignmentMemberEntry()
                | TargetAssignmentMemberTombstone()
                | CurrentMemberAssignmentEntry()
                | CurrentMemberAssignmentTombstone()
            ):
                return replace(entry, member_id=self.member(entry.member_id))
            case (
                OffsetCommitTombstone()
                | GroupMetadataTombstone()
                | ConsumerGroupMetadataEntry()
                | ConsumerGroupMetadataTombstone()
                | PartitionMetadataEntry()
                | PartitionMetadataTombstone()
                | TargetAssignmentMetadataEntry()
                | TargetAssignmentMetadataTombstone()
                | RegularExpressionEntry()
                | RegularExpressionTombstone()
            ):
                return entry
            case UnparsedEntry():
                return None
            case _:
                assert_never(entry)

    def _group(self, entry: GroupMetadataEntry) -> GroupMetadataEntry:
        known = entry.protocol_type == CONSUMER_PROTOCOL_TYPE
        return replace(
            entry,
            leader=self._maybe("member", entry.leader),
            members=tuple(
                self._member(member, entry.protocol or "", known=known) for member in entry.members
            ),
        )

    def _member(
        self, member: GroupMetadataMember, strategy: str, *, known: bool
    ) -> GroupMetadataMember:
        return replace(
            member,
            member_id=self.member(member.member_id),
            group_instance_id=self._maybe("static", member.group_instance_id),
            client_id=self._hash("client", member.client_id),
            client_host=self._hash("host", member.client_host),
            subscription=_redact_subscription(member.subscription, strategy) if known else b"",
            assignment=_redact_assignment(member.assignment) if known else b"",
        )

    def _membership(self, entry: MemberMetadataEntry) -> MemberMetadataEntry:
        return replace(
            entry,
            member_id=self.member(entry.member_id),
            group_instance_id=self._maybe("static", entry.group_instance_id),
            client_id=self._hash("client", entry.client_id),
            client_host=self._hash("host", entry.client_host),
            classic=None if entry.classic is None else _redact_classic_membership(entry.classic),
        )

    def sample(self, sample: GroupSample) -> GroupSample:
        """A group as it was sampled, without names."""
        return replace(
            sample,
            members=tuple(
                replace(
                    each,
                    member_id=self.member(each.member_id),
                    group_instance_id=self._maybe("static", each.group_instance_id),
                    client_id=self._hash("client", each.client_id),
                    client_host=self._hash("host", each.client_host),
                )
                for each in sample.members
            ),
        )

    def metadata(self, metadata: str) -> str:
        """What a client added to a commit."""
        return self._hash("metadata", metadata)

    def line(self, line: LogLine) -> LogLine:
        """A line of a log without names; of its text only a mark is left that tells it apart."""
        return replace(
            line,
            member_id=self._maybe("member", line.member_id),
            reason=self._words(line.reason, line.member_id),
            client_reason=self._words(line.client_reason, line.member_id),
            text=self._hash("text", line.text),
        )

    def _words(self, text: str | None, member_id: str | None) -> str | None:
        if text is None:
            return None
        if member_id:
            text = text.replace(member_id, self.member(member_id))
        text = _MEMBER_IDS.sub(lambda found: self.member(found[0]), text)
        return _OTHER_NAMES.sub(self._other, text)

    def _other(self, found: re.Match[str]) -> str:
        if found[2] in {"None", "null"}:
            return found[0]
        kind = "static" if "instance" in found[1].lower() else "client"
        return found[1] + self._hash(kind, found[2])


def _redact_classic_membership(told: ClassicMemberMetadata) -> ClassicMemberMetadata:
    kept: Iterable[JoinGroupProtocol] = (
        JoinGroupProtocol(each.name, _redact_subscription(each.metadata, each.name))
        for each in told.protocols
    )
    return replace(told, protocols=tuple(kept))


def _redact_subscription(data: bytes, strategy: str) -> bytes:
    def encoded(version: int) -> bytes:
        told = consumer_protocol.decode_subscription(data)
        keep = strategy in KNOWN_USER_DATA
        return consumer_protocol.encode_subscription(
            told if keep else replace(told, user_data=None), version
        )

    return _reencode(data, encoded)


def _redact_assignment(data: bytes) -> bytes:
    def encoded(version: int) -> bytes:
        return consumer_protocol.encode_assignment(
            replace(consumer_protocol.decode_assignment(data), user_data=None), version
        )

    return _reencode(data, encoded) if data else data


def _reencode(data: bytes, encoded: Callable[[int], bytes]) -> bytes:
    """Encodes the bytes again in the version they had; returns nothing where they cannot be
    decoded.
    """
    try:
        return encoded(min(int.from_bytes(data[:2], signed=True), HIGHEST_VERSION))
    except FormatError:
        return b""
