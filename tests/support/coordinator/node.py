"""Rota's coordinator as the other side: appends succeed at once, time is a number."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping
from itertools import count

from rota.engine.coordinator.events import TopicsDeleted
from rota.engine.model.config import GroupConfig
from rota.engine.model.journal_entry import ClassicEntry
from rota.engine.model.request import GroupRequest
from rota.engine.model.response import GroupResponse
from tests.support.coordinator import wire
from tests.support.coordinator.case_run import QUIET
from tests.support.coordinator_driver import CoordinatorDriver


class CoordinatorSide:
    """A coordinator, for one case. Its clock moves only with the case's steps."""

    def __init__(self, config: GroupConfig) -> None:
        ids = count(1)
        self._driver = CoordinatorDriver(config, lambda: str(uuid.UUID(int=next(ids))))
        self._sent: dict[int, tuple[str, GroupRequest]] = {}
        #: How near a timer was, at its nearest, when a step ended.
        self.slack = config.retention_check_interval

    @property
    def journal(self) -> list[ClassicEntry]:
        """All that was appended."""
        return self._driver.journal

    @property
    def remaining(self) -> int:
        """Milliseconds until the next timer ends."""
        driver = self._driver
        return min((at - driver.now for at in driver.timers.values()), default=self.slack)

    def send(self, label: str, client_id: str, request: GroupRequest) -> None:
        self._sent[self._driver.send(request)] = label, request

    def collect(
        self, milliseconds: int, expected: Collection[str] | None
    ) -> Mapping[str, GroupResponse]:
        driver = self._driver
        driver.wait(milliseconds)
        if len(self._sent) > len(driver.answers):
            driver.wait(QUIET)  # so that both sides' timers keep the same pace
        self.slack = min(self.slack, *(at - driver.now for at in driver.timers.values()))
        answers: dict[str, GroupResponse] = {}
        for token, reply in driver.answers.items():
            label, request = self._sent.pop(token)
            answers[label] = wire.carried(request, reply)
        driver.answers.clear()
        return answers

    def ask(self, request: GroupRequest, wanted: Callable[[GroupResponse], bool]) -> GroupResponse:
        return self._driver.answers.pop(self._driver.send(request))

    def restart(self) -> None:
        self._sent.clear()
        self._driver.answers.clear()
        self._driver.restart()

    def create_topic(self, topic: str) -> None:
        """Which topics there are is the broker's to know."""

    def delete_topic(self, topic: str) -> None:
        self._driver.handle(TopicsDeleted(((topic, None),)))
