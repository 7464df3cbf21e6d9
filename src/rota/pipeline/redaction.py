"""Replaces member ids, client ids, hosts and group instance ids by keyed hashes.

Within a run the same name has the same hash, so that a member can still be followed. The key is
stored nowhere, so that nobody can find a name by trying.

Groups and topics keep their names. Member data in a format that is not
Kafka's own (the user data of Kafka Streams, all data of Kafka Connect) may contain hosts and is
left out, as are records that cannot be decoded. The metadata of a commit is hashed
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

# a broker's member id ends with a UUID; members of consumer groups choose an id of 22 characters
_MEMBER_IDS = re.compile(rf"[^\s:,;()\[\]]*{_UUID}|(?<![\w-])[\w-]{{22}}(?![\w-])")

_OTHER_NAMES = re.compile(
    r"((?:instance|client) ?(?:id|host)s?[ =:]+(?:Some\()?)([^\s,;()]+)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Redaction:
    """Replaces names by keyed hashes."""

    key: bytes

    def member(self, member_id: str) -> str:
        return self._hash("member", member_id)

    def _hash(self, kind: str, name: str) -> str:
        if not name:
            return name
        digest = hmac.new(self.key, f"{kind} {name}".encode(), hashlib.sha256).hexdigest()
        return f"{kind}#{digest[:HASH_DIGITS]}"

    def _maybe(self, kind: str, name: str | None) -> str | None:
        return None if name is None else self._hash(kind, name)

    def entry(self, entry: JournalEntry) -> JournalEntry | None:
        """Returns the redacted entry; None if it may contain names in an unknown format."""
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
        return self._hash("metadata", metadata)

    def line(self, line: LogLine) -> LogLine:
        """Returns a redacted log line; its text is replaced by a hash."""
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


def _redact_classic_membership(decoded: ClassicMemberMetadata) -> ClassicMemberMetadata:
    kept: Iterable[JoinGroupProtocol] = (
        JoinGroupProtocol(each.name, _redact_subscription(each.metadata, each.name))
        for each in decoded.protocols
    )
    return replace(decoded, protocols=tuple(kept))


def _redact_subscription(data: bytes, strategy: str) -> bytes:
    def encoded(version: int) -> bytes:
        decoded = consumer_protocol.decode_subscription(data)
        keep = strategy in KNOWN_USER_DATA
        return consumer_protocol.encode_subscription(
            decoded if keep else replace(decoded, user_data=None), version
        )

    return _reencode(data, encoded)


def _redact_assignment(data: bytes) -> bytes:
    def encoded(version: int) -> bytes:
        return consumer_protocol.encode_assignment(
            replace(consumer_protocol.decode_assignment(data), user_data=None), version
        )

    return _reencode(data, encoded) if data else data


def _reencode(data: bytes, encoded: Callable[[int], bytes]) -> bytes:
    """Encodes the bytes again in the same version; returns nothing if they cannot be
    decoded.
    """
    try:
        return encoded(min(int.from_bytes(data[:2], signed=True), HIGHEST_VERSION))
    except FormatError:
        return b""
