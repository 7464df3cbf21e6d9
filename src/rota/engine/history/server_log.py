"""Parses a broker's log: the group coordinator's messages of Kafka 2.x to 4.x.

Two kinds of input are read:

- text from log4j with Kafka's own patterns, of 4.x (``[2026-11-15 14:00:08,172] INFO
  [GroupCoordinator id=1 topic=__consumer_offsets partition=43] Stabilized group g generation 1 with
  1 members. (org.apache.kafka....)``) and of 2.x and 3.x (``... INFO [GroupCoordinator 1]:
  Stabilized group g generation 1 (__consumer_offsets-43) with 1 members
  (kafka.coordinator.group.GroupCoordinator)``), with or without a container log's prefix. Its times
  have no time zone: the caller passes it.
- JSON lines with a time and a message, or with a whole line of text

A message becomes a :class:`LogLine`. Its ``what`` is one of

- ``preparing``: members are asked to join; ``generation`` is the one before
- ``stabilized``: all members have joined ``generation``
- ``assigned``: the leader's assignment for ``generation`` arrived
- ``emptied``: the last member is gone, with ``generation``
- ``left``: a member sent a LeaveGroup request; ``client_reason`` is the reason in it
- ``absent``: a static member of a consumer group left temporarily
- ``failed``: a member's session expired
- ``fenced``: a consumer group's member was removed; ``reason`` says why
- ``dropped``: members that did not join in time were removed
- ``joining``: a member received its id, or joins with it
- ``joined``: a new member joined a consumer group
- ``replaced``: a static member's new process took its place
- ``epoch``: a consumer group's epoch was raised to ``generation``
- ``target``: the target of epoch ``generation`` was computed
- ``subscribed``: a member of a consumer group changed its topics or its pattern
- ``scanned``: the topics were matched against a pattern
- ``converted``: a classic group became a consumer group, or the reverse
- ``deleted``: the group was deleted (one line may name several)
- ``loaded``, ``unloaded``: a broker loaded or unloaded the group
- ``noted``: any other message

Names of groups and members may contain any text, even the fixed words of a message. So the patterns
match these words from the right, and a member id ends with its UUID, if it has one.
"""

from __future__ import annotations

import enum
import json
import re

from rota.engine.history.facts import LogLine

_GENERATION_RANGE = range(-(2**31), 2**31)
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_GROUP = r"(?P<group>.*)"
_MEMBER = rf"(?P<member>.*?{_UUID}|.*?)"
_GENERATION = r"(?P<generation>-?[0-9]{1,10})"
_PARTITION = r"(?: \([^()\s]+-\d+\))?"
_LEAVE = r"through explicit `LeaveGroup`(?: request)?(?:; client reason: (?P<client_reason>.*))?"
_STATE = r"in (?:state \w+|\w+ state)\."
_REMOVED = r", removing it from the group"
_MEMBER_WITH_INSTANCE = r"Member\[group\.instance\.id .*?, member\.id (?P<member>.*?)\]"
_USING_PROTOCOL = r"(?: using the (?P<reason>\w+) protocol)?"

# The type of a message, and its pattern without the full stop. The first matching pattern counts.
_MESSAGE_PATTERNS: tuple[tuple[str, str], ...] = (
    (
        "preparing",
        rf"Preparing to rebalance group {_GROUP} in state \w+ with old generation"
        rf" {_GENERATION}{_PARTITION} \(reason: (?P<reason>.*?)"
        r"(?:; client reason: (?P<client_reason>.*))?\)",
    ),
    (
        "preparing",  # Kafka 2.0 and before give no reason
        rf"Preparing to rebalance group {_GROUP} with old generation {_GENERATION}{_PARTITION}",
    ),
    (
        "stabilized",
        rf"Stabilized group {_GROUP} generation {_GENERATION}{_PARTITION}(?: with \d+ members)?",
    ),
    (
        "assigned",
        rf"Assignment received from leader (?:{_MEMBER} )?for group {_GROUP} for generation"
        rf" {_GENERATION}(?:\. The group has \d+ members, \d+ of which are static)?",
    ),
    ("emptied", rf"Group {_GROUP} with generation {_GENERATION} is now empty{_PARTITION}"),
    ("dropped", rf"Group {_GROUP} removed dynamic members who haven't joined: (?P<reason>.*)"),
    ("noted", rf"Group {_GROUP} is dead, skipping rebalance stage"),
    ("noted", rf"Group {_GROUP} could not complete rebalance because no members rejoined"),
    ("noted", rf"Group {_GROUP} transitioned to Dead in generation {_GENERATION}"),
    (
        "left",
        r"Member MemberMetadata\(memberId=(?P<member>.*?), groupInstanceId=.* has left group"
        rf" {_GROUP} {_LEAVE}",
    ),
    ("failed", rf"Member {_MEMBER} in group {_GROUP} has failed{_REMOVED}"),
    ("left", rf"Member {_MEMBER} in group {_GROUP} has left{_REMOVED}"),
    ("left", rf"{_MEMBER_WITH_INSTANCE} in group {_GROUP} has left{_REMOVED}"),
    ("failed", rf"{_MEMBER_WITH_INSTANCE} in group {_GROUP} has failed{_REMOVED}"),
    (
        "noted",
        rf"Pending member {_MEMBER} in group {_GROUP} has been removed after session timeout"
        r" expiration",
    ),
    ("noted", rf"Pending member with memberId={_MEMBER} has left group {_GROUP} {_LEAVE}"),
    (
        "joining",
        rf"Pending (?:dynamic )?member with id {_MEMBER} joins group {_GROUP} {_STATE}"
        r" Adding to the group now",
    ),
    (
        "joining",
        rf"Dynamic [mM]ember with unknown member id joins group {_GROUP} {_STATE}"
        r" Created a new member id (?P<member>.*?) (?:and request.*|and added.*|for this member.*)",
    ),
    (
        "replaced",
        rf"Static member with groupInstanceId=.*? and unknown member id joins group {_GROUP}"
        rf" {_STATE} Replacing previously mapped member (?P<member>.*) with this groupInstanceId",
    ),
    (
        "joining",
        rf"Static member with groupInstanceId=.*? and unknown member id joins group {_GROUP}"
        rf" {_STATE} Created a new member id (?P<member>.*) for this member and add(?:ed)? to the"
        r" group",
    ),
    (
        "deleted",
        rf"The following groups were deleted: {_GROUP}\. A total of \d+ offsets were removed",
    ),
    ("loaded", rf"Loaded \w+ group {_GROUP} with \d+ members"),
    ("loaded", rf"Loading group metadata for {_GROUP} with generation {_GENERATION}"),
    ("unloaded", rf"Unloading group metadata for {_GROUP} with generation {_GENERATION}"),
    (
        "unloaded",
        rf"\[GroupId={_GROUP}\] Unload(?:ed|ing) group metadata for (?:group epoch|generation)"
        rf" {_GENERATION}",
    ),
    (
        "noted",
        rf"Received notification of heartbeat expiration for member {_MEMBER} after group {_GROUP}"
        r" had already been unloaded or deleted",
    ),
    (
        "noted",
        rf"Received unexpected notification of sync expiration for {_GROUP} with an old generation"
        rf" -?\d+ while the group has {_GENERATION}",
    ),
    (
        "noted",
        rf"Received unexpected notification of sync expiration after group {_GROUP} already"
        r" transitioned to (?:the )?\w+ state",
    ),
    (
        "noted",
        rf"Sending empty assignment to member {_MEMBER} of {_GROUP} for generation {_GENERATION}"
        r" with no errors",
    ),
    (
        "noted",
        rf"Setting empty assignments for members .*? of {_GROUP} for generation {_GENERATION}",
    ),
    ("noted", rf"Failed to write empty metadata for group {_GROUP}: (?P<reason>.*)"),
    (
        "noted",
        rf"Failed to persist metadata for group {_GROUP} static member (?P<member>.*?) with group"
        r" instance id (?P<reason>.*)",
    ),
    ("noted", rf"Failed to persist metadata for group {_GROUP}: (?P<reason>.*)"),
    (
        "noted",
        rf"Attempt to add rejoining member {_MEMBER} of group {_GROUP} in unexpected group state"
        r" \w+",
    ),
    (
        "noted",
        r"Cannot (?:down|up)grade (?:the )?(?:classic|consumer) group "
        rf"{_GROUP}(?: to \w+ group)?(?: because |: )(?P<reason>.*)",
    ),
    (
        "noted",
        rf"Cannot join the consumer group {_GROUP} with the classic protocol because"
        r" (?P<reason>.*)",
    ),
    (
        "noted",
        rf"Failed to parse Consumer Protocol .*? of group {_GROUP}\. Consumer group coordinator is"
        r" not aware of the subscribed topics",
    ),
    ("noted", r"Operation [\w-]+ with \w+\(groupId='(?P<group>.*?)', (?P<reason>\w+=.*)"),
    ("noted", rf"Skipped the materialization of .*? in group {_GROUP} with topic .*"),
    ("noted", rf"\[Group {_GROUP}\] Pending member {_MEMBER} has left group {_LEAVE}"),
    ("left", rf"\[Group {_GROUP}\] Member {_MEMBER} has left group {_LEAVE}"),
)

# The same for messages that begin with the group's name: "[GroupId g] ".
_GROUP_PATTERNS: tuple[tuple[str, str], ...] = (
    ("epoch", rf"Bumped group epoch to {_GENERATION} with metadata hash (?P<reason>-?\d+)"),
    ("epoch", rf"Bumped group epoch to {_GENERATION}"),
    (
        "target",
        rf"Computed a new target assignment for epoch {_GENERATION} with '.*?' assignor in"
        r" \d+ms(?:: .*)?",
    ),
    ("joined", rf"Member {_MEMBER} joins the \w+ group{_USING_PROTOCOL}"),
    (
        "joined",
        rf"Static member {_MEMBER} with instance id .* joins the \w+ group{_USING_PROTOCOL}",
    ),
    (
        "replaced",
        r"Static member with instance id .* re-joins the \w+ group(?: using the \w+ protocol)?\."
        r" Created a new member (?P<member>.*) to replace the existing member (?P<reason>.*?)",
    ),
    (
        "joining",
        r"Dynamic member with unknown member id joins the \w+ group\. Created a new member id"
        r" (?P<member>.*) and requesting the member to rejoin with this id",
    ),
    ("absent", rf"Static member {_MEMBER} with instance id .* temporarily left the \w+ group"),
    ("left", rf"Static member {_MEMBER} with instance id .* has left group {_LEAVE}"),
    ("left", rf"Static member {_MEMBER} with instance id .* left the \w+ group"),
    ("left", rf"Dynamic member {_MEMBER} has left group {_LEAVE}"),
    ("left", rf"Member {_MEMBER} left the \w+ group"),
    ("fenced", rf"(?:Streams m|M)ember {_MEMBER} fenced from the group because (?P<reason>.*?)"),
    ("subscribed", rf"Member {_MEMBER} updated its subscribed (?:topics|regex) to: .*"),
    ("scanned", r"Scanned \d+ topics to refresh regular expressions .* in \d+ms"),
    ("converted", r"Converted the (?:empty )?\w+ group to a \w+ group"),
    ("noted", r"Creating a simple consumer group via manual offset commit"),
    ("noted", r"Computed new (?:subscription metadata|metadata hash): .*"),
    ("noted", rf"Member {_MEMBER}(?:'s)? new assignment state: .*"),
    ("noted", rf"Member {_MEMBER} updated its (?P<reason>.*)"),
    (
        "noted",
        rf"Static member {_MEMBER} with instance id .* (?:cannot join the group because the"
        r" instance id is owned by member|is fenced by existing member) .*",
    ),
    ("noted", r"(?:Skipping|Cannot compute) delayed target assignment: .*"),
    ("noted", r"Group not found during initial rebalance"),
    ("noted", r"Failed to compute a new target assignment for epoch .*"),
    ("noted", r"Couldn't (?:update|parse) regular expression.*"),
)

# Of streams groups: "[GroupId g][MemberId m] ".
_MEMBER_PATTERNS: tuple[tuple[str, str], ...] = (
    ("epoch", rf"Bumped streams group epoch to {_GENERATION} with .*"),
    ("joined", r"Member joins the (?P<reason>streams) group"),
    ("left", r"Member .* left the streams group"),
    ("noted", r".*"),
)

_PREFIX_LENGTH = 6  # length of the part of a message that selects its possible patterns


def _patterns_by_prefix() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    member = rf"\[GroupId {_GROUP}\]\[MemberId (?P<member>[^\]]*)\] "
    patterns: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for what, pattern in (
        *_MESSAGE_PATTERNS,
        *((what, rf"\[GroupId {_GROUP}\] {text}") for what, text in _GROUP_PATTERNS),
        *((what, member + text) for what, text in _MEMBER_PATTERNS),
    ):
        prefix = pattern.replace("\\", "")[:_PREFIX_LENGTH]
        patterns.setdefault(prefix, []).append((what, re.compile(rf"{pattern}\.?", re.DOTALL)))
    return patterns


_PATTERNS_BY_PREFIX = _patterns_by_prefix()

_REASON_PATTERNS = tuple(
    re.compile(pattern, re.DOTALL)
    for pattern in (
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

_GROUPLESS_MESSAGE = re.compile(
    r"Static member which joins during Stable stage|Group leader \[memberId: |Request memberId="
    r"|(?:Elected|Resigned) as the group coordinator for partition |Scheduling (?:un)?loading of "
    r"|Finished (?:un)?loading |Started unloading |Already loading |Ignored unloading "
    r"|Ignored load completion |(?:Loading|Unloading|Execution) of |Starting up|Startup complete"
    r"|Shutting down|Shutdown complete|Generated |Removed |Operation |Replaying record "
    r"|onUnloaded group with an unknown group type |The (?:state machine of the )?coordinator "
    r"|The write event |Failed to (?:load metadata|unload coordinator|write) "
    r"|Cannot load coordinator "
)


def parse_message(at: int, message: str) -> LogLine | None:
    """Parses a coordinator's message about a group; None if no pattern matches."""
    for what, pattern in _PATTERNS_BY_PREFIX.get(message[:_PREFIX_LENGTH], ()):
        match = pattern.fullmatch(message)
        if match is not None:
            fields = match.groupdict()
            if int(fields.get("generation") or 0) in _GENERATION_RANGE:
                return _make_log_line(at, what, fields, message)
    return None


def _make_log_line(at: int, what: str, fields: dict[str, str | None], text: str) -> LogLine:
    reason, member_id = fields.get("reason"), fields.get("member")
    generation = fields.get("generation")
    if what == "preparing" and reason:
        matches = (pattern.fullmatch(reason) for pattern in _REASON_PATTERNS)
        member_id = next((found["member"] for found in matches if found is not None), None)
    return LogLine(
        at=at,
        group=fields["group"] or "",
        what=what,
        generation=None if generation is None else int(generation),
        member_id=member_id or None,
        reason=reason,
        client_reason=fields.get("client_reason"),
        text=text,
    )


DAY = 24 * 60 * 60_000
MAX_LOG_TIME = 253_402_300_799_999  # the end of the year 9999; a larger number is not a time
MAX_LINE_LENGTH = 1 << 15  # longer lines are skipped: they are not from a coordinator


class SkippedLine(enum.StrEnum):
    OTHER = "not about a group"
    UNKNOWN = "about a group, but no pattern matches"


_TIMESTAMP = re.compile(
    r"(\d{4})-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])[ T]([01]\d|2[0-3]):([0-5]\d):([0-5]\d|60)"
    r"(?:[.,](\d{1,9}))?"
    r"(?:\s?(Z|[+-]\d\d:?(?:\d\d)?))?(?!\d)"
)

_COORDINATOR_PREFIX = re.compile(
    r"\[Group(?:Coordinator|MetadataManager) (?:id=|brokerId=)?-?\d+[^\]]*\]:? "
)

_LOGGER_SUFFIX = re.compile(r" \(((?:[\w$]+\.)+[\w$]+)\)(?: \[[^\[\]]*\])?\s*$")
_LEVEL = re.compile(r"\]? *(?:TRACE|DEBUG|INFO|WARN|ERROR|FATAL) +")
_GROUP_LOGGERS = ("kafka.coordinator.group.", "org.apache.kafka.coordinator.group.")
_MESSAGE_KEYS = ("m", "message", "msg", "log")
_TIME_KEYS = ("t", "timeMillis", "@timestamp", "timestamp", "time", "ts")


def parse_line(line: str, zone: int = 0) -> LogLine | SkippedLine:
    """Parses a line of a log; ``zone`` is the offset of its clock from UTC in minutes."""
    if len(line) > MAX_LINE_LENGTH or "roup" not in line:
        return SkippedLine.OTHER
    if line.lstrip().startswith("{"):
        return _parse_json_line(line, zone)
    return _parse_text_line(line, None, zone)


def parse_coordinator_message(at: int, message: str) -> LogLine | SkippedLine:
    line = parse_message(at, message)
    if line is not None:
        return line
    return SkippedLine.OTHER if _GROUPLESS_MESSAGE.match(message) else SkippedLine.UNKNOWN


def _parse_text_line(line: str, at: int | None, zone: int) -> LogLine | SkippedLine:
    line = line.rstrip("\r\n")
    coordinator = _COORDINATOR_PREFIX.search(line)
    logger = _LOGGER_SUFFIX.search(line)
    is_coordinator = bool(coordinator or (logger and logger[1].startswith(_GROUP_LOGGERS)))
    stamp = _TIMESTAMP.search(line)
    if coordinator is not None:
        start = coordinator.end()
    else:
        level = _LEVEL.search(line, stamp.end() if stamp is not None else 0)
        start = level.end() if level is not None else stamp.end() if stamp is not None else 0
    if stamp is not None and stamp.end() <= start:
        at = _parse_timestamp(stamp, zone)
    message = line[start : logger.start() if logger is not None else None].strip()
    found = parse_coordinator_message(at or 0, message)
    if found is SkippedLine.UNKNOWN and not is_coordinator:
        return SkippedLine.OTHER
    return SkippedLine.UNKNOWN if isinstance(found, LogLine) and at is None else found


def _parse_json_line(line: str, zone: int) -> LogLine | SkippedLine:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return SkippedLine.OTHER
    if not isinstance(fields, dict):
        return SkippedLine.OTHER
    message = next((fields[key] for key in _MESSAGE_KEYS if isinstance(fields.get(key), str)), None)
    if message is None or any("\ud800" <= letter <= "\udfff" for letter in message):
        return SkippedLine.OTHER  # a lone surrogate cannot be encoded
    at = _find_json_time(fields, zone)
    if "m" in fields and at is not None:
        return parse_coordinator_message(at, message)
    return _parse_text_line(message, at, zone)


def _find_json_time(fields: dict[str, object], zone: int) -> int | None:
    for key in _TIME_KEYS:
        match fields.get(key):
            case bool():
                continue
            case int(value) if abs(value) <= MAX_LOG_TIME:
                return value
            case float(value) if abs(value) <= MAX_LOG_TIME // 1000:
                return int(value * 1000)  # seconds with a fraction
            case str(value) if (stamp := _TIMESTAMP.search(value)) is not None:
                return _parse_timestamp(stamp, zone)
            case _:
                continue
    return None


def _parse_timestamp(stamp: re.Match[str], zone: int) -> int:
    year, month, day, hour, minute, second = (int(stamp[part]) for part in range(1, 7))
    milliseconds = int((stamp[7] or "")[:3].ljust(3, "0"))
    if stamp[8] is not None:
        zone = _parse_zone(stamp[8])
    passed = ((hour * 60 + minute - zone) * 60 + second) * 1000 + milliseconds
    return _days_since_1970(year, month, day) * DAY + passed


def _parse_zone(text: str) -> int:
    """Returns the minutes ahead of UTC of "Z", "+02:00", "-0530" or "+01"."""
    if text == "Z":
        return 0
    digits = text[1:].replace(":", "")
    minutes = int(digits[:2]) * 60 + int(digits[2:] or 0)
    return -minutes if text[0] == "-" else minutes


def _days_since_1970(year: int, month: int, day: int) -> int:
    """Returns the days from 1970 to a Gregorian date; the engine has no calendar."""
    # Years begin in March here, so that a leap day is the last day of a year.
    year -= month <= 2
    months = (month + 9) % 12
    years = 365 * year + year // 4 - year // 100 + year // 400
    return years + (153 * months + 2) // 5 + day - 719_469
