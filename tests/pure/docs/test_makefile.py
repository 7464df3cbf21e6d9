"""Every ``make`` command that a page or a workflow names is a target of the Makefile."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / ".ci" / "run",
    *sorted((ROOT / ".github" / "workflows").glob("*.yml")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
TARGETS = set(
    re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
)
COMMAND = re.compile(r"(?:^|`|run: )[ ]*make ([a-z]+)", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_named_target_exists(page: Path) -> None:
    named = set(COMMAND.findall(page.read_text(encoding="utf-8")))
    assert named <= TARGETS


def test_ci_and_the_workflow_run_what_contributors_run() -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    assert {"test", "local", "check", "nightly"} <= set(COMMAND.findall(workflow))
    local = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert COMMAND.findall(local) == ["test", "rest"]
