"""Policies: what an operator could choose for a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rota.assignors.interface import Assignor
from rota.assignors.registry import BUILT_IN, StrategyList, listed, resolve, resolve_all
from rota.assignors.sticky import StickyFamily, check_solver


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Strategies for all members, and whether they are static.

    None leaves it to the scenario.
    """

    strategy: StrategyList | None = None
    solver: str = "exact"
    static: bool | None = None

    def __post_init__(self) -> None:
        check_solver(self.solver)
        if self.strategy is not None:
            resolve_all(self.strategy, solver=self.solver)

    def assignors(self, otherwise: StrategyList) -> Sequence[Assignor]:
        """New strategies for one process."""
        return resolve_all(self.strategy or otherwise, solver=self.solver)

    def is_static(self, otherwise: bool) -> bool:
        """Whether a member has a static id."""
        return otherwise if self.static is None else self.static

    @property
    def label(self) -> str:
        """``range``, ``sticky + static``."""
        parts = ["as in the scenario"]
        if self.strategy is not None:
            found = [resolve(strategy) for strategy in listed(self.strategy)]
            parts = [", ".join(assignor.name for assignor in found)]
            if self.solver != "exact" and any(isinstance(one, StickyFamily) for one in found):
                parts.append(f"solver {self.solver}")
        if self.static is not None:
            parts.append("static" if self.static else "dynamic")
        return " + ".join(parts)


def compared(solver: str = "exact") -> tuple[Policy, ...]:
    """Every strategy, with and without static membership."""
    return tuple(
        Policy(strategy=name, solver=solver, static=static)
        for name in BUILT_IN
        for static in (False, True)
    )
