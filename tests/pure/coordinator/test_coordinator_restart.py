"""Rota's coordinator takes over from a real Kafka: it loads its journal and knows its groups."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64decode

from rota.engine.coordinator.coordinator import Coordinator
from rota.engine.coordinator.events import (
    JournalLoaded,
    JournalLoadStarted,
    RequestReceived,
    SendResponse,
)
from rota.engine.formats import consumer_protocol, journal
from rota.engine.model.config import GroupConfig
from rota.engine.model.consumer_group_entry import (
    ConsumerGroupMetadataEntry,
    ConsumerGroupMetadataTombstone,
)
from rota.engine.model.request import DescribeGroups, Heartbeat
from rota.engine.model.response import DescribedGroup, DescribeGroupsResult, HeartbeatResult
from rota.errors import Code
from tests.support.paths import FIXTURES

RECORDED = FIXTURES / "kafka-4.3.1"


def load_coordinator(until: int) -> tuple[Coordinator, set[str]]:
    """A coordinator with what was in the journal at a time, and the groups of KIP-848 by then."""
    coordinator = Coordinator(GroupConfig(), lambda: "")
    coordinator.handle(JournalLoadStarted(), until)
    modern: set[str] = set()
    with gzip.open(RECORDED / "offsets.jsonl.gz", "rt") as lines:
        for row in map(json.loads, lines):
            if row["ts"] > until:
                continue
            entry = journal.decode_record(b64decode(row["k"]), row["v"] and b64decode(row["v"]))
            coordinator.replay(entry)
            if isinstance(entry, ConsumerGroupMetadataEntry):
                modern.add(entry.group)
            elif isinstance(entry, ConsumerGroupMetadataTombstone):
                modern.discard(entry.group)
    coordinator.handle(JournalLoaded(), until)
    coordinator.check_invariants()
    return coordinator, modern


def read_tool_output(name: str) -> tuple[int, list[list[str]]]:
    """What Kafka's tool printed: the time, and the columns of each line."""
    head, *lines = (RECORDED / name).read_text().splitlines()
    return int(re.findall(r"\d+$", head)[0]), [row.split() for row in lines if row.startswith("a-")]


def describe_groups(coordinator: Coordinator, *groups: str) -> tuple[DescribedGroup, ...]:
    request = RequestReceived(1, DescribeGroups(groups=groups))
    (answer,) = coordinator.handle(request, 0)
    assert isinstance(answer, SendResponse)
    assert isinstance(answer.response, DescribeGroupsResult)
    return answer.response.groups


def test_groups_are_in_the_state_that_kafka_says() -> None:
    at, rows = read_tool_output("state.txt")
    coordinator, modern = load_coordinator(at)
    told = {group: (state, int(count)) for group, _, _, _, state, count in rows}
    classic = [group for group in told if group not in modern and group != "a-share"]
    assert len(classic) >= 28
    found = describe_groups(coordinator, *classic)
    assert {group.group: (group.state, len(group.members)) for group in found} == {
        group: told[group] for group in classic
    }


def test_members_have_what_kafka_says_and_go_on_without_a_rebalance() -> None:
    at, rows = read_tool_output("members.txt")
    coordinator, modern = load_coordinator(at)
    classic = {row[0] for row in rows} - modern - {"a-share"}
    # a static member has a column more; the assignment is the third from the end
    told = {row[1]: row[-3] for row in rows if row[0] in classic}
    assert len(told) > 40
    found = {}
    for group in describe_groups(coordinator, *sorted(classic)):
        for member in group.members:
            parts = consumer_protocol.decode_assignment(member.assignment).partitions.by_topic()
            found[member.member_id] = ";".join(
                f"{topic}:{','.join(map(str, sorted(parts[topic])))}" for topic in sorted(parts)
            )
    assert found == told


def test_a_member_of_the_recorded_group_is_known() -> None:
    coordinator, _ = load_coordinator(read_tool_output("members.txt")[0])
    (group,) = describe_groups(coordinator, "a-burst")
    beat = Heartbeat(group="a-burst", generation=2, member_id=group.members[0].member_id)
    answers = [
        c for c in coordinator.handle(RequestReceived(2, beat), 0) if isinstance(c, SendResponse)
    ]
    assert answers == [SendResponse(2, HeartbeatResult(code=Code.NONE))]
