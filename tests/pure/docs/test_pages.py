"""Pages made of declarations are what ``make docs`` writes, whoever runs it and wherever."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from docs import generate_commands, generate_layers, generate_libraries

from rota import __version__
from rota.cli.main import COMMANDS, main
from tests.support.paths import ROOT


def test_the_page_of_commands_is_what_make_docs_writes() -> None:
    assert generate_commands.PAGE.read_text(encoding="utf-8") == generate_commands.page()


@pytest.mark.parametrize("columns", ["20", "300"])
def test_the_page_of_commands_does_not_depend_on_the_terminal(
    columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = generate_commands.page()
    monkeypatch.setenv("COLUMNS", columns)
    assert generate_commands.page() == expected


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_that_help_shows_is_on_the_page(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    helped = capsys.readouterr().out.partition("examples:")[0]
    options = set(re.findall(r"^ +(--[\w-]+)", helped, re.MULTILINE))
    page = generate_commands.page()
    section = page.partition(f"\n## `rota {command}`\n")[2].partition("\n## ")[0]
    assert {name for name in options if f"`{name}" not in section} == set()
    assert section.count("```text") >= 1


def test_an_option_says_its_default_where_its_help_does_not() -> None:
    page = generate_commands.page()
    assert "for each question to the cluster (default 30) |" in page
    assert "%(" not in page


def test_the_exit_codes_name_every_limit() -> None:
    page = generate_commands.page()
    limits = ("--max-moves", "--max-stopped", "--fail-on")
    assert f"| 1 | a limit that you gave is exceeded ({', '.join(limits)}) |" in page
    assert [limit for limit in limits if f"| `{limit} " not in page] == []


@pytest.mark.parametrize("page", generate_layers.PAGES, ids=lambda page: page.name)
def test_the_drawing_of_layers_is_what_make_docs_writes(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert generate_layers.drawn(text) == text


def test_the_drawing_has_every_package_once_and_marks_the_pure_ones() -> None:
    drawing = generate_layers.drawing()
    engine = ROOT / "src" / "rota" / "engine"
    there = {
        f"{prefix}{path.stem}"
        for folder, prefix in ((engine.parent, ""), (engine, "engine."))
        for path in folder.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    nodes = re.findall(r'^ +(\w+)\["rota\.([\w.]+)"\]', drawing, re.MULTILINE)
    private = {"__init__", "__main__", "engine", "engine.__init__"}
    assert sorted(module for _, module in nodes) == sorted(there - private)
    assert all(name == module.replace(".", "_") for name, module in nodes)
    marked = set(re.findall(r'"rota\.([\w.]+)"\]:::pure', drawing))
    pure = "model formats assignors coordinator member history simulator"
    assert marked == {"errors", *(f"engine.{name}" for name in pure.split())}


def test_an_arrow_is_an_import_of_the_sources() -> None:
    counts = generate_layers.imports()
    protocol = counts["rota.broker", "rota.protocol"]
    assert protocol > generate_layers.LABELLED
    assert ("rota.protocol", "rota.broker") not in counts
    drawing = generate_layers.drawing()
    assert f"broker -->|{protocol}| protocol" in drawing
    assert "broker --> engine_coordinator" in drawing


def test_a_page_without_the_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="layers"):
        generate_layers.drawn("# A page\n")


def test_the_architecture_names_every_module_of_the_report() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = text.partition("\n## The report\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]+) \|", section, re.MULTILINE)
    there = {path.stem for path in (ROOT / "src" / "rota" / "report").glob("*.py")}
    assert set(re.findall(r"`(\w+)`", " ".join(rows))) == there - {"__init__"}


def test_the_page_of_migrations_has_the_libraries_that_advice_knows() -> None:
    text = generate_libraries.PAGE.read_text(encoding="utf-8")
    assert generate_libraries.page(text) == text


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = {
        path.relative_to(ROOT / "docs").as_posix()
        for path in (ROOT / "docs").rglob("*.md")
        if path.name != "README.md"
    }
    linked = set(re.findall(r"\]\(([\w/-]+\.md)[#)]", index))
    assert pages - linked == set()


def test_the_changelog_has_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\S+)", text, re.MULTILINE)[0] == __version__
