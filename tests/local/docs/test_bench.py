"""The benchmarks' own arithmetic: what is measured must not depend on trust in the harness."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from bench import case, measure
from bench.measure import run_when_calm


@pytest.mark.parametrize(
    "made", [case.newcomer, case.one_topic_each, case.scattered, case.small, case.different]
)
def test_a_case_is_the_same_after_its_file(made: Callable[[], case.Case], tmp_path: Path) -> None:
    work = made()
    file = tmp_path / f"{work.name}.case"
    work.write(file)
    assert case.read_case(file) == work


@pytest.mark.parametrize(
    ("stolen", "expected"),
    [
        ([0.0], 0),
        ([0.02, 0.5], 0),
        ([0.5, 0.04, 0.0, 0.5], 2),
        ([0.5, 0.4, 0.3, 0.1, 0.2, 0.0], 3),
    ],
)
def test_a_run_counts_that_the_host_left_alone_or_the_calmest(
    stolen: list[float], expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shares of both cores, in runs of ten seconds."""
    stat, tries, clock = tmp_path / "stat", iter(enumerate(stolen)), itertools.count(0, 10)
    monkeypatch.setattr(measure, "STAT", stat)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr(measure, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    ticks = [0]

    def write_stat() -> None:
        stat.write_text(f"cpu 1 2 3 4 5 6 7 {ticks[0]} 9 10\ncpu0 1 2 3\n")

    def run() -> int:
        number, share = next(tries)
        ticks[0] += round(share * 2 * 10 * os.sysconf("SC_CLK_TCK"))
        write_stat()
        return number

    write_stat()
    assert run_when_calm(run) == expected


def test_without_the_machines_own_figures_the_first_run_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "STAT", tmp_path / "missing")
    assert run_when_calm(lambda: "once") == "once"
