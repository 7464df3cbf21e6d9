"""The demo's data: 24 hours of an online shop's consumer groups.

Each group is simulated separately for the same day: a classic group with the real coordinator and
members, any other as in broker_assigned.py. Their journals and logs together are the data that the
brokers of one cluster would have written. The same seed gives the same day, to the byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from rota.engine.assignors.registry import DEFAULT_STRATEGIES
from rota.engine.coordinator.coordinator import journal_partition
from rota.engine.model import duration
from rota.engine.model.journal_entry import JournalEntry
from rota.engine.model.text import compile_pattern
from rota.engine.model.topic import TopicPartition
from rota.engine.simulator.broker_assigned import ConsumerGroupSimulation, ShareGroupSimulation
from rota.engine.simulator.process import HOUR, Traffic
from rota.engine.simulator.scenario import JoinEvent, Scenario, read_scenario
from rota.engine.simulator.seeded_random import SeededRandom, hash_text, mix_numbers
from rota.engine.simulator.simulation import ScenarioRunner
from rota.engine.simulator.trace import SimulatedLogLine, TraceEventType, list_log_lines

EventTable: TypeAlias = Mapping[str, object]  # an event as in a scenario file

#: Traffic in each hour of the day, in per cent of the average.
HOURLY_LOAD_PERCENT = (
    *(30, 22, 18, 16, 18, 26, 45, 75, 105, 130, 150, 160),
    *(165, 158, 150, 148, 152, 165, 180, 175, 150, 110, 75, 47),
)

#: Number of partitions of each topic, and records per hour in each partition.
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
    "invoices": (3, 4_000),
}

#: Times at which topics get more partitions or are created.
TOPIC_GROWTH: tuple[tuple[str, Mapping[str, int]], ...] = (
    ("8h40m", {"cdc.sellers": 2}),
    ("11h30m", {"clicks": 24}),
    ("13h15m", {"cdc.coupons": 2}),
    ("15h20m", {"positions": 16}),
)

BROKER_COUNT = 3
#: One broker is restarted: the time, the broker id, and how long its groups have no coordinator.
BROKER_OUTAGE = ("4h32m", 2, "14s")
DEFAULT_CLIENT_ID = "consumer-{group}-1"
POD_CLIENT_ID = "{name}-{start}"  # a pod of a Deployment gets another name at each start
STATEFUL_SET_CLIENT_ID = "{name}"  # a pod of a StatefulSet keeps its name


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """A group and its events in the demo's day."""

    group: str
    simulation: type[ConsumerGroupSimulation] | None = None  # None: a classic group
    strategy: Sequence[str] = DEFAULT_STRATEGIES  # of classic members, in their order of preference
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    count: int
    events: tuple[EventTable, ...] = ()
    others: tuple[Mapping[str, object], ...] = ()  # unlike the first ones, as in a scenario
    settings: Mapping[str, object] = field(default_factory=dict)  # of all, as in a scenario
    client_id: str = POD_CLIENT_ID
    commit_minutes: int = 5  # minutes between commits; 0: never
    #: Records that all members together can handle, in per cent of the average traffic. With less
    #: than 600 the members with the most partitions fall behind in the peak.
    capacity_percent: int = 600
    #: Partitions with a record that the application cannot process, with the record's time.
    failing_records: Mapping[TopicPartition, str] = field(default_factory=dict)


RANGE, ROUNDROBIN = ("range",), ("roundrobin",)
STICKY, COOPERATIVE = ("sticky",), ("cooperative-sticky",)


def _plan(
    group: str,
    strategy: Sequence[str],
    topics: str,
    count: int,
    *events: EventTable,
    **more: object,
) -> GroupPlan:
    """``topics`` are separated by spaces. Events refer to members by number, a deploy to all."""
    return GroupPlan(
        group=group,
        strategy=strategy,
        topics=tuple(topics.split()),
        count=count,
        events=tuple(
            {key: _member_names(group, key, value) for key, value in event.items()}
            for event in events
        ),
        **more,  # type: ignore[arg-type]
    )


def _member_names(group: str, key: str, value: object) -> object:
    if key == "deploy":
        return group
    if type(value) is int:
        return f"{group}-{value}"
    return [f"{group}-{one}" for one in value] if isinstance(value, range) else value


def _event(at: str, time: str | None = None, **table: object) -> EventTable:
    return {"at": at, **table} if time is None else {"at": at, **table, "for": time}


def _deploy(at: str, **more: object) -> EventTable:
    return {"at": at, "deploy": True, "down": "8s", "between": "45s", **more}


def _flapping(number: int, first: int, last: int, step: int, stay: int) -> Iterator[EventTable]:
    """An autoscaler adds a pod every ``step`` minutes and removes it ``stay`` minutes later."""
    for minute in range(first, last, step):
        yield _event(f"{minute}m", join=number)
        yield _event(f"{minute + stay}m", leave=number)


def _runs(first: int, last: int, step: int, stay: int) -> Iterator[EventTable]:
    """A scheduled job: a member joins every ``step`` minutes and leaves ``stay`` minutes later."""
    yield _event(f"{stay}m", leave=0)
    for minute in range(first, last, step):
        yield _event(f"{minute}m", join=0)
        yield _event(f"{minute + stay}m", leave=0)


def _crash_loop(number: int, first: int, times: int, step: int) -> Iterator[EventTable]:
    """A member crashes soon after each start."""
    for minute in range(first, first + times * step, step):
        yield _event(f"{minute}m", crash=number)
        yield _event(f"{minute + 2}m", join=number)


def _scaling(low: int, high: int, up: int, down: int) -> Iterator[EventTable]:
    """Pods are added one by one in the morning and removed in the evening."""
    for place, number in enumerate(range(low, high)):
        yield _event(f"{up + 4 * place}m", join=number)
    for place, number in enumerate(reversed(range(low, high))):
        yield _event(f"{down + 6 * place}m", leave=number)


#: Every group of the cluster.
GROUP_PLANS = (
    # deploys
    _plan("orders-billing", RANGE, "orders payments", 12, _deploy("10h")),
    _plan("orders-fulfilment", COOPERATIVE, "orders shipments", 8, _deploy("14h5m", surge=True)),
    _plan("web-analytics", COOPERATIVE, "clicks", 8, _deploy("18h30m", down="20s")),
    _plan(
        *("geo-enrichment", ROUNDROBIN, "positions", 6),
        _deploy("9h10m"),
        _deploy("16h"),
        client_id=STATEFUL_SET_CLIENT_ID,
    ),
    _plan("feature-store", STICKY, "clicks carts", 6, _deploy("13h40m", down="30s", between="90s")),
    _plan(
        *("inventory-sync", RANGE, "inventory", 5),
        _deploy("9h", strategy=["cooperative-sticky", "range"]),
        _deploy("11h", strategy=["cooperative-sticky"]),
        client_id=STATEFUL_SET_CLIENT_ID,
    ),
    # static members
    _plan(
        *("payments-ledger", RANGE, "payments", 6),
        _deploy("10h30m", down="25s", between="60s"),
        _event("15h45m", restart=3, down="3m"),
        _event("20h10m", crash=1),
        _event("20h13m", join=1),
        settings={"static": True, "session": "90s"},
        client_id=STATEFUL_SET_CLIENT_ID,
    ),
    _plan(
        *("customer-cache", COOPERATIVE, "customers", 3),
        *(_event(f"{hour}h{5 * hour}m", restart=hour % 3, down="12s") for hour in (2, 5, 7, 9)),
        settings={"static": True},
        client_id=STATEFUL_SET_CLIENT_ID,
    ),
    _plan(
        *("seller-payouts", ROUNDROBIN, "payments refunds", 4),
        _deploy("12h50m", down="70s"),
        settings={"static": True, "session": "60s"},
        client_id=STATEFUL_SET_CLIENT_ID,
    ),
    # crashes and slow members
    _plan(
        *("fraud-scoring", STICKY, "payments orders", 6),
        _event("3h12m", crash=4),
        _event("3h20m", join=4),
        _event("16h40m", "8m", stall=2),
        _event("17h25m", "7m", stall=2),
        capacity_percent=230,
    ),
    _plan(
        *("pricing-engine", RANGE, "prices inventory", 4),
        *(_event(f"{minute}m", "6m", stall=1) for minute in range(17 * 60, 20 * 60, 24)),
        client_id=DEFAULT_CLIENT_ID,
    ),
    _plan(
        *("delivery-eta", STICKY, "positions shipments", 5),
        _event("12h31m", crash=range(0, 4, 3)),
        _event("12h44m", join=range(0, 4, 3)),
    ),
    _plan(
        *("loyalty-points", RANGE, "orders", 3),
        *_crash_loop(2, 18 * 60, 6, 5),
        settings={"session": "30s"},
    ),
    _plan(
        *("label-printer", ROUNDROBIN, "shipments", 3),
        _event("11h20m", "14m", slow=range(3), processing="35s"),
        settings={"max_poll": "30s", "processing": "0s"},
    ),
    _plan(
        *("chat-moderation", COOPERATIVE, "chat", 3),
        *(_event(f"{at}m", "62s", pause=0) for at in (9 * 60 + 3, 14 * 60 + 51, 19 * 60 + 22)),
    ),
    _plan(
        *("recommendations", DEFAULT_STRATEGIES, "clicks carts", 6),
        _event("2h2m", crash=5),
        _event("2h9m", join=5),
        _event("19h37m", crash=1),
        _event("19h39m", join=1),
        client_id=DEFAULT_CLIENT_ID,
    ),
    _plan(
        *("tax-reports", DEFAULT_STRATEGIES, "payments", 3),
        _event("7h15m", crash=0),
        _event("7h50m", join=0),
        commit_minutes=0,
        client_id=DEFAULT_CLIENT_ID,
    ),
    # autoscaled
    _plan("search-indexer", RANGE, "searches prices", 4, *_flapping(4, 9 * 60, 20 * 60, 25, 11)),
    _plan("image-resizer", STICKY, "images", 2, *_scaling(2, 6, 8 * 60 + 30, 20 * 60 + 15)),
    _plan(
        *("ad-attribution", COOPERATIVE, "clicks impressions", 5),
        *_scaling(5, 9, 9 * 60 + 45, 21 * 60),
    ),
    _plan(
        *("cart-reminders", ROUNDROBIN, "carts", 2),
        *_flapping(2, 10 * 60 + 7, 18 * 60, 48, 20),
        client_id=DEFAULT_CLIENT_ID,
    ),
    # topics and subscriptions that change
    _plan("clickstream", RANGE, "clicks", 6),
    _plan("cdc-warehouse", COOPERATIVE, "", 4, pattern=r"cdc\..*"),
    _plan(
        *("cdc-search", RANGE, "", 3),
        pattern=r"cdc\.(orders|sellers|stock)",
        client_id=DEFAULT_CLIENT_ID,
    ),
    _plan(
        *("returns-desk", ROUNDROBIN, "returns", 2),
        _event("12h", subscribe=0, topics=["returns", "refunds"]),
        _event("12h6m", subscribe=1, topics=["returns", "refunds"]),
    ),
    _plan(
        *("email-sender", ROUNDROBIN, "notifications.email", 3),
        _event("6h25m", restart="push-sender-1", down="40s"),
        _event("17h5m", crash=0),
        _event("17h9m", join=0),
        others=({"name": "push-sender", "count": 2, "topics": ["notifications.push"]},),
    ),
    _plan(
        *("notification-stats", STICKY, "notifications.email notifications.push", 2),
        _deploy("11h15m"),
        others=({"name": "push-stats", "count": 2, "topics": ["notifications.push"]},),
    ),
    # idle, empty and quiet ones
    _plan("audit-archive", RANGE, "audit", 10, _deploy("15h"), client_id=STATEFUL_SET_CLIENT_ID),
    _plan(
        *("metrics-rollup", RANGE, "metrics audit", 8),
        _event("5h30m", leave=6),
        _event("6h30m", join=6),
    ),
    _plan(
        *("nightly-reconciliation", ROUNDROBIN, "payments refunds", 3),
        _event("2h30m", leave="nightly-reconciliation"),
        _event("22h", join=range(3)),
        client_id=STATEFUL_SET_CLIENT_ID,
    ),
    _plan(
        *("catalog-export", STICKY, "prices images", 2),
        _event("1h", leave=0),
        _event("1h2m", crash=1),
        _event("1h12m", join=range(2)),
        _event("22h40m", leave="catalog-export"),
    ),
    _plan("gdpr-erasure", RANGE, "customers", 1, commit_minutes=2),
    _plan(
        *("stock-report", RANGE, "cdc.stock", 1),
        *_runs(120, 24 * 60, 120, 15),
        commit_minutes=1,
        capacity_percent=9_000,
    ),
    _plan("session-replay", ROUNDROBIN, "impressions", 4, capacity_percent=130),
    _plan(
        *("stock-alerts", RANGE, "inventory prices", 3),
        _event("8h", restart=1, down="2m"),
        _event("16h15m", restart=2, down="2m"),
    ),
    _plan(
        *("support-tickets", DEFAULT_STRATEGIES, "returns chat", 2),
        failing_records={TopicPartition("chat", 2): "20h40m"},
        commit_minutes=2,
        client_id=DEFAULT_CLIENT_ID,
    ),
    _plan(*("shipment-tracking", STICKY, "shipments", 4), _event("4h33m", crash=2), _deploy("21h")),
    _plan(
        *("telemetry-ingest", COOPERATIVE, "telemetry", 8),
        _event("6h5m", crash=7),
        _event("6h6m", join=7),
        _event("18h", "30m", slow=3, processing="5m40s"),
        settings={"processing": "0s"},
    ),
    _plan("courier-dispatch", RANGE, "positions", 4, _event("11h50m", "4m", pause=3)),
    _plan(
        *("coupon-limits", DEFAULT_STRATEGIES, "orders carts", 4),
        _deploy("17h", strategy=["cooperative-sticky"]),
    ),
    # groups of other types
    _plan(
        *("order-search", DEFAULT_STRATEGIES, "orders customers", 4),
        _event("2h47m", crash=2),
        _event("2h55m", join=2),
        _event("10h20m", join=4),
        _deploy("15h10m"),
        _event("19h30m", leave=4),
        simulation=ConsumerGroupSimulation,
    ),
    _plan(
        *("pdf-invoices", DEFAULT_STRATEGIES, "invoices", 3),
        _event("11h5m", join=3),
        _event("17h40m", leave=1),
        simulation=ShareGroupSimulation,
    ),
)

DAY = 24 * HOUR
MINUTE = 60_000
CLUSTER_AGE = 20 * DAY  # age of the cluster when the day begins
START_MINUTES = 8  # the groups start within this time
SAMPLE_INTERVAL = 5 * MINUTE
DAY_SOLVER = "kafka"  # the members simulate Java consumers, so they use Java's sticky assignment


class OffsetSample(NamedTuple):
    at: int
    topic: str
    partition: int
    beginning: int
    end: int


@dataclass(frozen=True, slots=True)
class GroupDay:
    """The result of one group's day. Times are milliseconds since 1970."""

    group: str
    journal: Sequence[tuple[int, JournalEntry]]  # the entries with their times
    log: Sequence[SimulatedLogLine]

    @property
    def partition(self) -> int:
        return journal_partition(self.group)


def broker_of_partition(partition: int) -> int:
    """Returns the id of the broker that leads a journal partition."""
    return partition % BROKER_COUNT + 1


def simulate_day(
    *, seed: int, start: int, plans: Sequence[GroupPlan] = GROUP_PLANS
) -> Iterator[GroupDay]:
    """Simulates the day of all groups, one after another, from the midnight ``start`` on."""
    traffic = make_shop_traffic(seed, start)
    for plan in plans:
        own = mix_numbers(seed, hash_text(plan.group))
        if plan.failing_records:
            records = make_shop_traffic(seed, start, plan.failing_records)
        else:
            records = traffic
        scenario = _build_scenario(plan, SeededRandom(own), records)
        if plan.simulation is not None:
            group = plan.simulation(scenario, seed=own, start=start)
            group.run()
            yield GroupDay(plan.group, group.journal, group.log)
        else:
            runner = ScenarioRunner(scenario, solver=DAY_SOLVER, seed=own, start=start)
            trace = runner.run().trace
            written = [
                (record.at, record.detail)
                for record in trace
                if record.type is TraceEventType.JOURNAL
            ]
            yield GroupDay(plan.group, written, list_log_lines(trace))  # type: ignore[arg-type]


def make_shop_traffic(
    seed: int, start: int, failing_records: Mapping[TopicPartition, str] | None = None
) -> Traffic:
    created: dict[TopicPartition, int] = {}
    for at, counts in TOPIC_GROWTH:
        for topic, count in counts.items():
            before = 0 if _is_created_later(topic) else SHOP_TOPICS[topic][0]
            for number in range(before, count):
                created[TopicPartition(topic, number)] = start + duration.parse_duration(at)
    return Traffic(
        {topic: rate for topic, (_, rate) in SHOP_TOPICS.items()},
        hours=HOURLY_LOAD_PERCENT,
        since=start - CLUSTER_AGE,
        created=created,
        failing={
            partition: start + duration.parse_duration(at)
            for partition, at in (failing_records or {}).items()
        },
        seed=seed,
    )


def sample_offsets(*, seed: int, start: int) -> Iterator[OffsetSample]:
    """Yields the beginning and end offset of every partition, at regular times."""
    traffic = make_shop_traffic(seed, start)
    for at in range(start, start + DAY + 1, SAMPLE_INTERVAL):
        for topic, count in _partition_counts(at - start).items():
            for number in range(count):
                one = TopicPartition(topic, number)
                first, end = traffic.beginning_offset(one, at), traffic.end_offset(one, at)
                yield OffsetSample(at, topic, number, first, end)


def _is_created_later(topic: str) -> bool:
    return any(counts.get(topic) == SHOP_TOPICS[topic][0] for _, counts in TOPIC_GROWTH)


def _partition_counts(passed: int) -> dict[str, int]:
    """Returns the partition counts after ``passed`` milliseconds of the day."""
    topics = SHOP_TOPICS.items()
    found = {topic: count for topic, (count, _) in topics if not _is_created_later(topic)}
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
            "events": [*plan.events, *_cluster_events(plan.group, wanted)],
        },
        source=plan.group,
    )
    by_name = {
        one.name: replace(
            one,
            commit_interval=max(plan.commit_minutes, 1) * MINUTE,
            capacity=_member_capacity(plan, wanted),
            client_id=plan.client_id,
        )
        for one in scenario.members
    }
    # members that join later have the same settings
    events = tuple(
        replace(event, specs={name: by_name[like.name] for name, like in event.specs.items()})
        if isinstance(event, JoinEvent)
        else event
        for event in scenario.events
    )
    return replace(scenario, members=tuple(by_name.values()), events=events, traffic=traffic)


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


def _cluster_events(group: str, wanted: set[str]) -> Iterator[EventTable]:
    for at, counts in TOPIC_GROWTH:
        own = {topic: count for topic, count in counts.items() if topic in wanted}
        if own:
            yield {"at": at, "partitions": own}
    at, broker, down = BROKER_OUTAGE
    if broker_of_partition(journal_partition(group)) == broker:
        yield {"at": at, "coordinator_down": down}


def _member_capacity(plan: GroupPlan, wanted: set[str]) -> int:
    """Returns the records per second that each member can handle."""
    hourly = sum(count * rate for topic, (count, rate) in SHOP_TOPICS.items() if topic in wanted)
    members = plan.count + sum(int(str(other["count"])) for other in plan.others)
    return hourly * plan.capacity_percent // (100 * 3_600 * members)
