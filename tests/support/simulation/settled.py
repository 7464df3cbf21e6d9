"""Small worlds, and what happened in them, for tests to read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rota.engine.assignors.registry import resolve_strategies
from rota.engine.coordinator.notes import GroupChange, GroupNote
from rota.engine.model.config import GroupConfig, MemberConfig
from rota.engine.model.journal_entry import GroupMetadataEntry
from rota.engine.model.topic import TopicPartition
from rota.engine.simulator.network import NetworkModel
from rota.engine.simulator.process import ProcessConfig
from rota.engine.simulator.trace import TraceEventType
from rota.engine.simulator.world import World

GROUP = "g"
#: The first member does not wait for others.
PROMPT = GroupConfig(initial_rebalance_delay=0)


def process_config(name: str, strategy: str = "range", **options: Any) -> ProcessConfig:
    """A process of the group; options of the configuration or of the program."""
    own = {"processing", "listener_time", "listener", "topics", "pattern"}
    settings: dict[str, Any] = {
        "client_id": name,
        "auto_commit": False,
        **{key: value for key, value in options.items() if key not in own},
    }
    return ProcessConfig(
        name=name,
        config=MemberConfig(group=GROUP, **settings),
        assignors=lambda: resolve_strategies(strategy),
        **{"topics": ("t",), **{key: value for key, value in options.items() if key in own}},
    )


def settled_world(
    count: int,
    strategy: str = "range",
    topics: Mapping[str, int] | None = None,
    *,
    network: NetworkModel | None = None,
    config: GroupConfig = PROMPT,
    metadata_age: int = 0,
    seed: int = 0,
    **options: Any,
) -> World:
    """A group of this many processes, p0, p1, ..., that has come to rest at 60 seconds."""
    world = World(
        topics or {"t": 12}, seed=seed, config=config, network=network, metadata_age=metadata_age
    )
    for number in range(count):
        static = f"s{number}" if options.get("group_instance_id") else None
        world.start(
            process_config(f"p{number}", strategy, **{**options, "group_instance_id": static})
        )
    world.run_until(60_000)
    return world


def group_changes(
    world: World, change: type[GroupChange], since: int = 0
) -> list[tuple[int, GroupChange]]:
    """The changes of this type that the coordinator noted, and when."""
    return [
        (record.at, record.detail.change)
        for record in world.trace
        if record.at >= since
        and isinstance(record.detail, GroupNote)
        and isinstance(record.detail.change, change)
    ]


def listener_calls(world: World, name: str, since: int = 0) -> list[tuple[str, tuple[int, ...]]]:
    """The listener calls of a process: which, and for which partitions."""
    return [
        (record.detail[0].removeprefix("on_partitions_"), partition_numbers(record.detail[1]))
        for record in world.trace
        if record.type is TraceEventType.LISTENER and record.subject == name and record.at >= since
        if isinstance(record.detail, tuple)
    ]


def partition_numbers(partitions: tuple[TopicPartition, ...]) -> tuple[int, ...]:
    return tuple(partition.partition for partition in partitions)


def owned_partitions(world: World) -> dict[str, tuple[int, ...]]:
    """What each process has now."""
    return {name: partition_numbers(process.owned) for name, process in world.processes.items()}


def journal_generations(world: World) -> list[GroupMetadataEntry]:
    """The generations in the journal."""
    return [entry for entry in world.broker.journal if isinstance(entry, GroupMetadataEntry)]


def run_checked(world: World, until: int, check: Callable[[World], None] | None = None) -> None:
    """Runs step by step, and checks both machines' invariants, and more, after each."""
    while (due := world.next_at()) is not None and due <= until:
        world.step()
        world.check_invariants()
        if check is not None:
            check(world)
