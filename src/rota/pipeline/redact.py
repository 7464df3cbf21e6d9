"""Hashes in the place of who and where: members, clients, hosts, static ids.

The hashes are keyed: within a run the same name has the same one, so that everything can still be
followed; without the key, which is nowhere kept, nobody finds a name by trying.

Groups and topics keep their names. What members tell their leader in a format that is not Kafka's
own (the user data of Kafka Streams, all of Kafka Connect) may name hosts, and is left out; so are
records that cannot be read. What clients add to a commit is hashed as well.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import assert_never

from rota.errors import FormatError
from rota.formats import assignment, subscription
from rota.formats.version import HIGHEST_VERSION
from rota.model.entry import (
    Entry,
    Foreign,
    GroupForgotten,
    GroupSaved,
    OffsetCommitted,
    OffsetForgotten,
    SavedMember,
)
from rota.model.modern import (
    ClassicMembership,
    CurrentForgotten,
    CurrentSaved,
    EpochForgotten,
    EpochSaved,
    MembershipForgotten,
    MembershipSaved,
    RegexForgotten,
    RegexSaved,
    TargetEpochForgotten,
    TargetEpochSaved,
    TargetForgotten,
    TargetSaved,
    TopicsForgotten,
    TopicsSaved,
)
from rota.model.request import Protocol
from rota.replay.fact import LogLine
from rota.replay.sample import Sample

CONSUMER = "consumer"
KNOWN_USER_DATA = frozenset({"sticky", "cooperative-sticky"})
DIGITS = 12
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
# a broker ends an id with a UUID; members of consumer groups choose one of 22 characters
_MEMBERS = re.compile(rf"[^\s:,;()\[\]]*{_UUID}|(?<![\w-])[\w-]{{22}}(?![\w-])")
_OTHERS = re.compile(
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
        return f"{kind}#{made[:DIGITS]}"

    def _maybe(self, kind: str, name: str | None) -> str | None:
        return None if name is None else self._hash(kind, name)

    def entry(self, entry: Entry) -> Entry | None:
        """The entry without names; None if it may hold some that cannot be found."""
        match entry:
            case OffsetCommitted():
                return replace(entry, metadata=self.metadata(entry.metadata))
            case GroupSaved():
                return self._group(entry)
            case MembershipSaved():
                return self._membership(entry)
            case (
                MembershipForgotten()
                | TargetSaved()
                | TargetForgotten()
                | CurrentSaved()
                | CurrentForgotten()
            ):
                return replace(entry, member_id=self.member(entry.member_id))
            case (
                OffsetForgotten()
                | GroupForgotten()
                | EpochSaved()
                | EpochForgotten()
                | TopicsSaved()
                | TopicsForgotten()
                | TargetEpochSaved()
                | TargetEpochForgotten()
                | RegexSaved()
                | RegexForgotten()
            ):
                return entry
            case Foreign():
                return None
            case _:
                assert_never(entry)

    def _group(self, entry: GroupSaved) -> GroupSaved:
        known = entry.protocol_type == CONSUMER
        return replace(
            entry,
            leader=self._maybe("member", entry.leader),
            members=tuple(
                self._member(member, entry.protocol or "", known=known) for member in entry.members
            ),
        )

    def _member(self, member: SavedMember, strategy: str, *, known: bool) -> SavedMember:
        return replace(
            member,
            member_id=self.member(member.member_id),
            static_id=self._maybe("static", member.static_id),
            client_id=self._hash("client", member.client_id),
            client_host=self._hash("host", member.client_host),
            subscription=_subscription(member.subscription, strategy) if known else b"",
            assignment=_assignment(member.assignment) if known else b"",
        )

    def _membership(self, entry: MembershipSaved) -> MembershipSaved:
        return replace(
            entry,
            member_id=self.member(entry.member_id),
            static_id=self._maybe("static", entry.static_id),
            client_id=self._hash("client", entry.client_id),
            client_host=self._hash("host", entry.client_host),
            classic=None if entry.classic is None else _classic(entry.classic),
        )

    def sample(self, sample: Sample) -> Sample:
        """A group as it was sampled, without names."""
        return replace(
            sample,
            members=tuple(
                replace(
                    each,
                    member_id=self.member(each.member_id),
                    static_id=self._maybe("static", each.static_id),
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
        text = _MEMBERS.sub(lambda found: self.member(found[0]), text)
        return _OTHERS.sub(self._other, text)

    def _other(self, found: re.Match[str]) -> str:
        if found[2] in {"None", "null"}:
            return found[0]
        kind = "static" if "instance" in found[1].lower() else "client"
        return found[1] + self._hash(kind, found[2])


def _classic(told: ClassicMembership) -> ClassicMembership:
    kept: Iterable[Protocol] = (
        Protocol(each.name, _subscription(each.metadata, each.name)) for each in told.protocols
    )
    return replace(told, protocols=tuple(kept))


def _subscription(data: bytes, strategy: str) -> bytes:
    def encoded(version: int) -> bytes:
        told = subscription.decode(data)
        keep = strategy in KNOWN_USER_DATA
        return subscription.encode(told if keep else replace(told, user_data=None), version)

    return _again(data, encoded)


def _assignment(data: bytes) -> bytes:
    def encoded(version: int) -> bytes:
        return assignment.encode(replace(assignment.decode(data), user_data=None), version)

    return _again(data, encoded) if data else data


def _again(data: bytes, encoded: Callable[[int], bytes]) -> bytes:
    """The bytes anew in the version they had; nothing where they cannot be read."""
    try:
        return encoded(min(int.from_bytes(data[:2], signed=True), HIGHEST_VERSION))
    except FormatError:
        return b""
