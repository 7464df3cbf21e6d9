"""``format("rota")``: Kafka's records as rows, with the columns of Spark's own Kafka source."""

from __future__ import annotations

import logging
from typing import ClassVar

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from rota.spark import option
from rota.spark.option import Options

LOGGER = logging.getLogger("rota.spark")
COLUMNS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int"
)
HEADERS = ", headers array<struct<key: string, value: binary>>"
BATCH_INFO = ", control boolean, transactional boolean, producerId bigint, producerEpoch smallint"


class Source(DataSource):
    """What Spark makes of ``format("rota")``."""

    parallelism: ClassVar[int] = 2
    """How many tasks the session runs at a time; :func:`rota.spark.register` knows."""

    @classmethod
    def name(cls) -> str:
        """As in ``format("rota")``."""
        return "rota"

    def schema(self) -> str:
        """The columns; what is wrong with the options is said here, before anything runs."""
        options = option.read(self.options)
        return (
            COLUMNS
            + (HEADERS if options.headers else "")
            + (BATCH_INFO if options.batch_info else "")
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        """For ``spark.read``."""
        from rota.spark.batch import BatchReader  # noqa: PLC0415 one of the two is needed

        return BatchReader(_told(option.read(self.options, streaming=False)), self.parallelism)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 Spark's
        """For ``spark.readStream``."""
        from rota.spark.stream import StreamReader  # noqa: PLC0415 as above

        return StreamReader(_told(option.read(self.options, streaming=True)), self.parallelism)


def _told(options: Options) -> Options:
    """Says what is without effect, or unwise."""
    for each in options.warnings:
        LOGGER.warning("%s", each)
    return options
