"""Fetches Kafka's jars from Maven Central, compiles the programs of this folder, runs them.

Everything lands in ``.java/`` at the root of the checkout and is made once. Where Java, its
compiler or Maven is missing, or the jars cannot be fetched, these functions raise
:class:`~tests.support.missing_tool.Unavailable`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.support.missing_tool import Unavailable, cache_outcome
from tests.support.paths import ROOT
from tests.support.process import run_command

HERE = Path(__file__).parent
CACHE = ROOT / ".java"
LIBS = CACHE / "libs"
CLASSES = CACHE / "classes"
CONNECT_LIBS, CONNECT_CLASSES = CACHE / "connect", CACHE / "connect-classes"
OLDEST_JAVA = 17
#: Seconds to fetch or build a tool; the largest has several hundred megabytes.
FETCH_TIMEOUT = 1_200
#: Flags for programs that run for seconds: Java's first compiler alone.
QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@cache_outcome
def install_java_programs() -> None:
    """Jars and compiled classes, made where they are missing or older than their sources."""
    require_commands("java", "javac", "mvn")
    fetch_jars(HERE / "pom.xml", LIBS)
    compile_java(HERE, LIBS, CLASSES)


def require_commands(*commands: str) -> None:
    """Say so where Java, its compiler or Maven is not there, or too old."""
    for name in commands:
        if shutil.which(name) is None:
            raise Unavailable(f"no {name} on the path")
    for name in {"java", "javac"}.intersection(commands):
        done = run_command(name, "-version")
        printed = (done.out + done.err).strip()
        version = re.search(r"(\d+)", printed)
        if version is None or int(version[1]) < OLDEST_JAVA:
            raise Unavailable(f"{name} {OLDEST_JAVA} or newer is needed, found {printed}")


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Nobody else makes this folder meanwhile: tests run in several processes at once."""
    folder.parent.mkdir(exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def fetch_jars(pom: Path, libs: Path) -> None:
    """The jars that a pom names, with all they need, unless they are there already."""
    with lock_folder(libs):
        _fetch_jars_with_maven(pom, libs)


def _fetch_jars_with_maven(pom: Path, libs: Path) -> None:
    stamp = libs / "pom.xml"
    if stamp.exists() and stamp.read_bytes() == pom.read_bytes():
        return
    shutil.rmtree(libs, ignore_errors=True)
    command = [
        *("mvn", "-B", "-q", "-f", str(pom), "dependency:copy-dependencies"),
        *(f"-DoutputDirectory={libs}", "-DincludeScope=runtime"),
    ]
    with lock_folder(CACHE / "maven"):  # one at a time: Maven's own cache bears no second process
        run_fetch_command(*command, what=f"the jars of {pom.name}")
    shutil.copy(pom, stamp)


def run_fetch_command(
    *command: object, what: str, env: Mapping[str, str] | None = None, folder: Path | None = None
) -> None:
    """Run a command that fetches or builds a tool.

    :param what: the tool, for the reason
    :raises Unavailable: the command fails, or takes too long
    """
    try:
        done = run_command(*command, env=env, folder=folder, seconds=FETCH_TIMEOUT)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{what}: {command[0]} did not end within {FETCH_TIMEOUT} s") from None
    if done.code != 0:
        told = (done.err or done.out).strip()[-500:]
        raise Unavailable(f"{what}: {command[0]} failed: {told}")


def compile_java(folder: Path, libs: Path, classes: Path) -> None:
    """The programs of a folder, compiled where their classes are missing or older."""
    sources = sorted(folder.glob("*.java"))
    newest = max(source.stat().st_mtime for source in sources)
    stamp = classes / ".compiled"
    with lock_folder(classes):
        if stamp.exists() and stamp.stat().st_mtime > newest:
            return
        shutil.rmtree(classes, ignore_errors=True)
        classes.mkdir(parents=True)
        command = ["javac", "-nowarn", "-d", str(classes), "-cp", f"{libs}/*", *map(str, sources)]
        run_command(*command, seconds=FETCH_TIMEOUT).checked()
        stamp.touch()


def java_command(
    main: str, *args: str, heap: str = "1g", flags: Sequence[str] = ("-XX:+UseSerialGC",)
) -> list[str]:
    """The command line that runs a program of this folder."""
    install_java_programs()
    path = os.pathsep.join([str(CLASSES), f"{LIBS}/*"])
    return ["java", f"-Xmx{heap}", *flags, "-cp", path, main, *args]


@cache_outcome
def install_connect_programs() -> None:
    """The same for the programs that use Kafka Connect's classes."""
    require_commands("java", "javac", "mvn")
    fetch_jars(HERE / "connect-pom.xml", CONNECT_LIBS)
    compile_java(HERE / "connect", CONNECT_LIBS, CONNECT_CLASSES)


def connect_command(main: str) -> list[str]:
    """The command line that runs a program of the folder ``connect``."""
    install_connect_programs()
    path = os.pathsep.join([str(CONNECT_CLASSES), f"{CONNECT_LIBS}/*"])
    return ["java", *QUICK, "-cp", path, main]
