"""The parts of a broker that its handlers work on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rota.broker.alarm import Alarms
from rota.broker.groups import Groups
from rota.broker.topics import Topics
from rota.broker.turn import Turns
from rota.model.config import BrokerConfig
from rota.wire.sasl import Mechanism, Users

INFO, WARNING, ERROR = 20, 30, 40
"""Levels of :mod:`logging`."""


@dataclass(slots=True, kw_only=True)
class Parts:
    """What a broker is made of. Time comes with every call; nothing here has a clock."""

    config: BrokerConfig
    topics: Topics
    groups: Groups
    alarms: Alarms
    log: Callable[[int, str], None]
    """Takes a level and a text."""
    address: tuple[str, int]
    """The host and port that clients are told."""
    turns: Turns = field(default_factory=Turns)
    """Calls that waited and may be answered."""
    versions: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """The APIs that clients are offered, with the lowest and highest version."""
    users: Users | None = None
    """Who may log in; None: nobody has to."""
    mechanisms: tuple[Mechanism, ...] = tuple(Mechanism)
    """How to log in."""
    new_nonce: Callable[[], str] | None = None
    """Gives printable text that nobody can guess; needed where there are users."""
