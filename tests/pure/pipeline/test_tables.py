"""Tables are declared once; the page about them is made of the declarations."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest
from docs import generate_tables

from rota.engine.history.facts import (
    Advice,
    AdvisedOwnership,
    Generation,
    GroupHealthStatus,
    PartitionOwnership,
    WhatIf,
)
from rota.engine.history.groups import GroupOverview
from rota.engine.history.verdicts import LagStatus
from rota.pipeline.tables import (
    ADVICE,
    ADVISED,
    GENERATIONS,
    GROUPS,
    HEALTH,
    OWNERSHIP,
    STATUS,
    TABLES,
    WHATIF,
    Table,
)
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "tables.md"


def test_the_page_is_what_make_docs_writes() -> None:
    assert PAGE.read_text(encoding="utf-8") == generate_tables.page()


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_table_says_what_it_holds(table: Table) -> None:
    names = [column.name for column in table.columns]
    assert len(set(names)) == len(names)
    assert set(table.key) <= set(names)
    assert re.fullmatch("(bronze|silver|gold)/[a-z]+", table.name)
    assert all(column.meaning for column in table.columns)


@pytest.mark.parametrize(
    ("fact", "table"),
    [
        (Generation, GENERATIONS),
        (PartitionOwnership, OWNERSHIP),
        (LagStatus, STATUS),
        (GroupOverview, GROUPS),
        (GroupHealthStatus, HEALTH),
        (WhatIf, WHATIF),
        (Advice, ADVICE),
        (AdvisedOwnership, ADVISED),
    ],
    ids=lambda value: getattr(value, "name", None) or value.__name__,
)
def test_a_fact_is_a_row_of_its_table(fact: type[LagStatus], table: Table) -> None:
    assert [field.name for field in fields(fact)] == [column.name for column in table.columns]


@pytest.mark.parametrize("example", generate_tables.EXAMPLES, ids=lambda e: e.question)
def test_an_example_asks_for_tables_that_there_are(example: generate_tables.Example) -> None:
    asked = re.findall(r"parquet\.`DIR/([^`]+)`", example.sql)
    assert asked
    assert set(asked) <= {table.name for table in TABLES}
