"""A deploy that changes the strategy: in one step it takes the group down, in two it does not."""

from __future__ import annotations

from typing import Any

import pytest

import rota
from rota.engine.model.journal_entry import GroupMetadataEntry
from rota.errors import InputError
from tests.support.paths import ROOT

EXAMPLE = (ROOT / "examples" / "switch-strategy.toml").read_text()
BOTH = 'strategy = ["cooperative-sticky", "range"]'


def strategies_of(found: rota.Simulation) -> list[str | None]:
    """Of all generations, each kind once, in order."""
    saved = [
        entry for entry in found.journal if isinstance(entry, GroupMetadataEntry) and entry.members
    ]
    return list(dict.fromkeys(entry.protocol for entry in saved))


def test_two_deploys_bring_the_group_from_one_strategy_to_another() -> None:
    found = rota.simulate(EXAMPLE)
    assert strategies_of(found) == ["range", "cooperative-sticky"]
    assert not any("raised" in note for note in found.notes)


def test_one_deploy_does_not() -> None:
    found = rota.simulate(EXAMPLE.replace(BOTH, 'strategy = "cooperative-sticky"'))
    assert sum("raised InconsistentProtocol" in note for note in found.notes) == 3


def simulate_deployment(**settings: Any) -> rota.Simulation:
    return rota.simulate(
        {
            "duration": "20m",
            "strategy": "range",
            "topics": {"orders": 6},
            "members": [{"name": "m", "count": 3}],
            "events": [
                {"at": "2m", "deploy": "m", **settings},
                {"at": "10m", "restart": "m-0", "down": "5s"},
            ],
        }
    )


def test_a_deploy_makes_members_static() -> None:
    late = [one for one in simulate_deployment(static=True).rebalances if one.start > 9 * 60_000]
    assert late == []  # the restart inside the session is none
    assert len([one for one in simulate_deployment().rebalances if one.start > 9 * 60_000]) == 2


def test_a_deploy_with_a_strategy_that_is_none() -> None:
    with pytest.raises(InputError, match=r"events\[0\]\.strategy: unknown strategy 'rng'"):
        simulate_deployment(strategy="rng")
