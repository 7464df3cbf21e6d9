"""Writes clients.md from the matrix in tests/system/interop and its last run.

After a change of the matrix, or to try newer clients::

    .venv/bin/python -m pytest tests/system/interop/test_clients.py
    make docs

The first command writes ``out/clients.json`` if every cell passed; ``make check`` runs the cells in
two parts and does not write it. The second one copies that file to ``docs/clients.json`` and makes
the page from it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.support.clients.registry import CLIENTS
from tests.system.interop.matrix import SECTIONS, reason_against
from tests.system.interop.record import PLACE

PAGE = Path(__file__).with_name("clients.md")
#: What the last recorded run found.
FOUND = Path(__file__).with_name("clients.json")

INTRO = """\
# Clients that were tried against the broker

<!-- Made by `make docs` from tests/system/interop and docs/clients.json. Do not edit. -->

Every cell is a test that runs at `make check`: the client as it is published, in a process of its
own, with its settings left alone but for what a case is about (a codec, a strategy, a password) and
for reading from the start (`auto.offset.reset`). What one client writes another one reads; what one
asks for another one looks at. The same cases pass with a real Kafka 4.3.1 in the broker's place
(`ROTA_INTEROP=kafka`).
"""

GROUP = """\
A group is tried so: three members start, records are written, one member leaves, more records are
written; each partition has one owner, each record is handled once. A member that is killed has a
session of three seconds, so that nobody waits for the default of 45.
"""

NOTES = """\
## Good to know

- franz-go creates a missing topic only with the option `AllowAutoTopicCreation`.
- A static member of franz-go that has led its group asks for a rebalance when it is back; with a
  Kafka too.
- kafka-python 3.0: a `poll` that times out just as the answer to its SyncGroup comes leaves the
  consumer without partitions, for good; with a Kafka too. A longer `timeout_ms` makes it rare.
- aiokafka and kafka-python say no more than "unable to bootstrap" when a password is wrong; the
  reason is in their log.
- The consumer protocol of KIP-848 (`group.protocol=consumer`) is not offered.
"""


def page(found: Mapping[str, Any]) -> str:
    """The whole page."""
    return "\n".join(_lines(found)) + "\n"


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    yield INTRO
    yield "| client | tried with |\n|---|---|"
    for client in CLIENTS:
        yield f"| {client.name} | {found['versions'][client.name]} |"
    yield ""
    passed = {tuple(cell) for cell in found["passed"]}
    reasons: list[str] = []
    for section in SECTIONS:
        yield from _section(section, passed, reasons)
        if section == "Consumer groups":
            yield GROUP
            yield from _mixed(found["mixed"])
    yield "## Why a cell is empty\n"
    for number, reason in enumerate(reasons, 1):
        yield f"{number}. {reason}"
    yield ""
    yield NOTES.rstrip("\n")


def _section(section: str, passed: set[tuple[str, ...]], reasons: list[str]) -> Iterator[str]:
    clients = [
        client
        for client in CLIENTS
        if any(reason_against(section, case, client) is None for case in SECTIONS[section])
    ]
    yield f"## {section}\n"
    yield f"| | {' | '.join(client.name for client in clients)} |"
    yield f"|---|{'---|' * len(clients)}"
    for case in SECTIONS[section]:
        cells = []
        for client in clients:
            reason = reason_against(section, case, client)
            if reason is not None:
                if reason not in reasons:
                    reasons.append(reason)
                cells.append(f"({reasons.index(reason) + 1})")
            else:
                cells.append("yes" if (section, case, client.name) in passed else "**no**")
        yield f"| {case} | {' | '.join(cells)} |"
    yield ""


def _mixed(found: Mapping[str, list[str]]) -> Iterator[str]:
    yield "One group with a member of each of these at once, then without the first two:\n"
    for strategy, clients in found.items():
        yield f"- {strategy}: {', '.join(clients)}"
    yield ""


def load() -> dict[str, Any]:
    """What the last recorded run found."""
    found: dict[str, Any] = json.loads(FOUND.read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":
    if PLACE.exists():
        FOUND.write_bytes(PLACE.read_bytes())
    PAGE.write_text(page(load()), encoding="utf-8")
