"""What the README, docs/strategies.md and the how-tos show is what happens.

Python blocks run in order in one namespace, and print what the ``output`` block after them says.
In ``console`` blocks every line that starts with ``$ rota`` prints what follows it, and ``$ echo
$?`` the exit code of the one before. Where a page talks to a broker, its commands run in order,
with one of its own at the address it names. A ``yaml`` block is a workflow: what it runs of Rota
passes. A ``json`` block is a case that can be planned, a ``toml`` block with topics a scenario that
can be played. Command lines elsewhere are in ``test_docs_commands.py``.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

import rota
from tests.support.command import RotaCommand
from tests.support.paths import ROOT

PAGES = [
    ROOT / "README.md",
    ROOT / "docs" / "strategies.md",
    *sorted((ROOT / "docs" / "how-to").glob("*.md")),
]
BROKER = "localhost:9092"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
ECHO = "echo $?"
pytest_plugins = ["pytester"]


def fenced_blocks(page: Path) -> list[tuple[str, str]]:
    return BLOCK.findall(page.read_text())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_run_and_print_what_is_shown(
    page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    namespace: dict[str, object] = {"__name__": page.stem}
    printed = ""
    for kind, text in fenced_blocks(page):
        if kind == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(text, str(page), "exec"), namespace)
            printed = out.getvalue()
        elif kind == "output":
            assert printed == text


def commands(page: Path) -> list[tuple[str, str]]:
    found = []
    for kind, text in fenced_blocks(page):
        if kind == "console":
            for part in re.split(r"^\$ (?=rota |echo )", text, flags=re.MULTILINE)[1:]:
                command, _, shown = part.partition("\n")
                found.append((command, shown.strip("\n")))
    return found


def console_sessions(page: Path) -> list[tuple[str, str, int | None]]:
    """Commands with what they print, and the exit code where the page asks for it."""
    found = commands(page)
    return [
        (command, shown, int(code) if after == ECHO else None)
        for (command, shown), (after, code) in pairwise([*found, ("", "")])
        if command != ECHO
    ]


OFFLINE = [page for page in PAGES if not any(BROKER in each for each, _ in commands(page))]


@pytest.mark.parametrize(
    ("command", "shown", "code"), [each for page in OFFLINE for each in console_sessions(page)]
)
def test_console_blocks_show_what_is_printed(
    command: str,
    shown: str,
    code: int | None,
    rota_command: RotaCommand,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    ran = rota_command(*shlex.split(command)[1:])
    assert ran.code == (code or 0)
    assert [line.rstrip() for line in ran.out.strip("\n").splitlines()] == shown.splitlines()


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page not in OFFLINE], ids=lambda page: page.name
)
def test_console_blocks_talk_to_a_broker(
    page: Path, rota_command: RotaCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    with rota.Broker() as broker:
        for command, shown in commands(page):
            words = shlex.split(command.replace(BROKER, broker.bootstrap_servers))[1:]
            printed = rota_command(*words).out.replace(broker.bootstrap_servers, BROKER)
            assert [line.rstrip() for line in printed.splitlines()] == shown.splitlines(), command


def blocks_of_kind(kind: str) -> list[str]:
    return [text for page in PAGES for each, text in fenced_blocks(page) if each == kind]


@pytest.mark.parametrize("case", blocks_of_kind("json"))
def test_a_json_block_is_a_case_that_can_be_planned(
    case: str, tmp_path: Path, rota_command: RotaCommand
) -> None:
    file = tmp_path / "group.json"
    file.write_text(case)
    assert rota_command("plan", file).checked().err == ""


@pytest.mark.parametrize("text", blocks_of_kind("toml"))
def test_a_toml_block_is_valid_and_plays_if_it_is_a_scenario(text: str) -> None:
    if "topics" in tomllib.loads(text):
        played = rota.simulate(text)
        assert (len(played.rebalances), played.failed) == (1, ())


#: The files that a workflow on a page names, and the examples that stand for them.
WORKFLOW = {"deploy/billing.json": "orders.json", "deploy/rollout.toml": "rolling-deploy.toml"}


def workflow_commands(page: Path) -> list[str]:
    """What the workflows of a page run of Rota."""
    text = "".join(text for kind, text in fenced_blocks(page) if kind == "yaml")
    return re.findall(r"^ +(?:- )?run: (rota .*)$", text, re.MULTILINE)


def test_the_workflow_of_the_gate_passes_and_closes(
    tmp_path: Path, rota_command: RotaCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, example in WORKFLOW.items():
        place = tmp_path / name
        place.parent.mkdir(exist_ok=True)
        place.write_text((ROOT / "examples" / example).read_text())
    monkeypatch.chdir(tmp_path)
    found = workflow_commands(ROOT / "docs" / "how-to" / "ci-gate.md")
    passed = [rota_command(*shlex.split(step)[1:]) for step in found]
    assert [each.code for each in passed] == [0, 0, 0]
    tighter = [re.sub(r"--max-(moves|downtime) \d+", r"--max-\1 1", step) for step in found]
    closed = [rota_command(*shlex.split(step)[1:]) for step in tighter]
    assert [each.code for each in closed] == [1, 0, 1]
    printed = "".join(each.err for each in (*passed, *closed)).splitlines()
    assert printed[0] == "rota: 5 partitions move, more than --max-moves 1"


def test_the_demo_of_the_readme_says_that_it_is_one() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^<!-- demo -->\n(.*?)^<!-- /demo -->", text, re.MULTILINE | re.DOTALL)
    assert "DEMO: simulated data, not a real cluster" in shown
    assert "rota-demo" in shown
