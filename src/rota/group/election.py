"""Which strategy a generation uses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def elect(ballots: Sequence[Sequence[str]], leader: int) -> str:
    """Candidates are those on every list; each member votes for its first; most votes win.

    ``leader`` is the position of the leader's list: of strategies with equally many votes the one
    that stands first there wins, so that the outcome does not hang on the order of a hash map, as
    it does in Kafka.
    """
    candidates = set(ballots[0]).intersection(*ballots[1:])
    votes = Counter(next(name for name in ballot if name in candidates) for ballot in ballots)
    most = max(votes.values())
    return next(name for name in ballots[leader] if votes[name] == most)
