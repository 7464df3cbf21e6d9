"""Replaces member ids, client ids, hosts and group instance ids by keyed hashes.

Within a run the same name has the same hash, so that a member can still be followed. The key is
stored nowhere, so that nobody can find a name by trying.

Groups and topics keep their names. Member data in a format that is not Kafka's own (the user data
of Kafka Streams, all data of Kafka Connect) may contain hosts and is left out, like records that
cannot be decoded. The metadata of a commit is hashed as well.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass, replace
from typing import Any, TypeVar, assert_never

from rota.engine.formats import consumer_protocol
from rota.engine.history.facts import GenerationMember, LogLine
from rota.engine.history.samples import GroupSample
from rota.engine.model import consumer_group_entry as consumer
from rota.engine.model import journal_entry as classic
from rota.engine.model import share_streams_entry as other
from rota.engine.model.journal_entry import GroupMetadataMember, JournalEntry
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


MemberT = TypeVar("MemberT", bound=GroupMetadataMember | consumer.ClientRecord | GenerationMember)


@dataclass(frozen=True, slots=True)
class Redaction:
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

    def entry(self, entry: JournalEntry) -> JournalEntry | None:  # noqa: PLR0911 (one case each)
        """Returns the redacted entry; None if it may contain names in an unknown format."""
        match entry:
            case classic.OffsetCommitEntry():
                return replace(entry, metadata=self.metadata(entry.metadata))
            case classic.GroupMetadataEntry():
                return self._group(entry)
            case consumer.MemberMetadataEntry():
                member, old = self._member(entry), entry.classic
                return member if old is None else replace(member, classic=_redact_classic(old))
            case other.ShareMemberMetadataEntry():
                return self._member(entry)
            case other.StreamsMemberMetadataEntry():
                return self._streams_member(entry)
            case consumer.MemberRecord():
                return replace(entry, member_id=self.member(entry.member_id))
            case (
                classic.OffsetCommitTombstone()
                | classic.GroupMetadataTombstone()
                | consumer.GroupRecord()
            ):  # groups and topics keep their names
                return entry
            case classic.UnparsedEntry():
                return None
            case _:
                assert_never(entry)

    def _group(self, entry: classic.GroupMetadataEntry) -> classic.GroupMetadataEntry:
        known, strategy = entry.protocol_type == CONSUMER_PROTOCOL_TYPE, entry.protocol or ""
        members = (
            replace(
                self._member(member),
                subscription=_redact_subscription(member.subscription, strategy) if known else b"",
                assignment=_redact_assignment(member.assignment) if known else b"",
            )
            for member in entry.members
        )
        return replace(entry, leader=self._maybe("member", entry.leader), members=tuple(members))

    def _member(self, member: MemberT) -> MemberT:
        changes: dict[str, Any] = {
            "member_id": self.member(member.member_id),
            "client_id": self._hash("client", member.client_id),
            "client_host": self._hash("host", member.client_host),
        }
        static_id = getattr(member, "group_instance_id", None)  # share groups have none
        if static_id is not None:
            changes["group_instance_id"] = self._hash("static", static_id)
        return replace(member, **changes)

    def _streams_member(
        self, entry: other.StreamsMemberMetadataEntry
    ) -> other.StreamsMemberMetadataEntry:
        endpoint = entry.endpoint
        if endpoint is not None:
            endpoint = endpoint._replace(host=self._hash("host", endpoint.host))
        tags = (tag._replace(value=self._hash("tag", tag.value)) for tag in entry.client_tags)
        return replace(
            self._member(entry),
            process_id=self._hash("process", entry.process_id),
            endpoint=endpoint,
            client_tags=tuple(tags),
        )

    def sample(self, sample: GroupSample) -> GroupSample:
        return replace(sample, members=tuple(map(self._member, sample.members)))

    def metadata(self, metadata: str) -> str:
        return self._hash("metadata", metadata)

    def line(self, line: LogLine) -> LogLine:
        """Returns a redacted log line; its text is replaced by a hash."""
        return replace(
            line,
            member_id=self._maybe("member", line.member_id),
            reason=self._redact_text(line.reason, line.member_id),
            client_reason=self._redact_text(line.client_reason, line.member_id),
            text=self._hash("text", line.text),
        )

    def _redact_text(self, text: str | None, member_id: str | None) -> str | None:
        if text is None:
            return None
        if member_id:
            text = text.replace(member_id, self.member(member_id))
        text = _MEMBER_IDS.sub(lambda match: self.member(match[0]), text)
        return _OTHER_NAMES.sub(self._redact_match, text)

    def _redact_match(self, match: re.Match[str]) -> str:
        if match[2] in {"None", "null"}:
            return match[0]
        kind = "static" if "instance" in match[1].lower() else "client"
        return match[1] + self._hash(kind, match[2])


def _redact_classic(decoded: consumer.ClassicMemberMetadata) -> consumer.ClassicMemberMetadata:
    protocols = (
        JoinGroupProtocol(each.name, _redact_subscription(each.metadata, each.name))
        for each in decoded.protocols
    )
    return replace(decoded, protocols=tuple(protocols))


def _redact_subscription(data: bytes, strategy: str) -> bytes:
    """Drops unknown user data; returns no bytes if these cannot be decoded."""
    try:
        decoded = consumer_protocol.decode_subscription(data)
        if strategy not in KNOWN_USER_DATA:
            decoded = replace(decoded, user_data=None)
        return consumer_protocol.encode_subscription(decoded, _version(data))
    except FormatError:
        return b""


def _redact_assignment(data: bytes) -> bytes:
    """Drops the user data; returns no bytes if these cannot be decoded."""
    try:
        decoded = replace(consumer_protocol.decode_assignment(data), user_data=None)
        return consumer_protocol.encode_assignment(decoded, _version(data))
    except FormatError:
        return b""


def _version(data: bytes) -> int:
    return min(int.from_bytes(data[:2], signed=True), consumer_protocol.HIGHEST_VERSION)
