"""The command that makes the README's pictures and its demo."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from docs import make_screenshots
from playwright.sync_api import Browser


def test_the_output_stands_between_the_marks() -> None:
    readme = "before\n<!-- demo -->\nold\n<!-- /demo -->\nafter\n"
    assert make_screenshots.with_demo(readme, "new \\1\nlines\n\n") == (
        "before\n<!-- demo -->\n\n```text\nnew \\1\nlines\n```\n\n<!-- /demo -->\nafter\n"
    )


def test_a_readme_without_a_place_for_the_demo_is_refused() -> None:
    with pytest.raises(SystemExit, match=r"^README\.md has 0 places for the demo, not one"):
        make_screenshots.with_demo("nothing\n", "output\n")


def test_both_views_are_pictured(
    browser: Browser,
    make_report: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(make_screenshots, "LIST", tmp_path / "list.png")
    monkeypatch.setattr(make_screenshots, "GROUP", tmp_path / "group.png")
    make_screenshots.pictures(browser, make_report("demo") / "report.html")
    listed, group = (tmp_path / "list.png").read_bytes(), (tmp_path / "group.png").read_bytes()
    assert png_size(listed) == (1440, 900)
    assert png_size(group)[0] == 1440
    assert listed != group


def png_size(picture: bytes) -> tuple[int, int]:
    """Width and height, as a PNG's header has them."""
    assert picture.startswith(b"\x89PNG")
    return int.from_bytes(picture[16:20]), int.from_bytes(picture[20:24])
