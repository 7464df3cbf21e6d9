"""What is done to which groups, when, and which rebalances that causes.

Timeouts are near the defaults of clients; groups differ in what makes causes hard to tell from a
journal: members that never commit, that are idle for long before they leave, that commit while they
are too slow to poll.

A member that has a process to itself takes longer to start: it is never started with others.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from rota.engine.history.facts import RebalanceCause

TOPICS = {"orders": 6, "clicks": 8, "still": 4, "audit": 3, "grow": 3, "evt.one": 2}
TRAFFIC = ("orders", "clicks", "audit", "grow", "evt.one")
#: Seconds.
END = 178

JOINED, LEFT, SILENT, SLOW = (
    RebalanceCause.JOINED,
    RebalanceCause.LEFT,
    RebalanceCause.SESSION_TIMEOUT,
    RebalanceCause.SLOW_POLL,
)


class ActionKind(enum.StrEnum):
    """What is done."""

    START = "start"
    CLOSE = "close"
    #: kill -9.
    KILL = "kill"
    #: Outside of poll for so many milliseconds, longer than it may.
    SLOW = "slow"
    #: The same, but it commits every second.
    SLOW_COMMITTING = "slowcommit"
    #: The whole process, for so many seconds.
    FREEZE = "freeze"
    SUBSCRIBE = "subscribe"
    GROW = "grow"
    MAKE = "make"


@dataclass(frozen=True, slots=True)
class ScriptedAction:
    """Something that is done, and the causes of the rebalances that follow from it alone."""

    at: float
    group: str
    do: ActionKind
    who: tuple[str, ...] = ()
    causes: tuple[RebalanceCause, ...] = ()
    what: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group's members."""

    library: str = "java"
    static: bool = False
    #: Members of Java that have a process to themselves, to be killed.
    alone: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)


def _settings(
    strategy: str, topics: str, *, session: int = 10, poll: int = 20, commit: int | None = 5
) -> dict[str, str]:
    found = {
        "topics": topics,
        "session.timeout.ms": str(session * 1_000),
        "heartbeat.interval.ms": "3000",
        "max.poll.interval.ms": str(poll * 1_000),
        "enable.auto.commit": str(commit is not None).lower(),
        "strategy": strategy,
        "partition.assignment.strategy": _JAVA[strategy],
        "metadata.max.age.ms": "4000",
    }
    if commit is not None:
        found["auto.commit.interval.ms"] = str(commit * 1_000)
    return found


_JAVA = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "roundrobin": "org.apache.kafka.clients.consumer.RoundRobinAssignor",
    "sticky": "org.apache.kafka.clients.consumer.StickyAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}

GROUPS = {
    "b-checkout": Group(alone=("checkout-3",), settings=_settings("range", "orders")),
    "b-uncommitted": Group(
        alone=("unc-3",), settings=_settings("roundrobin", "still", poll=15, commit=None)
    ),
    "b-still": Group(settings=_settings("range", "still", poll=15)),
    "b-slow": Group(settings=_settings("cooperative-sticky", "clicks", poll=15, commit=1)),
    "b-python": Group(
        library="kafka-python", settings=_settings("range", "orders", poll=20, commit=1)
    ),
    "b-pycoop": Group(
        library="kafka-python", settings=_settings("cooperative-sticky", "clicks", poll=15)
    ),
    "b-aio": Group(library="aiokafka", settings=_settings("roundrobin", "orders")),
    "b-static": Group(
        static=True, alone=("st-2",), settings=_settings("range", "clicks", session=15)
    ),
    "b-deploy": Group(settings=_settings("cooperative-sticky", "orders")),
    "b-grow": Group(settings=_settings("range", "grow")),
    "b-pattern": Group(settings=_settings("sticky", r"~evt\..*")),
    "b-subs": Group(settings=_settings("sticky", "orders", commit=1)),
    "b-idle": Group(alone=("idle-4",), settings=_settings("range", "audit")),
    "b-frozen": Group(alone=("fz-2",), settings=_settings("sticky", "clicks", poll=60, commit=1)),
    "b-next": Group(
        alone=("next-3",), settings={"topics": "orders,audit", "group.protocol": "consumer"}
    ),
    "b-short": Group(
        alone=("short-3",), settings=_settings("range", "clicks", session=6, poll=10, commit=1)
    ),
}


def _deploy(group: str, first: float, names: tuple[str, ...]) -> list[ScriptedAction]:
    found = []
    for number, name in enumerate(names):
        at = first + 16 * number
        found += [
            ScriptedAction(at, group, ActionKind.CLOSE, (name,), (LEFT,)),
            ScriptedAction(at + 8, group, ActionKind.START, (f"{name}-v2",), (JOINED,)),
        ]
    return found


STORY = [
    ScriptedAction(0, "b-checkout", ActionKind.START, ("checkout-1", "checkout-2"), (JOINED,)),
    ScriptedAction(20, "b-checkout", ActionKind.START, ("checkout-3",), (JOINED,)),
    ScriptedAction(50, "b-checkout", ActionKind.CLOSE, ("checkout-2",), (LEFT,)),
    ScriptedAction(80, "b-checkout", ActionKind.KILL, ("checkout-3",), (SILENT,)),
    ScriptedAction(110, "b-checkout", ActionKind.START, ("checkout-4",), (JOINED,)),
    ScriptedAction(150, "b-checkout", ActionKind.CLOSE, ("checkout-1",), (LEFT,)),
    ScriptedAction(1, "b-uncommitted", ActionKind.START, ("unc-1", "unc-2"), (JOINED,)),
    ScriptedAction(18, "b-uncommitted", ActionKind.START, ("unc-3",), (JOINED,)),
    ScriptedAction(70, "b-uncommitted", ActionKind.CLOSE, ("unc-2",), (LEFT,)),
    ScriptedAction(100, "b-uncommitted", ActionKind.KILL, ("unc-3",), (SILENT,)),
    ScriptedAction(135, "b-uncommitted", ActionKind.SLOW, ("unc-1",), (SLOW, JOINED), "24000"),
    ScriptedAction(2, "b-still", ActionKind.START, ("still-1", "still-2"), (JOINED,)),
    ScriptedAction(130, "b-still", ActionKind.CLOSE, ("still-2",), (LEFT,)),
    ScriptedAction(3, "b-slow", ActionKind.START, ("slow-1", "slow-2", "slow-3"), (JOINED,)),
    ScriptedAction(40, "b-slow", ActionKind.SLOW, ("slow-2",), (SLOW, JOINED), "24000"),
    ScriptedAction(90, "b-slow", ActionKind.SLOW_COMMITTING, ("slow-3",), (SLOW, JOINED), "24000"),
    ScriptedAction(145, "b-slow", ActionKind.CLOSE, ("slow-1",), (LEFT,)),
    ScriptedAction(4, "b-python", ActionKind.START, ("py-1", "py-2"), (JOINED,)),
    ScriptedAction(36, "b-python", ActionKind.START, ("py-3",), (JOINED,)),
    ScriptedAction(66, "b-python", ActionKind.KILL, ("py-2",), (SILENT,)),
    ScriptedAction(96, "b-python", ActionKind.CLOSE, ("py-3",), (LEFT,)),
    ScriptedAction(122, "b-python", ActionKind.SLOW, ("py-1",), (SLOW, JOINED), "30000"),
    ScriptedAction(5, "b-pycoop", ActionKind.START, ("pc-1", "pc-2"), (JOINED,)),
    ScriptedAction(42, "b-pycoop", ActionKind.START, ("pc-3",), (JOINED,)),
    ScriptedAction(78, "b-pycoop", ActionKind.SLOW, ("pc-2",), (SLOW, JOINED), "26000"),
    ScriptedAction(130, "b-pycoop", ActionKind.KILL, ("pc-3",), (SILENT,)),
    ScriptedAction(6, "b-aio", ActionKind.START, ("aio-1", "aio-2"), (JOINED,)),
    ScriptedAction(45, "b-aio", ActionKind.START, ("aio-3",), (JOINED,)),
    ScriptedAction(75, "b-aio", ActionKind.CLOSE, ("aio-2",), (LEFT,)),
    ScriptedAction(105, "b-aio", ActionKind.KILL, ("aio-3",), (SILENT,)),
    ScriptedAction(140, "b-aio", ActionKind.CLOSE, ("aio-1",), (LEFT,)),
    ScriptedAction(7, "b-static", ActionKind.START, ("st-1", "st-3"), (JOINED,)),
    ScriptedAction(21, "b-static", ActionKind.START, ("st-2",), (JOINED,)),
    ScriptedAction(40, "b-static", ActionKind.CLOSE, ("st-1",)),
    ScriptedAction(46, "b-static", ActionKind.START, ("st-1",)),
    ScriptedAction(70, "b-static", ActionKind.KILL, ("st-2",), (SILENT,)),
    ScriptedAction(105, "b-static", ActionKind.START, ("st-2",), (JOINED,)),
    ScriptedAction(130, "b-static", ActionKind.CLOSE, ("st-3",), (SILENT,)),
    ScriptedAction(
        8, "b-deploy", ActionKind.START, ("dep-0", "dep-1", "dep-2", "dep-3"), (JOINED,)
    ),
    *_deploy("b-deploy", 55, ("dep-0", "dep-1", "dep-2", "dep-3")),
    ScriptedAction(9, "b-grow", ActionKind.START, ("grow-1", "grow-2"), (JOINED,)),
    ScriptedAction(71, "b-grow", ActionKind.GROW, (), (RebalanceCause.PARTITIONS,), "grow=5"),
    ScriptedAction(10, "b-pattern", ActionKind.START, ("pat-1", "pat-2"), (JOINED,)),
    ScriptedAction(84, "b-pattern", ActionKind.MAKE, (), (RebalanceCause.SUBSCRIPTION,), "evt.two"),
    ScriptedAction(11, "b-subs", ActionKind.START, ("subs-1", "subs-2"), (JOINED,)),
    ScriptedAction(
        60,
        "b-subs",
        ActionKind.SUBSCRIBE,
        ("subs-2",),
        (RebalanceCause.SUBSCRIPTION,),
        "orders,audit",
    ),
    ScriptedAction(
        102, "b-subs", ActionKind.SUBSCRIBE, ("subs-1",), (RebalanceCause.SUBSCRIPTION,), "audit"
    ),
    ScriptedAction(
        12, "b-idle", ActionKind.START, ("idle-1", "idle-2", "idle-3", "idle-5"), (JOINED,)
    ),
    ScriptedAction(26, "b-idle", ActionKind.START, ("idle-4",), (JOINED,)),
    ScriptedAction(92, "b-idle", ActionKind.CLOSE, ("idle-5",), (LEFT,)),
    ScriptedAction(125, "b-idle", ActionKind.KILL, ("idle-4",), (SILENT,)),
    ScriptedAction(13, "b-frozen", ActionKind.START, ("fz-1",), (JOINED,)),
    ScriptedAction(24, "b-frozen", ActionKind.START, ("fz-2",), (JOINED,)),
    ScriptedAction(52, "b-frozen", ActionKind.FREEZE, ("fz-2",), (), "5"),
    ScriptedAction(82, "b-frozen", ActionKind.FREEZE, ("fz-2",), (SILENT, JOINED), "18"),
    ScriptedAction(128, "b-frozen", ActionKind.CLOSE, ("fz-1",), (LEFT,)),
    ScriptedAction(14, "b-next", ActionKind.START, ("next-1",), (JOINED,)),
    ScriptedAction(30, "b-next", ActionKind.START, ("next-2",), (JOINED,)),
    ScriptedAction(48, "b-next", ActionKind.START, ("next-3",), (JOINED,)),
    ScriptedAction(85, "b-next", ActionKind.CLOSE, ("next-2",), (LEFT,)),
    ScriptedAction(108, "b-next", ActionKind.KILL, ("next-3",), (SILENT,)),
    ScriptedAction(15, "b-short", ActionKind.START, ("short-1", "short-2"), (JOINED,)),
    ScriptedAction(33, "b-short", ActionKind.START, ("short-3",), (JOINED,)),
    ScriptedAction(38, "b-short", ActionKind.CLOSE, ("short-2",), (LEFT,)),
    ScriptedAction(44, "b-short", ActionKind.START, ("short-2",), (JOINED,)),
    ScriptedAction(52, "b-short", ActionKind.KILL, ("short-3",), (SILENT,)),
    ScriptedAction(
        95, "b-short", ActionKind.SLOW_COMMITTING, ("short-1",), (SLOW, JOINED), "18000"
    ),
    ScriptedAction(140, "b-short", ActionKind.CLOSE, ("short-1", "short-2"), (LEFT,)),
]
