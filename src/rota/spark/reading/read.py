"""Reads ranges of partitions as Arrow, in a task: straight from the answers to raw Fetches.

::

    part      a range on its way
    flight    what is asked of a broker
    arrival   what its answer means
    doubt     whether what does not come is lost
    inquiry   asks brokers until all is read: who leads, connections, pauses, patience
    read      records as rows

Each broker is asked for some ranges at a time. The next answer is on its way while one is decoded,
and taken by Spark. Memory: the answers under way, one more, and a portion of that as Arrow.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import numpy as np

from rota.client import answer
from rota.client.batch import Batch
from rota.spark.plan import Task
from rota.spark.query import Options
from rota.spark.reading.arrow import record_batch
from rota.spark.reading.inquiry import Answer, Inquiry
from rota.spark.reading.link import KEPT, Link

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = 50_000
"""Of one Arrow batch, at most."""
PIECE = 16 << 20
"""Bytes of its records, about; one record may have more."""
PORTION = 8 << 20
"""Bytes of records, decompressed, that are decoded together; one batch may have more."""


def read(task: Task, options: Options) -> Iterator[pa.RecordBatch]:
    """The rows of a task; those of a range in order.

    :raises DataLost: records are gone, and ``failOnDataLoss`` is set
    :raises RecordError: a record is damaged
    :raises TimedOut: there was no progress for as long as ``kafkaConsumer.pollTimeoutMs``
    :raises Refused: a broker gives nothing, and will not
    """
    own = KEPT.take(options.client)
    inquiry = Inquiry(own, task, options)
    try:
        while (yield from _next(own, inquiry, options)):
            pass
    except BaseException:  # also if Spark wants no more: answers are still on their way
        try:
            inquiry.close()
        finally:
            own.close()
        raise
    inquiry.close()
    KEPT.give_back(options.client, own)


def _next(own: Link, inquiry: Inquiry, options: Options) -> Generator[pa.RecordBatch, None, bool]:
    """The rows of what comes next, of which nothing is kept; says whether there was something."""
    answers = own.run(inquiry.next())
    for each in answers:
        for batch in _batches(each, options):
            yield from _rows(batch, options)
            del batch  # not while the next is made: a batch may be large
    return bool(answers)


def _batches(found: Answer, options: Options) -> Iterator[Batch]:
    """The records of an answer that are within the range."""
    reading = answer.read(
        found.fetched,
        check=options.read.check_crcs,
        committed_only=options.read.committed_only,
        control=options.batch_info,
        portion=PORTION,
    )
    for batch in reading:
        upto = int(np.searchsorted(batch.offsets, found.until))
        if upto:
            yield batch[:upto]
        if batch.next_offset >= found.until:
            return  # what is wrong behind the range is no concern of it
        del batch


def _rows(batch: Batch, options: Options) -> Iterator[pa.RecordBatch]:
    columns = batch.columns
    size = int((columns.end[batch.rows] - columns.start[batch.rows]).sum())
    count = max(1, min(ROWS, len(batch) * PIECE // max(size, 1)))
    for first in range(0, len(batch), count):
        some = batch[first : first + count]
        yield record_batch(some, headers=options.headers, batch_info=options.batch_info)
