"""Scenario files: what they say, and how a mistake in one is named."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.engine.model import duration
from rota.engine.simulator.scenario import (
    AddPartitionsEvent,
    CoordinatorDownEvent,
    CrashEvent,
    DeployEvent,
    JoinEvent,
    KeyPath,
    SlowDownEvent,
    SubscribeEvent,
    find_lines,
    read_scenario,
)
from rota.errors import InputError

GOOD = """
group = "billing"
duration = "1h"
strategy = ["cooperative-sticky"]

[topics]
orders = 12
payments = 6

[network]
latency = "5ms"

[[members]]
name = "billing"
count = 3
static = true
session = "20s"

[[members]]
name = "audit"
topics = ["orders"]
strategy = "range, cooperative-sticky"
joins = "5m"

[[events]]
at = "10m"
crash = "billing-1"

[[events]]
at = "5m"
deploy = "billing"
surge = true
"""


def test_a_scenario_is_read() -> None:
    scenario = read_scenario(GOOD, "good.toml")
    assert (scenario.name, scenario.group, scenario.duration) == ("good.toml", "billing", 3_600_000)
    assert scenario.topics == {"orders": 12, "payments": 6}
    assert (scenario.latency, scenario.jitter) == (5, 1)
    billing, audit = scenario.members
    assert billing.names == ("billing-0", "billing-1", "billing-2")
    assert (billing.static, billing.session, billing.heartbeat) == (True, 20_000, 3_000)
    assert billing.topics == ("orders", "payments")
    assert (audit.names, audit.topics, audit.joins) == (("audit",), ("orders",), 300_000)
    deploy, crash = scenario.events  # in the order of their times
    assert isinstance(deploy, DeployEvent)
    assert deploy.names == billing.names
    assert deploy.surge
    assert crash == CrashEvent(at=600_000, names=("billing-1",))


def test_the_same_as_a_mapping() -> None:
    scenario = read_scenario(
        {
            "duration": "1m",
            "topics": {"t": 1},
            "members": [{"name": "a"}],
            "events": [{"at": "1s", "subscribe": "a", "topics": ["t"]}],
        }
    )
    assert scenario.events == (SubscribeEvent(at=1_000, names=("a",), topics=("t",)),)


def with_events(events: str) -> str:
    return GOOD.partition("[[events]]")[0] + events


def test_new_members_are_like_those_that_there_are() -> None:
    scenario = read_scenario(
        with_events(
            '[[events]]\nat = "1m"\njoin = ["billing-3", "spare"]\nlike = "audit"\n'
            '[[events]]\nat = "2m"\njoin = "billing-4"\n'
            '[[events]]\nat = "3m"\ncrash = "billing"\n'
        )
    )
    first, second, crash = scenario.events
    assert isinstance(first, JoinEvent)
    assert {name: like.name for name, like in first.specs.items()} == {
        "billing-3": "audit",
        "spare": "audit",
    }
    assert isinstance(second, JoinEvent)
    assert second.specs["billing-4"].name == "billing"
    assert isinstance(crash, CrashEvent)
    assert crash.names == ("billing-0", "billing-1", "billing-2", "billing-4")


def test_other_events() -> None:
    scenario = read_scenario(
        with_events(
            '[[events]]\nat = "1m"\npartitions = {orders = 14, refunds = 2}\n'
            '[[events]]\nat = "2m"\nsubscribe = "audit"\ntopics = "refunds"\n'
            '[[events]]\nat = "3m"\nslow = "audit"\nprocessing = "2m"\nfor = "10m"\n'
            '[[events]]\nat = "4m"\ncoordinator_down = "30s"\n'
        )
    )
    assert scenario.events == (
        AddPartitionsEvent(at=60_000, partitions={"orders": 14, "refunds": 2}),
        SubscribeEvent(at=120_000, names=("audit",), topics=("refunds",)),
        SlowDownEvent(at=180_000, names=("audit",), processing=120_000, time=600_000),
        CoordinatorDownEvent(at=240_000, downtime=30_000),
    )


def event(text: str) -> str:
    """An event on line 22."""
    return with_events(f"[[events]]\n{text}\n")


BAD = {
    "not TOML": ('duration = "1h\n', "bad.toml, line 1: not TOML: "),
    "not TOML at the end": ("[topics", "bad.toml, line 1: not TOML: "),
    "no topics": ('duration = "1h"', "bad.toml: no topics"),
    "no members": ('duration = "1h"\n[topics]\nt = 1', "bad.toml: no members"),
    "no duration": (
        '[topics]\nt = 1\n[[members]]\nname = "a"',
        "bad.toml: duration is missing",
    ),
    "a list of topics": ('topics = ["t"]', "line 1: topics: must be a table, not a list"),
    "an unknown key": (
        GOOD.replace("duration", "duraton"),
        "line 3: duraton: unknown key: did you mean 'duration'?",
    ),
    "an unknown key of a member": (
        GOOD.replace("session", "sesion"),
        "line 17: members[0].sesion: unknown key: did you mean 'session'?",
    ),
    "an unknown key of the network": (
        GOOD.replace("latency", "lag"),
        "line 11: network.lag: unknown key: known are latency, jitter, append",
    ),
    "a count that is text": (
        GOOD.replace("orders = 12", 'orders = "12"'),
        "line 7: topics.orders: must be a whole number, not '12'",
    ),
    "no partitions": (
        GOOD.replace("orders = 12", "orders = 0"),
        "line 7: topics.orders: must be at least 1, not 0",
    ),
    "true for a number": (
        GOOD.replace("count = 3", "count = true"),
        "line 15: members[0].count: must be a whole number, not True",
    ),
    "a time without a unit": (
        GOOD.replace('"20s"', "20"),
        'line 17: members[0].session: must be a time such as "90s" or "5m", not 20',
    ),
    "a negative time": (
        GOOD.replace('"5ms"', '"-5ms"'),
        "line 11: network.latency: '-5ms' is not a time such as \"90s\"",
    ),
    "a time that is none": (
        GOOD.replace('"1h"', '"an hour"'),
        "line 3: duration: 'an hour' is not a time",
    ),
    "a century": (GOOD.replace('"1h"', '"40000d"'), "line 3: duration: '40000d' is more than"),
    "a short session": (
        GOOD.replace('"20s"', '"5s"'),
        "line 17: members[0].session: must be at least 6s, not 5s",
    ),
    "a long session": (
        GOOD.replace('"20s"', '"31m"'),
        "line 17: members[0].session: must be at most 30m",
    ),
    "a slow heart": (
        GOOD.replace('session = "20s"', 'heartbeat = "50s"'),
        "line 17: members[0].heartbeat: must be less than the session",
    ),
    "text for a flag": (
        GOOD.replace("static = true", 'static = "yes"'),
        "line 16: members[0].static: must be true or false, not 'yes'",
    ),
    "an unknown strategy": (
        GOOD.replace('"cooperative-sticky"]', '"stiky"]'),
        "line 4: strategy: unknown strategy 'stiky': did you mean 'sticky'?",
    ),
    "an unknown strategy of a member": (
        GOOD.replace('"range, cooperative-sticky"', '"range, rng"'),
        "line 22: members[1].strategy: unknown strategy 'rng'",
    ),
    "an unknown topic": (
        GOOD.replace('["orders"]', '["ordres"]'),
        "line 21: members[1].topics: no such topic: 'ordres'; did you mean 'orders'?",
    ),
    "a broken pattern": (
        GOOD.replace('topics = ["orders"]', 'pattern = "("'),
        "line 21: members[1].pattern: '(' is not a pattern",
    ),
    "a pattern that repeats for ever": (
        GOOD.replace('topics = ["orders"]', 'pattern = "a{99999999999}"'),
        "line 21: members[1].pattern: 'a{99999999999}' is not a pattern",
    ),
    "a pattern that nests too deeply": (
        GOOD.replace('topics = ["orders"]', f'pattern = "{"(" * 5_000 + ")" * 5_000}"'),
        "is not a pattern: nested too deeply",
    ),
    "topics and a pattern": (
        GOOD.replace('topics = ["orders"]', 'topics = ["orders"]\npattern = "o.*"'),
        "line 22: members[1].pattern: not both topics and pattern",
    ),
    "a name twice": (
        GOOD.replace('name = "audit"', 'name = "billing-1"'),
        "line 20: members[1].name: 'billing-1' is the name of members above",
    ),
    "no name": (
        GOOD.replace('name = "audit"\n', ""),
        "line 19: members[1]: name is missing",
    ),
    "an unknown member": (
        event('at = "1m"\ncrash = "billing-7"'),
        "line 27: events[0].crash: no such member: 'billing-7'; did you mean",
    ),
    "a member that comes later": (
        event('at = "1m"\ncrash = "billing-3"\n[[events]]\nat = "2m"\njoin = "billing-3"'),
        "line 27: events[0].crash: no such member: 'billing-3'",
    ),
    "nothing happens": (
        event('at = "1m"'),
        "line 25: events[0]: an event needs one of join, leave, crash",
    ),
    "two things at once": (
        event('at = "1m"\ncrash = "audit"\nleave = "audit"'),
        "line 25: events[0]: an event needs one of join, leave, crash, stall, pause, slow, "
        "restart, deploy, subscribe, partitions, coordinator_down; not both leave and crash",
    ),
    "what belongs to another event": (
        event('at = "1m"\ncrash = "audit"\ndown = "5s"'),
        "line 28: events[0].down: unknown key: known are at, crash",
    ),
    "after the end": (
        event('at = "2h"\ncrash = "audit"'),
        "line 26: events[0].at: is after the scenario's end",
    ),
    "joins after the end": (
        GOOD.replace('joins = "5m"', 'joins = "61m"'),
        "line 23: members[1].joins: is after the scenario's end",
    ),
    "the last one joins after the end": (
        GOOD.replace("count = 3", 'count = 3\napart = "31m"'),
        "line 16: members[0].apart: 'billing-2' would join after the scenario's end",
    ),
    "a poll beyond Kafka's numbers": (
        GOOD.replace('session = "20s"', 'max_poll = "25d"'),
        "line 17: members[0].max_poll: must be at most 24d20h31m23.647s, not 25d",
    ),
    "a delay beyond Kafka's numbers": (
        GOOD.replace("strategy = [", 'initial_rebalance_delay = "25d"\nstrategy = ['),
        "line 4: initial_rebalance_delay: must be at most 24d20h31m23.647s, not 25d",
    ),
    "no time": (event('crash = "audit"'), "line 25: events[0]: at is missing"),
    "no duration of a stall": (
        event('at = "1m"\nstall = "audit"'),
        "line 25: events[0]: for is missing",
    ),
    "too many partitions": (
        GOOD.replace("orders = 12", f"orders = {2**31 - 1}"),
        "line 6: topics: more than 2147483647 partitions in all",
    ),
    "a topic's long name": (
        GOOD.replace("payments", "p" * 40_000),
        f"line 8: topics.'{'p' * 40}'...: has 40000 bytes, at most 30000 are allowed",
    ),
    "a topic's name that has no bytes": (
        GOOD.replace("payments", "'pay\ud800'"),
        "line 8: topics.'pay\\ud800': cannot be encoded in UTF-8",
    ),
    "a member's long name": (
        GOOD.replace('name = "audit"', f'name = "{"é" * 15_001}"'),
        f"line 20: members[1].name: '{'é' * 40}'... has 30002 bytes, at most 30000 are allowed",
    ),
    "a name among others that has no bytes": (
        event('at = "1m"\njoin = ["audit", "x\ud800"]\nlike = "audit"'),
        "line 27: events[0].join: 'x\\ud800' cannot be encoded in UTF-8",
    ),
    "a number of 5,000 digits": (f"duration = {'9' * 5_000}", "bad.toml: not a scenario: a number"),
    "a number of 5,000 digits for a text": (
        GOOD.replace('"billing"\nduration', f"0x{'f' * 4_500}\nduration"),
        "line 2: group: must be a text, not such a large number",
    ),
    "a key in a table of an event": (
        event('at = "1m"\n[events.partitions]\norders = 14\n"pay\\u006dents" = "9"'),
        "line 29: events[0].partitions.payments: must be a whole number, not '9'",
    ),
    "a list of tables for a table": (
        GOOD.replace("[network]", "[[network]]"),
        "line 10: network: must be a table, not a list",
    ),
    "lines that only Python counts": (
        GOOD.replace("[network]", "#\u2028 \u0085\n[network]").replace("latency", "lag"),
        "line 12: network.lag: unknown key",
    ),
    "a key that is no word": (
        GOOD.replace("latency", '"the\\tlag"'),
        "line 11: network.'the\\tlag': unknown key",
    ),
    "fewer partitions": (
        event('at = "1m"\npartitions = {orders = 3}'),
        "line 27: events[0].partitions.orders: has 12 partitions already, and never gets fewer",
    ),
    "a newcomer like nobody": (
        event('at = "1m"\njoin = "spare"'),
        "line 27: events[0].join: 'spare' is new: like",
    ),
    "a newcomer like an unknown one": (
        event('at = "1m"\njoin = "spare"\nlike = "audti"'),
        "line 28: events[0].like: no such member: 'audti'; did you mean 'audit'?",
    ),
    "a number for a name": (
        event('at = "1m"\ncrash = 3'),
        "line 27: events[0].crash: must be a name or a list of names, not 3",
    ),
    "an empty list": (
        event('at = "1m"\ncrash = []'),
        "line 27: events[0].crash: must be a name or a list of names; the list is empty",
    ),
    "events as a table": (
        with_events('[events]\nat = "1m"\n'),
        "line 25: events: must be a list of tables ([[events]]), not a table",
    ),
}


@pytest.mark.parametrize(("text", "said"), BAD.values(), ids=BAD)
def test_a_mistake_is_named_by_line_and_key(text: str, said: str) -> None:
    with pytest.raises(InputError) as raised:
        read_scenario(text, "bad.toml")
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 250


def test_a_mistake_in_a_mapping_is_named_by_key() -> None:
    with pytest.raises(InputError, match=r"^scenario: members\[0\]\.count: must be at least 1"):
        read_scenario(
            {"duration": "1m", "topics": {"t": 1}, "members": [{"name": "a", "count": 0}]}
        )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"topics": {1: 2}}, r"^scenario: topics: keys must be texts, not 1$"),
        ({3: 4}, r"^scenario: keys must be texts, not 3$"),
        ({"members": [{"name": "a", None: 1}]}, r"members\[0\]: keys must be texts, not None"),
        ({"topics": {"t\ud800": 1}}, r"topics\.'t\\ud800': cannot be encoded in UTF-8"),
        ({"members": [{"name": "a", "count": -(10**5_000)}]}, r"not such a large number"),
    ],
    ids=["a topic", "at the top", "of a member", "no UTF-8", "digits"],
)
def test_a_mapping_that_no_file_could_be(changes: dict[Any, Any], said: str) -> None:
    good = {"duration": "1m", "topics": {"t": 1}, "members": [{"name": "a"}]}
    with pytest.raises(InputError, match=said):
        read_scenario({**good, **changes})


def test_lines_of_keys() -> None:
    text = '''a = 1
b.c = """
x = 2
"""
list = [
  {y = 1},
]  # [[not]]
[t]
"a key" = 3
[[t.m]]
k = 1
[[t.m]]
k = "# [[x]]"
'''
    assert find_lines(text) == {
        ("a",): 1,
        ("b",): 2,
        ("b", "c"): 2,
        ("list",): 5,
        ("t",): 8,
        ("t", "a key"): 9,
        ("t", "m"): 10,
        ("t", "m", 0): 10,
        ("t", "m", 0, "k"): 11,
        ("t", "m", 1): 12,
        ("t", "m", 1, "k"): 13,
    }


LINES = {
    "a table of a list's last table": (
        "[[a]]\n[a.b]\nk = 1\n[[a]]\n[a.b]\nk = 1",
        {("a", 0, "b", "k"): 3, ("a", 1, "b"): 5, ("a", 1, "b", "k"): 6},
    ),
    "a list within a list": (
        "[[a]]\n[[a.b]]\n[[a.b]]\nk = 1\n[[a]]\n[[a.b]]\nk = 1",
        {("a", 0, "b", 1, "k"): 4, ("a", 1, "b", 0, "k"): 7},
    ),
    "quotes and escapes": (
        '"a\\"=[" = 1\n\'b"\' . "c.d"=1\n["[x]" . \'#\']\n"\\u00e9" = 1',
        {('a"=[',): 1, ('b"', "c.d"): 2, ("[x]", "#", "é"): 4},
    ),
    "texts over several lines": (
        'a = ["""\n]\n""", \'\'\'x\n"""\'\'\', """q""""]\nb = """\\""""""\nc = 1\n[t]\nk = 1',
        {("b",): 5, ("c",): 6, ("t", "k"): 8},
    ),
    "brackets and signs in texts and comments": (
        "a = [ # [\n  '[', \"{\\\"[\", {x = 1}, # ]]\n]\nb = { y = '#' } # {\nc = 1.5\n",
        {("a",): 1, ("b",): 4, ("c",): 5},
    ),
    "Windows": ("a = 1\r\n[t]\r\nk = 1\r\n", {("a",): 1, ("t",): 2, ("t", "k"): 3}),
    "signs that end lines elsewhere": ("a = '\u2028\u0085'\nb = 1", {("b",): 2}),
}


@pytest.mark.parametrize(("text", "lines"), LINES.values(), ids=LINES)
def test_lines_of_difficult_keys(text: str, lines: dict[KeyPath, int]) -> None:
    assert tomllib.loads(text)
    found = find_lines(text)
    assert {path: found.get(path) for path in lines} == lines


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("250ms", 250),
        ("90s", 90_000),
        ("5m", 300_000),
        ("1h30m", 5_400_000),
        ("1h 30m", 5_400_000),
        ("2d", 172_800_000),
        ("2.5s", 2_500),
        ("0s", 0),
    ],
)
def test_times(text: str, time: int) -> None:
    assert duration.parse_duration(text) == time


@pytest.mark.parametrize(
    "text", ["", "s", "5", "5x", "1m1h", "1s1s", "-1s", "1.5ms", "1e3s", "5m,"]
)
def test_no_times(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        duration.parse_duration(text)


@given(st.integers(min_value=0, max_value=duration.LONGEST_DURATION))
def test_a_written_time_is_read_back(time: int) -> None:
    assert duration.parse_duration(duration.format_duration(time)) == time


def test_a_clock() -> None:
    assert duration.format_clock(5_400_250) == "1:30:00.250"
    assert duration.format_clock(59_000) == "0:00:59"
