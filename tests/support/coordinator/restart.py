"""What a coordinator knows that was killed and has come back: one case for each state."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from rota.engine.model.request import OffsetFetch
from tests.support.coordinator.case_run import CaseRun
from tests.support.coordinator.comparison import Case, CaseResult, Comparison
from tests.support.coordinator.connection import Connection, await_coordinator
from tests.support.coordinator.state import STATES, Lead
from tests.support.kafka import KafkaBroker

TIMEOUT = 120
TRIES = 3


def after_restart(lead: Lead, stage: CaseRun) -> None:
    """Members go on as if nothing had happened, then one of them joins again."""
    group = lead(stage)
    stage.restart()
    stage.send("admin", OffsetFetch(group=stage.group))
    for scripted in (group.a, group.b):
        scripted.heartbeat()
        scripted.commit(9)
        scripted.sync()
    group.b.join()
    group.a.join()


def compare_restarts(broker: KafkaBroker) -> dict[str, CaseResult]:
    """All cases come into their states, the broker is killed and comes back, all go on.

    Those that differ are played again, lest a slow machine be taken for a difference.
    """
    cases: dict[str, Case] = {
        f"{state}, restart": partial(after_restart, lead) for state, lead in STATES.items()
    }
    comparison = Comparison(broker.port, cases)
    comparison.run(cases, len(cases), restart_at_barrier(broker, len(cases)))
    for _ in range(TRIES):
        if again := comparison.differing():
            comparison.run(again, len(again), restart_at_barrier(broker, len(again)))
    return comparison.verdicts


def restart_at_barrier(broker: KafkaBroker, count: int) -> Callable[[], None]:
    """Returns a function that restarts the broker once ``count`` cases have called it."""

    def restart() -> None:
        broker.restart()
        with Connection(broker.port) as admin:
            await_coordinator(admin)

    everybody = threading.Barrier(count, action=restart, timeout=TIMEOUT)

    def wait() -> None:
        everybody.wait()

    return wait
