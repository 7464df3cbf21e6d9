"""Kafka's log messages about a group, made from the coordinator's notes.

The wording is that of the group coordinator of Kafka 4.3, so that a program that reads a broker's
log can read this one too. Members stand for Java consumers: their reasons are translated into the
reasons that Java's consumer sends.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rota.engine.coordinator.events import Happened
from rota.engine.coordinator.state import GroupState
from rota.engine.model.journal_entry import GroupMetadataEntry
from rota.engine.model.response import JoinGroupResult
from rota.errors import Code

NOT_PROVIDED = "not provided"

#: A member's reasons, and those that Java's consumer gives.
JAVA_REASONS = {
    "the member is new": NOT_PROVIDED,
    "the subscription changed": "subscription has changed",
    "the subscription changed while joining": (
        "received assignment does not match the current subscription"
    ),
    "the topics' metadata changed": "cached metadata has changed",
    "partitions were taken away": "need to revoke partitions and re-join",
    "the group rebalances": "group is already rebalancing",
    "a commit met a rebalance": "offset commit failed since group is already rebalancing",
    "the application has not polled in time": "consumer poll timeout has expired.",
    "the application unsubscribed": "the consumer unsubscribed from all topics",
    "the application closes": "the consumer is being closed",
    "none given": NOT_PROVIDED,
}

GIVEN_ID_REASON = "the member has been given its id"

API_NAMES = {
    "join": "JOIN_GROUP",
    "sync": "SYNC_GROUP",
    "heartbeat": "HEARTBEAT",
    "commit": "OFFSET_COMMIT",
}

_REFUSED_REASON = re.compile(r"(join|sync|heartbeat|commit) refused with \d+ (\w+)")

_ADDED_NOTE = re.compile(
    r"(.*) \((?:static id (.*)|with the id it was given|without an id)\)", re.DOTALL
)

_PREPARING_NOTE = re.compile(r"(.*) \(group was (\w+)\)", re.DOTALL)

_MEMBER_REASON = re.compile(
    r"member (.*) (joins|has other metadata|leads and joins again); its reason: (.*)", re.DOTALL
)

_STATIC_REASON = re.compile(r"static member (.*) is back as (\S+)", re.DOTALL)

_SILENT_REASON = re.compile(r"member (.*) is silent", re.DOTALL)

EMPTY, PREPARING = GroupState.EMPTY.value, GroupState.PREPARING.value

COMPLETING, STABLE = GroupState.COMPLETING.value, GroupState.STABLE.value


class GroupLog:
    """Makes the log messages about one group; it keeps the group's state as its messages so
    far show it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = EMPTY
        self.leader: str | None = None
        #: Static ids by member ids.
        self.static: dict[str, str] = {}
        self._stored: GroupMetadataEntry | None = None

    def saved(self, entry: GroupMetadataEntry) -> None:
        """A generation was stored."""
        self._stored = entry

    def log_join_reply(self, reply: JoinGroupResult) -> Iterator[str]:
        """A join was answered."""
        if reply.code is Code.MEMBER_ID_REQUIRED:
            yield (
                f"Dynamic member with unknown member id joins group {self.name} in {self.state} "
                f"state. Created a new member id {reply.member_id} and requesting the member to "
                "rejoin with this id."
            )

    def log_loaded(self) -> str:
        """The journal was replayed: what it does not hold is forgotten."""
        members = () if self._stored is None else self._stored.members
        self.state = STABLE if members else EMPTY
        self.leader = None if self._stored is None else self._stored.leader
        self.static = {
            one.member_id: one.group_instance_id
            for one in members
            if one.group_instance_id is not None
        }
        return f"Loaded classic group {self.name} with {len(members)} members."

    def log_note(  # noqa: C901 (one case for each kind)
        self, what: Happened, generation: int, text: str
    ) -> Iterator[str]:
        """The lines for a note of the coordinator's."""
        name = self.name
        match what:
            case Happened.ADDED:
                yield self._added(text)
            case Happened.PREPARING:
                yield (
                    f"Preparing to rebalance group {name} in state {PREPARING} with old generation "
                    f"{generation} (reason: {self._reason(text)})."
                )
                self.state = PREPARING
            case Happened.JOINED:
                count = text.partition(" ")[0]
                yield f"Stabilized group {name} generation {generation} with {count} members."
                self.state = COMPLETING
            case Happened.ASSIGNED:
                yield self._assigned(generation, text)
            case Happened.STABLE:
                self.state = STABLE
            case Happened.EMPTIED:
                yield f"Group {name} with generation {generation} is now empty."
                self.state = EMPTY
            case Happened.LEFT:
                member, _, reason = text.partition("; its reason: ")
                self.static.pop(member, None)
                yield (
                    f"[Group {name}] Member {member} has left group through explicit `LeaveGroup` "
                    f"request; client reason: {_java_reason(reason, member)}"
                )
            case Happened.SILENT:
                member = text.rpartition(" for ")[0]
                self.static.pop(member, None)
                yield f"Member {member} in group {name} has failed, removing it from the group."
            case Happened.ABSENT:
                why, _, members = text.partition(": ")
                if why == "did not join in time":
                    yield f"Group {name} removed dynamic members who haven't joined: [{members}]"
            case Happened.REPLACED:
                yield from self._replaced(text)
            case _:
                pass

    def _added(self, text: str) -> str:
        found = _ADDED_NOTE.fullmatch(text)
        assert found is not None, text
        member, static = found.groups()
        if static is None and text.endswith("(without an id)"):
            return (
                f"Dynamic member with unknown member id joins group {self.name} in state "
                f"{self.state}. Created a new member id {member} and added the member to the group."
            )
        if static is None:
            return (
                f"Pending dynamic member with id {member} joins group {self.name} in {self.state} "
                "state. Adding to the group now."
            )
        self.static[member] = static
        return (
            f"Static member with groupInstanceId={static} and unknown member id joins group "
            f"{self.name} in {self.state} state. Created a new member id {member} for this member "
            "and added to the group."
        )

    def _replaced(self, text: str) -> Iterator[str]:
        old, _, new = text.partition(" by ")
        static = self.static.pop(old, "")
        self.static[new] = static
        if self.leader == old:
            self.leader = new
        yield (
            f"Static member with groupInstanceId={static} and unknown member id joins group "
            f"{self.name} in {self.state} state. Replacing previously mapped member {old} with "
            "this groupInstanceId."
        )
        if self.state == STABLE:
            yield (
                "Static member which joins during Stable stage and doesn't affect the selected "
                "protocol will not trigger a rebalance."
            )

    def _assigned(self, generation: int, text: str) -> str:
        words = text.removeprefix("from ")
        leader, _, rest = words.partition(" for ")
        self.leader = leader
        return (
            f"Assignment received from leader {leader} for group {self.name} for generation "
            f"{generation}. The group has {rest.partition(' ')[0]} members, {len(self.static)} of "
            "which are static."
        )

    def _reason(self, text: str) -> str:
        """Why a rebalance is prepared."""
        found = _PREPARING_NOTE.fullmatch(text)
        assert found is not None, text
        reason, state = found.groups()
        if (told := _MEMBER_REASON.fullmatch(reason)) is not None:
            return self._of_member(told[1], told[2], told[3], state)
        if (told := _STATIC_REASON.fullmatch(reason)) is not None:
            static, member = told.groups()
            begin = f"Updating metadata for static member {member} with instance id {static}"
            if state == STABLE:
                begin = (
                    f"Group's selectedProtocol will change because static member {member} with "
                    f"instance id {static} joined with change of protocol"
                )
            return f"{begin}; client reason: {NOT_PROVIDED}"
        if (told := _SILENT_REASON.fullmatch(reason)) is not None:
            return f"removing member {told[1]} on heartbeat expiration."
        what, _, members = reason.partition(": ")
        if what == "members leave":
            return f"explicit `LeaveGroup` request for ({members}) members."
        if what == "did not sync in time":
            return f"Removing [{members}] on pending sync request expiration"
        return reason

    def _of_member(self, member: str, what: str, reason: str, state: str) -> str:
        told = f"client reason: {_java_reason(reason, member)}"
        if what == "joins":
            static = self.static.get(member, "null")
            return f"Adding new member {member} with group instance id {static}; {told}"
        if state == STABLE and member == self.leader:
            return f"Leader {member} re-joining group during {state}; {told}"
        return f"Updating metadata for member {member} during {state}; {told}"


def _java_reason(reason: str, member: str) -> str:
    """A member's reason as Java's consumer gives it."""
    if reason == GIVEN_ID_REASON:
        return f"need to re-join with the given member-id: {member}"
    refused = _REFUSED_REASON.fullmatch(reason)
    if refused is not None:
        return f"encountered {refused[2]} from {API_NAMES[refused[1]]} response"
    return JAVA_REASONS.get(reason, reason)
