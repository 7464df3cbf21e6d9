"""Random histories of a group, as scenarios: the same seed gives the same history."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from rota.engine.simulator.scenario import JoinEvent, MemberSpec, Scenario, read_scenario
from rota.engine.simulator.seeded_random import SeededRandom

STRATEGIES = (
    ["range"],
    ["roundrobin"],
    ["sticky"],
    ["cooperative-sticky"],
    ["range", "cooperative-sticky"],
)
SUBSCRIPTIONS = (["a"], ["b"], ["a", "b"])
MINUTES = 40


def random_history(seed: int) -> Scenario:
    """A group of one to seven members, and what happens to it within 40 minutes."""
    chance = SeededRandom(seed, 5)
    count = chance.between(1, 7)
    common = {
        "heartbeat": chance.pick(("1s", "2s", "3s")),
        "session": chance.pick(("10s", "30s", "45s")),
        "max_poll": chance.pick(("30s", "1m", "5m")),
        "auto_commit": chance.happens(0.85),
    }
    members: list[Mapping[str, object]] = [
        {
            "name": "m",
            "count": count,
            "static": chance.happens(0.3),
            "apart": chance.pick(("0s", "300ms", "1s", "7s")),
            "joins": f"{chance.below(30)}s",
            "listener": chance.pick(("0s", "0s", "40ms", "1s")),
            "processing": chance.pick(("0s", "0s", "0s", "700ms", "4s")),
            **({"pattern": "[abc]"} if chance.happens(0.2) else {}),
            **common,
        }
    ]
    if chance.happens(0.4):
        members.append({"name": "x", "topics": chance.pick(SUBSCRIPTIONS), **common})
    names = [str(member["name"]) for member in members]
    events = [_event(chance, count, names) for _ in range(chance.between(0, 7))]
    if chance.happens(0.35):
        grown: dict[str, int] = {"a": 9}
        if chance.happens(0.5):
            grown["c"] = 2
        events.append({"at": _moment(chance), "partitions": grown})
    scenario = read_scenario(
        {
            "group": f"history-{seed}",
            "duration": f"{MINUTES}m",
            "strategy": chance.pick(STRATEGIES),
            "metadata_max_age": chance.pick(("0s", "1m", "5m")),
            "initial_rebalance_delay": chance.pick(("0s", "3s")),
            "topics": {"a": chance.between(1, 8), "b": chance.between(1, 8)},
            "network": {
                "latency": f"{chance.between(1, 20)}ms",
                "jitter": f"{chance.between(0, 10)}ms",
            },
            "members": members,
            "events": events,
        },
        source=f"seed {seed}",
    )
    return _committing(scenario, chance)


def _committing(scenario: Scenario, chance: SeededRandom) -> Scenario:
    """Members have an interval between commits, and client ids of some kind."""
    changes = {
        "commit_interval": chance.pick((1_000, 5_000, 5_000, 30_000, 120_000)),
        "client_id": chance.pick(("consumer-{group}-1", "{name}", "{name}-{start}")),
    }

    def changed(members: MemberSpec) -> MemberSpec:
        return replace(members, **changes)  # type: ignore[arg-type]

    events = (
        replace(event, specs={name: changed(one) for name, one in event.specs.items()})
        if isinstance(event, JoinEvent)
        else event
        for event in scenario.events
    )
    return replace(scenario, members=tuple(map(changed, scenario.members)), events=tuple(events))


def _moment(chance: SeededRandom) -> str:
    """Often in the same minutes, so that things meet."""
    return f"{chance.pick((0, 300, 300, 900, 1_500)) + chance.between(40, 400)}s"


def _event(chance: SeededRandom, count: int, names: list[str]) -> Mapping[str, object]:
    some = (f"m-{chance.below(count)}", f"m-{chance.below(count)}", chance.pick(names))
    who = chance.pick(some)
    kinds: tuple[Callable[[], Mapping[str, object]], ...] = (
        lambda: {"leave": who},
        lambda: {"crash": who},
        lambda: {"crash": who},
        lambda: {"stall": who, "for": f"{chance.between(1, 400)}s"},
        lambda: {"pause": who, "for": f"{chance.between(1, 120)}s"},
        lambda: {
            "slow": who,
            "processing": f"{chance.between(1, 90)}s",
            "for": f"{chance.between(1, 400)}s",
        },
        lambda: {"restart": who, "down": f"{chance.between(1, 60)}s"},
        lambda: {
            "deploy": "m",
            "down": f"{chance.between(1, 20)}s",
            "between": f"{chance.between(1, 60)}s",
            "surge": chance.happens(0.4),
        },
        lambda: {"subscribe": chance.pick(names), "topics": chance.pick(SUBSCRIPTIONS)},
        lambda: {"join": f"m-{count + chance.below(3)}"},
        lambda: {"coordinator_down": f"{chance.between(1, 40)}s"},
    )
    return {"at": _moment(chance), **chance.pick(kinds)()}
