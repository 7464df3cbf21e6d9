"""A broker process, clients at work, and what is done to it. All that is chosen comes of a seed."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.broker_process import BrokerProcess, free_port
from tests.support.proxy import Proxy
from tests.support.waiting import wait_until
from tests.system.crash.history import History
from tests.system.crash.load import Client, Reader, Writer, create_topic, read_all

PARTITIONS = 3
#: Segments fill up, the groups' journal is compacted and checkpoints are written all the time.
BUSY = {
    "log.segment.bytes": 1 << 20,
    "offsets.topic.segment.bytes": 2_000,
    "offsets.topic.num.partitions": 3,
    "log.cleaner.backoff.ms": 50,
    "log.cleaner.min.cleanable.ratio": 0.01,
    "log.flush.offset.checkpoint.interval.ms": 100,
    "log.retention.check.interval.ms": 100,
}


def new_seed() -> int:
    """``ROTA_SEED``, or a new one each time: what is to be found lies in the timing as well."""
    return int(os.environ.get("ROTA_SEED") or int.from_bytes(os.urandom(4), "big"))


class CrashedBroker:
    """The broker, its clients, and the ways to hurt it."""

    def __init__(self, folder: Path, seed: int, *, writers: int, readers: int) -> None:
        self.chance = random.Random(seed)
        self.history = History()
        self._folder = folder
        port, self._front = free_port(), free_port()
        settings = [f"--config={key}={value}" for key, value in BUSY.items()]
        self.broker = BrokerProcess(folder, port, f"--advertise=127.0.0.1:{self._front}", *settings)
        self.proxy = Proxy(self._front, port)
        self._seed = seed
        self._numbers = range(writers), range(writers, writers + readers)
        self.writers: Sequence[Writer] = ()
        self.readers: Sequence[Reader] = ()

    def begin(self) -> None:
        """Starts everything, and waits until the first values came through."""
        servers = f"127.0.0.1:{self._front}"
        self.broker.start()
        self.broker.wait_until_ready()
        create_topic(servers, PARTITIONS)
        writers, readers = self._numbers
        self.writers = [
            Writer(each, self._seed, self.history, servers=servers, partitions=PARTITIONS)
            for each in writers
        ]
        self.readers = [Reader(each, self._seed, self.history, servers=servers) for each in readers]
        for client in self.clients:
            client.start()
        self.wait_for(lambda: self._committed() > 0, "first commit")

    @property
    def clients(self) -> list[Client]:
        return [*self.writers, *self.readers]

    def kill(self) -> None:
        """kill -9 in the middle of something; now and then again while it starts."""
        time.sleep(self.chance.uniform(0, 0.3))
        self.broker.kill()
        self.broker.start()
        while self.chance.random() < 0.15:
            time.sleep(self.chance.uniform(0, 0.6))
            self.broker.kill()
            self.broker.start()
        self.broker.wait_until_ready()
        self.wait_for_progress()

    def truncate_segment(self) -> None:
        """No broker may do this: half of the records of a segment are gone."""
        self.broker.kill()
        sizes = {each: each.stat().st_size for each in self._folder.glob("data/t-*/*.log")}
        largest = max(sizes, key=sizes.__getitem__)
        os.truncate(largest, sizes[largest] // 2)
        self.broker.start()
        self.broker.wait_until_ready()

    def pause(self) -> None:
        """It stands still for a while, and does not know."""
        self.broker.pause()
        time.sleep(self.chance.uniform(0.05, 0.6))
        self.broker.go_on()
        self.wait_for_progress()

    def cut(self) -> None:
        """All connections break, and for a while there are none."""
        self.proxy.cut()
        time.sleep(self.chance.choice((0, 0.05, 0.4)))
        self.proxy.mend()
        self.wait_for_progress()

    def wait_for_progress(self) -> None:
        """Each writer has had an acknowledgement since, and a reader one for a commit."""
        sent = [writer.acknowledged for writer in self.writers]
        committed = self._committed()
        self.wait_for(
            lambda: (
                all(
                    writer.acknowledged > count
                    for writer, count in zip(self.writers, sent, strict=True)
                )
                and self._committed() > committed
            ),
            "acknowledgement for each writer and for a commit",
        )

    def _committed(self) -> int:
        return sum(reader.committed for reader in self.readers)

    def wait_for(self, true: Callable[[], bool], what: str, seconds: float = 40) -> None:
        def look() -> bool:
            failures = [each for client in self.clients for each in client.failures]
            assert not failures, failures
            return true()

        wait_until(what, look, self.broker.log_tail, seconds=seconds)

    def check_history(self) -> None:
        """Lets all clients finish, reads everything, and holds the history against it."""
        for client in self.clients:
            client.end()
        for client in self.clients:
            client.join(90)
            assert not client.is_alive(), f"{client.name} does not end"
        final = read_all(f"127.0.0.1:{self._front}", PARTITIONS)
        failures = [each for client in self.clients for each in client.failures]
        problems = [*failures, *self.history.problems(final)]
        assert not problems, "\n".join(problems[:20])
        assert self.broker.stop() == 0, self.broker.log_tail()


@contextmanager
def start_crashed_broker(
    seed: int, *, writers: int, readers: int, keep: bool = True
) -> Iterator[CrashedBroker]:
    """A broker in a folder, which is kept after a failure when the caller asks for it."""
    folder = Path(tempfile.mkdtemp(prefix=f"rota-crash-{seed}-"))
    crashed = CrashedBroker(folder, seed, writers=writers, readers=readers)
    try:
        with crashed.proxy:
            try:
                crashed.begin()
                yield crashed
                crashed.check_history()
            finally:
                crashed.broker.end()
                for client in crashed.clients:
                    client.end()
    except BaseException as error:
        if keep:
            error.add_note(f"ROTA_SEED={seed}; the data folder and the log are in {folder}")
        else:
            shutil.rmtree(folder)
        raise
    shutil.rmtree(folder)
