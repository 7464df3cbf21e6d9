"""Every ``rota`` command line on any page is one that the real parsers take.

Those in ``console`` and ``yaml`` blocks also run (``test_docs.py``). The others are only parsed:
``PARSED`` says which those are, and why they do not run here.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from docs import generate_commands

from rota.cli.main import COMMANDS, parser

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
PARSED = {
    r"^rota run --demo": "a minute of Spark; tests/spark and tests/package run it",
    r"^rota run .*--bootstrap-servers ": "a cluster of one's own, and Spark; tests/spark has both",
    r"^rota run .*--segments ": "copied folders, and Spark; tests/spark has both",
    r"^rota report": "tables of a run; tests/unit/test_report_cli.py has some",
    r"^rota broker": "it runs until it is stopped; tests/unit/test_broker_cli.py does both",
    r"^rota groups |--bootstrap-servers kafka:9092": "a cluster with groups; tests/unit, tests/kafka",
    r"^rota (consume|produce) ": "two clusters, or standard input; tests/unit has both",
    r"--strategy mine:": "a module of the reader's; tests/unit/test_cli_plan.py has one",
    r"^rota plan group\.json ": "a file of the reader's; tests/unit/test_cli_plan.py has such",
    r"^rota simulate examples/": "`--help`'s own examples; docs/how-to/simulate.md runs the same",
    r"^rota plan --partitions ": "`--help`'s own examples; docs/how-to/plan.md runs the same",
}
"""What is only parsed: a pattern of the command line, and the reason."""
KINDS = {"", "console", "sh", "text", "yaml", "output", "python", "json", "toml", "sql", "mermaid"}
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:(?<=\n\n)|\A)(?: {4}.*\n|\n)+", re.MULTILINE)
INLINE = re.compile(r"(?<!`)`(rota [^`]+)`(?!`)")
ENDS = {"|", "||", "&&", ";", "&", "<", ">", ">>"}


@dataclass(frozen=True)
class Line:
    """A command line on a page."""

    page: str
    words: tuple[str, ...]
    runs: bool

    def __str__(self) -> str:
        return " ".join(self.words)


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """What stands in fences, with its kind, and what is indented."""
    text = page.read_text(encoding="utf-8")
    yield from FENCE.findall(text)
    for block in INDENTED.findall(FENCE.sub("", text)):
        yield "", block


def words_of(line: str) -> Iterator[tuple[str, ...]]:
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


def lines(page: Path) -> Iterator[Line]:
    name = str(page.relative_to(ROOT))
    for kind, text in blocks(page):
        if kind.split(" ")[0] not in {"", "console", "sh", "text", "yaml"}:
            continue
        for line in text.replace("\\\n", " ").splitlines():
            bare = re.sub(r"^\s*(\$ |- )?(run: )?", "", line)
            if not re.match(r"(\S+/)?rota ", bare) or re.match(r"rota: ", bare):
                continue
            for words in words_of(bare):
                if words and words[0].rpartition("/")[2] == "rota":
                    runs = kind == "yaml" or (kind == "console" and line.startswith("$ "))
                    given = tuple(word for word in words[1:] if word != "...")
                    yield Line(name, ("rota", *given), runs)


LINES = [line for page in PAGES for line in lines(page)]


def test_there_are_command_lines_on_the_pages() -> None:
    assert len(LINES) > 100
    assert {line.words[1] for line in LINES} >= set(COMMANDS)


@pytest.mark.parametrize("line", dict.fromkeys(LINES), ids=str)
def test_a_command_line_parses(line: Line, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        parser(line.words[1]).parse_args(line.words[1:])
    except SystemExit as ended:
        if ended.code:
            pytest.fail(f"{line.page}: {capsys.readouterr().err}")


@pytest.mark.parametrize("line", [line for line in LINES if not line.runs], ids=str)
def test_what_does_not_run_is_on_the_list_with_its_reason(line: Line) -> None:
    assert [reason for pattern, reason in PARSED.items() if re.search(pattern, str(line))]


@pytest.mark.parametrize("pattern", PARSED)
def test_the_list_has_nothing_that_is_not_there(pattern: str) -> None:
    assert [line for line in LINES if not line.runs and re.search(pattern, str(line))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_options_named_in_the_text_are_there(page: Path) -> None:
    options = _options()
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for span in INLINE.findall(text):
        words = span.split()
        command = " ".join(words[1:3]) if " ".join(words[1:3]) in options else words[1]
        assert command in {*options, "COMMAND", "--help", "--version"}, span
        asked = set(re.findall(r"(?<= )--?[a-z][\w-]*", span))
        assert asked <= options.get(command, set()) | {"--help", "--version"}, span


def _options() -> dict[str, set[str]]:
    found = {}
    for name, command in generate_commands._commands(parser()).items():
        found[name] = _named(command)
        for inner, one in generate_commands._commands(command).items():
            found[f"{name} {inner}"] = _named(one)
    return found


def _named(command: argparse.ArgumentParser) -> set[str]:
    return {name for action in command._actions for name in action.option_strings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_is_of_a_kind_that_a_test_knows(page: Path) -> None:
    assert {kind.split(" ")[0] for kind, _ in FENCE.findall(page.read_text())} <= KINDS


def test_an_option_that_is_not_there_is_found(tmp_path: Path) -> None:
    line = "rota plan group.json --ad 1 | jq .moved && rota groups list --sate Stable"
    found = list(words_of(line))
    assert found[0][:2] == ("rota", "plan")
    assert found[2] == ("rota", "groups", "list", "--sate", "Stable")
    with pytest.raises(SystemExit, match="2"):
        parser("groups").parse_args(found[2][1:])
