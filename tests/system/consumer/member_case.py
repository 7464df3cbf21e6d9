"""What happens to members: restarts, deaths, automatic commits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.system.consumer.client_drivers import ASYNC, BLOCKING, CONFLUENT, JAVA, ConsumerKind
from tests.system.consumer.group import Group, GroupCase

SHORT = {"session.timeout.ms": 1_500, "heartbeat.interval.ms": 200}


def killed(kind: ConsumerKind, case: GroupCase) -> None:
    """kill -9: the others have its partitions when its session is over, and lose nothing."""
    group = Group(case)
    doomed = group.join(kind, "cooperative-sticky", own_process=True, settings=SHORT)
    for other in (JAVA, ASYNC):
        group.join(other, "cooperative-sticky")
    group.settle()
    group.write()
    group.until("it handles some", lambda: doomed.handed)
    group.write()
    group.kill(doomed)
    group.write()
    group.settle()
    group.finish()
    group.check_history()


def killed_without_a_commit(case: GroupCase) -> None:
    """What a killed member had handed out, but not committed, is handed out again."""
    group = Group(case, partitions=2)
    doomed = group.join(BLOCKING, own_process=True, settings=SHORT, commits="never")
    group.write()
    group.finish()
    group.kill(doomed)
    heir = group.join(ASYNC)
    group.until("all is handed out again", lambda: heir.handed == 10)
    group.check_history()


def restarted_in_time(kind: ConsumerKind, kills: bool, case: GroupCase) -> None:
    """A static member comes back inside its session: nobody notices, the generation is the same."""
    group = Group(case)
    (first, *others) = [
        group.join(each, "range", own_process=each is kind, settings=_static(number))
        for number, each in enumerate((kind, JAVA, BLOCKING if kind is ASYNC else ASYNC))
    ]
    group.settle()
    group.until("one generation", lambda: len({m.generation for m in group.members.values()}) == 1)
    before = [(each.generation, each.rebalances) for each in others]
    owned = set(first.owned)
    group.write()
    group.finish()
    (group.kill if kills else group.leave)(first)
    group.write()
    back = group.join(kind, "range", settings=_static(0))
    group.settle()
    group.finish()
    assert back.owned == owned
    assert back.generation == first.generation
    assert [(each.generation, each.rebalances) for each in others] == before
    group.check_history()


def restarted_too_late(case: GroupCase) -> None:
    """A static member's session ends before it is back: the others take over, then share."""
    group = Group(case)
    first = group.join(BLOCKING, "range", own_process=True, settings={**_static(0), **SHORT})
    other = group.join(ASYNC, "range", settings=_static(1))
    group.settle()
    group.write()
    group.finish()
    group.kill(first)
    group.write()
    group.settle()
    group.finish()
    taken = other.generation
    assert taken > first.generation
    back = group.join(BLOCKING, "range", settings=_static(0))
    group.settle()
    assert back.generation > taken
    group.write()
    group.finish()
    group.check_history()


def _static(number: int) -> dict[str, object]:
    return {"group.instance.id": f"seat-{number}"}


def automatic(case: GroupCase) -> None:
    """Automatic commits, looked at all the time: never ahead of what was handed out."""
    group = Group(case)
    settings = {**SHORT, "auto.commit.interval.ms": 50}
    for kind in (BLOCKING, ASYNC, JAVA, CONFLUENT):
        group.join(kind, "cooperative-sticky", commits="auto", settings=settings)
    doomed = group.join(
        ASYNC, "cooperative-sticky", own_process=True, commits="auto", settings=settings
    )
    group.settle()
    for _ in range(10):
        group.write(3)
        group.read_group_offsets()
    group.kill(doomed)
    group.write(3)
    group.read_group_offsets()
    group.settle()
    group.finish()
    group.until("all is committed", lambda: group.read_group_offsets() == group.final_offsets())
    group.check_history()


def handed_over(case: GroupCase) -> None:
    """With automatic commits, what was handed out is committed before it goes to another: while all
    live, each record is handed out once.
    """
    group = Group(case)
    settings = {"auto.commit.interval.ms": 60_000}
    for kind in (BLOCKING, ASYNC, BLOCKING, ASYNC):
        group.join(kind, "cooperative-sticky", commits="auto", settings=settings)
        group.write(20)
        group.settle()
    for member in list(group.members.values())[:-1]:
        group.write(20)
        group.leave(member)
        group.settle()
    group.finish()
    group.check_history()
    assert group.delivered_twice() == []


CASES: dict[str, Callable[[GroupCase], None]] = {
    **{f"{kind} is killed": partial(killed, kind) for kind in (BLOCKING, ASYNC)},
    "killed without a commit": killed_without_a_commit,
    "a static rota.AsyncConsumer is closed and back in time": partial(
        restarted_in_time, ASYNC, False
    ),
    "a static rota.Consumer is killed and back in time": partial(restarted_in_time, BLOCKING, True),
    "a static Java member is closed and back in time": partial(restarted_in_time, JAVA, False),
    "a static member is killed and back too late": restarted_too_late,
    "automatic commits": automatic,
    "automatic commits before partitions go to others": handed_over,
}
