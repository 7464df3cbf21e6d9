"""A cluster's day: 24 hours of the shop's groups, through the real coordinator and members.

Each group is a world of its own, on the same day; together their journals and notes are what the
cluster's brokers would have written. The same seed gives the same day, to the byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from rota.group.coordinator import journal_partition
from rota.model.entry import ClassicEntry
from rota.model.text import compiled
from rota.model.topic import TopicPartition
from rota.sim import duration
from rota.sim.brokerlog import Line, lines
from rota.sim.chance import Chance, mixed, text_number
from rota.sim.happening import Joins
from rota.sim.policy import Policy
from rota.sim.scenario import Scenario, read_scenario
from rota.sim.script import Script
from rota.sim.shop import BROKER_DOWN, BROKERS, GROWTH, HOURS, PLANS, TOPICS, Event, Plan
from rota.sim.trace import Record, What
from rota.sim.traffic import HOUR, Traffic

DAY = 24 * HOUR
MINUTE = 60_000
STANDING = 20 * DAY
"""How long the cluster has been there when the day begins."""
FIRST_MINUTES = 8
"""Within this time the groups start."""
SAMPLE_EVERY = 5 * MINUTE
SOLVER = "kafka"
"""The members stand for Java's consumers, so they assign as those do."""


class Sample(NamedTuple):
    """A partition's offsets at a moment."""

    at: int
    topic: str
    partition: int
    beginning: int
    end: int


@dataclass(frozen=True, slots=True)
class GroupDay:
    """What became of one group. Times are milliseconds since 1970."""

    scenario: Scenario
    trace: Sequence[Record]

    @property
    def group(self) -> str:
        """Its name."""
        return self.scenario.group

    @property
    def partition(self) -> int:
        """Where its journal is."""
        return journal_partition(self.group)

    @property
    def broker(self) -> int:
        """The id of the broker that coordinates it."""
        return broker(self.partition)

    def journal(self) -> Iterator[tuple[int, ClassicEntry]]:
        """What was written of it, and when."""
        for record in self.trace:
            if record.what is What.JOURNAL:
                yield record.at, record.detail  # type: ignore[misc]

    def log(self) -> list[Line]:
        """What its broker logged about it."""
        return lines(self.trace)


def broker(partition: int) -> int:
    """The id of the broker that leads a partition of the journal."""
    return partition % BROKERS + 1


def play(plan: Plan, *, seed: int, start: int, traffic: Traffic) -> GroupDay:
    """Plays one group's day."""
    own = mixed(seed, text_number(plan.group))
    scenario = _scenario(plan, Chance(own), traffic)
    script = Script(scenario, Policy(solver=SOLVER), own, skip=True, start=start)
    return GroupDay(scenario, script.run().trace)


def day(*, seed: int, start: int, plans: Sequence[Plan] = PLANS) -> Iterator[GroupDay]:
    """Plays the day of all groups, one after another.

    :param start: a midnight, in milliseconds since 1970
    """
    traffic = written(seed, start)
    for plan in plans:
        yield play(plan, seed=seed, start=start, traffic=traffic)


def written(seed: int, start: int) -> Traffic:
    """What the shop's applications write to its topics."""
    born: dict[TopicPartition, int] = {}
    for at, counts in GROWTH:
        for topic, count in counts.items():
            before = 0 if _is_made(topic) else TOPICS[topic][0]
            for number in range(before, count):
                born[TopicPartition(topic, number)] = start + duration.parse(at)
    return Traffic(
        {topic: rate for topic, (_, rate) in TOPICS.items()},
        hours=HOURS,
        since=start - STANDING,
        born=born,
        seed=seed,
    )


def ends(*, seed: int, start: int) -> Iterator[Sample]:
    """The first and the last offset of every partition, asked for now and then."""
    traffic = written(seed, start)
    for at in range(start, start + DAY + 1, SAMPLE_EVERY):
        for topic, count in _counts(at - start).items():
            for number in range(count):
                one = TopicPartition(topic, number)
                yield Sample(at, topic, number, traffic.beginning(one, at), traffic.end(one, at))


def _is_made(topic: str) -> bool:
    """It is not there when the day begins."""
    return any(counts.get(topic) == TOPICS[topic][0] for _, counts in GROWTH)


def _counts(passed: int) -> dict[str, int]:
    """The topics that there are after so much of the day, with their partitions."""
    found = {topic: count for topic, (count, _) in TOPICS.items() if not _is_made(topic)}
    for at, counts in GROWTH:
        if duration.parse(at) <= passed:
            found.update(counts)
    return found


# scenarios


def _scenario(plan: Plan, chance: Chance, traffic: Traffic) -> Scenario:
    wanted = _wanted(plan)
    everything = {topic: count for topic, count in _counts(0).items() if topic in wanted}
    common = {"auto_commit": plan.commit > 0, **plan.settings}
    common["joins"] = f"{chance.below(FIRST_MINUTES * MINUTE)}ms"
    common["apart"] = f"{chance.between(50, 900)}ms"
    reads = {"pattern": plan.pattern} if plan.pattern else {"topics": list(plan.topics)}
    members = [{"name": plan.group, "count": plan.count, **common, **reads}]
    members += [{**common, **other} for other in plan.others]
    scenario = read_scenario(
        {
            "group": plan.group,
            "strategy": list(plan.strategy),
            "duration": "24h",
            "topics": everything,
            "members": members,
            "events": [*plan.events, *_growth(wanted), *_broker_down(plan.group)],
        },
        source=plan.group,
    )
    capacity = _capacity(plan, wanted)
    kept = (
        replace(
            one,
            commit_interval=max(plan.commit, 1) * MINUTE,
            capacity=capacity,
            client_id=plan.client_id,
        )
        for one in scenario.members
    )
    return _alike(replace(scenario, members=tuple(kept), traffic=traffic))


def _alike(scenario: Scenario) -> Scenario:
    """Members that join later are configured as those of their name."""
    by_name = {one.name: one for one in scenario.members}
    events = tuple(
        replace(event, like={name: by_name[like.name] for name, like in event.like.items()})
        if isinstance(event, Joins)
        else event
        for event in scenario.events
    )
    return replace(scenario, events=events)


def _wanted(plan: Plan) -> set[str]:
    if plan.pattern is not None:
        pattern = compiled(plan.pattern)
        return {topic for topic in TOPICS if pattern.fullmatch(topic)}
    found = set(plan.topics)
    for table in (*plan.others, *plan.events):
        topics = table.get("topics", ())
        assert isinstance(topics, Sequence)
        found.update(topics)
    return found


def _growth(wanted: set[str]) -> list[Event]:
    found: list[Event] = []
    for at, counts in GROWTH:
        own = {topic: count for topic, count in counts.items() if topic in wanted}
        if own:
            found.append({"at": at, "partitions": own})
    return found


def _broker_down(group: str) -> list[Event]:
    at, which, down = BROKER_DOWN
    own = broker(journal_partition(group)) == which
    return [{"at": at, "coordinator_down": down}] if own else []


def _capacity(plan: Plan, wanted: set[str]) -> int:
    """Records a second that each member can handle."""
    hourly = sum(count * rate for topic, (count, rate) in TOPICS.items() if topic in wanted)
    members = plan.count + sum(int(str(other["count"])) for other in plan.others)
    return hourly * plan.headroom // (100 * 3_600 * members)
