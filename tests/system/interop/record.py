"""What a run of the matrix found, kept for docs/clients.md."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.clients.case import Drivers
from tests.support.clients.registry import CLIENTS, Client
from tests.support.paths import ROOT
from tests.system.interop.matrix import CELLS, MIXED, MIXED_STRATEGIES, Cell

PLACE = ROOT / "out" / "clients.json"


def claimed_cells() -> dict[str, Any]:
    """What is declared: each cell, and one group of all libraries with each of the strategies."""
    return {
        "passed": [[cell.section, cell.case, cell.client.name] for cell in CELLS],
        "mixed": {strategy: [client.name for client in MIXED] for strategy in MIXED_STRATEGIES},
    }


@dataclass(slots=True)
class PassedCells:
    """The cells that passed."""

    _passed: list[Cell] = field(default_factory=list)
    _mixed: dict[str, list[str]] = field(default_factory=dict)

    def add_cell(self, cell: Cell) -> None:
        """A cell's case holds."""
        self._passed.append(cell)

    def add_mixed_group(self, strategy: str, clients: Sequence[Client]) -> None:
        """One group of these clients holds together."""
        self._mixed[strategy] = [client.name for client in clients]

    def save(self, drivers: Drivers) -> None:
        """Write it where the generator of the page looks for it, if the whole matrix was run."""
        found = {
            "passed": [[cell.section, cell.case, cell.client.name] for cell in self._passed],
            "mixed": self._mixed,
        }
        if found != claimed_cells():
            return
        versions = {client.name: drivers.driver(client).ask("hello") for client in CLIENTS}
        PLACE.parent.mkdir(exist_ok=True)
        PLACE.write_text(json.dumps({"versions": versions, **found}, indent=1) + "\n", "utf-8")
