"""A Chromium is found or fetched, or it is said how to get one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import chromium
from tests.support.chromium import Chromium
from tests.support.missing_tool import Unavailable


def test_the_one_that_is_named_comes_before_one_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = write_program(tmp_path / "mine")
    write_program(tmp_path / "chromium")
    monkeypatch.setenv(chromium.NAMED, str(named))
    assert chromium.find_installed_chromium(str(tmp_path)) == Chromium(program=named)
    monkeypatch.delenv(chromium.NAMED)
    assert chromium.find_installed_chromium(str(tmp_path)) == Chromium(
        program=tmp_path / "chromium"
    )


def test_a_name_that_is_no_program_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(chromium.NAMED, "no-such-browser")
    with pytest.raises(Unavailable, match=r"^ROTA_CHROMIUM=no-such-browser is no program: install"):
        chromium.find_installed_chromium()


def test_where_there_is_no_apt_it_is_said_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable) as error:
        chromium.fetch_chromium(tmp_path / "fetched")
    assert str(error.value) == (
        "no Chromium here, and no apt-get to fetch one: install one with `apt-get install "
        "chromium` or `playwright install chromium`, or name one: ROTA_CHROMIUM=/path/to/chromium"
    )


@pytest.mark.nightly
def test_a_fetched_one_starts_and_renders(tmp_path: Path) -> None:
    if not Path("/etc/debian_version").exists():
        pytest.skip("apt has a Chromium on Debian alone")
    with chromium.fetch_chromium(tmp_path / "fetched").started() as browser:
        page = browser.new_page()
        page.set_content("<h1>rendered</h1>")
        assert page.inner_text("h1") == "rendered"
        assert page.locator("h1").bounding_box() is not None


def write_program(path: Path) -> Path:
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path
