"""A world out of a seed: who is in it, what it is made of, and what will happen.

Every seed switches features on and off (swarm testing): a world in which everything happens at once
hides what happens when only a few things do.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from rota.engine.model.config import GroupConfig
from rota.engine.simulator.seeded_random import SeededRandom
from tests.support.simulation.unreliable_network import FaultRates

SECOND = 1_000
#: So long before the end of the script nothing new happens; what broke is mended until then.
DUSK = 15 * SECOND


class Action(enum.Enum):
    """Something that happens to a world."""

    # life
    JOIN = "a process starts"
    LEAVE = "a process leaves"
    ALL_LEAVE = "all processes of a group leave"
    RESUBSCRIBE = "a process subscribes to other topics"
    UNSUBSCRIBE = "a process unsubscribes, and subscribes again later"
    MORE_PARTITIONS = "a topic gets more partitions"
    TOPIC_ADDED = "a topic is made"
    TOPIC_DELETED = "a topic is deleted"
    COMMIT_SYNC = "a process commits and waits"
    COMMIT_ASYNC = "a process commits and does not wait"
    # admins
    LOOK = "an admin lists and describes groups, and fetches offsets"
    ADMIN_COMMIT = "an admin commits an offset"
    DELETE_OFFSETS = "an admin deletes offsets"
    DELETE_GROUP = "an admin deletes a group"
    REMOVE_STATIC = "an admin removes a static member"
    # processes fail
    CRASH = "a process crashes"
    PAUSE = "a process is frozen for longer than its session"
    STALL = "a process does not poll for longer than it may"
    SLOW = "a process polls slowly"
    RESTART_SOON = "a static process is back within its session"
    RESTART_LATE = "a static process is back after its session"
    TWIN = "a second process has the same static id"
    LISTENER_RAISES = "a process with a listener that raises starts"
    STRANGER = "a process without a common strategy starts"
    # the coordinator fails
    STOP = "the coordinator stops, and starts again"
    MOVE = "the coordinator moves"
    CRASH_BEFORE_APPEND = "the coordinator crashes before an append"
    CRASH_BEFORE_REPLAY = "the coordinator crashes after an append, before it counts"
    CRASH_BEFORE_REPLY = "the coordinator crashes after an append counts, before it answers"
    # the network fails, beyond what befalls single messages
    STRAY = "an old request arrives once more"


LIFE = (
    Action.JOIN,
    Action.LEAVE,
    Action.ALL_LEAVE,
    Action.RESUBSCRIBE,
    Action.UNSUBSCRIBE,
    Action.MORE_PARTITIONS,
    Action.TOPIC_ADDED,
    Action.TOPIC_DELETED,
    Action.COMMIT_SYNC,
    Action.COMMIT_ASYNC,
)
ADMIN = (
    Action.LOOK,
    Action.ADMIN_COMMIT,
    Action.DELETE_OFFSETS,
    Action.DELETE_GROUP,
    Action.REMOVE_STATIC,
)
PROCESS = (
    Action.CRASH,
    Action.PAUSE,
    Action.STALL,
    Action.SLOW,
    Action.RESTART_SOON,
    Action.RESTART_LATE,
    Action.TWIN,
    Action.LISTENER_RAISES,
    Action.STRANGER,
)
BROKER = (
    Action.STOP,
    Action.MOVE,
    Action.CRASH_BEFORE_APPEND,
    Action.CRASH_BEFORE_REPLAY,
    Action.CRASH_BEFORE_REPLY,
)
NETWORK = (Action.STRAY,)

#: What would leave nothing else to happen if it came all the time.
ONCE = frozenset({Action.ALL_LEAVE, Action.STRANGER, Action.LISTENER_RAISES})


#: What only happens to static members.
STATIC = frozenset({Action.REMOVE_STATIC, Action.RESTART_SOON, Action.RESTART_LATE, Action.TWIN})


#: What may be the last thing that happens.
LAST = (
    Action.MORE_PARTITIONS,
    Action.TOPIC_ADDED,
    Action.TOPIC_DELETED,
    Action.RESUBSCRIBE,
    Action.JOIN,
)


class FaultKind(enum.Enum):
    """What may go wrong in a world."""

    CALM = "nothing"
    NETWORK = "the network"
    BROKER = "the coordinator and its journal"
    PROCESS = "processes"
    ALL = "everything"


KINDS = (
    FaultKind.CALM,
    FaultKind.NETWORK,
    FaultKind.BROKER,
    FaultKind.PROCESS,
    FaultKind.ALL,
    FaultKind.ALL,
)

#: Network and coordinator do their work: nothing is lost, and nobody is cut off.
UNTROUBLED = frozenset({FaultKind.CALM, FaultKind.PROCESS})

FAULTS = {
    FaultKind.CALM: (),
    FaultKind.NETWORK: NETWORK,
    FaultKind.BROKER: BROKER,
    FaultKind.PROCESS: PROCESS,
    FaultKind.ALL: (*NETWORK, *BROKER, *PROCESS),
}

EAGER_LISTS = (
    (("range",),),
    (("roundrobin",),),
    (("sticky",),),
    (("range", "roundrobin"), ("roundrobin", "range"), ("range", "sticky")),
    (("sticky", "roundrobin", "range"), ("roundrobin", "sticky"), ("sticky",)),
    (("range", "cooperative-sticky"),),
)
COOPERATIVE_LISTS = ((("cooperative-sticky",),),)
ROLLING_LISTS = (
    # the double rolling bounce of KIP-429: some members are still eager
    (("range", "cooperative-sticky"), ("cooperative-sticky",)),
)


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """What the processes of a group have in common."""

    name: str
    #: Lists of strategies; each process has one of them.
    lists: tuple[tuple[str, ...], ...]
    solver: str
    size: int
    #: The share of static members.
    static: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A world and its script. Times are in milliseconds."""

    seed: int
    kind: FaultKind
    features: tuple[Action, ...]
    groups: tuple[GroupPlan, ...]
    topics: dict[str, int]
    config: GroupConfig
    odds: FaultRates
    latency: int
    append: int
    metadata_age: int
    horizon: int
    #: Timeouts are short, so that much happens within each other's time.
    hasty: bool
    #: When the network is well again, connections are reset, so that losses are known at once.
    resets: bool
    script: tuple[tuple[int, Action], ...]


def draw_plan(seed: int) -> Plan:
    """The plan of this seed."""
    chance = SeededRandom(seed, 1)
    kind = KINDS[seed % len(KINDS)]
    features = _features(chance, kind)
    size = chance.between(1, 6) if chance.happens(0.7) else chance.between(7, 20)
    hasty = chance.happens(0.25)
    horizon = chance.between(60, 180 if size < 7 else 90) * SECOND // (2 if hasty else 1)
    return Plan(
        seed=seed,
        kind=kind,
        features=features,
        groups=tuple(_groups(chance, size, features)),
        topics={f"t{n}": chance.between(1, 6) for n in range(chance.between(1, 4))},
        config=_config(chance, size),
        odds=_odds(chance, kind),
        latency=chance.pick((1, 5, 40)),
        # a heartbeat waits behind a commit, so that sessions must be longer than appends
        append=chance.pick((1, 10, 300) if hasty or kind in UNTROUBLED else (1, 10, 300, 2_500)),
        metadata_age=chance.pick((0, 0, 2_000)),
        horizon=horizon,
        hasty=hasty,
        resets=chance.happens(0.5),
        script=tuple(_script(chance, features, horizon, hasty=hasty)),
    )


def _features(chance: SeededRandom, kind: FaultKind) -> tuple[Action, ...]:
    life = [act for act in LIFE if chance.happens(0.6)]
    admin = [act for act in ADMIN if chance.happens(0.3)]
    share = 0.4 if kind is FaultKind.ALL else 0.7
    faults = [act for act in FAULTS[kind] if act in NETWORK or chance.happens(share)]
    static = [act for act in faults if act in STATIC]  # not everybody is, so they come twice
    return (*life, *admin, *faults, *static)


def _groups(chance: SeededRandom, size: int, features: tuple[Action, ...]) -> Iterable[GroupPlan]:
    count = 2 if size > 2 and chance.happens(0.25) else 1
    static = (0.5, 1.0) if STATIC.intersection(features) else (0.0, 0.0, 0.5)
    for number in range(count):
        family = chance.pick((EAGER_LISTS, COOPERATIVE_LISTS, COOPERATIVE_LISTS, ROLLING_LISTS))
        yield GroupPlan(
            name="ab"[number],
            lists=chance.pick(family),
            solver=chance.pick(("exact", "kafka")),
            size=size // count,
            static=chance.pick(static),
        )


def _config(chance: SeededRandom, size: int) -> GroupConfig:
    retained = chance.happens(0.2)
    return GroupConfig(
        min_session_timeout=SECOND,
        initial_rebalance_delay=chance.pick((0, 500, 3_000)),
        max_size=max(1, size - 1) if chance.happens(0.1) else 2**31 - 1,
        offsets_retention=20 * SECOND if retained else GroupConfig().offsets_retention,
        retention_check_interval=7 * SECOND if retained else 600 * SECOND,
    )


def _odds(chance: SeededRandom, kind: FaultKind) -> FaultRates:
    def share(of: tuple[float, ...]) -> float:
        return chance.pick(of)

    network = kind in (FaultKind.NETWORK, FaultKind.ALL)
    broker = kind in (FaultKind.BROKER, FaultKind.ALL)
    return FaultRates(
        slow=share((0.0, 0.05, 0.3)) * network,
        lost=share((0.0, 0.01, 0.05)) * network,
        repeated=share((0.0, 0.05, 0.2)) * network,
        cut=share((0.0, 0.01, 0.05)) * network,
        append_failed=share((0.0, 0.05, 0.3)) * broker,
        max_delay=chance.pick((500, 2_000, 5_000)),
    )


def _script(
    chance: SeededRandom, features: tuple[Action, ...], horizon: int, *, hasty: bool
) -> Iterable[tuple[int, Action]]:
    if not features:
        return
    gap = chance.pick((1, 2, 3) if hasty else (2, 5, 10)) * SECOND
    time = chance.between(0, gap)
    seen: set[Action] = set()
    while time < horizon - DUSK:
        act = chance.pick(features)
        if act not in seen or act not in ONCE:
            yield time, act
        seen.add(act)
        time += chance.between(0, 2 * gap)
    if chance.happens(0.5):
        # whatever comes last is not made good by what follows
        yield horizon - 1, chance.pick(LAST)
