"""The matrix: every case, every client, and what a client cannot be asked for.

Each cell is a test; docs/clients.md is made of the same declarations and of what a run recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.support.clients.case import ClientCase, Drivers
from tests.support.clients.registry import (
    AIOKAFKA,
    CLIENTS,
    CONFLUENT,
    FRANZ,
    JAVA_3,
    JAVA_4,
    KAFKA_PYTHON,
    Client,
)
from tests.system.interop import admin_case, group_case, record_case, security_case, tool_case

SECTIONS: Mapping[str, Mapping[str, Callable[[ClientCase], None]]] = {
    "Records": record_case.CASES,
    "Consumer groups": group_case.CASES,
    "Administration": admin_case.CASES,
    "Security": security_case.CASES,
    "Command-line tools": tool_case.CASES,
}

#: One group with a member of each of these.
MIXED = (KAFKA_PYTHON, AIOKAFKA, CONFLUENT, JAVA_3, JAVA_4, FRANZ)
MIXED_STRATEGIES = ("range", "roundrobin")


@dataclass(frozen=True, slots=True)
class Cell:
    """A case tried with a client."""

    section: str
    case: str
    client: Client

    def __str__(self) -> str:
        return f"{self.case} - {self.client.name}"

    def run(self, drivers: Drivers) -> None:
        """Try it; raises where it does not hold."""
        driver = drivers.driver(self.client)
        try:
            SECTIONS[self.section][self.case](ClientCase(drivers, self.client))
        except Exception as error:
            error.add_note(f"{self.client.name} has logged: {driver.log_tail()}")
            raise


def reason_against(section: str, case: str, client: Client) -> str | None:
    """Why there is nothing to try; None if there is."""
    if section == "Command-line tools":
        return None if client.tools else "tools come with Kafka"
    strategies = group_case.names(group_case.STRATEGIES)
    if case in strategies and case not in group_case.names(client.strategies):
        return "the library has no such strategy"
    return client.lacks.get(case)


CELLS = tuple(
    Cell(section, case, client)
    for client in CLIENTS
    for section, cases in SECTIONS.items()
    for case in cases
    if reason_against(section, case, client) is None
)
