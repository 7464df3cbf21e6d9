"""The demo's data: 24 hours of an online shop's consumer groups.

Each group is a world of its own, on the same day, and runs through the real coordinator and
members. Together their journals and notes are what the brokers of one cluster would have written.
The same seed gives the same day, to the byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import NamedTuple, TypeAlias

from rota.engine.assignors.registry import DEFAULT_STRATEGIES
from rota.engine.coordinator.coordinator import journal_partition
from rota.engine.model import duration
from rota.engine.model.journal_entry import ClassicEntry
from rota.engine.model.text import compile_pattern
from rota.engine.model.topic import TopicPartition
from rota.engine.simulator.process import HOUR, Traffic
from rota.engine.simulator.scenario import JoinEvent, Scenario, read_scenario
from rota.engine.simulator.seeded_random import SeededRandom, hash_text, mix_numbers
from rota.engine.simulator.simulation import ScenarioRunner
from rota.engine.simulator.trace import (
    SimulatedLogLine,
    TraceEventType,
    TraceRecord,
    list_log_lines,
)

#: As in a scenario file.
EventTable: TypeAlias = Mapping[str, object]

#: How busy each hour of the day is, in per cent.
HOURLY_LOAD_PERCENT = (
    *(30, 22, 18, 16, 18, 26, 45, 75, 105, 130, 150, 160),
    *(165, 158, 150, 148, 152, 165, 180, 175, 150, 110, 75, 47),
)

#: Partitions of each topic, and records an hour in each of them.
SHOP_TOPICS = {
    "orders": (24, 18_000),
    "payments": (12, 14_000),
    "shipments": (12, 9_000),
    "inventory": (8, 12_000),
    "prices": (6, 8_000),
    "clicks": (16, 60_000),
    "impressions": (12, 48_000),
    "searches": (10, 30_000),
    "carts": (8, 16_000),
    "customers": (6, 3_000),
    "notifications.email": (6, 5_000),
    "notifications.push": (6, 7_000),
    "returns": (4, 1_500),
    "refunds": (4, 1_200),
    "audit": (4, 20_000),
    "metrics": (6, 36_000),
    "images": (8, 2_500),
    "chat": (6, 6_000),
    "cdc.orders": (4, 15_000),
    "cdc.stock": (4, 9_000),
    "cdc.sellers": (2, 600),
    "cdc.coupons": (2, 900),
    "telemetry": (16, 25_000),
    "positions": (12, 22_000),
}

#: Topics that get more partitions, or are made, and when.
TOPIC_GROWTH: tuple[tuple[str, Mapping[str, int]], ...] = (
    ("8h40m", {"cdc.sellers": 2}),
    ("11h30m", {"clicks": 24}),
    ("13h15m", {"cdc.coupons": 2}),
    ("15h20m", {"positions": 16}),
)

BROKER_COUNT = 3

#: One of the brokers is restarted: when, which, and for how long its groups have no coordinator.
BROKER_OUTAGE = ("4h32m", 2, "14s")

DEFAULT_CLIENT_ID = "consumer-{group}-1"

#: A pod of a deployment: another name at each start.
POD_CLIENT_ID = "{name}-{start}"

#: One of a stateful set: always the same name.
STATEFUL_SET_CLIENT_ID = "{name}"


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """A group and its events in the demo's day."""

    group: str
    strategy: Sequence[str]
    _: KW_ONLY
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    count: int
    events: tuple[EventTable, ...] = ()
    #: Members that differ from the first ones, as in a scenario file.
    others: tuple[Mapping[str, object], ...] = ()
    #: Of all members, as in a scenario file.
    settings: Mapping[str, object] = field(default_factory=dict)
    client_id: str = POD_CLIENT_ID
    #: Minutes between commits; 0: never.
    commit_minutes: int = 5
    #: What all members together can handle, in per cent of what comes in on average.
    capacity_percent: int = 260


RANGE, ROUNDROBIN, STICKY, COOPERATIVE = (
    ("range",),
    ("roundrobin",),
    ("sticky",),
    ("cooperative-sticky",),
)


def _deploy_event(at: str, name: str, **more: object) -> EventTable:
    return {"at": at, "deploy": name, "down": "8s", "between": "45s", **more}


def _flapping_events(
    name: str, first: int, last: int, step: int, stay: int
) -> tuple[EventTable, ...]:
    """An autoscaler adds a pod every ``step`` minutes and removes it ``stay`` minutes later."""
    found: list[EventTable] = []
    for minute in range(first, last, step):
        found += [{"at": f"{minute}m", "join": name}, {"at": f"{minute + stay}m", "leave": name}]
    return tuple(found)


def _crash_loop_events(name: str, first: int, times: int, step: int) -> tuple[EventTable, ...]:
    """A member crashes soon after each start."""
    found: list[EventTable] = []
    for minute in range(first, first + times * step, step):
        found += [{"at": f"{minute}m", "crash": name}, {"at": f"{minute + 2}m", "join": name}]
    return tuple(found)


def _scaling_events(name: str, low: int, high: int, up: int, down: int) -> tuple[EventTable, ...]:
    """Pods are added one by one in the morning and removed in the evening."""
    names = [f"{name}-{number}" for number in range(low, high)]
    grown = [{"at": f"{up + 4 * n}m", "join": one} for n, one in enumerate(names)]
    shrunk = [{"at": f"{down + 6 * n}m", "leave": one} for n, one in enumerate(reversed(names))]
    return (*grown, *shrunk)


#: Every group of the cluster.
GROUP_PLANS = (
    # deploys
    GroupPlan(
        "orders-billing",
        RANGE,
        topics=("orders", "payments"),
        count=12,
        events=(_deploy_event("10h", "orders-billing"),),
    ),
    GroupPlan(
        "orders-fulfilment",
        COOPERATIVE,
        topics=("orders", "shipments"),
        count=8,
        events=(_deploy_event("14h5m", "orders-fulfilment", surge=True),),
    ),
    GroupPlan(
        "web-analytics",
        COOPERATIVE,
        topics=("clicks",),
        count=8,
        events=(_deploy_event("18h30m", "web-analytics", down="20s"),),
    ),
    GroupPlan(
        "geo-enrichment",
        ROUNDROBIN,
        topics=("positions",),
        count=6,
        events=(_deploy_event("9h10m", "geo-enrichment"), _deploy_event("16h", "geo-enrichment")),
        client_id=STATEFUL_SET_CLIENT_ID,
    ),
    GroupPlan(
        "feature-store",
        STICKY,
        topics=("clicks", "carts"),
        count=6,
        events=(_deploy_event("13h40m", "feature-store", down="30s", between="90s"),),
    ),
    GroupPlan(
        "inventory-sync",
        RANGE,
        topics=("inventory",),
        count=5,
        events=(
            _deploy_event("9h", "inventory-sync", strategy=["cooperative-sticky", "range"]),
            _deploy_event("11h", "inventory-sync", strategy=["cooperative-sticky"]),
        ),
        client_id=STATEFUL_SET_CLIENT_ID,
    ),
    # static members
    GroupPlan(
        "payments-ledger",
        RANGE,
        topics=("payments",),
        count=6,
        events=(
            _deploy_event("10h30m", "payments-ledger", down="25s", between="60s"),
            {"at": "15h45m", "restart": "payments-ledger-3", "down": "3m"},
            {"at": "20h10m", "crash": "payments-ledger-1"},
            {"at": "20h13m", "join": "payments-ledger-1"},
        ),
        settings={"static": True, "session": "90s"},
        client_id=STATEFUL_SET_CLIENT_ID,
    ),
    GroupPlan(
        "customer-cache",
        COOPERATIVE,
        topics=("customers",),
        count=3,
        events=tuple(
            {"at": f"{hour}h{5 * hour}m", "restart": f"customer-cache-{hour % 3}", "down": "12s"}
            for hour in (2, 5, 7, 9)
        ),
        settings={"static": True},
        client_id=STATEFUL_SET_CLIENT_ID,
    ),
    GroupPlan(
        "seller-payouts",
        ROUNDROBIN,
        topics=("payments", "refunds"),
        count=4,
        events=(_deploy_event("12h50m", "seller-payouts", down="70s"),),
        settings={"static": True, "session": "60s"},
        client_id=STATEFUL_SET_CLIENT_ID,
    ),
    # crashes and slow members
    GroupPlan(
        "fraud-scoring",
        STICKY,
        topics=("payments", "orders"),
        count=6,
        events=(
            {"at": "3h12m", "crash": "fraud-scoring-4"},
            {"at": "3h20m", "join": "fraud-scoring-4"},
            {"at": "16h40m", "stall": "fraud-scoring-2", "for": "8m"},
            {"at": "17h25m", "stall": "fraud-scoring-2", "for": "7m"},
        ),
        capacity_percent=230,
    ),
    GroupPlan(
        "pricing-engine",
        RANGE,
        topics=("prices", "inventory"),
        count=4,
        events=tuple(
            {"at": f"{minute}m", "stall": "pricing-engine-1", "for": "6m"}
            for minute in range(17 * 60, 20 * 60, 24)
        ),
        client_id=DEFAULT_CLIENT_ID,
    ),
    GroupPlan(
        "delivery-eta",
        STICKY,
        topics=("positions", "shipments"),
        count=5,
        events=(
            {"at": "12h31m", "crash": ["delivery-eta-0", "delivery-eta-3"]},
            {"at": "12h44m", "join": ["delivery-eta-0", "delivery-eta-3"]},
        ),
    ),
    GroupPlan(
        "loyalty-points",
        RANGE,
        topics=("orders",),
        count=3,
        events=_crash_loop_events("loyalty-points-2", 18 * 60, 6, 5),
        settings={"session": "30s"},
    ),
    GroupPlan(
        "chat-moderation",
        COOPERATIVE,
        topics=("chat",),
        count=3,
        events=tuple(
            {"at": f"{minute}m", "pause": "chat-moderation-0", "for": "62s"}
            for minute in (9 * 60 + 3, 14 * 60 + 51, 19 * 60 + 22)
        ),
    ),
    GroupPlan(
        "recommendations",
        DEFAULT_STRATEGIES,
        topics=("clicks", "carts"),
        count=6,
        events=(
            {"at": "2h2m", "crash": "recommendations-5"},
            {"at": "2h9m", "join": "recommendations-5"},
            {"at": "19h37m", "crash": "recommendations-1"},
            {"at": "19h39m", "join": "recommendations-1"},
        ),
        client_id=DEFAULT_CLIENT_ID,
    ),
    GroupPlan(
        "tax-reports",
        DEFAULT_STRATEGIES,
        topics=("payments",),
        count=3,
        events=(
            {"at": "7h15m", "crash": "tax-reports-0"},
            {"at": "7h50m", "join": "tax-reports-0"},
        ),
        commit_minutes=0,
        client_id=DEFAULT_CLIENT_ID,
    ),
    # autoscaled
    GroupPlan(
        "search-indexer",
        RANGE,
        topics=("searches", "prices"),
        count=4,
        events=_flapping_events("search-indexer-4", 9 * 60, 20 * 60, 25, 11),
    ),
    GroupPlan(
        "image-resizer",
        STICKY,
        topics=("images",),
        count=2,
        events=_scaling_events("image-resizer", 2, 6, 8 * 60 + 30, 20 * 60 + 15),
    ),
    GroupPlan(
        "ad-attribution",
        COOPERATIVE,
        topics=("clicks", "impressions"),
        count=5,
        events=_scaling_events("ad-attribution", 5, 9, 9 * 60 + 45, 21 * 60),
    ),
    GroupPlan(
        "cart-reminders",
        ROUNDROBIN,
        topics=("carts",),
        count=2,
        events=_flapping_events("cart-reminders-2", 10 * 60 + 7, 18 * 60, 48, 20),
        client_id=DEFAULT_CLIENT_ID,
    ),
    # topics and subscriptions that change
    GroupPlan("clickstream", RANGE, topics=("clicks",), count=6),
    GroupPlan("cdc-warehouse", COOPERATIVE, pattern=r"cdc\..*", count=4),
    GroupPlan(
        "cdc-search",
        RANGE,
        pattern=r"cdc\.(orders|sellers|stock)",
        count=3,
        client_id=DEFAULT_CLIENT_ID,
    ),
    GroupPlan(
        "returns-desk",
        ROUNDROBIN,
        topics=("returns",),
        count=2,
        events=(
            {"at": "12h", "subscribe": "returns-desk-0", "topics": ["returns", "refunds"]},
            {"at": "12h6m", "subscribe": "returns-desk-1", "topics": ["returns", "refunds"]},
        ),
    ),
    GroupPlan(
        "email-sender",
        ROUNDROBIN,
        topics=("notifications.email",),
        count=3,
        others=({"name": "push-sender", "count": 2, "topics": ["notifications.push"]},),
        events=(
            {"at": "6h25m", "restart": "push-sender-1", "down": "40s"},
            {"at": "17h5m", "crash": "email-sender-0"},
            {"at": "17h9m", "join": "email-sender-0"},
        ),
    ),
    GroupPlan(
        "notification-stats",
        STICKY,
        topics=("notifications.email", "notifications.push"),
        count=2,
        others=({"name": "push-stats", "count": 2, "topics": ["notifications.push"]},),
        events=(_deploy_event("11h15m", "notification-stats"),),
    ),
    # idle, empty and quiet ones
    GroupPlan(
        "audit-archive",
        RANGE,
        topics=("audit",),
        count=10,
        events=(_deploy_event("15h", "audit-archive"),),
        client_id=STATEFUL_SET_CLIENT_ID,
    ),
    GroupPlan(
        "metrics-rollup",
        RANGE,
        topics=("metrics", "audit"),
        count=8,
        events=(
            {"at": "5h30m", "leave": "metrics-rollup-6"},
            {"at": "6h30m", "join": "metrics-rollup-6"},
        ),
    ),
    GroupPlan(
        "nightly-reconciliation",
        ROUNDROBIN,
        topics=("payments", "refunds"),
        count=3,
        events=(
            {"at": "2h30m", "leave": "nightly-reconciliation"},
            {"at": "22h", "join": [f"nightly-reconciliation-{n}" for n in range(3)]},
        ),
        client_id=STATEFUL_SET_CLIENT_ID,
    ),
    GroupPlan(
        "catalog-export",
        STICKY,
        topics=("prices", "images"),
        count=2,
        events=(
            {"at": "1h", "leave": "catalog-export-0"},
            {"at": "1h2m", "crash": "catalog-export-1"},
            {"at": "13h", "join": ["catalog-export-0", "catalog-export-1"]},
            {"at": "14h", "leave": "catalog-export"},
        ),
    ),
    GroupPlan("gdpr-erasure", RANGE, topics=("customers",), count=1, commit_minutes=2),
    GroupPlan("session-replay", ROUNDROBIN, topics=("impressions",), count=4, capacity_percent=130),
    GroupPlan(
        "stock-alerts",
        RANGE,
        topics=("inventory", "prices"),
        count=3,
        events=(
            {"at": "8h", "restart": "stock-alerts-1", "down": "2m"},
            {"at": "16h15m", "restart": "stock-alerts-2", "down": "2m"},
        ),
    ),
    GroupPlan(
        "support-tickets",
        DEFAULT_STRATEGIES,
        topics=("returns", "chat"),
        count=2,
        commit_minutes=2,
        client_id=DEFAULT_CLIENT_ID,
    ),
    GroupPlan(
        "shipment-tracking",
        STICKY,
        topics=("shipments",),
        count=4,
        events=(
            {"at": "4h33m", "crash": "shipment-tracking-2"},
            _deploy_event("21h", "shipment-tracking"),
        ),
    ),
    GroupPlan(
        "telemetry-ingest",
        COOPERATIVE,
        topics=("telemetry",),
        count=8,
        events=(
            {"at": "6h5m", "crash": "telemetry-ingest-7"},
            {"at": "6h6m", "join": "telemetry-ingest-7"},
            {"at": "18h", "slow": "telemetry-ingest-3", "processing": "5m40s", "for": "30m"},
        ),
        settings={"processing": "0s"},
    ),
    GroupPlan(
        "courier-dispatch",
        RANGE,
        topics=("positions",),
        count=4,
        events=({"at": "11h50m", "pause": "courier-dispatch-3", "for": "4m"},),
    ),
    GroupPlan(
        "coupon-limits",
        DEFAULT_STRATEGIES,
        topics=("orders", "carts"),
        count=4,
        events=(_deploy_event("17h", "coupon-limits", strategy=["cooperative-sticky"]),),
    ),
)

DAY = 24 * HOUR

MINUTE = 60_000

#: How long the cluster has been there when the day begins.
CLUSTER_AGE = 20 * DAY

#: Within this time the groups start.
START_MINUTES = 8

SAMPLE_INTERVAL = 5 * MINUTE

#: The members stand for Java's consumers, so they assign as those do.
DAY_SOLVER = "kafka"


class OffsetSample(NamedTuple):
    at: int
    topic: str
    partition: int
    beginning: int
    end: int


@dataclass(frozen=True, slots=True)
class GroupDay:
    """The result of one group's day. Times are milliseconds since 1970."""

    scenario: Scenario
    trace: Sequence[TraceRecord]

    @property
    def group(self) -> str:
        return self.scenario.group

    @property
    def partition(self) -> int:
        return journal_partition(self.group)

    @property
    def broker(self) -> int:
        return broker_of_partition(self.partition)

    def journal(self) -> Iterator[tuple[int, ClassicEntry]]:
        """Yields the journal entries with their times."""
        for record in self.trace:
            if record.type is TraceEventType.JOURNAL:
                yield record.at, record.detail  # type: ignore[misc]

    def log(self) -> list[SimulatedLogLine]:
        return list_log_lines(self.trace)


def broker_of_partition(partition: int) -> int:
    """Returns the id of the broker that leads a journal partition."""
    return partition % BROKER_COUNT + 1


def simulate_group_day(plan: GroupPlan, *, seed: int, start: int, traffic: Traffic) -> GroupDay:
    own = mix_numbers(seed, hash_text(plan.group))
    scenario = _build_scenario(plan, SeededRandom(own), traffic)
    script = ScenarioRunner(scenario, solver=DAY_SOLVER, seed=own, start=start)
    return GroupDay(scenario, script.run().trace)


def simulate_day(
    *, seed: int, start: int, plans: Sequence[GroupPlan] = GROUP_PLANS
) -> Iterator[GroupDay]:
    """Simulates the day of all groups, one after another.

    :param start: a midnight, in milliseconds since 1970
    """
    traffic = make_shop_traffic(seed, start)
    for plan in plans:
        yield simulate_group_day(plan, seed=seed, start=start, traffic=traffic)


def make_shop_traffic(seed: int, start: int) -> Traffic:
    born: dict[TopicPartition, int] = {}
    for at, counts in TOPIC_GROWTH:
        for topic, count in counts.items():
            before = 0 if _is_created_later(topic) else SHOP_TOPICS[topic][0]
            for number in range(before, count):
                born[TopicPartition(topic, number)] = start + duration.parse_duration(at)
    return Traffic(
        {topic: rate for topic, (_, rate) in SHOP_TOPICS.items()},
        hours=HOURLY_LOAD_PERCENT,
        since=start - CLUSTER_AGE,
        born=born,
        seed=seed,
    )


def sample_offsets(*, seed: int, start: int) -> Iterator[OffsetSample]:
    """Yields the beginning and end offset of every partition, at regular times."""
    traffic = make_shop_traffic(seed, start)
    for at in range(start, start + DAY + 1, SAMPLE_INTERVAL):
        for topic, count in _partition_counts(at - start).items():
            for number in range(count):
                one = TopicPartition(topic, number)
                yield OffsetSample(
                    at,
                    topic,
                    number,
                    traffic.beginning_offset(one, at),
                    traffic.end_offset(one, at),
                )


def _is_created_later(topic: str) -> bool:
    """Returns whether a topic is created during the day."""
    return any(counts.get(topic) == SHOP_TOPICS[topic][0] for _, counts in TOPIC_GROWTH)


def _partition_counts(passed: int) -> dict[str, int]:
    """Returns the partition counts after ``passed`` milliseconds of the day."""
    found = {
        topic: count for topic, (count, _) in SHOP_TOPICS.items() if not _is_created_later(topic)
    }
    for at, counts in TOPIC_GROWTH:
        if duration.parse_duration(at) <= passed:
            found.update(counts)
    return found


def _build_scenario(plan: GroupPlan, chance: SeededRandom, traffic: Traffic) -> Scenario:
    wanted = _subscribed_topics(plan)
    everything = {topic: count for topic, count in _partition_counts(0).items() if topic in wanted}
    common = {"auto_commit": plan.commit_minutes > 0, **plan.settings}
    common["joins"] = f"{chance.below(START_MINUTES * MINUTE)}ms"
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
            "events": [*plan.events, *_growth_events(wanted), *_broker_down_events(plan.group)],
        },
        source=plan.group,
    )
    capacity = _member_capacity(plan, wanted)
    kept = (
        replace(
            one,
            commit_interval=max(plan.commit_minutes, 1) * MINUTE,
            capacity=capacity,
            client_id=plan.client_id,
        )
        for one in scenario.members
    )
    return _align_join_specs(replace(scenario, members=tuple(kept), traffic=traffic))


def _align_join_specs(scenario: Scenario) -> Scenario:
    """Gives members that join later the settings of their name."""
    by_name = {one.name: one for one in scenario.members}
    events = tuple(
        replace(event, specs={name: by_name[like.name] for name, like in event.specs.items()})
        if isinstance(event, JoinEvent)
        else event
        for event in scenario.events
    )
    return replace(scenario, events=events)


def _subscribed_topics(plan: GroupPlan) -> set[str]:
    if plan.pattern is not None:
        pattern = compile_pattern(plan.pattern)
        return {topic for topic in SHOP_TOPICS if pattern.fullmatch(topic)}
    found = set(plan.topics)
    for table in (*plan.others, *plan.events):
        topics = table.get("topics", ())
        assert isinstance(topics, Sequence)
        found.update(topics)
    return found


def _growth_events(wanted: set[str]) -> list[EventTable]:
    found: list[EventTable] = []
    for at, counts in TOPIC_GROWTH:
        own = {topic: count for topic, count in counts.items() if topic in wanted}
        if own:
            found.append({"at": at, "partitions": own})
    return found


def _broker_down_events(group: str) -> list[EventTable]:
    at, which, down = BROKER_OUTAGE
    own = broker_of_partition(journal_partition(group)) == which
    return [{"at": at, "coordinator_down": down}] if own else []


def _member_capacity(plan: GroupPlan, wanted: set[str]) -> int:
    """Returns the records per second that each member can handle."""
    hourly = sum(count * rate for topic, (count, rate) in SHOP_TOPICS.items() if topic in wanted)
    members = plan.count + sum(int(str(other["count"])) for other in plan.others)
    return hourly * plan.capacity_percent // (100 * 3_600 * members)
