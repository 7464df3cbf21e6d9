"""What the page runs and looks like: its files, in one inline script and one inline style.

The charts are drawn on canvas by hand. A band for each partition and owner, lines for rebalances
on two charts over one time axis, ten thousand rows merged to the pixel: libraries for charts have
none of these, and would be vendored for their axes alone, which are the smallest part.

The script is put together of files that each do one thing, in the order in which they use each
other, inside one function, so that the page works from ``file://`` and nothing is built.
"""

from __future__ import annotations

import base64
import hashlib
from importlib import resources

FILES = (
    "words.js",
    "dom.js",
    "pack.js",
    "list.js",
    "view.js",
    "plot.js",
    "bands.js",
    "course.js",
    "control.js",
    "charts.js",
    "group.js",
    "main.js",
)


def script() -> str:
    """The text of the page's only script."""
    return "(function () {\n'use strict';\n" + "\n".join(map(_read, FILES)) + "\n})();\n"


def style() -> str:
    """The text of the page's only style."""
    return _read("page.css")


def source(text: str) -> str:
    """How a content security policy names an inline text."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _read(name: str) -> str:
    return resources.files("rota.report").joinpath("page", name).read_text("utf-8")
