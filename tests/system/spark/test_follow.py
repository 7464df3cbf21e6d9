"""A run that follows: round after round the tables are those of one run over the same records."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from rota.errors import InputError
from rota.pipeline import follow, store
from rota.pipeline import round as rounds
from rota.pipeline.cluster import Cluster, Live
from rota.pipeline.evidence import Back, Evidence, Options
from rota.pipeline.layer import bucket, by_bucket
from rota.pipeline.round import Mark, Round, Rounds
from rota.pipeline.store import Shelf
from rota.tables import JOURNAL, REBALANCES
from tests.support.examples import NIGHTLY
from tests.system.spark.followed import Told, cuts, piece, served
from tests.system.spark.played import ENDS, LOG, Ran, everything, ran, recorded_segments


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """The recorded journal, over the wire."""
    with served(recorded_segments(tmp_path_factory.mktemp("served"))) as found:
        yield found


def going_on(
    spark: SparkSession, shelf: Shelf, live: Live, evidence: Evidence, told: Told
) -> Rounds:
    """Rounds from where the folder is."""
    new = Mark(follow="x", cluster=live.name, groups=[], since=None)
    mark = Mark.read(shelf.shown) or new
    return Rounds(spark, shelf, (evidence, Options(), live), mark, told)


SHARES = [0.4, 0.5, 0.55, 0.7, 1.0]
"""How much of the journal is there at the end of each round."""
PIECES = SHARES if NIGHTLY else [0.4, 0.55, 1.0]
WRITES = (1, 3, 10, 30, 60) if NIGHTLY else (1, 30)
"""A round is killed when it writes the first file, the third, ...; each kill costs a round."""


@pytest.fixture(scope="module")
def begun(
    spark: SparkSession, live: Live, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Round]:
    """A folder after its first round, and what that told."""
    out, told = tmp_path_factory.mktemp("begun"), Told()
    evidence = Evidence(cluster=live.cluster, server_logs=(str(LOG),), ends=(str(ENDS),))
    nothing, first = cuts(live, SHARES[:1])
    with store.held(str(out)) as shelf:
        going_on(spark, shelf, live, evidence, told).take(piece(spark, live, nothing, first), 0)
    return out, told.rounds[0]


@pytest.fixture
def out(begun: tuple[Path, Round], tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(begun[0], tmp_path / "out", symlinks=True))


def test_in_pieces_as_in_one_run(
    spark: SparkSession, live: Live, logged: Ran, begun: tuple[Path, Round], out: Path
) -> None:
    evidence, told = Evidence(cluster=live.cluster), Told()
    places = list(pairwise(cuts(live, PIECES)))
    with store.held(str(out)) as shelf:
        for batch, (begin, end) in enumerate(places[1:], 1):
            # every time a new process; a batch may come again
            for _ in range(2):
                taking = going_on(spark, shelf, live, evidence, told)
                taking.take(piece(spark, live, begin, end), batch)
    found, wanted = everything(out), everything(logged.out)
    for name, rows in wanted.items():
        assert found[name] == rows, name
    rounds = [begun[1], *told.rounds]
    assert len(rounds) == len(places)
    assert sum(each.records for each in rounds) == len(wanted[JOURNAL.name])
    assert sum(each.rebalances for each in rounds) == len(wanted[REBALANCES.name])
    assert all(len(each.happened) == each.rebalances for each in told.rounds)


def test_a_large_round_among_small_ones(
    spark: SparkSession, live: Live, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence = Evidence(cluster=live.cluster, server_logs=(str(LOG),), ends=(str(ENDS),))
    other = Path(shutil.copytree(out, tmp_path / "other", symlinks=True))
    places = list(enumerate(pairwise(cuts(live, [*SHARES[:3], 0.6]))))
    for folder, large in ((out, set[int]()), (other, {2})):
        with store.held(str(folder)) as shelf:
            taking = going_on(spark, shelf, live, evidence, Told())
            for batch, (begin, end) in places[1:]:
                monkeypatch.setattr(rounds, "SMALL", 0 if batch in large else 10**9)
                taking.take(piece(spark, live, begin, end), batch)
    assert everything(other) == everything(out)


class Killed(BaseException):
    """Nobody catches it."""


def test_a_round_is_killed_when_it_writes_a_file(
    spark: SparkSession, live: Live, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence = Evidence(cluster=live.cluster)
    _, (begin, end) = pairwise(cuts(live, [SHARES[0], 0.42]))
    write, left = parquet.write_table, 0

    def dying(*words: object, **more: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise Killed
        write(*words, **more)

    def take(folder: Path) -> None:
        with store.held(str(folder)) as shelf:
            taking = going_on(spark, shelf, live, evidence, Told())
            taking.take(piece(spark, live, begin, end), 1)

    whole = Path(shutil.copytree(out, tmp_path / "whole", symlinks=True))
    take(whole)
    old, new = everything(out), everything(whole)
    assert new != old
    monkeypatch.setattr(parquet, "write_table", dying)
    kills = 0
    for left in (*WRITES, 10**9):  # noqa: B007 (those who write count it down)
        try:
            take(out)
        except Killed:
            kills += 1
            assert everything(out) == old
    assert kills >= min(len(WRITES), 4)  # a round may write fewer than 60 files
    assert everything(out) == new


@pytest.mark.nightly
def test_some_groups_in_pieces(
    spark: SparkSession, live: Live, segments: Path, tmp_path: Path
) -> None:
    chosen = Options(groups=("a-c*",))
    at_once = ran(spark, Evidence(segments=(str(segments),)), tmp_path / "once", chosen)
    mark = Mark(follow="x", cluster=live.name, groups=["a-c*"], since=None)
    out = tmp_path / "out"
    with store.held(str(out)) as shelf:
        told = (Evidence(cluster=live.cluster), chosen, live)
        taking = Rounds(spark, shelf, told, mark, Told())
        for batch, (begin, end) in enumerate(pairwise(cuts(live, [0.3, 0.6, 1.0]))):
            taking.take(piece(spark, live, begin, end), batch)
    assert everything(out) == everything(at_once.out)


def test_sparks_buckets_are_ours(spark: SparkSession) -> None:
    names = ["", "a", "Grüppchen", "🦊", "x" * 1000]
    frame = spark.createDataFrame([(name,) for name in names], "`group` string")
    found = by_bucket(frame).selectExpr("`group`", "spark_partition_id() number").collect()
    assert {row.group: row.number for row in found} == {name: bucket(name) for name in names}


@pytest.mark.parametrize(
    ("evidence", "options", "problem"),
    [
        (Evidence(segments=("x",)), Options(), "needs --bootstrap-servers"),
        (Evidence(), Options(until=5), "needs --bootstrap-servers"),
    ],
)
def test_what_cannot_be_followed(evidence: Evidence, options: Options, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        follow.check(evidence, options)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (Options(until=5), "--until"),
        (Options(since=Back(5)), "--since takes a time"),
        (Options(master="sc://host"), "Spark Connect"),
    ],
)
def test_what_does_not_go_with_following(options: Options, problem: str) -> None:
    evidence = Evidence(cluster=Cluster(settings={"bootstrap.servers": "x:1"}))
    with pytest.raises(InputError, match=problem):
        follow.check(evidence, options)
