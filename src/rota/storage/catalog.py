"""The catalogue of a data folder: its topics with their settings, and who it belongs to.

It is kept in two files with the same content, each a line with a checksum and then JSON. Both are
written for every change, one after the other, so at any time one of them is whole. The newer good
one counts, and a bad one is written anew.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from rota.errors import DiskError, FormatError, Unreachable
from rota.formats.batch.checksum import checksum
from rota.storage import snapshot
from rota.storage.disk import Disk

FIRST, SECOND = "rota.catalog", "rota.catalog.copy"
FORM = re.compile(rb"rota catalogue 1, checksum ([0-9a-f]{8})\n")
ID_BLOCK = 1_000
"""So many producer ids are set aside at a time; those that a crash leaves are never given."""
ID_GAP = 1 << 32
"""How far above those of another broker the ids begin: it may have given more than is seen."""
PARTITION = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<number>0|[1-9][0-9]{0,8})")
METADATA = re.compile(r"version: 0\ntopic_id: (?P<id>[A-Za-z0-9_-]{22})\n?")
"""What a partition's folder says of its topic."""
NOT_TOPICS = frozenset({"__cluster_metadata"})
"""Kafka's own log of its metadata, beside the topics."""
ALWAYS_COMPACTED = frozenset({"__consumer_offsets", "__transaction_state"})

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A topic."""

    name: str
    id: bytes
    partitions: int
    overrides: Mapping[str, str] = field(default_factory=dict)
    """Its own settings, under Kafka's names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Whose folder it is; ``meta.properties`` says the same."""

    cluster_id: str
    node_id: int
    directory_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """All that a copy says."""

    version: int
    """One more with each change."""
    identity: Identity
    topics: Mapping[str, Entry]
    """By name, in the order of names."""
    next_producer_id: int
    """All below may have been given."""


class Catalog:
    """The catalogue of an open folder. Every change is on the disk before it is seen."""

    def __init__(self, disk: Disk, content: Content) -> None:
        self._disk = disk
        self._content = content
        self._next_id = content.next_producer_id

    @classmethod
    def create(cls, disk: Disk, identity: Identity) -> Catalog:
        """One without topics, of a new folder."""
        empty = Content(version=0, identity=identity, topics={}, next_producer_id=0)
        catalog = cls(disk, empty)
        catalog._save(empty)
        return catalog

    @classmethod
    def exists(cls, disk: Disk) -> bool:
        """Does the folder have one, whole or not?"""
        return not {FIRST, SECOND}.isdisjoint(disk.names(""))

    @classmethod
    def open(cls, disk: Disk, report: Report) -> Catalog:
        """That of a folder which has one.

        :raises Unreachable: both copies are damaged; says how to go on
        """
        found: list[Content] = []
        bad: dict[str, str] = {}
        for path in (FIRST, SECOND):
            size = disk.size(path)
            if size is None:  # the power was cut after the first was written for the first time
                continue
            try:
                found.append(unpack(disk.read(path, 0, size)))
            except (FormatError, DiskError) as error:
                bad[path] = str(error).removeprefix(f"{path}: ")
        if not found:
            told = "; ".join(f"{path}: {problem}" for path, problem in bad.items())
            raise Unreachable(
                f"the catalogue of topics is damaged in both copies ({told}): start with --adopt "
                "to make a new one from the partitions' folders; topics' settings are lost then"
            )
        content = max(found, key=lambda each: each.version)
        for path, problem in bad.items():
            report(f"{path}: {problem}; it is written anew from the other copy")
        catalog = cls(disk, content)
        if len(found) < 2 or found[0] != found[1]:
            catalog._save(content)
        return catalog

    @classmethod
    def adopt(
        cls, disk: Disk, identity: Identity, report: Report, new_id: Callable[[], bytes]
    ) -> Catalog:
        """A new one from the partitions' folders: a Kafka's, or where both copies are bad."""
        topics = _topics_of_folders(disk, report, new_id)
        given = max((_highest_id(disk, name) for name in disk.names("")), default=-1)
        next_id = 0 if given < 0 else (given // ID_GAP + 1) * ID_GAP
        version = max([1, *(old.version for old in _readable(disk))]) + 1
        content = Content(
            version=version, identity=identity, topics=topics, next_producer_id=next_id
        )
        catalog = cls(disk, content)
        catalog._save(content)
        report(f"{len(topics)} topics were found in their folders; Kafka's defaults hold for them")
        return catalog

    @property
    def identity(self) -> Identity:
        """Whose folder it is."""
        return self._content.identity

    @property
    def topics(self) -> Mapping[str, Entry]:
        """By name, in the order of names."""
        return self._content.topics

    def put(self, entry: Entry) -> None:
        """Adds a topic, or changes what is known of it."""
        self._change(topics=_ordered({**self.topics, entry.name: entry}))

    def remove(self, name: str) -> None:
        """Takes a topic out."""
        self._change(topics=_ordered({k: v for k, v in self.topics.items() if k != name}))

    def new_producer_id(self) -> int:
        """An id that was never given before, not even by a process that was killed."""
        if self._next_id >= self._content.next_producer_id:
            self._change(next_producer_id=self._next_id + ID_BLOCK)
        self._next_id += 1
        return self._next_id - 1

    def avoid_producer_id(self, seen: int) -> None:
        """An id was found in a log: neither it nor one below is given from now on."""
        self._next_id = max(self._next_id, seen + 1)

    def _change(
        self, *, topics: Mapping[str, Entry] | None = None, next_producer_id: int | None = None
    ) -> None:
        old = self._content
        new = replace(
            old,
            version=old.version + 1,
            topics=old.topics if topics is None else topics,
            next_producer_id=next_producer_id or old.next_producer_id,
        )
        self._save(new)
        self._content = new

    def _save(self, new: Content) -> None:
        data = pack(new)
        try:
            self._disk.replace(FIRST, data)
            self._disk.replace(SECOND, data)
        except DiskError:
            if new is not self._content:
                self._take_back()
            raise

    def _take_back(self) -> None:
        """What the caller is told has failed must not be there after a restart."""
        try:
            self._disk.replace(FIRST, pack(self._content))
        except DiskError:
            with suppress(DiskError):  # a full disk: the second copy, still the old one, is enough
                self._disk.remove(FIRST)
                self._disk.sync("")


def pack(content: Content) -> bytes:
    """A copy's bytes."""
    identity = content.identity
    body = json.dumps(
        {
            "version": content.version,
            "cluster.id": identity.cluster_id,
            "node.id": identity.node_id,
            "directory.id": identity.directory_id,
            "next.producer.id": content.next_producer_id,
            "topics": [
                {
                    "name": each.name,
                    "id": id_text(each.id),
                    "partitions": each.partitions,
                    "settings": dict(sorted(each.overrides.items())),
                }
                for each in content.topics.values()
            ],
        },
        indent=1,
    ).encode()
    return b"rota catalogue 1, checksum %08x\n%s\n" % (checksum(body + b"\n"), body)


def unpack(data: bytes) -> Content:
    """What a copy says.

    :raises FormatError: it is damaged
    """
    head = FORM.match(data)
    if head is None:
        raise FormatError("its first line is none of a catalogue of Rota")
    body = data[head.end() :]
    if int(head[1], 16) != (made := checksum(body)):
        raise FormatError(f"its checksum is {made:08x}, its first line says {head[1].decode()}")
    try:
        said = json.loads(body)
        entries = [
            Entry(
                name=each["name"],
                id=id_bytes(each["id"]),
                partitions=each["partitions"],
                overrides=MappingProxyType(each["settings"]),
            )
            for each in said["topics"]
        ]
        identity = Identity(
            cluster_id=said["cluster.id"],
            node_id=said["node.id"],
            directory_id=said["directory.id"],
        )
        return Content(
            version=said["version"],
            identity=identity,
            topics=_ordered({entry.name: entry for entry in entries}),
            next_producer_id=said["next.producer.id"],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"its content is not a catalogue's: {error!r}") from error


def id_text(topic_id: bytes) -> str:
    """An id as Kafka writes it in texts."""
    return urlsafe_b64encode(topic_id).decode().rstrip("=")


def id_bytes(text: str) -> bytes:
    """An id from its text.

    :raises FormatError: it is none
    """
    try:
        found = urlsafe_b64decode(text + "==")
    except (NotBase64, ValueError):
        found = b""
    if len(found) != 16:
        raise FormatError(f"{text!r} is no id")
    return found


def _ordered(topics: Mapping[str, Entry]) -> Mapping[str, Entry]:
    return MappingProxyType(dict(sorted(topics.items())))


def _readable(disk: Disk) -> list[Content]:
    found = []
    for path in (FIRST, SECOND):
        with suppress(FormatError, DiskError):
            found.append(unpack(disk.read(path, 0, disk.size(path) or 0)))
    return found


def _topics_of_folders(
    disk: Disk, report: Report, new_id: Callable[[], bytes]
) -> Mapping[str, Entry]:
    numbers: dict[str, set[int]] = {}
    ids: dict[str, bytes] = {}
    for name in disk.names(""):
        found = PARTITION.fullmatch(name)
        if found is None or found["topic"] in NOT_TOPICS or not disk.names(name):
            continue
        topic = found["topic"]
        numbers.setdefault(topic, set()).add(int(found["number"]))
        topic_id = _topic_id(disk, f"{name}/partition.metadata", report)
        if topic_id is not None and ids.setdefault(topic, topic_id) != topic_id:
            report(f"{name}: its topic's id is another than that of the partitions before it")
    topics = {}
    for topic, there in numbers.items():
        count = max(there) + 1
        if len(there) < count:
            report(f"topic {topic!r}: {count - len(there)} of {count} partitions have no folder")
        overrides = {"cleanup.policy": "compact"} if topic in ALWAYS_COMPACTED else {}
        topic_id = ids.get(topic) or new_id()
        topics[topic] = Entry(name=topic, id=topic_id, partitions=count, overrides=overrides)
    return _ordered(topics)


def _topic_id(disk: Disk, path: str, report: Report) -> bytes | None:
    size = disk.size(path)
    text = b"" if size is None else disk.read(path, 0, size)
    found = METADATA.fullmatch(text.decode("latin-1"))
    if found is None:
        report(f"{path}: it does not say its topic's id")
        return None
    return id_bytes(found["id"])


def _highest_id(disk: Disk, folder: str) -> int:
    """The highest producer id that a partition's snapshots know."""
    highest = -1
    for offset in snapshot.offsets(disk, folder):
        path = snapshot.path_of(folder, offset)
        with suppress(FormatError, DiskError):
            known = snapshot.unpack(disk.read(path, 0, disk.size(path) or 0))
            highest = max([highest, *(producer_id for producer_id, _ in known)])
    return highest
