"""What a group coordinator says in its log: every shape of sentence, of Kafka 2.x to 4.x.

A sentence becomes a :class:`~rota.replay.fact.LogLine`. Its ``what`` is one of

========================  =====================================================================
``preparing``             members are called to join; ``generation`` is the one before
``stabilized``            all have joined ``generation``
``assigned``              the leader's assignment for ``generation`` arrived
``emptied``               the last member is gone, with ``generation``
``left``                  a member left by a request; ``client_reason`` is its own
``absent``                a static member of a consumer group left for a while
``failed``                a member was silent past its session
``fenced``                a consumer group's member was put out; ``reason`` says why
``dropped``               members that did not join in time were left out
``joining``               a member was given an id, or comes with the one it was given
``joined``                a member is new in a consumer group
``replaced``              a static member's new process took its place
``epoch``                 a consumer group's epoch was raised to ``generation``
``target``                the target of epoch ``generation`` was computed
``subscribed``            a member of a consumer group changed its topics or its pattern
``scanned``               the topics were looked through for a pattern
``converted``             classic became consumer, or the other way round
``deleted``               the group was deleted (several may be named in one line)
``loaded``, ``unloaded``  a broker took the group over, or gave it away
``noted``                 anything else
========================  =====================================================================

Groups and members may be named with any character, even with words of the sentence itself. The
fixed words are therefore looked for from the right, and ids by the UUID that a broker ends them
with, where they have one.
"""

from __future__ import annotations

import re

from rota.replay.fact import LogLine

_NUMBERS = range(-(2**31), 2**31)
"""What a generation or an epoch can be."""

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_GROUP = r"(?P<group>.*)"
_MEMBER = rf"(?P<member>.*?{_UUID}|.*?)"
_GENERATION = r"(?P<generation>-?[0-9]{1,10})"
_PARTITION = r"(?: \([^()\s]+-\d+\))?"
_LEAVE = r"through explicit `LeaveGroup`(?: request)?(?:; client reason: (?P<client_reason>.*))?"
_STATE = r"in (?:state \w+|\w+ state)\."

# What a sentence begins with, what it says, and the rest of it. The first that fits is taken.
_SHAPES: tuple[tuple[str, str, str], ...] = (
    (
        "Preparing to rebalance group ",
        "preparing",
        rf"{_GROUP} in state \w+ with old generation {_GENERATION}{_PARTITION}"
        r" \(reason: (?P<reason>.*?)(?:; client reason: (?P<client_reason>.*))?\)\.?",
    ),
    (
        "Preparing to rebalance group ",  # Kafka 2.0 and before give no reason
        "preparing",
        rf"{_GROUP} with old generation {_GENERATION}{_PARTITION}\.?",
    ),
    (
        "Stabilized group ",
        "stabilized",
        rf"{_GROUP} generation {_GENERATION}{_PARTITION}(?: with \d+ members)?\.?",
    ),
    (
        "Assignment received from leader ",
        "assigned",
        rf"(?:{_MEMBER} )?for group {_GROUP} for generation {_GENERATION}"
        r"(?:\. The group has \d+ members, \d+ of which are static)?\.?",
    ),
    ("Group ", "emptied", rf"{_GROUP} with generation {_GENERATION} is now empty{_PARTITION}\.?"),
    ("Group ", "dropped", rf"{_GROUP} removed dynamic members who haven't joined: (?P<reason>.*)"),
    ("Group ", "noted", rf"{_GROUP} is dead, skipping rebalance stage\.?"),
    (
        "Group ",
        "noted",
        rf"{_GROUP} could not complete rebalance because no members rejoined\.?",
    ),
    ("Group ", "noted", rf"{_GROUP} transitioned to Dead in generation {_GENERATION}\.?"),
    (
        "Member MemberMetadata(",
        "left",
        rf"memberId=(?P<member>.*?), groupInstanceId=.* has left group {_GROUP} {_LEAVE}",
    ),
    (
        "Member ",
        "failed",
        rf"{_MEMBER} in group {_GROUP} has failed, removing it from the group\.?",
    ),
    ("Member ", "left", rf"{_MEMBER} in group {_GROUP} has left, removing it from the group\.?"),
    (
        "Member[",
        "left",
        rf"group\.instance\.id .*?, member\.id (?P<member>.*?)\] in group {_GROUP}"
        r" has left, removing it from the group\.?",
    ),
    (
        "Member[",
        "failed",
        rf"group\.instance\.id .*?, member\.id (?P<member>.*?)\] in group {_GROUP}"
        r" has failed, removing it from the group\.?",
    ),
    (
        "Pending member ",
        "noted",
        rf"{_MEMBER} in group {_GROUP} has been removed after session timeout expiration\.?",
    ),
    ("Pending member with memberId=", "noted", rf"{_MEMBER} has left group {_GROUP} {_LEAVE}"),
    (
        "Pending dynamic member with id ",
        "joining",
        rf"{_MEMBER} joins group {_GROUP} {_STATE} Adding to the group now\.?",
    ),
    (
        "Pending member with id ",
        "joining",
        rf"{_MEMBER} joins group {_GROUP} {_STATE} Adding to the group now\.?",
    ),
    (
        "Dynamic ",
        "joining",
        rf"[mM]ember with unknown member id joins group {_GROUP} {_STATE}"
        r" Created a new member id (?P<member>.*?) (?:and request.*|and added.*|for this member.*)",
    ),
    (
        "Static member with groupInstanceId=",
        "replaced",
        rf".*? and unknown member id joins group {_GROUP} {_STATE}"
        r" Replacing previously mapped member (?P<member>.*) with this groupInstanceId\.?",
    ),
    (
        "Static member with groupInstanceId=",
        "joining",
        rf".*? and unknown member id joins group {_GROUP} {_STATE}"
        r" Created a new member id (?P<member>.*) for this member and add(?:ed)? to the group\.?",
    ),
    (
        "The following groups were deleted: ",
        "deleted",
        rf"{_GROUP}\. A total of \d+ offsets were removed\.?",
    ),
    ("Loaded ", "loaded", rf"\w+ group {_GROUP} with \d+ members\.?"),
    ("Loading group metadata for ", "loaded", rf"{_GROUP} with generation {_GENERATION}\.?"),
    ("Unloading group metadata for ", "unloaded", rf"{_GROUP} with generation {_GENERATION}\.?"),
    (
        "[GroupId=",
        "unloaded",
        rf"{_GROUP}\] Unload(?:ed|ing) group metadata for (?:group epoch|generation)"
        rf" {_GENERATION}\.?",
    ),
    (
        "Received notification of heartbeat expiration for member ",
        "noted",
        rf"{_MEMBER} after group {_GROUP} had already been unloaded or deleted\.?",
    ),
    (
        "Received unexpected notification of sync expiration for ",
        "noted",
        rf"{_GROUP} with an old generation -?\d+ while the group has {_GENERATION}\.?",
    ),
    (
        "Received unexpected notification of sync expiration after group ",
        "noted",
        rf"{_GROUP} already transitioned to (?:the )?\w+ state\.?",
    ),
    (
        "Sending empty assignment to member ",
        "noted",
        rf"{_MEMBER} of {_GROUP} for generation {_GENERATION} with no errors\.?",
    ),
    (
        "Setting empty assignments for members ",
        "noted",
        rf".*? of {_GROUP} for generation {_GENERATION}\.?",
    ),
    ("Failed to write empty metadata for group ", "noted", rf"{_GROUP}: (?P<reason>.*)"),
    (
        "Failed to persist metadata for group ",
        "noted",
        rf"{_GROUP} static member (?P<member>.*?) with group instance id (?P<reason>.*)",
    ),
    ("Failed to persist metadata for group ", "noted", rf"{_GROUP}: (?P<reason>.*)"),
    (
        "Attempt to add rejoining member ",
        "noted",
        rf"{_MEMBER} of group {_GROUP} in unexpected group state \w+\.?",
    ),
    (
        "Cannot ",
        "noted",
        r"(?:down|up)grade (?:the )?(?:classic|consumer) group "
        rf"{_GROUP}(?: to \w+ group)?(?: because |: )(?P<reason>.*)",
    ),
    (
        "Cannot join the consumer group ",
        "noted",
        rf"{_GROUP} with the classic protocol because (?P<reason>.*)",
    ),
    (
        "Failed to parse Consumer Protocol ",
        "noted",
        rf".*? of group {_GROUP}\. Consumer group coordinator is not aware of the subscribed"
        r" topics\.?",
    ),
    ("Operation ", "noted", r"[\w-]+ with \w+\(groupId='(?P<group>.*?)', (?P<reason>\w+=.*)"),
    ("Skipped the materialization of ", "noted", rf".*? in group {_GROUP} with topic .*"),
    ("[Group ", "noted", rf"{_GROUP}\] Pending member {_MEMBER} has left group {_LEAVE}"),
    ("[Group ", "left", rf"{_GROUP}\] Member {_MEMBER} has left group {_LEAVE}"),
)

# The same for what begins with the group's name: "[GroupId g] ".
_OF_GROUP: tuple[tuple[str, str], ...] = (
    ("epoch", rf"Bumped group epoch to {_GENERATION} with metadata hash (?P<reason>-?\d+)\.?"),
    ("epoch", rf"Bumped group epoch to {_GENERATION}\.?"),
    (
        "target",
        rf"Computed a new target assignment for epoch {_GENERATION} with '.*?' assignor in"
        r" \d+ms(?:: .*)?\.?",
    ),
    (
        "joined",
        rf"Member {_MEMBER} joins the \w+ group(?: using the (?P<reason>\w+) protocol)?\.?",
    ),
    (
        "joined",
        rf"Static member {_MEMBER} with instance id .* joins the \w+ group(?: using the"
        r" (?P<reason>\w+) protocol)?\.?",
    ),
    (
        "replaced",
        r"Static member with instance id .* re-joins the \w+ group(?: using the \w+ protocol)?\."
        r" Created a new member (?P<member>.*) to replace the existing member (?P<reason>.*?)\.?",
    ),
    (
        "joining",
        r"Dynamic member with unknown member id joins the \w+ group\."
        r" Created a new member id (?P<member>.*) and requesting the member to rejoin with this"
        r" id\.?",
    ),
    ("absent", rf"Static member {_MEMBER} with instance id .* temporarily left the \w+ group\.?"),
    ("left", rf"Static member {_MEMBER} with instance id .* has left group {_LEAVE}"),
    ("left", rf"Static member {_MEMBER} with instance id .* left the \w+ group\.?"),
    ("left", rf"Dynamic member {_MEMBER} has left group {_LEAVE}"),
    ("left", rf"Member {_MEMBER} left the \w+ group\.?"),
    ("fenced", rf"(?:Streams m|M)ember {_MEMBER} fenced from the group because (?P<reason>.*?)\.?"),
    ("subscribed", rf"Member {_MEMBER} updated its subscribed (?:topics|regex) to: .*"),
    ("scanned", r"Scanned \d+ topics to refresh regular expressions .* in \d+ms\.?"),
    ("converted", r"Converted the (?:empty )?\w+ group to a \w+ group\.?"),
    ("noted", r"Creating a simple consumer group via manual offset commit\.?"),
    ("noted", r"Computed new (?:subscription metadata|metadata hash): .*"),
    ("noted", rf"Member {_MEMBER}(?:'s)? new assignment state: .*"),
    ("noted", rf"Member {_MEMBER} updated its (?P<reason>.*)"),
    (
        "noted",
        rf"Static member {_MEMBER} with instance id .* (?:cannot join the group because the"
        r" instance id is owned by member|is fenced by existing member) .*",
    ),
    ("noted", r"(?:Skipping|Cannot compute) delayed target assignment: .*"),
    ("noted", r"Group not found during initial rebalance\.?"),
    ("noted", r"Failed to compute a new target assignment for epoch .*"),
    ("noted", r"Couldn't (?:update|parse) regular expression.*"),
)

# Of streams groups: "[GroupId g][MemberId m] ".
_OF_MEMBER: tuple[tuple[str, str], ...] = (
    ("epoch", rf"Bumped streams group epoch to {_GENERATION} with .*"),
    ("joined", r"Member joins the (?P<reason>streams) group\.?"),
    ("left", r"Member .* left the streams group\.?"),
    ("noted", r".*"),
)

_ALL = (
    *_SHAPES,
    *(("[GroupId ", what, rf"{_GROUP}\] {rest}") for what, rest in _OF_GROUP),
    *(
        ("[GroupId ", what, rf"{_GROUP}\]\[MemberId (?P<member>[^\]]*)\] {rest}")
        for what, rest in _OF_MEMBER
    ),
)
_KEY = 6
"""So many letters of its beginning find the shapes that a sentence can have."""
_BY_KEY = {
    key: tuple(
        (start, what, re.compile(rest, re.DOTALL))
        for start, what, rest in _ALL
        if start[:_KEY] == key
    )
    for key in {start[:_KEY] for start, _, _ in _ALL}
}

_ABOUT_MEMBER = tuple(
    re.compile(shape, re.DOTALL)
    for shape in (
        r"Adding new member (?P<member>.*) with group instance id .*",
        r"[rR]emoving member (?P<member>.*) on (?:heartbeat expiration|LeaveGroup)\.?",
        r"Updating metadata for member (?P<member>.*) during \w+",
        r"Updating metadata for static member (?P<member>.*) with instance id .*",
        r"Updating metadata for member (?P<member>.*)",
        r"[lL]eader (?P<member>.*) re-joining group during \w+",
        r"Member (?P<member>.*) is joining group during \w+",
        r"explicit `LeaveGroup` request for \((?P<member>[^,]+)\) members\.?",
        r"Group's selectedProtocol will change because static member (?P<member>.*)"
        r" with instance id .* joined with change of protocol",
    )
)
"""The member that a reason to rebalance names."""

_OF_NO_GROUP = (
    "Static member which joins during Stable stage",
    "Group leader [memberId: ",
    "Request memberId=",
    "Elected as the group coordinator for partition ",
    "Resigned as the group coordinator for partition ",
    "Scheduling loading of ",
    "Scheduling unloading of ",
    "Finished loading ",
    "Finished unloading ",
    "Started unloading ",
    "Starting up",
    "Startup complete",
    "Shutting down",
    "Shutdown complete",
    "Generated ",
    "Removed ",
    "Already loading ",
    "Execution of ",
    "onUnloaded group with an unknown group type ",
    "The write event ",
    "The coordinator ",
    "The state machine of the coordinator ",
    "Ignored load completion ",
    "Ignored unloading ",
    "Failed to load metadata ",
    "Failed to unload coordinator ",
    "Failed to write ",
    "Replaying record ",
    "Cannot load coordinator ",
    "Operation ",
    "Loading of ",
    "Unloading of ",
)
"""How sentences begin that name no group."""


def understood(at: int, message: str) -> LogLine | None:
    """What a coordinator's sentence says about a group; None where no known shape fits."""
    for start, what, rest in _BY_KEY.get(message[:_KEY], ()):
        if not message.startswith(start):
            continue
        found = rest.fullmatch(message, len(start))
        if found is not None:
            told = found.groupdict()
            if int(told.get("generation") or 0) in _NUMBERS:
                return _line(at, what, told, message)
    return None


def names_no_group(message: str) -> bool:
    """A coordinator's sentence that is known, and about no certain group."""
    return message.startswith(_OF_NO_GROUP)


def _line(at: int, what: str, told: dict[str, str | None], text: str) -> LogLine:
    reason, member_id = told.get("reason"), told.get("member")
    generation = told.get("generation")
    return LogLine(
        at=at,
        group=told["group"] or "",
        what=what,
        generation=None if generation is None else int(generation),
        member_id=_named(reason) if what == "preparing" and reason else member_id or None,
        reason=reason,
        client_reason=told.get("client_reason"),
        text=text,
    )


def _named(reason: str) -> str | None:
    for shape in _ABOUT_MEMBER:
        found = shape.fullmatch(reason)
        if found is not None:
            return found["member"]
    return None
