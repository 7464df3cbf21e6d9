"""Draws the packages and the imports between them, counted in the sources: ``make docs``."""

from __future__ import annotations

import ast
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from docs.marked import replaced

ROOT = Path(__file__).parents[1]
#: The drawing stands on these pages, between two marks.
PAGES = (ROOT / "docs" / "architecture.md", ROOT / "CONTRIBUTING.md")
#: From this many importing modules on, an arrow is labelled with their number.
LABELLED = 5
#: Nearly every package imports them: their arrows would hide the others.
EVERYWHERE = frozenset({"rota.errors", "rota.engine.model"})


def drawing() -> str:
    """Returns a Mermaid diagram: a box for each package, an arrow for imports between them."""
    return "\n".join(["```mermaid", *_lines(), "```"])


def drawn(text: str) -> str:
    """Returns a page with today's drawing between its marks."""
    return replaced(text, "layers", drawing())


@cache
def imports() -> dict[tuple[str, str], int]:
    """Returns for each pair of boxes how many modules of the first import the second."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    modules = set(_modules())
    for module, path in _modules().items():
        for name in _imported(path, modules):
            if _box(module) != _box(name):
                found[_box(module), _box(name)].add(module)
    return {pair: len(importers) for pair, importers in found.items()}


def _modules() -> dict[str, Path]:
    found = {}
    for path in sorted((ROOT / "src" / "rota").rglob("*.py")):
        parts = path.relative_to(ROOT / "src").with_suffix("").parts
        if parts[-1] != "__main__" and parts != ("rota", "__init__"):
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


def _imported(path: Path, modules: set[str]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("rota"):
            for alias in node.names:
                names = (f"{node.module}.{alias.name}", node.module)
                yield from [name for name in names if name in modules][:1]
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)


def _box(module: str) -> str:
    parts = module.split(".")
    return ".".join(parts[: 3 if parts[1] == "engine" else 2])


def _lines() -> Iterator[str]:
    pure = _pure()
    boxes = sorted({_box(module) for module in _modules()} - {"rota.engine"})
    yield "flowchart TB"
    yield from (f"    {_node(box, pure)}" for box in boxes if not box.startswith("rota.engine."))
    yield '    subgraph engine["rota.engine"]'
    yield from (f"        {_node(box, pure)}" for box in boxes if box.startswith("rota.engine."))
    yield "    end"
    for (above, below), count in sorted(imports().items()):
        if below not in EVERYWHERE and "rota.engine" not in (above, below):
            label = f"|{count}|" if count >= LABELLED else ""
            yield f"    {_name(above)} -->{label} {_name(below)}"
    yield "    classDef pure stroke-width:3px"


def _node(box: str, pure: frozenset[str]) -> str:
    return f'{_name(box)}["{box}"]{":::pure" if box in pure else ""}'


def _name(box: str) -> str:
    return box.removeprefix("rota.").replace(".", "_")


def _pure() -> frozenset[str]:
    """Returns the packages that do no IO, as import-linter's contract lists them."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    named = (one for one in contracts if one["name"].startswith("The engine does no IO"))
    return frozenset(next(named)["source_modules"])


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(drawn(page.read_text(encoding="utf-8")), encoding="utf-8")
