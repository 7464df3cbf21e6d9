"""The page's text: that its data is the tables', and that no name can break out of it."""

from __future__ import annotations

import base64
import json
import os
import zlib
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from rota.report import gold, page, story
from rota.report.gold import Gold
from rota.report.story import Story
from tests.support import gold_tables
from tests.support.gold_layout import Run

MADE_AT = 1_794_800_000_000
UNREAD = (
    ("records of a version that is not known", 3, ("partition 7, offset 12: version 99",)),
    ("lines without a time", 1_234, ()),
)
Made = tuple[Story, Gold, str]


class Reader(HTMLParser):
    """What a browser makes of the page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.styles: list[str] = []
        self.text = ""
        self._open = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open = tag
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open == "script":
            attributes, before = self.scripts[-1]
            self.scripts[-1] = (attributes, before + data)
        elif self._open == "style":
            self.styles.append(data)
        else:
            self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def made(folder: Path) -> Made:
    tables = gold.read(str(folder))
    told = story.tell(tables)
    return told, tables, page.page(told, tables, MADE_AT)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("small")
    return made(gold_tables.small(folder, Run(demo=True, unread=UNREAD)))


def unpacked(text: str) -> dict[str, dict[str, Any]]:
    """Each group's data, by the group's name, in the order of the page."""
    blobs = [body for attributes, body in Reader(text).scripts if "id" in attributes]
    data = (json.loads(zlib.decompress(base64.b64decode(blob))) for blob in blobs)
    return {one["group"]["name"]: one for one in data}


def test_tables_without_rows_make_a_page_that_says_so(tmp_path: Path) -> None:
    told, _, text = made(gold_tables.nothing(tmp_path))
    assert told.groups == ()
    assert "No rebalance of any group in this evidence." in Reader(text).text
    assert unpacked(text) == {}


def test_a_link_stays_one_and_who_may_read_is_the_users_to_say(tmp_path: Path, small: Made) -> None:
    told, tables, text = small
    target = tmp_path / "elsewhere.html"
    (tmp_path / "report.html").symlink_to(target)
    before = os.umask(0o077)
    try:
        page.write(told, tables, tmp_path / "report.html")
    finally:
        os.umask(before)
    assert (tmp_path / "report.html").is_symlink()
    assert unpacked(target.read_text("utf-8")) == unpacked(text)
    assert target.stat().st_mode & 0o777 == 0o600
    assert len(list(tmp_path.iterdir())) == 2


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path, small: Made) -> None:
    told, tables, text = small
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as reader:
        read = reader.submit(pipe.read_text, "utf-8")
        page.write(told, tables, pipe)
        assert unpacked(read.result(60)) == unpacked(text)
    assert pipe.is_fifo()
