"""docs/clients.md says what the matrix of clients declares, and what a run of it found."""

from __future__ import annotations

import pytest
from docs import generate_clients

from tests.support.clients.registry import CLIENTS
from tests.system.interop.record import claimed_cells

pytestmark = pytest.mark.quick


def test_the_page_is_what_the_generator_makes() -> None:
    found = generate_clients.load()
    assert generate_clients.PAGE.read_text(encoding="utf-8") == generate_clients.page(found)


def test_the_recorded_run_passed_every_declared_cell() -> None:
    found = generate_clients.load()
    versions = found.pop("versions")
    assert found == claimed_cells()
    assert list(versions) == [client.name for client in CLIENTS]
    assert all(versions.values())


def test_the_page_shows_a_cell_that_did_not_pass() -> None:
    found = generate_clients.load()
    found["passed"].remove(["Security", "TLS", "Java 4.3"])
    assert generate_clients.page(found).count("**no**") == 1
