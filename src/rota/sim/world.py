"""A world: one coordinator, the processes of its groups, and a clock that only moves when told.

The same seed and the same script give the same trace, to the byte. Everything that happens is one
step; tests look at the world between any two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rota.errors import InputError
from rota.group.coordinator import Coordinator
from rota.model.config import GroupConfig
from rota.model.entry import ClassicEntry
from rota.model.topic import Cluster
from rota.sim import wind
from rota.sim.network import Nature, Steady
from rota.sim.node import Boundary, Node
from rota.sim.process import Process, Program
from rota.sim.stage import Stage
from rota.sim.trace import Record, What


class World:
    """Processes are known by their names; one that has ended may be started again."""

    def __init__(  # noqa: PLR0913 (all are options)
        self,
        topics: Mapping[str, int],
        *,
        seed: int = 0,
        config: GroupConfig | None = None,
        nature: Nature | None = None,
        metadata_age: int = 0,
        skip: bool = False,
        now: int = 0,
    ) -> None:
        """Starts the coordinator, and nothing else.

        :param topics: partition counts
        :param metadata_age: how often a process looks at the cluster's topics, in milliseconds;
            0 for at once when they change
        :param skip: leave out heartbeats that cannot change anything
        :param now: what the clock shows when the world begins
        """
        self._stage = Stage(nature or Steady(seed=seed))
        self._stage.agenda.now = now
        self._node = Node(self._stage, config or GroupConfig(), seed)
        self._node.on_stop = self._break_links
        self._topics = dict(topics)
        self._cluster = Cluster(self._topics)
        self._metadata_age = metadata_age
        self._skip = skip and self._stage.nature.steady
        self._skip_from = 0
        self.processes: dict[str, Process] = {}
        """Those that run."""
        self._waiting: dict[str, list[Callable[[], object]]] = {}
        self._node.start()

    @property
    def now(self) -> int:
        """The time, in milliseconds."""
        return self._stage.now

    @property
    def steps(self) -> int:
        """How many things have happened so far, heartbeats included."""
        return self._stage.agenda.steps

    @property
    def trace(self) -> list[Record]:
        """What happened so far."""
        return self._stage.trace

    @property
    def journal(self) -> list[ClassicEntry]:
        """What the coordinator has written so far."""
        return self._node.journal

    @property
    def coordinator(self) -> Coordinator | None:
        """None while it is down."""
        return self._node.coordinator

    @property
    def cluster(self) -> Cluster:
        """The topics there are."""
        return self._cluster

    # time

    def at(self, time: int, action: Callable[[], object]) -> None:
        """Does something at a moment to come."""
        self._stage.agenda.add(time, lambda _: action())

    def step(self) -> bool:
        """Lets the next thing happen; false if nothing is to come."""
        return self._stage.agenda.step()

    def next_at(self) -> int | None:
        """When the next thing is due; None if nothing is to come."""
        return self._stage.agenda.next_at()

    def run_until(self, time: int, horizon: int = 0) -> None:
        """Lets everything happen that is due up to this moment, that included.

        Who will go on to a ``horizon`` spares the world being played in full around this moment.
        """
        horizon = max(time, horizon)
        agenda = self._stage.agenda
        while (due := agenda.next_at()) is not None and due <= time:
            if not (self._skip and due >= self._skip_from and self._wound_on(due, horizon)):
                agenda.do_next()
        agenda.now = max(agenda.now, time)

    def _wound_on(self, due: int, limit: int) -> bool:
        """Winds the clocks on, if that may be done now."""
        stage = self._stage
        quiet_from = stage.agenda.news_at + wind.calm(stage)
        if due < quiet_from:
            self._skip_from = quiet_from
            return False
        wound, self._skip_from = wind.on(stage, self.processes.values(), limit)
        return wound

    def run_until_quiet(self, limit: int) -> bool:
        """Runs until nothing but heartbeats and polls has happened for a while, and nothing else
        is to come; false if that was not reached within the limit.
        """
        agenda = self._stage.agenda
        while not wind.is_quiet(self._stage):
            due = agenda.next_at()
            if due is None or due > limit:
                return False
            agenda.step()
        return True

    # processes

    def start(self, program: Program) -> Process:
        """Starts a process."""
        if program.name in self.processes:
            raise InputError(f"process {program.name!r} runs already")
        process = Process(self._stage, self._node, program, lambda: self._cluster, self._ended)
        self.processes[program.name] = process
        process.start()
        return process

    def when_gone(self, name: str, action: Callable[[], object]) -> None:
        """Does something once a process that runs has ended, however that comes."""
        self._waiting.setdefault(name, []).append(action)

    def _ended(self, process: Process) -> None:
        del self.processes[process.name]
        for action in self._waiting.pop(process.name, ()):
            self.at(self.now, action)

    def __getitem__(self, name: str) -> Process:
        return self.processes[name]

    # the cluster

    def set_partitions(self, counts: Mapping[str, int]) -> None:
        """Topics are made, or get more partitions."""
        self._topics.update(counts)
        self._change_topics()

    def delete_topic(self, topic: str) -> None:
        """A topic is deleted."""
        del self._topics[topic]
        self._change_topics()
        self._node.delete_topics((topic,))

    def _change_topics(self) -> None:
        self._cluster = Cluster(self._topics)
        self._stage.tell(What.TOPICS, "", tuple(sorted(self._topics.items())))
        for process in self.processes.values():
            process.refresh_metadata(self._metadata_age)

    # the coordinator

    def stop_coordinator(self) -> None:
        """The broker's process ends at once; all connections break."""
        self._node.stop()

    def start_coordinator(self, load_time: int = 0) -> None:
        """The broker comes back and replays its journal."""
        self._node.start(load_time)

    def move_coordinator(self, load_time: int = 0) -> None:
        """Another broker takes over, in good order."""
        self._node.hand_over(load_time)

    def crash_coordinator_at(self, boundary: Boundary, downtime: int, load_time: int = 0) -> None:
        """The broker dies at the next append, and comes back after the downtime."""
        self._node.crash_at(boundary, downtime, load_time)

    def _break_links(self) -> None:
        stage = self._stage
        for process in self.processes.values():
            if process.link is not None:
                stage.agenda.add(stage.now + stage.nature.slowest, process.link.fail)

    def check_invariants(self) -> None:
        """Both machines' own."""
        if self.coordinator is not None:
            self.coordinator.check_invariants()
        for process in self.processes.values():
            process.machine.check_invariants()
