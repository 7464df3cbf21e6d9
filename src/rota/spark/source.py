"""``format("rota")``: Kafka's records as rows, with the columns of Spark's own Kafka source."""

from __future__ import annotations

from typing import ClassVar, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from rota.errors import InputError, RotaError
from rota.spark import option
from rota.spark.loss import LOGGER
from rota.spark.query import Options

COLUMNS: Final = (
    ("key", "binary"),
    ("value", "binary"),
    ("topic", "string"),
    ("partition", "int"),
    ("offset", "bigint"),
    ("timestamp", "timestamp"),
    ("timestampType", "int"),
)
"""Names and types, as those of Spark's own source."""
HEADERS: Final = (("headers", "array<struct<key: string, value: binary>>"),)
BATCH_INFO: Final = (
    ("control", "boolean"),
    ("transactional", "boolean"),
    ("producerId", "bigint"),
    ("producerEpoch", "smallint"),
)


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
        _warn(options.warnings)
        return ", ".join(f"{name} {kind}" for name, kind in _columns(options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """For ``spark.read``."""
        from rota.spark.batch import BatchReader  # noqa: PLC0415 one of the two is needed

        options = option.read(self.options, streaming=False)
        _check_columns(schema, options)
        _warn(options.batch_warnings)
        return BatchReader(options, self.parallelism)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 Spark's
        """For ``spark.readStream``."""
        from rota.spark.stream import Refusal, StreamReader  # noqa: PLC0415 as above

        try:
            options = option.read(self.options, streaming=True)
            _check_columns(schema, options)
        except RotaError as error:
            return Refusal(error)  # what is raised here, PySpark covers with an error of its own
        return StreamReader(options, self.parallelism)


def _columns(options: Options) -> tuple[tuple[str, str], ...]:
    headers = HEADERS if options.headers else ()
    return COLUMNS + headers + (BATCH_INFO if options.batch_info else ())


def _check_columns(given: StructType, options: Options) -> None:
    """Spark does not ask for the columns where the user has named some."""
    names = [name for name, _ in _columns(options)]
    if given.fieldNames() != names:
        raise InputError(
            f"schema(...): the columns are fixed ({', '.join(names)}): leave it out, and select "
            "behind load()"
        )


def _warn(warnings: tuple[str, ...]) -> None:
    for each in warnings:
        LOGGER.warning('format("rota"): %s', each)


def sized(parallelism: int) -> type[Source]:
    """The source of a session that runs so many tasks at a time.

    Nobody can import it, so Spark sends the class itself, which is small.
    """
    return type("Source", (Source,), {"__module__": "rota.spark", "parallelism": parallelism})
