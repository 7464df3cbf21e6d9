"""What an answer means for the range that was asked for."""

from __future__ import annotations

import enum

from rota.client.fetch import Fetched
from rota.client.refusal import AGAIN, refusal
from rota.errors import Code
from rota.formats.batch import read_header, walk
from rota.spark.reading.part import Part

PROOF = 3
"""Answers in a row with nothing before it is looked up what there is."""


class Verdict(enum.Enum):
    """What to do next with a range."""

    READ = "its records are to be read; the position is behind them already"
    ASK = "it is to be asked for again"
    PAUSE = "the same, after a pause and a look who leads now"
    DOUBT = "it is to be looked up what there is"


def judge(part: Part, fetched: Fetched, *, alone: bool, committed_only: bool) -> Verdict:
    """Moves the range on.

    :param alone: nothing else was asked for: what there is at the position had room
    :param committed_only: with ``read_committed``
    :raises Refused: it is not worth another try
    """
    if fetched.code:
        return _refused(part, fetched.code)
    behind = _behind(fetched)
    if behind is not None and behind > part.position:
        part.move(behind)
        return Verdict.READ
    if fetched.preferred_replica >= 0 and part.replica is None and not part.leader_only:
        part.replica = fetched.preferred_replica
        return Verdict.ASK
    if not alone:
        part.alone = True
        return Verdict.ASK
    if behind is None and fetched.records:
        part.trouble = "what came has no whole batch"
        return Verdict.READ  # the reader of records says what is wrong with them
    return _nothing(part, fetched, committed_only=committed_only)


def _behind(fetched: Fetched) -> int | None:
    """The offset behind all whole batches, out of their heads; None: there are none."""
    if not fetched.records:
        return None
    positions = walk(fetched.records, may_end_cut=True).positions
    if not len(positions):
        return None
    return read_header(fetched.records, int(positions[-1])).last_offset + 1


def _nothing(part: Part, fetched: Fetched, *, committed_only: bool) -> Verdict:
    """An answer with nothing: there is nothing yet, or nothing any more.

    It may also be that a broker has more, and was too slow to get it: from remote storage
    (KIP-405), say. So one such answer proves nothing.
    """
    if part.replica is not None:  # it may be behind its leader
        part.replica, part.leader_only = None, True
        return Verdict.ASK
    stable = fetched.last_stable if committed_only else -1
    readable = fetched.high_watermark if stable < 0 else stable
    part.readable = min(readable, part.readable) if part.empty else readable
    part.empty += 1
    part.trouble = f"the broker has nothing there, and what can be read ends at {readable}"
    if committed_only and readable <= part.position < fetched.high_watermark:
        part.trouble = (
            f"a transaction is open at offset {readable}, and read_committed does not go beyond"
        )
    return Verdict.DOUBT if part.empty >= PROOF else Verdict.PAUSE


def _refused(part: Part, code: int) -> Verdict:
    known = Code(code).name if code in set(Code) else "unknown"
    part.trouble = f"error {code} ({known}) at offset {part.position}"
    if part.replica is not None:
        part.replica, part.leader_only = None, True
        return Verdict.PAUSE
    if code == Code.OFFSET_OUT_OF_RANGE:
        return Verdict.DOUBT
    if code in AGAIN:
        return Verdict.PAUSE
    raise refusal(code, part.partition, f"to fetch offset {part.position} of")
