"""Every ``rota`` command line on any page is one that the real parsers take.

Those in ``console`` and ``yaml`` blocks also run (``test_docs.py``); plans and simulations without
a cluster, and reports, run here. The others are only parsed: ``PARSED`` says which, and why.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from docs import generate_commands

from rota.cli.main import COMMANDS, build_parser, main
from tests.support import gold_tables
from tests.support.gold_history import History
from tests.support.gold_layout import MORNING
from tests.support.paths import ROOT

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
#: What is only parsed: a pattern of the command line, and the reason.
PARSED = {
    r"^rota run --demo": "a minute of Spark; tests/system/spark and tests/system/package run it",
    r"^rota run .*--bootstrap-servers ": "a cluster, and Spark; tests/system/spark has both",
    r"^rota run .*--segments ": "copied folders, and Spark; tests/system/spark has both",
    r"^rota report .*--open": "a browser of the reader's; tests/system/browser has one",
    r"^rota broker": "it runs until it is stopped; see tests/system/process/test_broker_cli.py",
    r"^rota groups ": "a cluster with groups; docs/how-to/groups.md runs them with a broker",
    r"^rota plan .*--group ": "a cluster with a group that runs; tests/local/cli/test_live_plan.py",
    r"^rota (consume|produce) ": "two clusters, or standard input; tests/local/cli has both",
}
KINDS = {"", "console", "sh", "text", "yaml", "output", "python", "json", "toml", "sql", "mermaid"}
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:(?<=\n\n)|\A)(?: {4}.*\n|\n)+", re.MULTILINE)
INLINE = re.compile(r"(?<!`)`(rota [^`]+)`(?!`)")
ENDS = {"|", "||", "&&", ";", "&", "<", ">", ">>"}


@dataclass(frozen=True)
class CommandLine:
    """A command line on a page."""

    page: str
    words: tuple[str, ...]
    #: What it prints is on the page, too.
    shown: bool

    def __str__(self) -> str:
        return " ".join(self.words)

    @property
    def is_runnable(self) -> bool:
        """No cluster, no browser, no minutes."""
        match self.words[1]:
            case "plan" | "simulate":
                return "--group" not in self.words
            case "report":
                return "--open" not in self.words
            case "why":
                return True
        return False


def code_blocks(page: Path) -> Iterator[tuple[str, str]]:
    """What stands in fences, with its kind, and what is indented."""
    text = page.read_text(encoding="utf-8")
    yield from FENCE.findall(text)
    for block in INDENTED.findall(FENCE.sub("", text)):
        yield "", block


def split_commands(line: str) -> Iterator[tuple[str, ...]]:
    """The commands of a shell's line, each without what belongs to the shell."""
    reader = shlex.shlex(line, posix=True, punctuation_chars=True)
    reader.wordchars += ",:=@%+{}[]^"
    command: list[str] = []
    for word in [*reader, ";"]:
        if word in ENDS:
            yield tuple(command)
            command = []
        else:
            command.append(word)


def command_lines(page: Path) -> Iterator[CommandLine]:
    name = str(page.relative_to(ROOT))
    for kind, text in code_blocks(page):
        if kind.split(" ")[0] not in {"", "console", "sh", "text", "yaml"}:
            continue
        for line in text.replace("\\\n", " ").splitlines():
            bare = re.sub(r"^\s*(\$ |- )?(run: )?", "", line)
            if not re.match(r"(\S+/)?rota ", bare) or re.match(r"rota: ", bare):
                continue
            for words in split_commands(bare):
                if words and words[0].rpartition("/")[2] == "rota":
                    shown = kind == "yaml" or (kind == "console" and line.startswith("$ "))
                    given = tuple(word for word in words[1:] if word != "...")
                    yield CommandLine(name, ("rota", *given), shown)


LINES = [line for page in PAGES for line in command_lines(page)]
#: Each command line once, though several pages have it.
RUN = list({line.words: line for line in LINES if line.is_runnable and not line.shown}.values())
ONLY_PARSED = [line for line in LINES if not line.shown and not line.is_runnable]


def test_there_are_command_lines_on_the_pages() -> None:
    assert len(LINES) > 100
    assert {line.words[1] for line in LINES} >= set(COMMANDS)


@pytest.mark.parametrize("line", dict.fromkeys(LINES), ids=str)
def test_a_command_line_parses(line: CommandLine, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        build_parser(line.words[1]).parse_args(line.words[1:])
    except SystemExit as ended:
        if ended.code:
            pytest.fail(f"{line.page}: {capsys.readouterr().err}")


@pytest.fixture
def reader_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A reader's folder: the examples, a group of three in ``group.json``, ``mine.py`` with the
    strategy of docs/how-to/custom-strategy.md, and the tables of some runs.
    """
    members = [{"id": f"C{number}", "topics": ["orders"]} for number in range(3)]
    group = {"partitions": {"orders": 12}, "members": members}
    (tmp_path / "group.json").write_text(json.dumps(group))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    page = ROOT / "docs" / "how-to" / "custom-strategy.md"
    strategy = next(text for kind, text in code_blocks(page) if kind == "python")
    (tmp_path / "mine.py").write_text(f"{strategy}\n\nMyAssignor = Random\n")
    for out in ("rota-out", "rota-demo", "incident", "before", "after"):
        histories = [
            History(group=name, topics={"orders": 4})
            for name in ("billing", "billing-eu", "search-indexer")
        ]
        for history in histories:
            history.join(["app-1", "app-2"], MORNING)
        gold_tables.build_tables(histories).write(tmp_path / out)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    return tmp_path


@pytest.mark.parametrize("line", RUN, ids=str)
def test_what_needs_no_cluster_runs(
    line: CommandLine, reader_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(line.words[1:]) == 0, capfd.readouterr().err
    assert capfd.readouterr().out


@pytest.mark.parametrize("line", ONLY_PARSED, ids=str)
def test_what_does_not_run_is_on_the_list_with_its_reason(line: CommandLine) -> None:
    assert [reason for pattern, reason in PARSED.items() if re.search(pattern, str(line))]


@pytest.mark.parametrize("pattern", PARSED)
def test_the_list_has_nothing_that_is_not_there(pattern: str) -> None:
    assert [line for line in ONLY_PARSED if re.search(pattern, str(line))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_options_named_in_the_text_are_there(page: Path) -> None:
    options = parser_options()
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for span in INLINE.findall(text):
        words = span.split()
        command = " ".join(words[1:3]) if " ".join(words[1:3]) in options else words[1]
        assert command in {*options, "COMMAND", "--help", "--version"}, span
        asked = set(re.findall(r"(?<= )--?[a-z][\w-]*", span))
        assert asked <= options.get(command, set()) | {"--help", "--version"}, span


def parser_options() -> dict[str, set[str]]:
    found = {}
    for name, command in generate_commands._commands(build_parser()).items():
        found[name] = option_names(command)
        for inner, one in generate_commands._commands(command).items():
            found[f"{name} {inner}"] = option_names(one)
    return found


def option_names(command: argparse.ArgumentParser) -> set[str]:
    return {name for action in command._actions for name in action.option_strings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_is_of_a_kind_that_a_test_knows(page: Path) -> None:
    assert {kind.split(" ")[0] for kind, _ in FENCE.findall(page.read_text())} <= KINDS


def test_an_option_that_is_not_there_is_found() -> None:
    line = "rota plan group.json --ad 1 | jq .moved && rota groups list --sate Stable"
    found = list(split_commands(line))
    assert found[0][:2] == ("rota", "plan")
    assert found[2] == ("rota", "groups", "list", "--sate", "Stable")
    with pytest.raises(SystemExit, match="2"):
        build_parser("groups").parse_args(found[2][1:])
