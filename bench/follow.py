"""How soon a rebalance of a live cluster is in the gold tables, with ``rota run --follow``.

    python -m bench.follow crowd ADDRESS

The cluster is the embedded broker, with the demo's day as the past and dozens of groups that live:
their members join, and commit every second. Then in one group after the other a member joins; the
seconds are those from the time of the journal's record until a reader of gold/rebalances finds it.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.compute as pc
from pyarrow import parquet

from bench.limit import LIMITS
from bench.measure import Measurement
from bench.run import Row, Run
from rota import AsyncConsumer
from rota.errors import RotaError

GROUPS = 30
MEMBERS = 2
PARTITIONS = 6
TOPIC = "orders"
#: Rebalances that are waited for.
JOINS = 10
#: Seconds between two looks at the table.
LOOK = 0.05
PATIENCE = 60.0


def run(bench: Run) -> Iterator[Row]:
    """The slowest of some rebalances."""
    from rota.pipeline.demo import write_day  # noqa: PLC0415 (needs Spark)

    bench.print_progress("   writing a day")
    day = write_day(bench.folder / "day")
    took = measure_rebalances(day.segments, bench)
    bench.notes.append(
        f"Y: a rebalance is seen after {min(took):.1f} to {max(took):.1f} s, in the middle "
        f"{sorted(took)[len(took) // 2]:.1f} s; {day.records:,} records before, "
        f"{GROUPS} groups with {GROUPS * MEMBERS} members live"
    )
    work = f"rota run --follow: a rebalance in gold, the slowest of {JOINS}"
    yield Row(work=work, ours=Measurement(seconds=max(took)), theirs={}, limit=LIMITS["follow"])


def measure_rebalances(journal: Path, bench: Run) -> list[float]:
    """Seconds of each rebalance, after the past that the journal's folders tell."""
    from rota.broker.embedded import Broker  # noqa: PLC0415 (who is only a member needs none)
    from rota.pipeline.demo import READ_ONLY_BROKER  # noqa: PLC0415 (a day's journal would be compacted)

    with Broker(journal, config=READ_ONLY_BROKER, adopt=True) as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        address = broker.bootstrap_servers
        with _start_members(address), _start_follow(address, bench.folder / "tables") as tables:
            return asyncio.run(_measure_joins(address, tables, bench))


@contextmanager
def _start_members(address: str) -> Iterator[None]:
    with subprocess.Popen(
        [sys.executable, "-m", "bench.follow", "crowd", address], stdout=subprocess.PIPE
    ) as crowd:
        assert crowd.stdout is not None
        crowd.stdout.readline()  # all have joined
        try:
            yield
        finally:
            crowd.terminate()


@contextmanager
def _start_follow(address: str, out: Path) -> Iterator[Path]:
    command = [sys.executable, "-m", "rota", "run", "--follow", "--bootstrap-servers", address]
    with subprocess.Popen([*command, "--out", str(out)], stdout=subprocess.PIPE) as follower:
        assert follower.stdout is not None
        for _ in range(3):  # all that there was, and what came meanwhile
            assert follower.stdout.readline(), "it has ended"
        try:
            yield out
        finally:
            follower.terminate()
            follower.communicate()


def _settings(address: str, group: int) -> dict[str, object]:
    return {
        "bootstrap.servers": address,
        "group.id": f"live-{group}",
        "partition.assignment.strategy": "cooperative-sticky" if group % 2 else "range",
        "enable.auto.commit": False,
    }


async def _member(address: str, group: int, joined: asyncio.Event) -> None:
    """Commits every second, whatever there is to read."""
    async with AsyncConsumer(_settings(address, group)) as consumer:
        consumer.subscribe([TOPIC])
        while True:
            await consumer.poll(1.0)
            mine = consumer.assignment
            if mine:
                joined.set()
                try:
                    await consumer.commit(dict.fromkeys(mine, 0))
                except RotaError:
                    continue  # a rebalance: the next poll takes part in it


async def _run_members(address: str) -> None:
    joined = [asyncio.Event() for _ in range(GROUPS * MEMBERS)]
    members = [
        asyncio.create_task(_member(address, number % GROUPS, event))
        for number, event in enumerate(joined)
    ]
    await asyncio.gather(*(event.wait() for event in joined))
    print("joined", flush=True)
    await asyncio.gather(*members)


async def _measure_joins(address: str, tables: Path, bench: Run) -> list[float]:
    took = []
    for group in range(JOINS):
        name = f"live-{group}"
        before = _latest(tables, name)
        joined = asyncio.Event()
        member = asyncio.create_task(_member(address, group, joined))
        await asyncio.wait_for(joined.wait(), PATIENCE)
        took.append(await _wait_for_rebalance(tables, name, before))
        bench.print_progress(f"   {name}: {took[-1]:.1f} s")
        member.cancel()
        await asyncio.wait([member])
    return took


async def _wait_for_rebalance(tables: Path, group: str, before: float) -> float:
    """Seconds from the record until it is there."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        now = time.time()
        latest = await asyncio.to_thread(_latest, tables, group)
        if latest > before:
            return now - latest
        await asyncio.sleep(LOOK)
    raise TimeoutError(f"no rebalance of {group} in {PATIENCE:g} s")


def _latest(tables: Path, group: str) -> float:
    """The time of a group's last rebalance in the table, in seconds since 1970."""
    folder = (tables / "gold" / "rebalances").resolve()
    rows = parquet.read_table(folder, columns=["at"], filters=[("group", "==", group)])
    latest = pc.max(rows.column("at")).as_py()
    return 0.0 if latest is None else float(latest.timestamp())


def main() -> None:
    """See above."""
    match sys.argv[1:]:
        case ["crowd", address]:
            asyncio.run(_run_members(address))
        case _:
            sys.exit("python -m bench.follow crowd ADDRESS")


if __name__ == "__main__":
    main()
