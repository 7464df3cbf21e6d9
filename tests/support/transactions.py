"""The control batch that ends a transaction, as a transaction coordinator writes it."""

from __future__ import annotations

from rota.engine.formats.record_batch import (
    MARKER_KEY,
    MARKER_VALUE,
    BatchRecord,
    ControlRecordType,
    encode_batch,
)


def encode_end_transaction_marker(
    kind: ControlRecordType,
    *,
    offset: int,
    timestamp: int,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int = 0,
    leader_epoch: int = 0,
) -> bytes:
    record = BatchRecord(
        offset, timestamp, MARKER_KEY.pack(0, kind), MARKER_VALUE.pack(0, coordinator_epoch)
    )
    return encode_batch(
        [record],
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )
