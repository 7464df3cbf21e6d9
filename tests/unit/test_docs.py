"""What the README and the how-tos show is what happens.

Python blocks run in order in one namespace, and print what the ``output`` block after them says.
In ``console`` blocks every line that starts with ``$ rota`` prints what follows it. Where a page
talks to a broker, its commands run in order, with one of its own at the address it names.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

import rota
from rota.cli.main import main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "how-to").glob("*.md"))]
BROKER = "localhost:9092"
BLOCK = re.compile(r"^```(python|output|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[str, str]]:
    return BLOCK.findall(page.read_text())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_run_and_print_what_is_shown(
    page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    namespace: dict[str, object] = {"__name__": page.stem}
    printed = ""
    for kind, text in blocks(page):
        if kind == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(text, str(page), "exec"), namespace)
            printed = out.getvalue()
        elif kind == "output":
            assert printed == text


def commands(page: Path) -> list[tuple[str, str]]:
    found = []
    for kind, text in blocks(page):
        if kind == "console":
            for part in re.split(r"^\$ (?=rota )", text, flags=re.MULTILINE)[1:]:
                command, _, shown = part.partition("\n")
                found.append((command, shown.strip("\n")))
    return found


OFFLINE = [page for page in PAGES if not any(BROKER in each for each, _ in commands(page))]


@pytest.mark.parametrize(
    ("command", "shown"), [pair for page in OFFLINE for pair in commands(page)]
)
def test_console_blocks_show_what_is_printed(
    command: str, shown: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    main(shlex.split(command)[1:])
    printed = capsys.readouterr().out
    assert [line.rstrip() for line in printed.strip("\n").splitlines()] == shown.splitlines()


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page not in OFFLINE], ids=lambda page: page.name
)
def test_console_blocks_talk_to_a_broker(
    page: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    with rota.Broker() as broker:
        for command, shown in commands(page):
            main(shlex.split(command.replace(BROKER, broker.bootstrap_servers))[1:])
            printed = capsys.readouterr().out.replace(broker.bootstrap_servers, BROKER)
            assert [line.rstrip() for line in printed.splitlines()] == shown.splitlines(), command
