"""Ctrl-C in the middle of what must not be cut."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from rota import Broker
from rota.consumer.member_driver import SigintGuard
from rota.engine.member.events import MemberCommand, MemberEvent
from rota.engine.member.state import MemberState
from tests.support.consumer_driver import Application, default_control_c, press_control_c


@pytest.fixture(autouse=True)
def default_sigint() -> Iterator[None]:
    with default_control_c():
        yield


def test_a_member_that_met_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for each kind of event that the application gives, in the middle of it."""
    with Broker(config={"group.initial.rebalance.delay.ms": 0}) as broker:
        broker.create_topic("t", 4)
        with Application(broker.bootstrap_servers) as app:
            handle = app.driver.machine.handle
            met: set[type[MemberEvent]] = set()

            def pressed(event: MemberEvent, now_ms: int) -> list[MemberCommand]:
                here = threading.current_thread() is threading.main_thread()
                if here and type(event) not in met:
                    met.add(type(event))
                    press_control_c()
                return handle(event, now_ms)

            monkeypatch.setattr(app.driver.machine, "handle", pressed)
            with pytest.raises(KeyboardInterrupt):
                app.subscribe()
            cuts = 0
            while not app.is_settled:
                try:
                    app.poll(lambda: app.is_settled)
                except KeyboardInterrupt:
                    cuts += 1
            assert cuts == 3, "a poll, metadata, a listener's return"
            assert (app.state, app.generation) == (MemberState.STABLE, 1)
            monkeypatch.undo()
            app.close()
            assert not broker.group("g").members


def test_other_threads_need_none() -> None:
    done = []

    def work() -> None:
        with SigintGuard():
            done.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [signal.default_int_handler]
