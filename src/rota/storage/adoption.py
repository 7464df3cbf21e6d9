"""What can be taken over of a folder that has no catalogue of Rota's: the topics in it.

Three kinds come to this: a folder that a Kafka keeps its topics in, a mere copy of partitions'
folders, and one of Rota's own that has lost its catalogue. Nothing is written here, and what is
found must lose nothing by being adopted:

- what a topic was set to is not in its folders, so nothing of it is deleted or compacted;
- a Kafka that gets its folder back must find nothing that it would refuse. It knows each topic's
  id, and where each partition is: a folder made anew would be a second one of a partition.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from rota.errors import DiskError, FormatError, InputError
from rota.formats.batch.header import MAGIC
from rota.model.naming import JOURNAL
from rota.model.topic import first_few
from rota.storage import owner, snapshot
from rota.storage.catalog import Entry, id_text
from rota.storage.disk import Disk

PARTITION = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<number>0|[1-9][0-9]{0,8})")
SEGMENT = re.compile(r"[0-9]{20}\.log")
NOT_TOPICS = frozenset({"__cluster_metadata"})
"""Kafka's own log of its metadata, beside the topics."""
SET_ASIDE = re.compile(r".*-[0-9]+\.[0-9a-f]{32}-(delete|future|stray)")
"""Partitions' folders that are none any more, or not yet."""
MOST_PARTITIONS = 10_000
"""Of a topic: a folder's number is believed up to here, as those before it would be made."""
MAGIC_AT = 16
"""The same in every format."""
ID_GAP = 1 << 32
"""How far above those of another broker the ids begin: it may have given more than is seen."""
KEEP = {"cleanup.policy": "delete", "retention.bytes": "-1", "retention.ms": "-1"}
"""Nothing is deleted, for neither time nor size asks for it."""
KEPT = (
    "their settings are not known, so nothing is deleted or compacted (retention.ms=-1, "
    "retention.bytes=-1), but for the groups' journal, until you set what shall hold"
)
COMPACT = {"cleanup.policy": "compact"}
"""Of the groups' journal, whatever a Kafka was set to: it is what the topic is made for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """Topics as their folders show them."""

    topics: Mapping[str, Entry]
    notes: tuple[str, ...]
    """What the user is told."""


@dataclass(slots=True)
class _Seen:
    """The folders of a topic."""

    numbers: set[int] = field(default_factory=set)
    ids: dict[bytes, str] = field(default_factory=dict)
    """With the first folder that says it."""

    @property
    def count(self) -> int:
        return max(self.numbers) + 1

    @property
    def missing(self) -> list[int]:
        return [number for number in range(self.count) if number not in self.numbers]


def partition_folders(disk: Disk) -> list[str]:
    """The folders of topics' partitions."""
    found = []
    for name in disk.names(""):
        parts = PARTITION.fullmatch(name)
        if parts is not None and parts["topic"] not in NOT_TOPICS:
            inside = disk.names(name)
            if owner.NAME in inside or any(SEGMENT.fullmatch(each) for each in inside):
                found.append(name)
    return found


def survey(
    disk: Disk,
    new_id: Callable[[], bytes],
    *,
    kafkas: bool,
    called: str,
    known: Mapping[str, Entry] | None = None,
) -> Adoption:
    """The topics of a folder, by its partitions' folders.

    :param kafkas: a Kafka may get it back: it is refused if anything would have to be made in it
    :param called: what errors call the folder
    :param known: topics of an old catalogue: the same ones keep their settings
    :raises InputError: it cannot be adopted as it is
    """
    seen: dict[str, _Seen] = {}
    for name in partition_folders(disk):
        _check_format(disk, name)
        topic, _, number = name.rpartition("-")
        found = seen.setdefault(topic, _Seen())
        found.numbers.add(int(number))
        topic_id = owner.stated(disk, name)
        if topic_id is not None:
            found.ids.setdefault(topic_id, name)
    topics, notes = {}, list[str]()
    for topic, found in sorted(seen.items()):
        _check(topic, found, kafkas=kafkas, called=called)
        if found.missing:
            told = f"{len(found.missing)} of {found.count} partitions have no folder"
            notes.append(f"topic {topic!r}: {told}, and are made without records")
        if not found.ids:
            notes.append(f"topic {topic!r}: its folders do not say its id; it gets a new one")
        topic_id = next(iter(found.ids), None) or new_id()
        old = (known or {}).get(topic)
        overrides = COMPACT if topic == JOURNAL else KEEP
        if old is not None and old.id == topic_id:
            overrides = dict(old.overrides)
        topics[topic] = Entry(name=topic, id=topic_id, partitions=found.count, overrides=overrides)
    notes.append(f"{len(topics)} topics were adopted; {KEPT}")
    return Adoption(topics=topics, notes=tuple(notes))


def next_producer_id(disk: Disk) -> int:
    """One above all that the partitions' snapshots know, and above those nearby."""
    highest = -1
    for folder in partition_folders(disk):
        for offset in snapshot.offsets(disk, folder):
            path = snapshot.path_of(folder, offset)
            with suppress(FormatError, DiskError):
                known = snapshot.unpack(disk.read(path, 0, disk.size(path) or 0))
                highest = max([highest, *(producer_id for producer_id, _ in known)])
    return 0 if highest < 0 else (highest // ID_GAP + 1) * ID_GAP


def _check_format(disk: Disk, folder: str) -> None:
    """Recovery would take batches of Kafka before 0.11 for damage, and cut them off."""
    for name in disk.names(folder):
        if SEGMENT.fullmatch(name):
            magic = disk.read(f"{folder}/{name}", MAGIC_AT, 1)
            if magic and magic[0] < MAGIC:
                raise InputError(
                    f"{folder}/{name}: message format {magic[0]}, of Kafka before 0.11, is not "
                    "read by Rota; nothing was adopted"
                )


def _check(topic: str, found: _Seen, *, kafkas: bool, called: str) -> None:
    if found.count > MOST_PARTITIONS:
        raise InputError(
            f"{called}: {topic}-{found.count - 1} is taken for a partition, and a topic has "
            f"{MOST_PARTITIONS} at most here: move it away"
        )
    if len(found.ids) > 1:
        (one, here), (other, there), *_ = found.ids.items()
        raise InputError(
            f"{called}: {here} and {there} are of two topics, their ids are {id_text(one)} and "
            f"{id_text(other)}: move one away"
        )
    if not kafkas:
        return
    copy = "copy the partitions' folders into a new folder, without meta.properties, and adopt that"
    if found.missing:
        raise InputError(
            f"{called}: partitions {first_few([*map(str, found.missing)])} of topic {topic!r} are "
            f"not in it, but in another folder or node of that Kafka: {copy}"
        )
    if not found.ids:
        raise InputError(f"{called}: no folder of topic {topic!r} says the topic's id: {copy}")
