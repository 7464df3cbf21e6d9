"""What a broker keeps its topics with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rota.broker.alarm import Alarms
from rota.model.config import BrokerConfig, TopicConfig
from rota.storage.disk import Disk
from rota.storage.folder import Folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """The data folder, the settings, and what comes from outside."""

    disk: Disk
    folder: Folder
    """With the catalogue."""
    config: BrokerConfig
    defaults: TopicConfig
    """What holds for topics without settings of their own."""
    alarms: Alarms
    new_id: Callable[[], bytes]
    """Gives 16 bytes, never the same."""
    report: Callable[[str], None]
    """Is told what goes wrong and what was put right."""
