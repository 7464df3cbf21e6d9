"""Writes clients.md from the matrix in tests/system/interop and its last run.

After a change of the matrix, or to test newer clients::

    .venv/bin/python -m pytest tests/system/interop/test_clients.py
    make docs

The first command writes ``out/clients.json`` if every cell passed; ``make check`` runs the cells in
two parts and does not write it. The second one copies that file to ``docs/clients.json`` and writes
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
#: Results of the last recorded run.
FOUND = Path(__file__).with_name("clients.json")

INTRO = """\
# Clients tested with the broker

<!-- Made by `make docs` from tests/system/interop and docs/clients.json. Do not edit. -->

Every cell is a test of `make check`. Each test runs the published client in its own process, with
default settings except for the subject of the test (a codec, a strategy, a password) and for
reading from the start (`auto.offset.reset`). One client writes records and another one reads them;
one client makes a request and another one checks its effect. The same tests pass with a real Kafka
4.3.1 instead of Rota's broker (`ROTA_INTEROP=kafka`).
"""

GROUP = """\
The test of a group starts three members, writes records, stops one member, and writes more records.
Then each partition must have one owner, and exactly one member must have handled each record. In
the test that kills a member, the session timeout is three seconds instead of the default of 45.
"""

NOTES = """\
## Good to know

- franz-go creates a missing topic only with the option `AllowAutoTopicCreation`.
- If a static member of franz-go has led its group, it asks for a rebalance when it returns; with
  Kafka too.
- kafka-python 3.0: if a `poll` times out just as the response to its SyncGroup arrives, the
  consumer stays without partitions forever; with Kafka too. A longer `timeout_ms` makes this rare.
- If a password is wrong, the errors of aiokafka and kafka-python say only "unable to bootstrap".
  The reason is in their log.
- Rota does not offer the consumer protocol of KIP-848 (`group.protocol=consumer`).
"""


def page(found: Mapping[str, Any]) -> str:
    """Returns the whole page."""
    return "\n".join(_lines(found)) + "\n"


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    yield INTRO
    yield "| client | tested version |\n|---|---|"
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
    yield "Mixed groups, first with one member of each client, then without the first two:\n"
    for strategy, clients in found.items():
        yield f"- {strategy}: {', '.join(clients)}"
    yield ""


def load() -> dict[str, Any]:
    """Returns the results of the last recorded run."""
    found: dict[str, Any] = json.loads(FOUND.read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":
    if PLACE.exists():
        FOUND.write_bytes(PLACE.read_bytes())
    PAGE.write_text(page(load()), encoding="utf-8")
