"""Puts a broker together: its folder, its topics and groups, and who answers which request."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from secrets import token_bytes, token_urlsafe

from rota.broker.alarm import Alarms
from rota.broker.configuration import Configuration
from rota.broker.dispatch import Handler
from rota.broker.fault import Faults
from rota.broker.groups import Groups
from rota.broker.handlers import (
    cluster,
    config,
    delete_records,
    fetch,
    group,
    leader_epoch,
    list_offsets,
    metadata,
    offset,
    produce,
    producer_id,
    sasl,
    topic,
    versions,
)
from rota.broker.means import Means
from rota.broker.node import Node
from rota.broker.opening import open_topics
from rota.broker.part import INFO, WARNING, Parts
from rota.errors import DiskError
from rota.formats.buffer import Bytes
from rota.storage.disk import RealDisk
from rota.storage.folder import Lock, open_folder, survey
from rota.wire.sasl import Mechanism, Users

MODULES = (
    cluster,
    config,
    delete_records,
    fetch,
    group,
    leader_epoch,
    list_offsets,
    metadata,
    offset,
    produce,
    producer_id,
    sasl,
    topic,
    versions,
)


@dataclass(slots=True, kw_only=True)
class Installation:
    """A broker on this machine, but for its sockets."""

    node: Node
    disk: RealDisk
    lock: Lock
    lasting: bool
    """Its folder will be used again."""

    def close(self, now: int) -> None:
        """Stops in good order: the next start need not look through the logs.

        :raises DiskError: that could not be done; the next start recovers
        """
        try:
            if self.lasting:
                self.node.parts.topics.close(now)
        finally:
            self.disk.close()
            self.lock.release()


def handlers() -> dict[int, Handler]:
    """All that is answered, by API."""
    return {each.api: each for module in MODULES for each in module.HANDLERS}


def install(  # noqa: PLR0913, what a broker is told
    root: Path,
    configuration: Configuration,
    *,
    address: tuple[str, int],
    log: Callable[[int, str], None],
    now: int,
    passwords: Mapping[str, str] | None = None,
    mechanisms: tuple[Mechanism, ...] = tuple(Mechanism),
    adopt: bool = False,
    lasting: bool = True,
) -> Installation:
    """Opens a data folder, or makes it, and puts a broker on it.

    :param address: what clients are told to connect to
    :param log: takes a level of :mod:`logging` and a text
    :param passwords: by user; without any, nobody has to log in
    :param adopt: take over a folder without a catalogue: a Kafka's, or a copy of partitions
    :raises Unreachable: another process has the folder, or it cannot be read or written
    :raises InputError: it is not Rota's
    """
    disk = RealDisk(root) if lasting else FleetingDisk(root)
    called = f"the folder {root}"
    node_id = configuration.broker.node_id
    check = partial(survey, disk, node_id=node_id, new_id=_new_bytes, adopt=adopt, called=called)
    try:
        lock = Lock(root, check)
    except BaseException:
        disk.close()
        raise
    try:
        node = _node(
            disk,
            configuration,
            address=address,
            log=log,
            now=now,
            users=Users(passwords, partial(token_bytes, 16)) if passwords else None,
            mechanisms=mechanisms,
            adopt=adopt,
            called=called,
        )
    except BaseException:
        disk.close()
        lock.release()
        raise
    return Installation(node=node, disk=disk, lock=lock, lasting=lasting)


def _node(  # noqa: PLR0913, as above
    disk: RealDisk,
    configuration: Configuration,
    *,
    address: tuple[str, int],
    log: Callable[[int, str], None],
    now: int,
    users: Users | None,
    mechanisms: tuple[Mechanism, ...],
    adopt: bool,
    called: str,
) -> Node:
    broker = configuration.broker
    folder = open_folder(
        disk,
        node_id=broker.node_id,
        new_id=_new_bytes,
        report=partial(log, WARNING),
        adopt=adopt,
        called=called,
    )
    alarms = Alarms()
    topics = open_topics(
        Means(
            disk=disk,
            folder=folder,
            config=broker,
            defaults=configuration.topic,
            alarms=alarms,
            new_id=_new_bytes,
            report=partial(log, WARNING),
        ),
        now,
    )
    groups = Groups(configuration.group, topics, alarms, _new_text, log, node_id=broker.node_id)
    groups.load(now)
    offered = handlers()
    parts = Parts(
        config=broker,
        topics=topics,
        groups=groups,
        alarms=alarms,
        log=log,
        address=address,
        versions=_versions(offered.values()),
        users=users,
        mechanisms=mechanisms,
        new_nonce=partial(token_urlsafe, 24),
    )
    if len(topics) and not folder.clean:
        log(WARNING, f"{called} was not closed in good order: its logs were looked through")
    log(INFO, f"cluster {folder.cluster_id}: {len(topics)} topics in {called}")
    return Node(parts, offered, faults=Faults(alarms), login_needed=users is not None)


def _versions(offered: Iterable[Handler]) -> dict[int, tuple[int, int]]:
    """What clients are told of each API: the lowest and the highest version."""
    return {
        each.api: (
            each.lowest if each.advertised_from is None else each.advertised_from,
            each.highest,
        )
        for each in offered
    }


def _new_bytes() -> bytes:
    return uuid.uuid4().bytes


def _new_text() -> str:
    return str(uuid.uuid4())


class FleetingDisk(RealDisk):
    """For a folder that will not be used again: nothing has to outlive a loss of power."""

    def replace(self, path: str, data: Bytes) -> None:
        """Gives a file new content."""
        self.remove(path)
        self.append(path, data)

    def sync(self, path: str) -> None:
        """There is no need."""

    def sync_all(self, paths: Sequence[str]) -> dict[str, DiskError]:
        """There is no need."""
        return {}
