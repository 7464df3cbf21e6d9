"""Finds a Chromium, or fetches Debian's into ``.clients/chromium`` without installing anything.

One that is named by ``ROTA_CHROMIUM`` comes first, then one on the path, then playwright's own. On
Debian and its kin apt can fetch the package and what it needs into a folder, without being root.
Where all of that fails, :class:`~tests.support.missing_tool.Unavailable` says how to get one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from tests.support.missing_tool import Unavailable, cache_outcome
from tests.support.paths import ROOT
from tests.support.process import run_command

FETCHED = ROOT / ".clients" / "chromium"
NAMED = "ROTA_CHROMIUM"
#: Chromium without windows: it takes half of the processor time. Older systems have no package.
SHELL = "chromium-headless-shell"
PACKAGES = ((SHELL, "chromium-common"), ("chromium", "chromium-common"))
NAMES = (SHELL, "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FETCH_TIMEOUT = 900
ADVICE = (
    "install one with `apt-get install chromium` or `playwright install chromium`, or name one: "
    f"{NAMED}=/path/to/chromium"
)
FLAGS = (
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>{folder}/usr/share/fonts</dir>
  <dir>/usr/share/fonts</dir>
  <cachedir>{folder}/font-cache</cachedir>
</fontconfig>
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chromium:
    """A Chromium that can be started."""

    program: Path
    #: Environment variables that it needs in addition.
    environment: Mapping[str, str] = field(default_factory=dict)

    @contextmanager
    def started(self) -> Iterator[Browser]:
        """It runs, without a window, until the block ends."""
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=self.program,
                args=[*FLAGS, *(["--no-sandbox"] if os.geteuid() == 0 else [])],
                env={**os.environ, **self.environment},
            )
            try:
                yield browser
            finally:
                browser.close()


@cache_outcome
def find_or_fetch_chromium() -> Chromium:
    """The one of this machine, or a fetched one.

    :raises Unavailable: there is none, and none can be fetched
    """
    return find_installed_chromium() or fetch_chromium(FETCHED)


def find_fetched_chromium() -> Chromium:
    """The one of this machine, or one that was fetched before; fetches nothing.

    :raises Unavailable: there is none
    """
    found = find_installed_chromium()
    if found is None and not FETCHED.exists():
        raise Unavailable(f"no Chromium here: {ADVICE}")
    return found or fetch_chromium(FETCHED)


def find_installed_chromium(path: str | None = None) -> Chromium | None:
    """One that is there already.

    :param path: where to look for commands, in place of ``PATH``
    :raises Unavailable: ``ROTA_CHROMIUM`` names none
    """
    named = os.environ.get(NAMED)
    if named:
        if shutil.which(named) is None:
            raise Unavailable(f"{NAMED}={named} is no program: {ADVICE}")
        return Chromium(program=Path(named))
    commands = (shutil.which(name, path=path) for name in NAMES)
    command = next((Path(each) for each in commands if each is not None), None)
    if command is not None:
        return Chromium(program=command)
    with sync_playwright() as playwright:
        own = Path(playwright.chromium.executable_path)
    return Chromium(program=own) if own.exists() else None


def fetch_chromium(folder: Path) -> Chromium:
    """Debian's package with all it needs that this machine has not, unpacked into a folder.

    :raises Unavailable: there is no apt, or it fails
    """
    if not folder.exists():
        for command in ("apt-get", "dpkg-deb"):
            if shutil.which(command) is None:
                raise Unavailable(f"no Chromium here, and no {command} to fetch one: {ADVICE}")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="chromium-") as work:
            _unpack(_download(Path(work)), Path(work) / "chromium")
            (Path(work) / "chromium").rename(folder)
    programs = (folder / "usr" / "lib" / "chromium" / name for name in (SHELL, "chromium"))
    program = next((each for each in programs if each.exists()), None)
    if program is None:
        raise Unavailable(f"{folder}: what apt fetched has no Chromium in it: {ADVICE}")
    fonts = folder / "fonts.conf"
    fonts.write_text(FONTS.format(folder=folder))
    libraries = [*_libraries(folder), os.environ.get("LD_LIBRARY_PATH", "")]
    return Chromium(
        program=program,
        environment={
            "LD_LIBRARY_PATH": os.pathsep.join(filter(None, libraries)),
            "FONTCONFIG_FILE": str(fonts),
        },
    )


def _download(work: Path) -> list[Path]:
    """The packages. Apt keeps its lists and files below ``work``: the machine's own stay."""
    lists, files = work / "lists", work / "files"
    for each in (lists, files):
        (each / "partial").mkdir(parents=True)
    options = [
        f"Dir::State::lists={lists}",
        f"Dir::Cache::archives={files}",
        f"Dir::Cache::pkgcache={work / 'pkgcache.bin'}",
        f"Dir::Cache::srcpkgcache={work / 'srcpkgcache.bin'}",
        "Debug::NoLocking=true",
    ]
    if os.geteuid() == 0:
        options.append("APT::Sandbox::User=root")
    apt = ["apt-get", "--quiet=2", *(f"--option={option}" for option in options)]
    _run([*apt, "update"])
    install = ("install", "--yes", "--download-only", "--reinstall", "--no-install-recommends")
    try:
        _run([*apt, *install, *PACKAGES[0]])
    except Unavailable:
        _run([*apt, *install, *PACKAGES[1]])
    return sorted(files.glob("*.deb"))


def _unpack(packages: Sequence[Path], folder: Path) -> None:
    for package in packages:
        _run(["dpkg-deb", "--extract", str(package), str(folder)])


def _run(command: Sequence[str]) -> None:
    """Runs a command to its end."""
    try:
        done = run_command(*command, seconds=FETCH_TIMEOUT)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{command[0]} was not done in {FETCH_TIMEOUT} s: {ADVICE}") from None
    if done.code != 0:
        said = (done.err or done.out).strip()[-300:]
        raise Unavailable(f"no Chromium here, and {command[0]} cannot fetch one ({said}): {ADVICE}")


def _libraries(folder: Path) -> list[str]:
    """The folders of shared libraries."""
    tops = (each for top in ("lib", "usr/lib") for each in (folder / top).glob("*-linux-gnu*"))
    found = (each for top in tops for each in (top, top / "nss", top / "pulseaudio"))
    return [str(each) for each in found if each.is_dir()]
