"""Each fault of ``tests/support/mutants.py`` makes a test of storage or replay fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.mutants import REPLAY, STORAGE, Mutant, Outcome, copy_source, run_test
from tests.support.paths import ROOT

MUTANTS = (*STORAGE, *REPLAY)
TESTS = sorted({mutant.test for mutant in MUTANTS})


@pytest.mark.nightly
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_caught(tmp_path: Path, mutant: Mutant) -> None:
    """By a test that fails; one that makes a loop endless by a test that does not end."""
    source = copy_source(tmp_path)
    mutant.apply(source)
    outcome, text = run_test(source, mutant.test)
    assert outcome is (Outcome.HUNG if mutant.endless else Outcome.FAILED), text


@pytest.mark.nightly
@pytest.mark.parametrize("test", TESTS)
def test_without_a_mutant_the_same_file_passes(tmp_path: Path, test: str) -> None:
    outcome, text = run_test(copy_source(tmp_path), test)
    assert outcome is Outcome.PASSED, text


@pytest.mark.quick
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_text_that_a_mutant_replaces_is_in_the_source_once(mutant: Mutant) -> None:
    assert (ROOT / "src" / "rota" / mutant.path).read_text().count(mutant.old) == 1
    assert (ROOT / mutant.test).is_file()


@pytest.mark.quick
def test_mutants_have_names_of_their_own() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
