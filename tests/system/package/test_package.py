"""What is published: a wheel and an sdist with what belongs in them, and a wheel that works alone.

Installing it asks pip for what Rota depends on, so those tests are skipped where there is no
package index; and ``rota run --demo`` in an empty environment is for the nightly run.
"""

from __future__ import annotations

import email
import os
import sys
import tarfile
import venv
import zipfile
from pathlib import Path, PurePosixPath

import pytest

import rota
from tests.support.missing_tool import Unavailable
from tests.support.paths import ROOT
from tests.support.process import CommandResult, run_command

NAME = f"rota-{rota.__version__}"
INFO = f"{NAME}.dist-info"
#: Of files beside modules that Rota reads while it runs.
DATA = {".json", ".html", ".css", ".js", ".pyi"}
PAGES = {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "NOTICE", "Makefile"}
FOLDERS = {"src", "tests", "bench", "docs", "examples", ".ci", ".github"}
#: What hatchling puts into every sdist.
OWN = {"pyproject.toml", "PKG-INFO", ".gitignore"}
#: Seconds that a build, an installation or a demo may take.
LONG = 1_800
REFUSED = {".venv", "__pycache__", ".java", ".go", ".clients", ".hypothesis", "rota-demo", "dist"}


def build_package(source: Path, out: Path, *kinds: str) -> None:
    """As ``make dist`` does, with the hatchling of this environment."""
    command = (sys.executable, "-m", "build", "--no-isolation", "--outdir", out, *kinds, source)
    run_command(*command, seconds=LONG).checked()


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist of this folder, and the wheel of this folder."""
    out = tmp_path_factory.mktemp("dist")
    build_package(ROOT, out, "--sdist", "--wheel")
    return out


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    return dist / f"{NAME}-py3-none-any.whl"


@pytest.fixture(scope="module")
def sdist(dist: Path) -> Path:
    return dist / f"{NAME}.tar.gz"


def read_wheel(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def source_files(*suffixes: str) -> set[str]:
    found = (path for path in (ROOT / "src").rglob("*") if path.suffix in suffixes)
    return {path.relative_to(ROOT / "src").as_posix() for path in found}


def test_the_dist_has_a_wheel_and_an_sdist(dist: Path, wheel: Path, sdist: Path) -> None:
    assert sorted(dist.iterdir()) == sorted([wheel, sdist])


def test_the_wheel_has_the_package_its_data_and_nothing_else(wheel: Path) -> None:
    found = set(read_wheel(wheel))
    about = {"METADATA", "WHEEL", "RECORD", "entry_points.txt"}
    about |= {"licenses/LICENSE", "licenses/NOTICE"}
    assert found == (
        source_files(".py", *DATA) | {"rota/py.typed"} | {f"{INFO}/{name}" for name in about}
    )


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    metadata = email.message_from_bytes(read_wheel(wheel)[f"{INFO}/METADATA"])
    assert (metadata["Name"], metadata["Version"]) == ("rota", rota.__version__)
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_all("License-File") == ["LICENSE", "NOTICE"]
    assert metadata["Requires-Python"] == ">=3.11"
    needed = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert [line.split("<")[0] for line in needed] == ["numpy", "rich"]


def test_extras_are_those_that_the_readme_tells_of(wheel: Path) -> None:
    metadata = email.message_from_bytes(read_wheel(wheel)[f"{INFO}/METADATA"])
    rows = (ROOT / "README.md").read_text(encoding="utf-8").split("| extra | for |")[1]
    cells = [row.split("|")[1] for row in rows.split("\n\n")[0].splitlines()[2:]]
    named = {name.strip(" `") for cell in cells for name in cell.split(",")} - {"(none)"}
    assert set(metadata.get_all("Provides-Extra", [])) == named | {"dev"}


def test_the_sdist_has_sources_tests_and_pages_and_nothing_else(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        found = [PurePosixPath(name).relative_to(NAME) for name in archive.getnames()]
    assert {path.parts[0] for path in found} == FOLDERS | PAGES | OWN
    assert not [path for path in found if REFUSED & set(path.parts)]
    assert {f"src/{name}" for name in source_files(".py", *DATA)} <= {str(path) for path in found}


def test_the_wheel_of_the_sdist_is_the_same_wheel(sdist: Path, wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    build_package(tmp_path / NAME, tmp_path / "again", "--wheel")
    assert read_wheel(tmp_path / "again" / wheel.name) == read_wheel(wheel)


class EmptyEnvironment:
    """An environment with nothing in it but what the wheel brings."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=True)
        self.folder = folder
        self.bin = folder / ("Scripts" if os.name == "nt" else "bin")

    def install(self, what: str) -> None:
        done = self.run("python", "-m", "pip", "install", "--quiet", what)
        if "ConnectionError" in done.err:
            raise Unavailable(f"pip finds no package index: {done.err.splitlines()[-1]}")
        done.checked()

    def run(self, command: str, *arguments: str) -> CommandResult:
        """Runs it away from the sources, which must not be found."""
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        program = self.bin / command
        return run_command(program, *arguments, env=env, folder=self.folder, seconds=LONG)


@pytest.fixture(scope="module")
def wheel_environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> EmptyEnvironment:
    empty = EmptyEnvironment(tmp_path_factory.mktemp("alone"))
    empty.install(str(wheel))
    return empty


def test_the_wheel_alone_tells_its_version(wheel_environment: EmptyEnvironment) -> None:
    assert wheel_environment.run("rota", "--version").checked().out == f"rota {rota.__version__}\n"


def test_the_wheel_alone_plans(wheel_environment: EmptyEnvironment) -> None:
    case = str(ROOT / "examples" / "orders.json")
    output = (
        wheel_environment.run("rota", "plan", case, "--remove", "billing-2", "--compare")
        .checked()
        .out
    )
    assert (
        "best for this group: cooperative-sticky: loads 7, expected downtime 11.4s, 0 moved\n"
        in output
    )


def test_the_wheel_alone_simulates(wheel_environment: EmptyEnvironment) -> None:
    output = wheel_environment.run(
        "rota", "simulate", str(ROOT / "examples" / "crash.toml"), "--json"
    )
    assert output.checked().out.startswith("{")


def test_the_wheel_alone_says_what_a_command_lacks(wheel_environment: EmptyEnvironment) -> None:
    done = wheel_environment.run("rota", "run", "--demo")
    assert done.code == 3
    assert done.err.count("\n") == 1
    assert "pip install 'rota[spark]'" in done.err


@pytest.mark.nightly
def test_the_wheel_with_spark_runs_the_demo(
    wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    empty = EmptyEnvironment(tmp_path_factory.mktemp("spark"))
    empty.install(f"{wheel}[spark]")
    output = empty.run("rota", "run", "--demo").checked().out
    assert "DEMO" in output
    assert (empty.folder / "rota-demo" / "gold" / "advice").is_dir()
    assert (empty.folder / "rota-demo" / "report.html").is_file()
