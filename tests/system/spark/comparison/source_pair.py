"""A real broker with topics of every kind, and both sources asked the same about them."""

from __future__ import annotations

import json
import shutil
import uuid
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from tests.support.clients.driver_process import ClientError, Driver
from tests.support.spark_limit import TOO_SLOW

#: The names of the two sources.
SPARKS, ROTAS = "kafka", "rota"
Options: TypeAlias = Mapping[str, Any]
Rows: TypeAlias = list[dict[str, Any]]
#: Options of every query here: errors come soon.
BRISK = {
    # Spark's own waits for an answer at the end of a log before it says where that is
    "kafka.fetch.max.wait.ms": "50",
    "fetchOffset.numRetries": "1",
    "fetchOffset.retryIntervalMs": "10",
}
#: Requests that may be repeated after TOO_SLOW: they start a query and wait for its end.
ONE_QUERY = ("read", "tasks", "stream", "once")
#: A minute and a half in which no Python of Spark's could connect; each repeat is reported.
REPEATS = 9


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a query."""

    #: Of each batch, in the order of their places in the log.
    rows: list[Rows] = field(default_factory=list)
    schema: Any = None
    #: Of each batch, as the checkpoint has them.
    offsets: dict[int, Any] = field(default_factory=dict)
    #: Of each batch that had rows: where it began and ended, and where the log ended.
    progress: list[Any] = field(default_factory=list)
    #: What was said, if it failed.
    refused: str | None = None

    @property
    def count(self) -> int:
        return sum(map(len, self.rows))

    @property
    def last(self) -> Any:
        """The offsets of the last batch."""
        return self.offsets[max(self.offsets)]

    @property
    def places(self) -> list[tuple[str, int, int]]:
        """Where every row was: topic, partition, offset."""
        every = [row for batch in self.rows for row in batch]
        return sorted((row["topic"], row["partition"], row["offset"]) for row in every)

    @property
    def values(self) -> list[str | None]:
        """Of all rows, in the order of their places."""
        every = [row for batch in self.rows for row in batch]
        every.sort(key=lambda row: (row["topic"], row["partition"], row["offset"]))
        return [None if row["value"] is None else row["value"].decode() for row in every]


def decode_rows(text: str) -> Rows:
    """The rows of an Arrow stream in base 64."""
    with pa.ipc.open_stream(b64decode(text)) as stream:
        table = stream.read_all()
    order = [(name, "ascending") for name in ("topic", "partition", "offset")]
    rows: Rows = table.sort_by(order).to_pylist()
    return rows


def option_texts(options: Options) -> dict[str, str]:
    """Options as Spark has them: text; what is not, as JSON."""
    return {
        key: value if isinstance(value, str) else json.dumps(value)
        for key, value in options.items()
    }


class SourcePair:
    """Asks both sources at the same time."""

    def __init__(self, driver: Driver, servers: str, folder: Path) -> None:
        self._driver = driver
        self._servers = servers
        self._folder = folder
        self._pool = ThreadPoolExecutor(2)
        #: The requests that were repeated, each with Spark's error.
        self.repeated: list[str] = []

    def ask(self, op: str, source: str, options: Options, **more: Any) -> Any:
        """One of them."""
        given = option_texts({"kafka.bootstrap.servers": self._servers, **BRISK, **options})
        # None takes an option away
        given = {key: value for key, value in given.items() if value != "null"}
        for _ in range(REPEATS):
            try:
                return self._driver.ask(op, source=source, options=given, **more)
            except ClientError as refused:
                if op not in ONE_QUERY or TOO_SLOW not in str(refused):
                    raise
                self.repeated.append(f"{op} by {source}: {str(refused).splitlines()[0]}")
        return self._driver.ask(op, source=source, options=given, **more)

    def outcome(self, op: str, source: str, options: Options, **more: Any) -> Outcome:
        """What one of them gives, or says."""
        try:
            seen = self.ask(op, source, options, **more)
        except ClientError as refused:
            return Outcome(refused=str(refused))
        return make_outcome(seen)

    def run_both(self, op: str, options: Options, **more: Any) -> tuple[Outcome, Outcome]:
        """Spark's own, and Rota's."""
        own = self._pool.submit(self.outcome, op, SPARKS, options, **more)
        rota = self._pool.submit(self.outcome, op, ROTAS, options, **more)
        return own.result(), rota.result()

    def read(self, options: Options) -> Outcome:
        """A batch query, which must give the same with both."""
        own, rota = self.run_both("read", options)
        assert own.refused is None, own.refused
        assert rota.refused is None, rota.refused
        assert rota == own
        return own

    def stream_pair(self, options: Options) -> StreamPair:
        """The same stream of both sources."""
        name = uuid.uuid4().hex[:8]
        places = {each: str(self._folder / f"{name}-{each}") for each in (SPARKS, ROTAS)}
        return StreamPair(self, options, places)

    def stream(self, options: Options) -> Outcome:
        """A stream over the records that exist now; asserts that both sources give the same."""
        return self.stream_pair(options).run()

    def close(self) -> None:
        """Ask no more."""
        self._pool.shutdown()


def make_outcome(seen: Any) -> Outcome:
    """An answer of the worker's."""
    wanted = ("batch", "numInputRows", "startOffset", "endOffset", "latestOffset")
    return Outcome(
        rows=list(map(decode_rows, seen["rows"])),
        schema=seen.get("schema"),
        offsets={int(batch): found for batch, found in seen.get("offsets", {}).items()},
        progress=[{key: each[key] for key in wanted} for each in seen.get("progress", ())],
    )


class StreamPair:
    """Two streams with the same options, each with a checkpoint of its own."""

    def __init__(
        self, source_pair: SourcePair, options: Options, places: Mapping[str, str]
    ) -> None:
        self._beside = source_pair
        self.options = options
        self._places = dict(places)

    @property
    def places(self) -> list[Path]:
        """Where the checkpoints are."""
        return list(map(Path, self._places.values()))

    def copy(self, options: Options) -> StreamPair:
        """Streams that go on from here with these options, beside this one."""
        copied = self._beside.stream_pair(options)
        for source, place in self._places.items():
            shutil.copytree(place, copied._places[source])
        return copied

    def swap(self) -> None:
        """Each goes on where the other has ended."""
        own, rota = self._places[SPARKS], self._places[ROTAS]
        self._places = {SPARKS: rota, ROTAS: own}

    def run_both(self, op: str = "stream") -> tuple[Outcome, Outcome]:
        """Runs the query with each source until it has read all records that exist now."""
        asked: Iterable[Outcome] = self._beside._pool.map(
            lambda source: self._beside.outcome(
                op, source, self.options, checkpoint=self._places[source]
            ),
            (SPARKS, ROTAS),
        )
        own, rota = asked
        return own, rota

    def run(self, op: str = "stream") -> Outcome:
        """A run of each, which must give the same."""
        own, rota = self.run_both(op)
        assert own.refused is None, own.refused
        assert rota.refused is None, rota.refused
        assert rota == own
        return own

    @contextmanager
    def running(self) -> Iterator[Callable[[], list[tuple[str, int, int]]]]:
        """Both go on; what is given tells where the rows were that came until now, of both."""

        def drained() -> list[tuple[str, int, int]]:
            own, rota = self.run_both("drain")
            assert own.refused is None, own.refused
            assert rota.places == own.places
            assert rota.last == own.last
            return own.places

        self.run_both("start")
        try:
            yield drained
        finally:
            self.run_both("stop")
