"""Opens the topics of a data folder, and puts right what a crash has left half done."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import MappingProxyType

from rota.broker.means import Means
from rota.broker.topics import Topic, Topics, deleted_name, is_empty, make_log
from rota.errors import DiskError, InputError, Unreachable
from rota.model.config import TopicConfig
from rota.model.setting import topic_config
from rota.model.topic import first_few
from rota.storage.catalog import METADATA as TOPIC_ID
from rota.storage.catalog import NOT_TOPICS, PARTITION, Entry, id_bytes, id_text
from rota.storage.disk import Disk
from rota.storage.log import METADATA, Log

_DELETED = re.compile(r".*\.[0-9a-f]{32}-delete")


def open_topics(means: Means, now: int) -> Topics:
    """All topics of the catalogue, their logs open.

    :raises DiskError: a log cannot be read
    """
    names = frozenset(means.disk.names(""))
    doomed = _carry_on_deletions(means, names)
    names -= frozenset(doomed)
    entries = means.folder.catalog.topics.values()
    topics = Topics(means, [_open_topic(means, entry, names, now) for entry in entries])
    _clear(means, names)
    for topic in topics:
        for log in topic.logs:
            for producer_id, _ in log.producers:
                means.folder.catalog.avoid_producer_id(producer_id)
    topics.housekeeping.start(now)
    if doomed:
        topics.housekeeping.remove_later(doomed, now)
    return topics


def _carry_on_deletions(means: Means, names: frozenset[str]) -> list[str]:
    """Finishes deletions that a crash has stopped; gives the folders to be removed."""
    doomed = sorted(name for name in names if _DELETED.fullmatch(name))
    for entry in tuple(means.folder.catalog.topics.values()):
        folders = {
            f"{entry.name}-{number}": deleted_name(entry.name, number, entry.id)
            for number in range(entry.partitions)
        }
        if names.isdisjoint(folders.values()):
            continue
        means.report(f"topic {entry.name!r}: its deletion, which a stop cut short, is carried on")
        for name, deleted in folders.items():
            if name in names:
                means.disk.rename(name, deleted)
                doomed.append(deleted)
        means.folder.catalog.remove(entry.name)
    if doomed:
        means.report(f"folders of deleted topics are removed: {first_few(doomed)}")
    return doomed


def _open_topic(means: Means, entry: Entry, names: frozenset[str], now: int) -> Topic:
    config = _config(entry, means.defaults, means.report)
    return Topic(
        name=entry.name,
        id=entry.id,
        overrides=MappingProxyType(dict(entry.overrides)),
        config=config,
        logs=[
            _open_log(means, entry, number, config, now)
            if f"{entry.name}-{number}" in names and means.disk.names(f"{entry.name}-{number}")
            else _make_anew(means, entry, number, config, now)
            for number in range(entry.partitions)
        ],
    )


def _open_log(means: Means, entry: Entry, number: int, config: TopicConfig, now: int) -> Log:
    where = (entry.name, number)
    name = f"{entry.name}-{number}"
    _check_owner(means, name, entry.id)
    return Log.open(
        means.disk,
        name,
        config,
        recovery_point=means.folder.recovery_points.get(where, 0),
        log_start=means.folder.log_starts.get(where, 0),
        clean=means.folder.clean,
        report=means.report,
        now=now,
        expiration=means.config.producer_expiration,
    )


def _check_owner(means: Means, folder: str, topic_id: bytes) -> None:
    """A folder says which topic it is of; a loss of power may have taken that away."""
    path = f"{folder}/{METADATA}"
    size = means.disk.size(path)
    said = b"" if size is None else means.disk.read(path, 0, size)
    found = TOPIC_ID.fullmatch(said.decode("latin-1"))
    if found is None:
        means.report(f"{path}: it does not say the topic's id; it is written anew")
        means.disk.replace(path, f"version: 0\ntopic_id: {id_text(topic_id)}".encode())
    elif id_bytes(found["id"]) == topic_id:
        return
    elif sum(a != b for a, b in zip(found["id"], id_text(topic_id), strict=True)) == 1:
        means.report(f"{path}: a character of the topic's id is wrong; it is written anew")
        means.disk.replace(path, f"version: 0\ntopic_id: {id_text(topic_id)}".encode())
    else:
        raise Unreachable(
            f"the folder {folder} is of another topic: its id is {found['id']}, and not "
            f"{id_text(topic_id)} as in the catalogue; move it away"
        )


def _make_anew(means: Means, entry: Entry, number: int, config: TopicConfig, now: int) -> Log:
    name = f"{entry.name}-{number}"
    means.report(f"{name}: the folder is missing; it is made anew, without records")
    return make_log(means, name, entry.id, config, now)


def _config(entry: Entry, defaults: TopicConfig, report: Callable[[str], None]) -> TopicConfig:
    """What holds for a topic; settings that Rota does not know are left out, and said."""
    good: dict[str, str] = {}
    for key, value in entry.overrides.items():
        try:
            topic_config({**good, key: value}, defaults)
            good[key] = value
        except InputError as error:
            report(f"topic {entry.name!r}: a setting is ignored: {error}")
    return topic_config(good, defaults)


def _clear(means: Means, names: frozenset[str]) -> None:
    """Removes what a creation has left that a stop cut short; says what else is there."""
    topics = means.folder.catalog.topics
    for name in sorted(names):
        found = PARTITION.fullmatch(name)
        if found is None or found["topic"] in NOT_TOPICS:
            continue
        entry = topics.get(found["topic"])
        if entry is not None and int(found["number"]) < entry.partitions:
            continue
        if is_empty(means.disk, name):
            means.disk.remove(name)
            means.report(f"{name}: removed; it is empty, and of no topic in the catalogue")
        elif _has_records(means.disk, name):
            means.report(f"{name}: left alone; it has records, but is of no topic in the catalogue")


def _has_records(disk: Disk, folder: str) -> bool:
    try:
        return any(name.endswith(".log") for name in disk.names(folder))
    except DiskError:  # it is a file
        return False
