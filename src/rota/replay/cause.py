"""Why a group rebalanced, and how that is known.

Where the broker's log has lines about a rebalance, it states the cause (:mod:`.stated`); else the
cause is inferred from the journal (:mod:`.inferred`). The two are never mixed: a stated cause is
not corrected by the journal, and an inferred one is not presented as stated.
"""

from __future__ import annotations

from collections.abc import Sequence

from rota.replay import inferred, stated
from rota.replay.commit import Commits
from rota.replay.fact import Explanation, Generation, Kind, LogLine, Step

__all__ = ["Commits", "explain"]


def explain(step: Step, commits: Commits, lines: Sequence[LogLine] = ()) -> Explanation:
    """Why a step was taken.

    ``commits`` are those of the group, ``lines`` the broker's about it in the order of its log: by
    time, and as they stood in the file where times are equal.
    """
    found = stated.explain(step, commits, lines) if _is_numbered(step.after) else None
    return found or inferred.explain(step, commits)


def _is_numbered(generation: Generation) -> bool:
    """Lines are found by their numbers, which samples of a classic group do not tell."""
    return not generation.sampled or generation.kind is Kind.CONSUMER
