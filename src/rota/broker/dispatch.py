"""Which handler answers which request. What is offered to clients is what is handled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from rota.broker.call import Call
from rota.broker.part import Parts
from rota.errors import Code
from rota.wire.api import Api
from rota.wire.message import Message

Handle: TypeAlias = Callable[[Parts, Call], None]
"""Answers a call, at once or later."""
Refuse: TypeAlias = Callable[[Call, Code], Message]
"""The response that says this error wherever the API's schema has room for one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """An API: the versions it is handled in, and by what."""

    api: Api
    lowest: int
    highest: int
    handle: Handle
    refuse: Refuse
    advertised_from: int | None = None
    """Where clients are told a lower version than is handled."""

    def __post_init__(self) -> None:
        assert 0 <= self.lowest <= self.highest

    def handles(self, version: int) -> bool:
        """Is a request of this version answered?"""
        return self.lowest <= version <= self.highest
