"""What a checkpoint says of the last batch that was finished, wherever the checkpoint is.

Spark keeps a file for each batch: ``offsets/7`` is written before batch 7 runs and has where it
ends, ``commits/7`` after all of it has been done. A file of offsets begins with its version and a
line about the query; then each source has a line (``v1``: its offset, ``-`` if it has none yet;
``v2``, for queries whose sources have names: ``name:`` and its offset).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from pyspark.errors import AnalysisException

from rota.errors import FormatError
from rota.spark.commit.progress import Offsets, lowest, offsets_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE: Final = "file:"
VERSIONS: Final = ("v1", "v2")
_NAME = re.compile(r"\w+:")

T = TypeVar("T")


class Place(Protocol):
    """Where a checkpoint is."""

    def names(self, folder: str) -> list[str]:
        """The files of one of its folders; none if there is no such folder."""

    def text(self, file: str) -> str | None:
        """What one of its files has; None if there is no such file."""


class Local:
    """A folder of this machine."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def names(self, folder: str) -> list[str]:
        """As :class:`Place` has it."""
        try:
            return [each.name for each in (self._root / folder).iterdir()]
        except FileNotFoundError:
            return []

    def text(self, file: str) -> str | None:
        """As :class:`Place` has it."""
        try:
            return (self._root / file).read_text("utf-8")
        except FileNotFoundError:
            return None


class Remote:
    """Whatever Spark can read; each question is a small job."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark = spark
        self._root = root.rstrip("/")

    def names(self, folder: str) -> list[str]:
        """As :class:`Place` has it."""
        read = self._spark.read.format("binaryFile").option("pathGlobFilter", "[0-9]*")
        try:
            rows = read.load(f"{self._root}/{folder}").select("path").collect()
        except AnalysisException as error:
            return _absent(error, [])
        return [row.path.rpartition("/")[2] for row in rows]

    def text(self, file: str) -> str | None:
        """As :class:`Place` has it."""
        try:
            rows = self._spark.read.text(f"{self._root}/{file}", wholetext=True).collect()
        except AnalysisException as error:
            return _absent(error, None)
        return None if not rows else str(rows[0].value)


def _absent(error: AnalysisException, nothing: T) -> T:
    if error.getCondition() != "PATH_NOT_FOUND":
        raise error
    return nothing


def place(spark: SparkSession, root: str, *, here: bool) -> Place:
    """Where a checkpoint is.

    :param here: the driver runs in this process, so that its files are this machine's. A path
        without ``file:`` may be meant for another file system, which Spark knows
    """
    if here and root.startswith(FILE):
        return Local(Path("/" + root.removeprefix(FILE).lstrip("/")))
    return Remote(spark, root)


def owner(at: Place) -> str | None:
    """The id of the query whose checkpoint it is; None if there is none yet."""
    text = at.text("metadata")
    if text is None:
        return None
    try:
        return str(json.loads(text)["id"])
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"metadata: no id of a query: {text[:80]!r}") from error


def last_finished(at: Place) -> tuple[int, Offsets] | None:
    """The number of the last finished batch and where it ends in Kafka; None: none is finished."""
    batches = [int(name) for name in at.names("commits") if name.isascii() and name.isdecimal()]
    if not batches:
        return None
    batch = max(batches)
    text = at.text(f"offsets/{batch}")
    if text is None:
        raise FormatError(f"commits/{batch} is there, but not offsets/{batch}")
    return batch, ends(text)


def ends(text: str) -> Offsets:
    """Where a batch ends in Kafka, by its file of offsets."""
    version, *lines = text.splitlines() or [""]
    if version not in VERSIONS:
        raise FormatError(f"offsets of version {version[:20]!r} are not known")
    sources = [line if version == "v1" else _NAME.sub("", line, count=1) for line in lines[1:]]
    return lowest(filter(None, map(offsets_of, sources)))
