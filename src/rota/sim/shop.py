"""An online shop's cluster: its topics, its groups, and what befalls them in a day.

The cast of the demo. :mod:`rota.sim.day` plays it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from rota.assignors.registry import DEFAULT_LIST

Event: TypeAlias = Mapping[str, object]
"""As in a scenario file."""

HOURS = (
    *(30, 22, 18, 16, 18, 26, 45, 75, 105, 130, 150, 160),
    *(165, 158, 150, 148, 152, 165, 180, 175, 150, 110, 75, 47),
)
"""How busy each hour of the day is, in per cent."""

TOPICS = {
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
"""Partitions of each topic, and records an hour in each of them."""

GROWTH: tuple[tuple[str, Mapping[str, int]], ...] = (
    ("8h40m", {"cdc.sellers": 2}),
    ("11h30m", {"clicks": 24}),
    ("13h15m", {"cdc.coupons": 2}),
    ("15h20m", {"positions": 16}),
)
"""Topics that get more partitions, or are made, and when."""

BROKERS = 3
BROKER_DOWN = ("4h32m", 2, "14s")
"""One of the brokers is restarted: when, which, and for how long its groups have no coordinator."""

DEFAULT_CLIENT = "consumer-{group}-1"
POD = "{name}-{start}"
"""A pod of a deployment: another name at each start."""
ORDINAL = "{name}"
"""One of a stateful set: always the same name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A group, and its day."""

    group: str
    strategy: Sequence[str]
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    count: int
    events: tuple[Event, ...] = ()
    others: tuple[Mapping[str, object], ...] = ()
    """Members that differ from the first ones, as in a scenario file."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """Of all members, as in a scenario file."""
    client_id: str = POD
    commit: int = 5
    """Minutes between commits; 0: never."""
    headroom: int = 260
    """What all members together can handle, in per cent of what comes in on average."""


RANGE, ROUNDROBIN, STICKY, COOPERATIVE = (
    ("range",),
    ("roundrobin",),
    ("sticky",),
    ("cooperative-sticky",),
)


def _deploy(at: str, name: str, **more: object) -> Event:
    return {"at": at, "deploy": name, "down": "8s", "between": "45s", **more}


def _flapping(name: str, first: int, last: int, step: int, stay: int) -> tuple[Event, ...]:
    """An autoscaler adds a pod every so many minutes and takes it away again."""
    found: list[Event] = []
    for minute in range(first, last, step):
        found += [
            {"at": f"{minute}m", "join": name},
            {"at": f"{minute + stay}m", "leave": name},
        ]
    return tuple(found)


def _crash_loop(name: str, first: int, times: int, step: int) -> tuple[Event, ...]:
    """It dies soon after each start."""
    found: list[Event] = []
    for minute in range(first, first + times * step, step):
        found += [{"at": f"{minute}m", "crash": name}, {"at": f"{minute + 2}m", "join": name}]
    return tuple(found)


def _scaled(name: str, low: int, high: int, up: int, down: int) -> tuple[Event, ...]:
    """More pods in the morning, one by one, and fewer in the evening."""
    names = [f"{name}-{number}" for number in range(low, high)]
    grown = [{"at": f"{up + 4 * n}m", "join": one} for n, one in enumerate(names)]
    shrunk = [{"at": f"{down + 6 * n}m", "leave": one} for n, one in enumerate(reversed(names))]
    return (*grown, *shrunk)


PLANS = (
    # deploys
    Plan(
        group="orders-billing",
        strategy=RANGE,
        topics=("orders", "payments"),
        count=12,
        events=(_deploy("10h", "orders-billing"),),
    ),
    Plan(
        group="orders-fulfilment",
        strategy=COOPERATIVE,
        topics=("orders", "shipments"),
        count=8,
        events=(_deploy("14h5m", "orders-fulfilment", surge=True),),
    ),
    Plan(
        group="web-analytics",
        strategy=COOPERATIVE,
        topics=("clicks",),
        count=8,
        events=(_deploy("18h30m", "web-analytics", down="20s"),),
    ),
    Plan(
        group="geo-enrichment",
        strategy=ROUNDROBIN,
        topics=("positions",),
        count=6,
        events=(_deploy("9h10m", "geo-enrichment"), _deploy("16h", "geo-enrichment")),
        client_id=ORDINAL,
    ),
    Plan(
        group="feature-store",
        strategy=STICKY,
        topics=("clicks", "carts"),
        count=6,
        events=(_deploy("13h40m", "feature-store", down="30s", between="90s"),),
    ),
    Plan(
        group="inventory-sync",
        strategy=RANGE,
        topics=("inventory",),
        count=5,
        events=(
            _deploy("9h", "inventory-sync", strategy=["cooperative-sticky", "range"]),
            _deploy("11h", "inventory-sync", strategy=["cooperative-sticky"]),
        ),
        client_id=ORDINAL,
    ),
    # static members
    Plan(
        group="payments-ledger",
        strategy=RANGE,
        topics=("payments",),
        count=6,
        events=(
            _deploy("10h30m", "payments-ledger", down="25s", between="60s"),
            {"at": "15h45m", "restart": "payments-ledger-3", "down": "3m"},
            {"at": "20h10m", "crash": "payments-ledger-1"},
            {"at": "20h13m", "join": "payments-ledger-1"},
        ),
        settings={"static": True, "session": "90s"},
        client_id=ORDINAL,
    ),
    Plan(
        group="customer-cache",
        strategy=COOPERATIVE,
        topics=("customers",),
        count=3,
        events=tuple(
            {"at": f"{hour}h{5 * hour}m", "restart": f"customer-cache-{hour % 3}", "down": "12s"}
            for hour in (2, 5, 7, 9)
        ),
        settings={"static": True},
        client_id=ORDINAL,
    ),
    Plan(
        group="seller-payouts",
        strategy=ROUNDROBIN,
        topics=("payments", "refunds"),
        count=4,
        events=(_deploy("12h50m", "seller-payouts", down="70s"),),
        settings={"static": True, "session": "60s"},
        client_id=ORDINAL,
    ),
    # crashes and slow members
    Plan(
        group="fraud-scoring",
        strategy=STICKY,
        topics=("payments", "orders"),
        count=6,
        events=(
            {"at": "3h12m", "crash": "fraud-scoring-4"},
            {"at": "3h20m", "join": "fraud-scoring-4"},
            {"at": "16h40m", "stall": "fraud-scoring-2", "for": "8m"},
            {"at": "17h25m", "stall": "fraud-scoring-2", "for": "7m"},
        ),
        headroom=230,
    ),
    Plan(
        group="pricing-engine",
        strategy=RANGE,
        topics=("prices", "inventory"),
        count=4,
        events=tuple(
            {"at": f"{minute}m", "stall": "pricing-engine-1", "for": "6m"}
            for minute in range(17 * 60, 20 * 60, 24)
        ),
        client_id=DEFAULT_CLIENT,
    ),
    Plan(
        group="delivery-eta",
        strategy=STICKY,
        topics=("positions", "shipments"),
        count=5,
        events=(
            {"at": "12h31m", "crash": ["delivery-eta-0", "delivery-eta-3"]},
            {"at": "12h44m", "join": ["delivery-eta-0", "delivery-eta-3"]},
        ),
    ),
    Plan(
        group="loyalty-points",
        strategy=RANGE,
        topics=("orders",),
        count=3,
        events=_crash_loop("loyalty-points-2", 18 * 60, 6, 5),
        settings={"session": "30s"},
    ),
    Plan(
        group="chat-moderation",
        strategy=COOPERATIVE,
        topics=("chat",),
        count=3,
        events=tuple(
            {"at": f"{minute}m", "pause": "chat-moderation-0", "for": "62s"}
            for minute in (9 * 60 + 3, 14 * 60 + 51, 19 * 60 + 22)
        ),
    ),
    Plan(
        group="recommendations",
        strategy=DEFAULT_LIST,
        topics=("clicks", "carts"),
        count=6,
        events=(
            {"at": "2h2m", "crash": "recommendations-5"},
            {"at": "2h9m", "join": "recommendations-5"},
            {"at": "19h37m", "crash": "recommendations-1"},
            {"at": "19h39m", "join": "recommendations-1"},
        ),
        client_id=DEFAULT_CLIENT,
    ),
    Plan(
        group="tax-reports",
        strategy=DEFAULT_LIST,
        topics=("payments",),
        count=3,
        events=(
            {"at": "7h15m", "crash": "tax-reports-0"},
            {"at": "7h50m", "join": "tax-reports-0"},
        ),
        commit=0,
        client_id=DEFAULT_CLIENT,
    ),
    # autoscaled
    Plan(
        group="search-indexer",
        strategy=RANGE,
        topics=("searches", "prices"),
        count=4,
        events=_flapping("search-indexer-4", 9 * 60, 20 * 60, 25, 11),
    ),
    Plan(
        group="image-resizer",
        strategy=STICKY,
        topics=("images",),
        count=2,
        events=_scaled("image-resizer", 2, 6, 8 * 60 + 30, 20 * 60 + 15),
    ),
    Plan(
        group="ad-attribution",
        strategy=COOPERATIVE,
        topics=("clicks", "impressions"),
        count=5,
        events=_scaled("ad-attribution", 5, 9, 9 * 60 + 45, 21 * 60),
    ),
    Plan(
        group="cart-reminders",
        strategy=ROUNDROBIN,
        topics=("carts",),
        count=2,
        events=_flapping("cart-reminders-2", 10 * 60 + 7, 18 * 60, 48, 20),
        client_id=DEFAULT_CLIENT,
    ),
    # topics and subscriptions that change
    Plan(
        group="clickstream",
        strategy=RANGE,
        topics=("clicks",),
        count=6,
    ),
    Plan(group="cdc-warehouse", strategy=COOPERATIVE, pattern=r"cdc\..*", count=4),
    Plan(
        group="cdc-search",
        strategy=RANGE,
        pattern=r"cdc\.(orders|sellers|stock)",
        count=3,
        client_id=DEFAULT_CLIENT,
    ),
    Plan(
        group="returns-desk",
        strategy=ROUNDROBIN,
        topics=("returns",),
        count=2,
        events=(
            {"at": "12h", "subscribe": "returns-desk-0", "topics": ["returns", "refunds"]},
            {"at": "12h6m", "subscribe": "returns-desk-1", "topics": ["returns", "refunds"]},
        ),
    ),
    Plan(
        group="email-sender",
        strategy=ROUNDROBIN,
        topics=("notifications.email",),
        count=3,
        others=({"name": "push-sender", "count": 2, "topics": ["notifications.push"]},),
        events=(
            {"at": "6h25m", "restart": "push-sender-1", "down": "40s"},
            {"at": "17h5m", "crash": "email-sender-0"},
            {"at": "17h9m", "join": "email-sender-0"},
        ),
    ),
    Plan(
        group="notification-stats",
        strategy=STICKY,
        topics=("notifications.email", "notifications.push"),
        count=2,
        others=({"name": "push-stats", "count": 2, "topics": ["notifications.push"]},),
        events=(_deploy("11h15m", "notification-stats"),),
    ),
    # idle, empty and quiet ones
    Plan(
        group="audit-archive",
        strategy=RANGE,
        topics=("audit",),
        count=10,
        events=(_deploy("15h", "audit-archive"),),
        client_id=ORDINAL,
    ),
    Plan(
        group="metrics-rollup",
        strategy=RANGE,
        topics=("metrics", "audit"),
        count=8,
        events=(
            {"at": "5h30m", "leave": "metrics-rollup-6"},
            {"at": "6h30m", "join": "metrics-rollup-6"},
        ),
    ),
    Plan(
        group="nightly-reconciliation",
        strategy=ROUNDROBIN,
        topics=("payments", "refunds"),
        count=3,
        events=(
            {"at": "2h30m", "leave": "nightly-reconciliation"},
            {"at": "22h", "join": [f"nightly-reconciliation-{n}" for n in range(3)]},
        ),
        client_id=ORDINAL,
    ),
    Plan(
        group="catalog-export",
        strategy=STICKY,
        topics=("prices", "images"),
        count=2,
        events=(
            {"at": "1h", "leave": "catalog-export-0"},
            {"at": "1h2m", "crash": "catalog-export-1"},
            {"at": "13h", "join": ["catalog-export-0", "catalog-export-1"]},
            {"at": "14h", "leave": "catalog-export"},
        ),
    ),
    Plan(group="gdpr-erasure", strategy=RANGE, topics=("customers",), count=1, commit=2),
    Plan(
        group="session-replay", strategy=ROUNDROBIN, topics=("impressions",), count=4, headroom=130
    ),
    Plan(
        group="stock-alerts",
        strategy=RANGE,
        topics=("inventory", "prices"),
        count=3,
        events=(
            {"at": "8h", "restart": "stock-alerts-1", "down": "2m"},
            {"at": "16h15m", "restart": "stock-alerts-2", "down": "2m"},
        ),
    ),
    Plan(
        group="support-tickets",
        strategy=DEFAULT_LIST,
        topics=("returns", "chat"),
        count=2,
        commit=2,
        client_id=DEFAULT_CLIENT,
    ),
    Plan(
        group="shipment-tracking",
        strategy=STICKY,
        topics=("shipments",),
        count=4,
        events=(
            {"at": "4h33m", "crash": "shipment-tracking-2"},
            _deploy("21h", "shipment-tracking"),
        ),
    ),
    Plan(
        group="telemetry-ingest",
        strategy=COOPERATIVE,
        topics=("telemetry",),
        count=8,
        events=(
            {"at": "6h5m", "crash": "telemetry-ingest-7"},
            {"at": "6h6m", "join": "telemetry-ingest-7"},
            {"at": "18h", "slow": "telemetry-ingest-3", "processing": "5m40s", "for": "30m"},
        ),
        settings={"processing": "0s"},
    ),
    Plan(
        group="courier-dispatch",
        strategy=RANGE,
        topics=("positions",),
        count=4,
        events=({"at": "11h50m", "pause": "courier-dispatch-3", "for": "4m"},),
    ),
    Plan(
        group="coupon-limits",
        strategy=DEFAULT_LIST,
        topics=("orders", "carts"),
        count=4,
        events=(_deploy("17h", "coupon-limits", strategy=["cooperative-sticky"]),),
    ),
)
"""Every group of the cluster."""
