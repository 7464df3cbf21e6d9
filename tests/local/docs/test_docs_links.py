"""Every link inside the documentation leads somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.support.paths import ROOT

NAMES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
PAGES = [*(ROOT / name for name in NAMES), *sorted((ROOT / "docs").rglob("*.md"))]
FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?<=\n\n)(?: {4}.*\n?|\n)+", re.MULTILINE)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\[[^]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.MULTILINE)


def read_prose(page: Path) -> str:
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def find_links(page: Path) -> list[str]:
    return LINK.findall(CODE.sub("", INDENTED.sub("\n", read_prose(page))))


@cache
def heading_anchors(page: Path) -> frozenset[str]:
    return frozenset(iterate_anchors(page))


def iterate_anchors(page: Path) -> Iterator[str]:
    """As GitHub makes them: lower case, only letters, digits, ``-`` and ``_``, blanks as ``-``."""
    seen: dict[str, int] = {}
    for heading in HEADING.findall(read_prose(page)):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        count = seen[name] = seen.get(name, -1) + 1
        yield name if not count else f"{name}-{count}"


def link_problem(page: Path, link: str) -> str | None:
    """What is wrong with it; None for one that leads out of the repository, or to its goal."""
    if re.match(r"[a-z][a-z0-9+.-]*:", link):
        return None
    place, _, anchor = unquote(link).partition("#")
    goal = page.parent / place if place else page
    if not goal.exists():
        return f"{link}: there is no {place}"
    if anchor and (goal.suffix != ".md" or anchor not in heading_anchors(goal)):
        return f"{link}: {goal.name} has no heading for {anchor!r}"
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_a_page_and_a_heading(page: Path) -> None:
    assert [found for link in find_links(page) if (found := link_problem(page, link))] == []


def test_the_check_sees_what_leads_nowhere(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    (tmp_path / "other.md").write_text("# One `rota.Two`, three?\n\n## Same\n\n## Same\n")
    page.write_text(
        "# Here\n\n[a](other.md#one-rotatwo-three) [b](#here) [c\nd](other.md#same-1)\n"
        "[e](gone.md) [f](other.md#same-2) ![g](gone.png) `[h](code.md)`\n"
        "\n    [i](code.md)\n\n[j](https://example.com)\n"
        "\n```python\n# Not a heading\n[k](code.md)\n```\n\n[l](#not-a-heading)\n"
    )
    assert [link_problem(page, link) for link in find_links(page)] == [
        None,
        None,
        None,
        "gone.md: there is no gone.md",
        "other.md#same-2: other.md has no heading for 'same-2'",
        "gone.png: there is no gone.png",
        None,
        "#not-a-heading: page.md has no heading for 'not-a-heading'",
    ]
