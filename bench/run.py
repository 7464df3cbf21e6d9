"""A run of benchmarks: runs cases with Rota and its peers, and collects rows."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.missing_tool import Unavailable

from bench import ours
from bench.case import Case
from bench.limit import LIMITS, Limit
from bench.measure import Measurement
from bench.peer import PEERS, Peer
from rota.engine.assignors.interface import ColumnarAssignor

#: CPU seconds that a peer may use for one run, unless slow peers are asked for.
SLOW_PEER = 30.0
NEVER = 3_000.0
#: CPU seconds after which Rota is stopped: never minutes.
OURS = 60.0
#: CPU seconds of runs for each step and peer.
BUDGET = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table."""

    work: str
    ours: Measurement
    theirs: Mapping[str, Measurement]
    limit: Limit

    @property
    def met(self) -> bool | None:
        """None if a peer is missing."""
        return self.limit.met(self.ours, self.theirs)

    @property
    def fastest(self) -> tuple[float, bool] | None:
        """The fastest peer's seconds, and whether that is only a lower bound."""
        known = [
            (taken.seconds, taken.over)
            for taken in self.theirs.values()
            if taken.seconds is not None
        ]
        return min(known, default=None)


@dataclass
class Run:
    """Plays cases; what a peer took for a case is kept for others that ask for the same."""

    folder: Path
    slow_peers: bool = False
    notes: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    _played: dict[tuple[str, str, str], dict[str, Measurement]] = field(default_factory=dict)

    def print_progress(self, text: str) -> None:
        """Progress, apart from the results."""
        print(text, file=sys.stderr, flush=True)

    def peer(self, name: str) -> Peer | None:
        """The peer; None if it cannot run here, which is printed once."""
        if name in self.missing:
            return None
        try:
            return PEERS[name]()
        except Unavailable as error:
            self.missing[name] = str(error)
            self.print_progress(f"!! {name} is LEFT OUT: {error}")
            return None

    def measure_rota(
        self, case: Case, strategy: ColumnarAssignor, *checks: ours.Check
    ) -> dict[str, Measurement]:
        """What Rota takes for each step."""
        solver = getattr(strategy, "solver", "")
        self.print_progress(f"   {case.name}: Rota {strategy.name} {solver}")
        return ours.measure_steps(
            case, strategy, limit=OURS, budget=BUDGET, checks=(ours.find_error, *checks)
        )

    def measure_peers(
        self, case: Case, work: str, names: Iterable[str]
    ) -> dict[str, dict[str, Measurement]]:
        """What peers take for each step, by step and peer."""
        found: dict[str, dict[str, Measurement]] = {step.name: {} for step in case.steps}
        for name in names:
            for step, taken in self._peer(case, work, name).items():
                found[step][name] = taken
        return found

    def _peer(self, case: Case, work: str, name: str) -> dict[str, Measurement]:
        key = (name, case.name, work)
        peer = self.peer(name)
        if key in self._played or peer is None:
            return self._played.get(key, {})
        self.print_progress(f"   {case.name}: {name} {work}")
        file = self.folder / f"{case.name}.case"
        case.write(file)
        limit = NEVER if self.slow_peers else SLOW_PEER
        try:
            self._played[key] = peer.run_case(file, work, limit=limit, budget=BUDGET)
        except Unavailable as error:
            self._played[key] = {}
            self.notes.append(f"{case.name}: {error}")
            self.print_progress(f"!! {case.name}: {error}")
        return self._played[key]


def step_rows(
    title: str,
    key: str,
    taken: Mapping[str, Measurement],
    theirs: Mapping[str, Mapping[str, Measurement]],
) -> Iterator[Row]:
    """A row for each step that was timed."""
    for step, measured in taken.items():
        yield Row(
            work=f"{title}: {step}",
            ours=measured,
            theirs=theirs.get(step, {}),
            limit=LIMITS[key],
        )
