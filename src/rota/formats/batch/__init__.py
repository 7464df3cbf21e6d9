"""Record batches of Kafka, version 2 (magic 2): what a segment file and a Fetch answer are made of.

::

    walk(data, start=0) -> Walk
        where the whole batches of a buffer are, from their lengths alone; iterating gives
        (position, size); ``.positions``, ``.sizes``, ``.end`` (behind the last whole batch) and
        ``.problems`` (a batch cut at the end, zeros, old formats, damage; each with its position)
    decode(data, *, at=0, check=True, most=MOST, most_in_all=MOST_IN_ALL) -> Columns
        every record of every batch, as NumPy columns; a batch that is damaged has no rows and
        is one of ``.problems``; ``at`` is where data begins in its file
    records(columns) -> Iterator[Record]
        the same as values, one by one
    encode(records, *, base_offset=None, last_offset=None, codec=Codec.NONE, append_time=None,
           leader_epoch=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
           transactional=False, control=False, delete_horizon=None, newest=None) -> bytes
        one batch
    marker(kind, *, offset, timestamp, producer_id, producer_epoch, coordinator_epoch=0,
           leader_epoch=0) -> bytes
        the control batch that ends a transaction; ``Marker.COMMIT`` or ``Marker.ABORT``

``Record(offset, timestamp, key, value, headers=())``. Columns of records: ``offset``,
``timestamp``, ``key_start``, ``key_size`` (-1: null), ``value_start``, ``value_size`` (-1: null),
``headers_start``, ``headers``, ``batch`` (row of ``columns.batches``); starts are positions in
``columns.buffer.data``. Columns of batches: ``position``, ``base_offset``, ``last_offset``,
``transactional``, ``control``, ``marker``, ``producer_id``, ``producer_epoch`` and more.

Batches of magic 0 and 1 (before Kafka 0.11) are named and passed over, not read. Checksums need
``crc32c``, and snappy, lz4 and zstd ``cramjam``: both come with ``rota[spark]``.
"""

from __future__ import annotations

from rota.formats.batch.codec import MOST
from rota.formats.batch.column import Batches, Columns, decode, records
from rota.formats.batch.header import Codec, Header, Marker, read_header
from rota.formats.batch.problem import Flaw, Problem
from rota.formats.batch.record import Record, encode, marker
from rota.formats.batch.walk import Walk, walk

__all__ = [
    "MOST",
    "Batches",
    "Codec",
    "Columns",
    "Flaw",
    "Header",
    "Marker",
    "Problem",
    "Record",
    "Walk",
    "decode",
    "encode",
    "marker",
    "read_header",
    "records",
    "walk",
]
