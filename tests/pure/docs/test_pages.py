"""Pages made of declarations are what ``make docs`` writes, whoever runs it and wherever."""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pytest
from docs import generate_commands, generate_layers, generate_libraries, generate_messages

import rota
from rota import __version__
from rota.cli.main import COMMANDS, main
from tests.support.paths import ROOT

SOURCES = ROOT / "src" / "rota"
ARCHITECTURE = ROOT / "docs" / "architecture.md"
PAGES = (
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
)
#: Pages that name modules and files also without their package.
ABOUT_THE_CODE = (ARCHITECTURE, ROOT / "CONTRIBUTING.md", ROOT / "docs" / "kafka-names.md")
CODE_FOLDERS = ("src", "tests", "docs", "bench", "examples")
#: Names with dots that are not modules: files of a broker and of an example, the group of entry
#: points for strategies, and a variable of Python's.
NOT_MODULES = ("rota.catalog", "rota.zip", "rota.assignors", "rota.__file__")
DOTTED = re.compile(r"(?<![\w./:-])rota(?:\.[A-Za-z_]\w*)+")
FILE = re.compile(
    r"(?<![\w./:-])(?:(?:[\w.-]+/)+[\w.-]+\.(?:py|js)\b|(?:src/rota|tests)(?:/[\w-]+)+(?![\w./*-]))"
)
QUOTED_FILE = re.compile(r"`([\w-]+\.(?:py|js))`")
QUOTED_NAME = re.compile(r"`((?!rota\.)[a-z_]+(?:\.[a-z_]+)*\.(?!py`|js`)[A-Za-z_]+)`")


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
    assert "time limit of each request to the cluster (default 30s) |" in page
    assert "%(" not in page


def test_the_exit_codes_name_every_limit() -> None:
    page = generate_commands.page()
    limits = ("--max-moves", "--max-downtime", "--fail-on", "--compare")
    named = f"{', '.join(limits)} of rota report"
    assert f"| 1 | a limit is exceeded ({named}) |" in page
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
    pure = "model formats assignors coordinator member history simulator plan"
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


def test_the_architecture_has_every_package() -> None:
    text = ARCHITECTURE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(rota[.\w]+)` \|", text, re.MULTILINE)
    nodes = re.findall(r'\["(rota\.[\w.]+)"\]', generate_layers.drawing())
    assert sorted(rows) == sorted(set(nodes) - {"rota.engine"})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_module_and_file_on_a_page_exists(page: Path) -> None:
    assert stale_paths(page.read_text(encoding="utf-8"), page) == []


@pytest.mark.parametrize(
    "wrong",
    [
        "rota.group",
        "rota.engine.coordinator.join",
        "rota.engine.coordinator.state.MOVES",
        "rota.engine.coordinator.state.ClassicGroup.nothing",
        "rota.Nothing",
        "src/rota/assignors",
        "src/rota/report/basis.py",
        "broker/hand.py",
        "report/page/nothing.js",
        "tests/pure/nothing/test_pages.py",
        "basis.py",
        "group.state.MOVES",
        "coordinator.state.MOVES",
        "coordinator.lane",
    ],
)
def test_a_module_or_file_that_does_not_exist_is_found(wrong: str) -> None:
    assert stale_paths(f"See `{wrong}`, and the rest.", ARCHITECTURE) == [wrong]


@pytest.mark.parametrize(
    "right",
    [
        "rota.engine.coordinator",
        "rota.engine.coordinator.state.ClassicGroup",
        "rota.assign",
        "rota.errors.RotaError",
        "src/rota/broker",
        "src/rota/broker/groups.py",
        "broker/groups.py",
        "report/page/group.js",
        "tests/pure/docs/test_pages.py",
        "groups.py",
        "coordinator.state.ClassicGroup",
        "session.timeout.ms",
        "https://example.com/rota/other.py",
    ],
)
def test_a_module_or_file_that_exists_is_not_reported(right: str) -> None:
    assert stale_paths(f"See `{right}`, and the rest.", ARCHITECTURE) == []


#: Names that articles and Kafka's sources use.
KAFKA_NAMES = """
ConsumerPartitionAssignor AbstractPartitionAssignor MemberInfo consumersPerTopic
allPartitionsSorted CircularIterator assignRanges AbstractStickyAssignor
ConstrainedAssignmentBuilder GeneralAssignmentBuilder prepopulateCurrentAssignments
sortPartitions isBalanced balance performReassignments reassignPartition
processPartitionMovement canParticipateInReassignment getBalanceScore areSubscriptionsIdentical
allSubscriptionsEqual SubscriptionComparator TopicComparator PartitionComparator
PartitionMovements ConsumerPair getTheActualPartitionToBeMoved adjustAssignment
subscriptionUserData onAssignment AbstractCoordinator ConsumerCoordinator sendJoinGroupRequest
JoinGroupResponseHandler onLeaderElected performAssignment onJoinPrepare onJoinComplete
rejoinNeededOrPending HeartbeatThread handlePollTimeoutExpiry commitOffsetsSync
commitOffsetsAsync doCommitOffsetsAsync sendOffsetCommitRequest OffsetCommitResponseHandler
defaultOffsetCommitCallback completedOffsetCommits invokeCompletedOffsetCommitCallbacks
maybeAutoCommitOffsetsAsync GroupCoordinatorService GroupMetadataManager classicGroupJoin
classicGroupSync classicGroupHeartbeat classicGroupLeave ClassicGroup ClassicGroupState
selectProtocol DelayedJoin OffsetMetadataManager SubscriptionState Fetcher NetworkClient
"""


def test_the_page_of_kafkas_names_has_the_names_that_people_look_for() -> None:
    text = (ROOT / "docs" / "kafka-names.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"\w+", " ".join(re.findall(r"^\| ([^|]+)", text, re.MULTILINE))))
    assert [name for name in KAFKA_NAMES.split() if name not in listed] == []


def test_the_walks_name_what_their_files_define() -> None:
    text = ARCHITECTURE.read_text(encoding="utf-8")
    walks = text.partition("\n## Five walks\n")[2].partition("\n## ")[0]
    assert walks.count("\n### ") == 5
    unknown = []
    steps = re.compile(r"^\d+\. `([\w/.]+\.py)` \(((?:`\w+`(?:, )?)+)\)", re.MULTILINE)
    for path, listed in steps.findall(walks):
        defined = defined_names(SOURCES / path)
        unknown += [(path, name) for name in re.findall(r"\w+", listed) if name not in defined]
    assert unknown == []


def test_the_table_of_walks_has_the_number_of_files_of_each() -> None:
    text = ARCHITECTURE.read_text(encoding="utf-8")
    table, *walks = text.partition("\n## Five walks\n")[2].partition("\n## ")[0].split("\n### ")
    counts = re.findall(r"\| \d+ \| \d+ \| (\d+)[^|]*\|$", table, re.MULTILINE)
    steps = [len(re.findall(r"^\d+\. `", walk, re.MULTILINE)) for walk in walks]
    assert [int(count) for count in counts] == steps


def stale_paths(text: str, page: Path) -> list[str]:
    """Returns the modules, names and files on a page that do not exist, in their order.

    Anywhere: ``rota.a.b.Name``, and paths of Python and JavaScript files and of folders of the
    repository. On the pages about the code also, between backticks: ``name.py`` and ``a.b.Name``.
    """
    found = [
        (match.start(), match[0])
        for match in DOTTED.finditer(text)
        if match[0] not in NOT_MODULES and not is_defined(match[0])
    ]
    bases = (ROOT, SOURCES, page.parent)
    found += [
        (match.start(), match[0])
        for match in FILE.finditer(text)
        if not any((base / match[0]).exists() for base in bases)
    ]
    if page in ABOUT_THE_CODE:
        for match in QUOTED_FILE.finditer(text):
            if not any(next(ROOT.joinpath(top).rglob(match[1]), None) for top in CODE_FOLDERS):
                found.append((match.start(1), match[1]))
        for match in QUOTED_NAME.finditer(text):
            packages = ("rota", "rota.engine")
            if is_about_modules(match[1]) and not any(
                is_defined(f"{package}.{match[1]}") for package in packages
            ):
                found.append((match.start(1), match[1]))
    return [path for _, path in sorted(found)]


def is_about_modules(name: str) -> bool:
    """Returns whether a dotted name is a module of Rota or a name in one, not a Kafka setting."""
    first, *_, last = name.split(".")
    packages = {path.parent.name for path in SOURCES.rglob("__init__.py")}
    return last[0].isupper() or (first in packages and name.count(".") == 1)


def is_defined(name: str) -> bool:
    """Returns whether ``rota.a.b`` is a module, a name in one, or a name in a class there."""
    parts = name.split(".")[1:]
    place = SOURCES
    while parts and ((place / parts[0]).is_dir() or (place / f"{parts[0]}.py").exists()):
        place /= parts.pop(0)
    if not parts:
        return True
    module = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    if module == SOURCES / "__init__.py":
        return parts[0] in (*rota.__all__, "__version__")
    defined = defined_names(module)
    return all(part in defined for part in parts)


@cache
def defined_names(module: Path) -> frozenset[str]:
    """Returns every name that a module defines or imports, at any depth."""
    found = set()
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                found.add(node.name)
            case ast.Name(ctx=ast.Store()):
                found.add(node.id)
            case ast.alias():
                found.add(node.asname or node.name)
    return frozenset(found)


def test_the_page_of_migrations_has_the_libraries_that_advice_knows() -> None:
    text = generate_libraries.PAGE.read_text(encoding="utf-8")
    assert generate_libraries.page(text) == text


def test_the_types_of_messages_are_what_make_docs_writes() -> None:
    written = generate_messages.STUB.read_text(encoding="utf-8")
    installed = f"kafka-python {version('kafka-python')}."
    if installed not in written.partition("\n")[0]:
        pytest.skip(f"{generate_messages.STUB.name} was made with another {installed}")
    assert generate_messages.stub() == written, "run `make docs`"


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
