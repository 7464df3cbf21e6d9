"""Draws the layers as import-linter's contract in pyproject.toml has them: ``make docs``."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from docs.marked import replaced

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "docs" / "architecture.md", ROOT / "CONTRIBUTING.md")
"""Where the drawing stands, between the two marks."""


def drawing() -> str:
    """A diagram for Mermaid: a box for each layer, an arrow to the one below, the core shaded."""
    return "\n".join(["```mermaid", *_lines(), "```"])


def drawn(text: str) -> str:
    """A page with the drawing of today between its marks."""
    return replaced(text, "layers", drawing())


def _lines() -> Iterator[str]:
    layers, core = _contracts()
    yield "flowchart TB"
    boxes = []
    for number, modules in enumerate(layers):
        nodes = [_node(module, core) for module in modules]
        if len(modules) == 1:
            yield f"    {nodes[0]}"
            boxes.append(_name(modules[0]))
            continue
        yield f'    subgraph layer{number}[" "]'
        yield from (f"        {node}" for node in ["direction LR", *nodes])
        yield "    end"
        boxes.append(f"layer{number}")
    yield from (f"    {above} --> {below}" for above, below in pairwise(boxes))
    yield "    classDef core stroke-width:3px"


def _node(module: str, core: frozenset[str]) -> str:
    return f'{_name(module)}["{module}"]{":::core" if module in core else ""}'


def _name(module: str) -> str:
    return module.rpartition(".")[2]


def _contracts() -> tuple[list[list[str]], frozenset[str]]:
    """The layers from above, each with its modules; and the modules that do no IO."""
    told = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = told["tool"]["importlinter"]["contracts"]
    layers = next(one["layers"] for one in contracts if one["type"] == "layers")
    core = next(one["source_modules"] for one in contracts if one["name"].startswith("The core"))
    return [[name.strip() for name in line.split("|")] for line in layers], frozenset(core)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(drawn(page.read_text(encoding="utf-8")), encoding="utf-8")
