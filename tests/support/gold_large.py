"""Many groups at once, as columns: range places as it does, and members are restarted all day.

What would have been is the placement of sticky static members: who is away for longer than its
session loses its partitions to the others, and gets them back.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rota.pipeline import arrow
from rota.pipeline.tables import (
    ADVICE,
    ADVISED,
    DOWNTIME,
    ENDS,
    HEALTH,
    LAG,
    OWNERSHIP,
    REBALANCES,
    STATUS,
    WHATIF,
    Column,
    Table,
)
from tests.support.gold_layout import MORNING, Run, Tables

STATIC_MEMBERS: dict[str, Any] = {
    "title": "Use static members",
    "kind": "policy",
    "saving_ms": None,
    "saving_is_bound": False,
    "steps": [
        {
            "text": "Give each process an id of its own.",
            "libraries": [],
            "setting": None,
            "settings": {
                "Java": "group.instance.id=ID",
                "librdkafka": "group.instance.id=ID",
            },
        }
    ],
}
Numbers: TypeAlias = npt.NDArray[np.int64]

DAY = 86_400_000
SESSION = 45_000
USED, ADVISED_POLICY = "range", "cooperative-sticky, static 45s"
POLICIES = (
    USED,
    "roundrobin",
    "sticky",
    "cooperative-sticky",
    "KIP-848 uniform",
    "KIP-848 range",
    "range, static 45s",
    "roundrobin, static 45s",
    "sticky, static 45s",
    ADVISED_POLICY,
    "KIP-848 uniform, static 45s",
    "KIP-848 range, static 45s",
)
#: What each policy has of the downtime, the moves and the revoked partitions of the one in use.
SHARE = np.array([1, 0.9, 0.5, 0.2, 0.2, 0.9, 0.3, 0.3, 0.2, 0.1, 0.1, 0.3])
#: Commits of each partition with a known lag.
COMMITS = 20
#: Records that are written to a partition in a second.
RATE = 20


def write_large(
    folder: Path,
    *,
    groups: int = 1_000,
    partitions: int = 10_000,
    rebalances: int = 50_000,
    run: Run | None = None,
) -> Path:
    """So many groups, partitions and rebalances; the largest group has two percent of them."""
    made = Tables()
    sizes = _shares(groups, partitions, flat=10, least=1)
    counts = _shares(groups, rebalances, flat=20, least=3)
    for place, (size, count) in enumerate(zip(sizes.tolist(), counts.tolist(), strict=True)):
        made_up = Restarts(place, size, count)
        for table, rows in made_up.tables().items():
            made.add(table, rows)
    return made.write(folder, run)


def _shares(parts: int, total: int, *, flat: int, least: int) -> Numbers:
    """A total in parts, of which each is smaller than the one before it."""
    weight = np.cumsum(1 / (np.arange(parts) + flat))
    ends = np.round((total - least * parts) * weight / weight[-1]).astype(np.int64)
    return np.asarray(least + np.diff(ends, prepend=0))


@dataclass(frozen=True)
class Restarts:
    """A group whose members are restarted one after the other."""

    place: int
    partitions: int
    rebalances: int

    @cached_property
    def _random(self) -> np.random.Generator:
        return np.random.default_rng(self.place)

    @property
    def group(self) -> str:
        return f"team-{self.place % 40:02}.service-{self.place:04}"

    @property
    def topic(self) -> str:
        return f"events.{self.place:04}"

    @property
    def kept(self) -> bool:
        """Every third group shall keep what it has."""
        return self.place % 3 == 2

    @cached_property
    def members(self) -> int:
        return min(max(self.partitions // 3, 2), 24)

    @cached_property
    def missing(self) -> Numbers:
        """Who is away after each rebalance; the number of members: nobody."""
        away = self._random.integers(0, self.members, self.rebalances)
        return np.where(np.arange(self.rebalances) % 2 == 1, away, self.members)

    @cached_property
    def at(self) -> Numbers:
        """Odd ones are departures; every eighth time it takes longer than a session to be back."""
        place = np.arange(self.rebalances)
        pair = (place + 1) // 2
        spacing = DAY // (self.rebalances // 2 + 1)
        found = MORNING + pair * spacing + self._random.integers(0, spacing // 4, len(pair))[pair]
        away = np.where(pair % 8 == 0, 100_000, 12_000)
        away = np.minimum(away, spacing // 2)
        back = (place % 2 == 0) & (place > 0)
        return np.asarray(np.where(back, found + away, found))

    @cached_property
    def long(self) -> npt.NDArray[np.bool_]:
        """Rebalances that there would still be with static members."""
        pair = (np.arange(self.rebalances) + 1) // 2
        return np.asarray((pair % 8 == 0) & (DAY // (self.rebalances // 2 + 1) > 2 * SESSION))

    @cached_property
    def life(self) -> Numbers:
        """How often each member has come back, after each rebalance."""
        found = np.zeros((self.rebalances, self.members), dtype=np.int64)
        back = np.arange(2, self.rebalances, 2)
        found[back, self.missing[back - 1]] = 1
        return np.cumsum(found, axis=0)

    @cached_property
    def _number(self) -> Numbers:
        """A number for each member that ever was, by who it is and how often it came back."""
        most = self.life[-1] + 1
        return np.concatenate(([0], np.cumsum(most)))

    @cached_property
    def ids(self) -> pa.Array:
        client = np.repeat(np.arange(self.members), np.diff(self._number))
        raw = self._random.bytes(16 * len(client))
        return pa.array(
            [
                f"service-{self.place:04}-{who}-{uuid.UUID(bytes=raw[16 * n : 16 * n + 16])}"
                for n, who in enumerate(client.tolist())
            ]
        )

    def _range(self, away: int) -> Numbers:
        here = np.array([who for who in range(self.members) if who != away])
        each, more = divmod(self.partitions, len(here))
        return np.repeat(here, each + (np.arange(len(here)) < more))

    def _sticky(self, away: int) -> Numbers:
        owners = self._range(self.members).copy()
        free = np.flatnonzero(owners == away)
        here = np.array([who for who in range(self.members) if who != away])
        owners[free] = here[np.arange(len(free)) % len(here)]
        return owners

    @cached_property
    def was(self) -> Numbers:
        """Who owns each partition after each rebalance."""
        placements = np.stack([self._range(away) for away in range(self.members + 1)])
        return np.asarray(placements[self.missing])

    @cached_property
    def costs(self) -> dict[str, Numbers]:
        before = np.vstack([np.full((1, self.partitions), -1), self.was[:-1]])
        orphaned = (before == self.missing[:, None]).sum(axis=1)
        changed = ((before != self.was) & (before >= 0)).sum(axis=1)
        living = np.where(np.arange(self.rebalances) == 0, 0, self.partitions - orphaned)
        back = (np.arange(self.rebalances) % 2 == 0) & (np.arange(self.rebalances) > 0)
        return {
            "moved": changed - orphaned,
            "moves_needed": np.where(back, self.partitions // self.members, 0),
            "orphaned": orphaned,
            "revoked": living,
        }

    @cached_property
    def downtime(self) -> Numbers:
        """Milliseconds for which each rebalance left its partitions without a consumer."""
        gone = np.where(np.arange(self.rebalances) % 2 == 1, 8_000, 3_000)
        return np.asarray(self.costs["revoked"] * 3_000 + self.costs["orphaned"] * gone)

    def tables(self) -> dict[Table, pa.RecordBatch]:
        found = {
            REBALANCES: self._rebalances(),
            OWNERSHIP: self._ownership(),
            WHATIF: self._whatif(),
            ADVICE: self._advice(),
            LAG: self._lag(),
            ENDS: self._ends(),
            STATUS: self._status(),
            HEALTH: self._health(),
            DOWNTIME: self._downtime(),
        }
        return found if self.kept else found | {ADVISED: self._advised()}

    def _rebalances(self) -> pa.RecordBatch:
        number = np.arange(self.rebalances)
        left, first = number % 2 == 1, number == 0
        who = np.where(left, self.missing, np.roll(self.missing, 1))
        who = np.where(first, 0, who)
        ids = self.ids.take(pa.array(self._number[who] + self.life[number, who]))
        words = pa.array(["was closed", "is new"]).take(pa.array((~left).astype(np.int64)))
        nobody = pa.array([], pa.string())
        here = np.where(left, self.members - 1, self.members)
        return _rows(
            REBALANCES,
            self.rebalances,
            {
                "group": self.group,
                "kind": "classic",
                "incarnation": 0,
                "from_generation": number,
                "to_generation": number + 1,
                "rounds": 1,
                "unseen": 0,
                "at": self.at,
                "earliest_start": self.at - 3_000,
                "latest_start": self.at - 20,
                "joined_at": self.at - 20,
                "sync_ms": 20,
                "cause": np.where(left, "left", "joined"),
                "evidence": "inferred",
                "reason": pc.binary_join_element_wise(ids, words, " "),
                "strategy": "range",
                "protocol": "eager",
                "members_before": np.where(first, 0, np.roll(here, 1)),
                "members_after": here,
                "joined": _lists(ids, ~left, nobody),
                "left": _lists(ids, left, nobody),
                **self.costs,
                "downtime_ms": self.downtime,
                "downtime_at_least_ms": self.downtime // 2,
                "downtime_at_most_ms": self.downtime * 2,
                "not_polled_ms": 0,
                "delayed_records": self.downtime * RATE // 1_000,
                "added_lag_ms": 8_000,
                "idle_members": np.maximum(here - self.partitions, 0),
                "most": -(-self.partitions // here),
                "least": self.partitions // here,
            },
        )

    def _tenures(self, owners: Numbers, at: Numbers, who: Numbers) -> dict[str, Any]:
        """From a partition's owner after each rebalance to its owners from when to when.

        :param who: the number of the member that each owner is then
        """
        changed = np.vstack([np.ones((1, self.partitions), bool), who[1:] != who[:-1]])
        partition, step = np.nonzero(changed.T)
        last = np.append(partition[1:] != partition[:-1], [True])
        until = np.roll(at[step], -1)
        return {
            "group": self.group,
            "topic": self.topic,
            "partition": partition,
            "member_id": self.ids.take(pa.array(who[step, partition])),
            "client_id": pa.array(
                [f"service-{self.place:04}-{one}" for one in range(self.members)]
            ).take(pa.array(owners[step, partition])),
            "client_host": "/10.0.0.1",
            "since": at[step],
            "until": pa.array(until, pa.int64(), mask=last),
            "from_generation": step + 1,
            "to_generation": np.where(last, self.rebalances, np.roll(step, -1)),
        }

    def _ownership(self) -> pa.RecordBatch:
        number = self._number[self.was] + np.take_along_axis(self.life, self.was, axis=1)
        found = self._tenures(self.was, self.at, number)
        return _rows(OWNERSHIP, len(found["partition"]), found)

    def _advised(self) -> pa.RecordBatch:
        placements = np.stack([self._sticky(away) for away in range(self.members + 1)])
        happens = self.long | (np.arange(self.rebalances) == 0)
        owners = placements[self.missing[happens]]
        found = self._tenures(owners, self.at[happens], self._number[owners])
        rows = {name: found[name] for name in arrow.arrow_schema(ADVISED).names}
        return _rows(ADVISED, len(rows["partition"]), rows)

    def _whatif(self) -> pa.RecordBatch:
        many = len(POLICIES)
        number, policy = np.tile(np.arange(self.rebalances), many), np.arange(many)
        policy = np.repeat(policy, self.rebalances)
        static = np.array(["static" in one for one in POLICIES])[policy]
        happens = ~static | self.long[number] | (number == 0)
        share = SHARE[policy] * happens
        needed = self.costs["moves_needed"][number] * happens
        return _rows(
            WHATIF,
            len(number),
            {
                "group": self.group,
                "incarnation": 0,
                "to_generation": number + 1,
                "at": self.at[number],
                "policy": pa.array(POLICIES).take(pa.array(policy)),
                "actual": policy == 0,
                "happens": happens,
                "happens_at": pa.array(self.at[number], mask=~happens),
                "moved": np.maximum((self.costs["moved"][number] * share).astype(int), needed),
                "moves_needed": needed,
                "downtime_ms": (self.downtime[number] * share).astype(int),
                "revoked": (self.costs["revoked"][number] * share).astype(int),
                "idle_members": 0,
                "spread": 1,
            },
        )

    def _advice(self) -> pa.RecordBatch:
        moved, least, revoked = (
            int(self.costs[name].sum()) for name in ("moved", "moves_needed", "revoked")
        )
        down = int(self.downtime.sum())
        after = self.rebalances if self.kept else int(self.long.sum()) + 1
        then = 1.0 if self.kept else 0.1
        verdict = "keep" if self.kept else "change"
        row = {
            "group": self.group,
            "verdict": verdict,
            "policy": USED if self.kept else ADVISED_POLICY,
            "policies_used": [USED],
            "downtime_ms": down,
            "downtime_at_least_ms": down // 2,
            "downtime_at_most_ms": down * 2,
            "downtime_current_ms": down,
            "downtime_after_ms": int(down * then),
            "uncertainty_ms": down // 10,
            "not_polled_ms": 0,
            "downtime_by_reason": {"revoked": down},
            "delayed_records": down * RATE // 1_000,
            "delayed_records_after": int(down * then) * RATE // 1_000,
            "added_lag_ms": 8_000,
            "patterns": [],
            "rebalances": self.rebalances,
            "rebalances_after": after,
            "moved": moved,
            "moved_after": int(moved * then),
            "moves_needed": least,
            "revoked": revoked,
            "revoked_after": int(revoked * then),
            "libraries": ["java"],
            "happened": f"Rolling restarts caused {self.rebalances} rebalances in 24 h.",
            "to_do": "Keep range." if self.kept else "Use sticky static members.",
            "recommendation": "Keep range" if self.kept else "cooperative-sticky, static",
            "saving_ms": None if self.kept else down - int(down * then),
            "actions": [] if self.kept else [STATIC_MEMBERS],
            "setting_libraries": [] if self.kept else ["Java", "librdkafka"],
        }
        return arrow.rows_to_batch(ADVICE, [row])

    def _lag(self) -> pa.RecordBatch:
        """Partitions are committed at times of their own, as consumers do."""
        partition = np.repeat(np.arange(self.partitions), COMMITS)
        place = np.tile(np.arange(COMMITS), self.partitions)
        every = DAY // COMMITS
        at = MORNING + place * every + self._random.integers(0, every, len(partition))
        end = (at - MORNING + DAY) * RATE // 1_000
        behind = self._random.integers(0, 5_000, len(partition))
        return _rows(
            LAG,
            len(partition),
            {
                "group": self.group,
                "topic": self.topic,
                "partition": partition,
                "at": at,
                "journal_offset": place * self.partitions + partition,
                "offset": end - behind,
                "end": end,
                "lag": behind,
                "lag_seconds": behind / RATE,
                "evidence": "sampled",
            },
        )

    def _ends(self) -> pa.RecordBatch:
        """From a day before on: no record is older than the first sample."""
        many = COMMITS + 1
        at = np.append(MORNING - DAY, MORNING + np.arange(1, many) * (DAY // COMMITS))
        return _rows(
            ENDS,
            self.partitions * many,
            {
                "topic": self.topic,
                "partition": np.repeat(np.arange(self.partitions), many),
                "at": np.tile(at, self.partitions),
                "beginning": 0,
                "end": np.tile((at - MORNING + DAY) * RATE // 1_000, self.partitions),
            },
        )

    def _downtime(self) -> pa.RecordBatch:
        """Partition 0 stands for all: the sums are those of the rebalances."""
        return _rows(
            DOWNTIME,
            self.rebalances,
            {
                "group": self.group,
                "topic": self.topic,
                "partition": 0,
                "since": self.at - self.downtime,
                "until": self.at,
                "ended": True,
                "reason": "revoked",
                "evidence": "bounded",
                "at_least_ms": self.downtime // 2,
                "at_most_ms": self.downtime * 2,
                "incarnation": 0,
                "to_generation": np.arange(self.rebalances) + 1,
            },
        )

    def _health(self) -> pa.RecordBatch:
        same = {"reason": "no partition is stuck", "worst_reason": "no partition is stuck"}
        row = {"group": self.group, "health": "OK", "worst": "OK", "lag": 0, **same}
        return arrow.rows_to_batch(HEALTH, [row])

    def _status(self) -> pa.RecordBatch:
        row = {"topic": None, "partition": None, "verdict": "OK", "lag": 0, "complete": 1.0}
        return arrow.rows_to_batch(STATUS, [{"group": self.group, "at": MORNING + DAY, **row}])


def _lists(ids: pa.Array, some: npt.NDArray[np.bool_], nobody: pa.Array) -> pa.ListArray:
    """One id in a list where it is one of some, and else an empty list."""
    ends = np.concatenate(([0], np.cumsum(some)))
    kept = ids.filter(pa.array(some)) if some.any() else nobody
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), kept)


def _rows(table: Table, count: int, values: dict[str, Any]) -> pa.RecordBatch:
    """Columns out of arrays, and out of values that all rows share; others are null."""
    columns = [_column(each, count, values.get(each.name)) for each in table.columns]
    return pa.record_batch(columns, schema=arrow.arrow_schema(table))


def _column(column: Column, count: int, values: Any) -> pa.Array:
    kind = arrow.arrow_type(column.type)
    if values is None:
        return pa.nulls(count, kind)
    if not isinstance(values, np.ndarray | pa.Array):
        return pa.repeat(pa.scalar(values, kind), count)
    found = values if isinstance(values, pa.Array) else pa.array(values)
    if kind == arrow.TIME_TYPE:
        return found.cast(pa.timestamp("ms", tz="UTC")).cast(kind)
    return found.cast(kind)
