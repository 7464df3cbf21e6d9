"""The tests of storage and replay are worth something: each of these faults is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.mutants import REPLAY, STORAGE, Mutant, copy_source, run_tests


@pytest.mark.nightly
@pytest.mark.parametrize("mutant", [*STORAGE, *REPLAY], ids=lambda mutant: mutant.name)
def test_a_fault_is_found(tmp_path: Path, mutant: Mutant) -> None:
    source = copy_source(tmp_path)
    mutant.apply(source)
    done = run_tests(source, mutant.tests)
    assert (done.returncode, "FAILED " in done.stdout) == (1, True), done.stdout + done.stderr


@pytest.mark.nightly
@pytest.mark.parametrize("mutants", [STORAGE, REPLAY], ids=["storage", "replay"])
def test_without_a_fault_none_is_found(tmp_path: Path, mutants: tuple[Mutant, ...]) -> None:
    source = copy_source(tmp_path)
    done = run_tests(source, tuple(sorted({test for one in mutants for test in one.tests})))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.quick
def test_every_fault_can_be_made(tmp_path: Path) -> None:
    """The text that a mutant replaces is still in the source, and so are its tests."""
    source = copy_source(tmp_path)
    for mutant in (*STORAGE, *REPLAY):
        assert all(Path(test).exists() for test in mutant.tests), mutant.name
        file = source / "rota" / mutant.path
        before = file.read_text()
        mutant.apply(source)
        file.write_text(before)
