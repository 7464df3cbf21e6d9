"""How far an answer goes, from the heads of its batches: known before any record is decoded."""

from __future__ import annotations

from rota.client.fetch import Fetched
from rota.consumer.entry import Position, Reach
from rota.formats.batch.header import (
    HEAD,
    LENGTH,
    LENGTH_AT,
    MAGIC,
    MAGIC_AT,
    PREFIX,
    SHORTEST,
    read_header,
)
from rota.model.offset import NO_EPOCH


def reach(fetched: Fetched) -> Reach | None:
    """Behind the last whole batch; None if there is nothing at all.

    A batch that is cut at the end is no trouble: the next answer begins with it. Whatever else is
    no batch is, and so is an answer without a whole one.
    """
    view = fetched.records
    limit = len(view)
    if not limit:
        return None
    at, last, unpack = 0, -1, LENGTH.unpack_from
    length = 0
    while at + HEAD.size <= limit:
        (length,) = unpack(view, at + LENGTH_AT)
        if length < SHORTEST or view[at + MAGIC_AT] != MAGIC:
            return _upto(fetched, last, sound=False)
        if at + PREFIX + length > limit:
            break
        last, at = at, at + PREFIX + length
    return _upto(fetched, last, sound=last >= 0)


def _upto(fetched: Fetched, last: int, *, sound: bool) -> Reach:
    """The reach with this as the last whole batch."""
    if last < 0:
        return Reach(Position(fetched.fetch_offset), sound)
    head = read_header(fetched.records, last)
    epoch = None if head.leader_epoch == NO_EPOCH else head.leader_epoch
    behind = head.last_offset + 1
    return Reach(Position(behind, epoch), sound and behind > fetched.fetch_offset)
