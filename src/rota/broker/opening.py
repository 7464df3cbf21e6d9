"""Opens the topics of a data folder, and puts right what a crash has left half done."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import MappingProxyType

from rota.broker.means import Means
from rota.broker.topics import Topic, Topics, deleted_name, is_empty, make_log
from rota.errors import InputError, Unreachable
from rota.model.config import TopicConfig
from rota.model.setting import topic_config
from rota.model.topic import first_few
from rota.storage.adoption import NOT_TOPICS, PARTITION, stated_id
from rota.storage.catalog import Entry, id_text
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
    # A log that was cut or made anew ends before its old recovery point: what is written there next
    # would count as safe on the disk, and be trusted after a crash.
    topics.housekeeping.save_points()
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
    folders = [f"{entry.name}-{number}" for number in range(entry.partitions)]
    missing = [each for each in folders if each not in names or not means.disk.names(each)]
    if missing:
        means.report(f"folders are missing, and made anew without records: {first_few(missing)}")
    gone = frozenset(missing)
    return Topic(
        name=entry.name,
        id=entry.id,
        overrides=MappingProxyType(dict(entry.overrides)),
        config=config,
        logs=[
            make_log(means, folder, entry.id, config, now)
            if folder in gone
            else _open_log(means, entry, number, config, now)
            for number, folder in enumerate(folders)
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
    said = stated_id(means.disk, folder)
    if said is None:
        path = f"{folder}/{METADATA}"
        means.report(f"{path}: it does not say the topic's id; it is written anew")
        means.disk.replace(path, f"version: 0\ntopic_id: {id_text(topic_id)}".encode())
    elif said == topic_id:
        return
    elif sum(a != b for a, b in zip(id_text(said), id_text(topic_id), strict=True)) == 1:
        path = f"{folder}/{METADATA}"
        means.report(f"{path}: a character of the topic's id is wrong; it is written anew")
        means.disk.replace(path, f"version: 0\ntopic_id: {id_text(topic_id)}".encode())
    else:
        raise Unreachable(
            f"the folder {folder} is of another topic: its id is {id_text(said)}, and not "
            f"{id_text(topic_id)} as in the catalogue; move it away"
        )


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
    return any(name.endswith(".log") for name in disk.names(folder))
