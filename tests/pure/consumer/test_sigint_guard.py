"""Ctrl-C in the middle of what must not be cut."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from types import FrameType

import pytest

from rota.consumer.member_driver import SigintGuard
from tests.support.consumer_driver import default_control_c, press_control_c


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    with default_control_c():
        yield


def test_it_comes_when_the_step_is_complete() -> None:
    steps = []

    def work() -> None:
        with SigintGuard():
            press_control_c()
            steps.append("after")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert steps == ["after"]


def test_without_one_nothing_is_raised() -> None:
    before = signal.getsignal(signal.SIGINT)
    with SigintGuard():
        pass
    assert signal.getsignal(signal.SIGINT) is before


def test_one_in_another() -> None:
    steps = []

    def work() -> None:
        with SigintGuard():
            with SigintGuard():
                press_control_c()
            steps.append("after")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert steps == ["after"]


def test_the_applications_own_handler_is_called_once() -> None:
    heard: list[int] = []

    def handler(number: int, _frame: FrameType | None) -> None:
        heard.append(number)

    before = signal.signal(signal.SIGINT, handler)
    try:
        with SigintGuard():
            press_control_c()
            assert not heard
        assert heard == [signal.SIGINT]
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_one_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with SigintGuard():
            press_control_c()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
