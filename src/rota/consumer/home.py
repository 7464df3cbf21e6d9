"""The process that a consumer belongs to."""

from __future__ import annotations

import os

from rota.errors import RotaError


class Home:
    """Knows the process it was made in. A fork has neither threads nor sockets of its own."""

    __slots__ = ("_pid",)

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def is_forked(self) -> bool:
        """Is it another process now?"""
        return os.getpid() != self._pid

    def check(self) -> None:
        """:raises RotaError: this is another process"""
        if self.is_forked:
            raise RotaError(
                "this process was forked from the one that made the consumer: its thread and "
                "connections are not here. Make a consumer in each process"
            )
