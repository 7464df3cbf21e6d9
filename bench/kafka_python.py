"""kafka-python's assignors, as a peer. Run as a program it speaks the peers' protocol:

python -m bench.kafka_python FILE sticky|range|roundrobin LIMIT BUDGET
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.structs import TopicPartition

from bench.case import Case, Step, StepKind, read_case
from bench.measure import may_run_again

GENERATION = 1

Given = dict[str, list[TopicPartition]]


class AssignorValue(Protocol):
    """What an assignor says of a subscription or an assignment."""

    def partitions(self) -> list[TopicPartition]: ...


class PythonAssignor(Protocol):
    """The part of kafka-python's assignors that is used here."""

    def assign(
        self, cluster: Topics, members: Sequence[JoinedMember]
    ) -> Mapping[str, AssignorValue]: ...

    def metadata(self, topics: Sequence[str]) -> object: ...


class Topics:
    """The two questions that assignors ask of a cluster, answered without the rest of it."""

    def __init__(self, case: Case) -> None:
        self._partitions = {topic: set(range(count)) for topic, count in case.topics}

    def topics(self) -> set[str]:
        return set(self._partitions)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return self._partitions.get(topic)


@dataclass(slots=True)
class JoinedMember:
    """A member as a join response lists it, its metadata decoded."""

    member_id: str
    metadata: object
    group_instance_id: str | None = None


ASSIGNORS: Mapping[str, Callable[[], PythonAssignor]] = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


def create_assignor(name: str) -> PythonAssignor:
    """A new one, by wire name."""
    return ASSIGNORS[name]()


def joined_members(case: Case, step: Step, name: str, owned: Given) -> list[JoinedMember]:
    """The members of a step; what each owns is written by the assignor itself."""
    found = []
    for member, number in step.members:
        speaker = create_assignor(name)
        if isinstance(speaker, StickyPartitionAssignor) and member in owned:
            speaker.member_assignment = owned[member]
            speaker.generation = GENERATION
        names = [case.topics[topic][0] for topic in case.classes[number]]
        found.append(JoinedMember(member, speaker.metadata(names)))
    return found


def owned_partitions(assignments: Mapping[str, AssignorValue]) -> Given:
    """What an assignor gave, as it would be remembered."""
    return {member: list(given.partitions()) for member, given in assignments.items()}


def deal_topics(case: Case, step: Step) -> Given:
    """Each topic in a circle over its subscribers."""
    given: Given = {member: [] for member, _ in step.members}
    for position, (topic, count) in enumerate(case.topics):
        subscribers = [m for m, number in step.members if position in case.classes[number]]
        for number in range(count):
            given[subscribers[number % len(subscribers)]].append(TopicPartition(topic, number))
    return given


def _stop_at_limit(limit: float, began: list[tuple[str, float]]) -> None:
    """Ends the program when the run under way has used more than this."""
    while True:
        time.sleep(0.05)
        for step, start in tuple(began):
            used = time.process_time() - start
            if used > limit:
                print(f"over {step} {used}", flush=True)
                os._exit(0)


def main(arguments: Sequence[str]) -> None:
    """Runs the steps of a case file and prints what each took."""
    file, name = arguments[:2]
    limit, budget = float(arguments[2]), float(arguments[3])
    case = read_case(Path(file))
    began: list[tuple[str, float]] = []
    threading.Thread(target=_stop_at_limit, args=(limit, began), daemon=True).start()
    cluster = Topics(case)
    results: dict[str | None, Given] = {}
    for step in case.steps:
        if step.play is StepKind.DEALT:
            results[step.name] = deal_topics(case, step)
            continue
        members = joined_members(case, step, name, results.get(step.after, {}))
        timed = step.play is StepKind.TIMED
        spent: list[float] = []
        while not spent or (timed and may_run_again(spent, budget)):
            gc.collect()
            start = time.process_time()
            began.append((step.name, start))
            result = create_assignor(name).assign(cluster, members)
            began.clear()
            spent.append(time.process_time() - start)
            if timed:
                print(f"run {step.name} {spent[-1]}", flush=True)
        results[step.name] = owned_partitions(result)
        if timed:
            loads = [len(given) for given in results[step.name].values()]
            print(f"result {step.name} {min(loads)} {max(loads)} -", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
