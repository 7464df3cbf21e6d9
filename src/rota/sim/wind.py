"""Winds the clocks of a quiet world on, past heartbeats and polls that cannot change anything.

Both machines keep no clock and no deadline: all they know of time are timers, and those are
entries of the agenda. While nothing happens, a process repeats itself: a heartbeat goes out, is
answered 0, and moves three timers (its own two and its session at the coordinator); an application
that works between polls ends one poll and begins the next. Such a cycle leaves the world as it
was, later by one period. So a whole number of cycles is left out by moving all entries that take
part in it on by that many periods.

This is done only if

- for longer than the longest period nothing has happened but such cycles, so that every process
  has been through one of each kind and nothing waits for its next poll or heartbeat to come out;
- the entry belongs to a process that is in such a cycle: the session of one who has crashed, or the
  poll deadline of one who is stuck or frozen, or works for longer than that, is not moved;
- fates do not hang on how many messages there were (:attr:`rota.sim.network.Nature.steady`).

Automatic commits recur too, but leave entries in the journal, so each is played; nothing waits for
it, and it needs no calm around it but the way of a message and back.

The clocks stop short of the next thing that is to happen, and the last period before it is played
in full: what the last heartbeats before it leave behind, in flight or in timers, is there.
"""

from __future__ import annotations

from collections.abc import Iterable

from rota.group.event import TimerKey, TimerKind
from rota.member.event import Timer
from rota.sim.agenda import Entry
from rota.sim.process import Process
from rota.sim.stage import Stage


def calm(stage: Stage) -> int:
    """How long nothing must have happened before a world is wound on."""
    return stage.window


class _Cycle:
    """Entries that recur together, every ``period``."""

    __slots__ = ("entries", "first", "period")

    def __init__(self, first: Entry, period: int) -> None:
        self.first = first
        self.period = period
        self.entries = [first]


def on(stage: Stage, processes: Iterable[Process], limit: int) -> tuple[bool, int]:
    """Winds all cycles on towards the next thing that is to happen, or the limit.

    Tells whether there was anything to wind, and from when on it may be tried again.
    """
    agenda = stage.agenda
    pending = agenda.pending()
    due = min(entry.at for entry in pending)
    way = 2 * stage.nature.slowest + 1
    if any(entry.beat and entry.holder is None for entry in pending):  # a commit is under way
        return False, due + way
    awake = [process for process in processes if process.frozen_until <= due]
    cycles, hard, soft = _sorted_out(pending, awake, due - stage.window)
    land = min((entry.at for entry in hard), default=limit + 1)
    land = min(land, limit + 1) - calm(stage)
    look, again = min((_look(entry, way) for entry in soft), default=(land, 0))
    short = look < land  # nothing looks back from there, so nothing is played before it
    if short:
        land = look
    else:
        again = max(land, due) + calm(stage)
    shifts = []
    for cycle in cycles:
        rounds = (land - cycle.first.at + short * (cycle.period - 1)) // cycle.period
        if rounds > 0:
            shifts += [(entry, rounds * cycle.period) for entry in cycle.entries]
    agenda.shift(shifts)
    return bool(shifts), again


def _look(entry: Entry, way: int) -> tuple[int, int]:
    """From when on the world is played for the sake of an entry, and until when."""
    commits = entry.given is Timer.COMMIT
    return (entry.at - way, entry.at + way) if commits else (entry.at, entry.at + 1)


def _sorted_out(
    pending: list[Entry], processes: Iterable[Process], recent: int
) -> tuple[list[_Cycle], list[Entry], list[Entry]]:
    """What recurs; what will happen; and what is only looked after now and then."""
    hearts: dict[object, _Cycle] = {}
    loops: dict[object, _Cycle] = {}
    for process in processes:
        heartbeat = process.timers.get(Timer.HEARTBEAT)
        if heartbeat is not None and heartbeat.pending and heartbeat.set_at >= recent:
            heart = _Cycle(heartbeat, process.program.config.heartbeat_interval)
            hearts[process] = hearts[process.machine.member_id] = heart
        loop = process.loop
        if loop is not None and loop.beat and loop.at - loop.set_at == process.processing:
            loops[process] = _Cycle(loop, process.processing)
    hard: list[Entry] = []
    soft: list[Entry] = []
    for entry in pending:
        cycle = _cycle_of(entry, hearts, loops) if entry.set_at >= recent else None
        retention = isinstance(entry.holder, TimerKey) and entry.holder.kind is TimerKind.RETENTION
        if retention or entry.given is Timer.COMMIT:
            soft.append(entry)
        elif cycle is None or not entry.beat:
            hard.append(entry)
        elif entry is not cycle.first:
            cycle.entries.append(entry)
    distinct = {id(cycle): cycle for cycle in (*hearts.values(), *loops.values())}
    return list(distinct.values()), hard, soft


def _cycle_of(
    entry: Entry, hearts: dict[object, _Cycle], loops: dict[object, _Cycle]
) -> _Cycle | None:
    holder = entry.holder
    if isinstance(holder, TimerKey):
        return hearts.get(holder.member) if holder.kind is TimerKind.SESSION else None
    if entry.given is Timer.POLL or (isinstance(holder, Process) and entry is holder.loop):
        return loops.get(holder)
    return hearts.get(holder)


def is_quiet(stage: Stage) -> bool:
    """Nothing is to happen but heartbeats and polls."""
    due = stage.agenda.next_at()
    if due is None:
        return True
    if due <= stage.agenda.news_at + 2 * stage.window:
        return False
    pending = stage.agenda.pending()
    return all(_only_recurs(entry, due - stage.window) for entry in pending)


def _only_recurs(entry: Entry, recent: int) -> bool:
    if isinstance(entry.holder, TimerKey) and entry.holder.kind is TimerKind.RETENTION:
        return True
    return entry.beat and entry.set_at >= recent
