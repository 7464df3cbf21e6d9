"""Opens the topics of a data folder, and puts right what a crash has left half done."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import MappingProxyType

from rota.broker.means import Means
from rota.broker.topic import Topic, deleted_name, empty_log, is_empty
from rota.broker.topics import Topics
from rota.errors import InputError
from rota.model.config import TopicConfig
from rota.model.setting import topic_config
from rota.model.topic import first_few
from rota.storage import owner
from rota.storage.adoption import NOT_TOPICS, PARTITION
from rota.storage.catalog import Entry, id_text
from rota.storage.disk import Disk
from rota.storage.log import BARE, Log

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
    unmade = frozenset(each for each in folders if each not in names or _is_bare(means, each))
    known = means.folder.recovery_points
    lost = [
        folder
        for number, folder in enumerate(folders)
        if folder in unmade and (entry.name, number) in known
    ]
    if lost:
        means.report(f"folders are missing, and made anew without records: {first_few(lost)}")
    return Topic(
        name=entry.name,
        id=entry.id,
        overrides=MappingProxyType(dict(entry.overrides)),
        config=config,
        logs=[
            empty_log(means, folder, entry.id, config, now)
            if folder in unmade
            else _open_log(means, entry, number, config, now)
            for number, folder in enumerate(folders)
        ],
    )


def _is_bare(means: Means, folder: str) -> bool:
    """Is a partition's folder as it is before the first record?"""
    return BARE.issuperset(means.disk.names(folder))


def _open_log(means: Means, entry: Entry, number: int, config: TopicConfig, now: int) -> Log:
    where = (entry.name, number)
    name = f"{entry.name}-{number}"
    problem = _check_owner(means, name, entry.id)
    if problem is not None:
        means.report(f"the partition {name} is offline: {problem}")
        log = empty_log(means, name, entry.id, config, now)
        log.offline = problem
        return log
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


def _check_owner(means: Means, folder: str, topic_id: bytes) -> str | None:
    """A folder says which topic it is of, or is mended; tells if it is another's."""
    said = owner.stated(means.disk, folder)
    if said == topic_id:
        return None
    if said is not None and not owner.is_damaged(means.disk, folder, topic_id):
        return (
            f"the folder {folder} is of another topic, its id is {id_text(said)}, and not "
            f"{id_text(topic_id)} as in the catalogue: put back the right one, and start again"
        )
    path = f"{folder}/{owner.NAME}"
    means.report(f"{path}: it does not say the topic's id; it is written anew")
    means.disk.replace(path, owner.pack(topic_id))
    return None


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
