"""Lines of brokers' logs, of several versions."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.engine.history.facts import LogLine
from rota.engine.history.server_log import SkippedLine, parse_coordinator_message, parse_line
from tests.support import first_recording

AT = 1_794_751_208_172
MEMBER = "app-1-65c52171-428e-409b-af85-372cc7dfbf07"
OTHER = "app-2-0096d8b6-b72a-4965-940e-f3db0313ee36"
NEW_PREFIX = (
    "[2026-11-15 14:00:08,172] INFO [GroupCoordinator id=1 topic=__consumer_offsets partition=43] "
)
NEW_LOGGER = " (org.apache.kafka.coordinator.group.GroupMetadataManager)"
OLD_PREFIX = "[2026-11-15 14:00:08,172] INFO [GroupCoordinator 1]: "
OLD_LOGGER = " (kafka.coordinator.group.GroupCoordinator)"

# what is said (of group "g"): what it is about, generation, member, reason, the client's reason
SAID = {
    f"Preparing to rebalance group g in state PreparingRebalance with old generation 3 (reason: "
    f"Adding new member {MEMBER} with group instance id null; client reason: not provided).": (
        "preparing",
        3,
        MEMBER,
        f"Adding new member {MEMBER} with group instance id null",
        "not provided",
    ),
    f"Preparing to rebalance group g in state PreparingRebalance with old generation 3 "
    f"(__consumer_offsets-12) (reason: removing member {MEMBER} on heartbeat expiration)": (
        "preparing",
        3,
        MEMBER,
        f"removing member {MEMBER} on heartbeat expiration",
        None,
    ),
    f"Preparing to rebalance group g in state PreparingRebalance with old generation 3 "
    f"(__consumer_offsets-12) (reason: Removing member {MEMBER} on LeaveGroup; client reason: the "
    "consumer is being closed)": (
        "preparing",
        3,
        MEMBER,
        f"Removing member {MEMBER} on LeaveGroup",
        "the consumer is being closed",
    ),
    "Preparing to rebalance group g in state PreparingRebalance with old generation 7 (reason: "
    "Downgrade group g from consumer to classic for member leaving.).": (
        "preparing",
        7,
        None,
        "Downgrade group g from consumer to classic for member leaving.",
        None,
    ),
    "Preparing to rebalance group g with old generation 3 (__consumer_offsets-1)": (
        "preparing",
        3,
        None,
        None,
        None,
    ),
    "Stabilized group g generation 4 with 3 members.": ("stabilized", 4, None, None, None),
    "Stabilized group g generation 4 (__consumer_offsets-12) with 3 members": (
        "stabilized",
        4,
        None,
        None,
        None,
    ),
    "Stabilized group g generation 4 (__consumer_offsets-12)": ("stabilized", 4, None, None, None),
    f"Assignment received from leader {MEMBER} for group g for generation 4. The group has 3 "
    "members, 0 of which are static.": ("assigned", 4, MEMBER, None, None),
    "Assignment received from leader for group g for generation 4": (
        "assigned",
        4,
        None,
        None,
        None,
    ),
    "Group g with generation 7 is now empty.": ("emptied", 7, None, None, None),
    "Group g with generation 7 is now empty (__consumer_offsets-12)": (
        "emptied",
        7,
        None,
        None,
        None,
    ),
    f"Member {MEMBER} in group g has failed, removing it from the group": (
        "failed",
        None,
        MEMBER,
        None,
        None,
    ),
    f"Member MemberMetadata(memberId={MEMBER}, groupInstanceId=None, clientId=app-1, "
    "clientHost=/127.0.0.1, sessionTimeoutMs=45000, rebalanceTimeoutMs=300000, "
    "supportedProtocols=List(range, cooperative-sticky)) has left group g through explicit "
    "`LeaveGroup`; client reason: the consumer is being closed": (
        "left",
        None,
        MEMBER,
        None,
        "the consumer is being closed",
    ),
    f"[Group g] Member {MEMBER} has left group through explicit `LeaveGroup` request; client "
    "reason: consumer poll timeout has expired.": (
        "left",
        None,
        MEMBER,
        None,
        "consumer poll timeout has expired.",
    ),
    f"Member[group.instance.id None, member.id {MEMBER}] in group g has left, removing it from the "
    "group": ("left", None, MEMBER, None, None),
    f"Group g removed dynamic members who haven't joined: [{MEMBER}]": (
        "dropped",
        None,
        None,
        f"[{MEMBER}]",
        None,
    ),
    f"Pending dynamic member with id {MEMBER} joins group g in Stable state. Adding to the group "
    "now.": ("joining", None, MEMBER, None, None),
    f"Dynamic member with unknown member id joins group g in Empty state. Created a new member id "
    f"{MEMBER} and request the member to rejoin with this id.": (
        "joining",
        None,
        MEMBER,
        None,
        None,
    ),
    "Static member with groupInstanceId=i and unknown member id joins group g in Stable state. "
    f"Replacing previously mapped member {MEMBER} with this groupInstanceId.": (
        "replaced",
        None,
        MEMBER,
        None,
        None,
    ),
    "[GroupId g] Bumped group epoch to 5 with metadata hash -42.": ("epoch", 5, None, "-42", None),
    "[GroupId g] Computed a new target assignment for epoch 5 with 'uniform' assignor in 0ms.": (
        "target",
        5,
        None,
        None,
        None,
    ),
    "[GroupId g] Member m joins the consumer group using the consumer protocol.": (
        "joined",
        None,
        "m",
        "consumer",
        None,
    ),
    "[GroupId g] Member m left the consumer group.": ("left", None, "m", None, None),
    "[GroupId g] Static member m with instance id i left the consumer group.": (
        "left",
        None,
        "m",
        None,
        None,
    ),
    "[GroupId g] Static member m with instance id i temporarily left the consumer group.": (
        "absent",
        None,
        "m",
        None,
        None,
    ),
    "[GroupId g] Member m fenced from the group because the member session expired.": (
        "fenced",
        None,
        "m",
        "the member session expired",
        None,
    ),
    "[GroupId g] Member m fenced from the group because it failed to transition from epoch 3 "
    "within 300000ms.": (
        "fenced",
        None,
        "m",
        "it failed to transition from epoch 3 within 300000ms",
        None,
    ),
    "[GroupId g] Member m updated its subscribed topics to: [a, b].": (
        "subscribed",
        None,
        "m",
        None,
        None,
    ),
    "[GroupId=g] Unloading group metadata for generation 3.": ("unloaded", 3, None, None, None),
    "Loaded classic group g with 3 members.": ("loaded", None, None, None, None),
    "The following groups were deleted: g. A total of 2 offsets were removed.": (
        "deleted",
        None,
        None,
        None,
        None,
    ),
}


@pytest.mark.parametrize("text", SAID)
def test_what_a_coordinator_says(text: str) -> None:
    found = parse_coordinator_message(AT, text)

    assert isinstance(found, LogLine)
    told = found.what, found.generation, found.member_id, found.reason, found.client_reason
    assert (found.group, found.at, found.text) == ("g", AT, text)
    assert told == SAID[text]


@pytest.mark.parametrize(
    "line",
    [
        NEW_PREFIX + "{}" + NEW_LOGGER,
        OLD_PREFIX + "{}" + OLD_LOGGER,
        "2026-11-15 14:00:08,172 INFO [GroupCoordinator 1]: {}" + OLD_LOGGER + " [data-plane-1]",
        "2026-11-15T14:00:08.172Z stdout F [2026-11-15 14:00:08,172] INFO "
        "[GroupCoordinator id=1 topic=__consumer_offsets partition=3] {}" + NEW_LOGGER + "\r\n",
        "[2026-11-15 14:00:08,172] INFO {}" + NEW_LOGGER,
        '{{"t": 1794751208172, "p": 43, "m": "{}"}}\n',
        '{{"@timestamp": "2026-11-15T14:00:08.172Z", "message": "{}"}}',
        '{{"log": "' + NEW_PREFIX + "{}" + NEW_LOGGER + '\\n", "time": "2026-11-15T15:00:00Z"}}',
    ],
)
@pytest.mark.parametrize("text", SAID)
def test_all_of_it_is_found_in_every_kind_of_log(line: str, text: str) -> None:
    assert parse_line(line.format(text)) == parse_coordinator_message(AT, text)


def test_the_whole_recorded_log_is_understood() -> None:
    found = [parse_line(line) for line in first_recording.raw_lines("coordinator.jsonl.gz")]

    assert SkippedLine.UNKNOWN not in found
    # "Static member which joins during Stable stage ..." does not say of which group
    assert found.count(SkippedLine.OTHER) == 7
    groups = {one.group for one in found if isinstance(one, LogLine)}
    assert groups == {*first_recording.read_histories(), "a-assign", "a-share"}


@given(
    st.datetimes(datetime(1970, 1, 2), datetime(9999, 12, 30)),
    st.integers(-14 * 60, 14 * 60),
)
def test_times_are_of_the_zone_that_is_given(moment: datetime, zone: int) -> None:
    moment = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    text = f"{moment:%Y-%m-%d %H:%M:%S},{moment.microsecond // 1000:03}"
    if len(text) < 23:  # strftime does not fill years up everywhere
        text = text.zfill(23)

    found = parse_line(
        f"[{text}] INFO [GroupCoordinator 1]: Loaded classic group g with 3 members.", zone
    )

    aware = moment.replace(tzinfo=timezone(timedelta(minutes=zone)))
    since = aware - datetime(1970, 1, 1, tzinfo=UTC)
    assert isinstance(found, LogLine)
    assert found.at == since // timedelta(milliseconds=1)


def test_a_zone_in_the_line_counts_more() -> None:
    found = parse_line(
        "2026-11-15T16:30:08.172+02:30 INFO Loaded classic group g with 3 members.", 60
    )

    assert isinstance(found, LogLine)
    assert found.at == AT


@given(st.text(min_size=1))
def test_a_group_may_have_any_name(group: str) -> None:
    for text, (what, *_) in SAID.items():
        named = re.sub(r"(?<=[ =])g(?=[] .])", lambda _: group, text, count=1)
        found = parse_coordinator_message(AT, named)
        assert isinstance(found, LogLine)
        assert (found.group, found.what) == (group, what)


@pytest.mark.parametrize(
    "group",
    [
        "in state",
        "a in state b with old generation 3 (reason: x)",
        "g for generation 5",
        "with generation 2 is now empty",
        "a (b) [c] 'd' \"e\" `f`",
        "] Member m left the consumer group.",
        " ",
    ],
)
def test_not_even_the_words_of_the_sentence_mislead(group: str) -> None:
    said = (
        f"Preparing to rebalance group {group} in state PreparingRebalance with old generation 7 "
        f"(reason: Adding new member {MEMBER} with group instance id null; client reason: none)."
    )
    ended = f"Group {group} with generation 8 is now empty."
    left = f"[GroupId {group}] Member m left the consumer group."
    given_to = (
        f"Assignment received from leader {MEMBER} for group {group} for generation 8. The group "
        "has 1 members, 0 of which are static."
    )

    found = [parse_coordinator_message(AT, text) for text in (said, ended, left, given_to)]

    assert [one.group for one in found if isinstance(one, LogLine)] == [group] * 4
    assert [one.generation for one in found if isinstance(one, LogLine)] == [7, 8, None, 8]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{}",
        "[]",
        '{"m": 3}',
        '{"t": 1, "m": "Loaded classic group \\ud800 with 3 members."}',
        "{" + '"a": [' * 9_000,
        NEW_PREFIX + "Loaded classic group " + "g" * 99_999 + " with 3 members.",
        "{ not JSON",
        "\tat kafka.server.KafkaApis.handle(KafkaApis.scala:123)",
        "[2026-11-15 14:00:08,172] INFO [KafkaServer id=1] started (kafka.server.KafkaServer)",
        "[2026-11-15 14:00:08,172] WARN a group of nine (kafka.log.LogManager)",
        OLD_PREFIX + "Elected as the group coordinator for partition 3 in epoch 4" + OLD_LOGGER,
        NEW_PREFIX + "Finished loading of metadata from __consumer_offsets-0 with epoch 0 in 9ms"
        " where 9ms was spent in the scheduler." + NEW_LOGGER,
    ],
)
def test_other_lines_are_passed_over(line: str) -> None:
    assert parse_line(line) is SkippedLine.OTHER


@pytest.mark.parametrize(
    "line",
    [
        NEW_PREFIX + "Preparing to rebalance group g for a reason of Kafka 9" + NEW_LOGGER,
        OLD_PREFIX + "Group g is on fire" + OLD_LOGGER,
        "[2026-11-15 14:00:08,172] INFO [GroupId g] Something new" + NEW_LOGGER,
        "Stabilized group g generation 4 with 3 members.",  # when?
        "[2026-13-15 14:00:08,172] INFO Stabilized group g generation 4 with 3 members."
        + NEW_LOGGER,
        '{"t": Infinity, "message": "Stabilized group g generation 4 with 3 members."}',
        '{"t": 1e99, "message": "Stabilized group g generation 4 with 3 members."}',
        NEW_PREFIX + "Stabilized group g generation 4000000000 with 3 members." + NEW_LOGGER,
    ],
)
def test_lines_about_groups_that_are_not_understood_are_told_apart(line: str) -> None:
    assert parse_line(line) is SkippedLine.UNKNOWN


@given(st.text())
def test_no_line_breaks_it(line: str) -> None:
    parse_line(line)
    parse_line(NEW_PREFIX + line)
    parse_line('{"t": 1, "m": ' + line + "}")
