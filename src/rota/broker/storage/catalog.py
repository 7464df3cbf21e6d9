"""The catalog of a log directory: its topics with their settings, and the node that owns it.

The catalog is kept in two files with the same content: a line with a checksum, then JSON. Each
change writes both, one after the other, so one of them is whole at any time. The newer good one
counts, and a bad one is rewritten.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from rota.broker.storage.disk import Disk
from rota.engine.formats.record_batch import compute_crc32c
from rota.errors import DiskError, FormatError

CATALOG_FILE, CATALOG_COPY_FILE = "rota.catalog", "rota.catalog.copy"

CATALOG_HEADER = re.compile(rb"rota catalogue 1, checksum ([0-9a-f]{8})\n")

#: So many producer ids are set aside at a time; those that a crash leaves are never given.
PRODUCER_ID_BLOCK = 1_000

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicEntry:
    """A topic in the catalog."""

    name: str
    id: bytes
    partitions: int
    #: Its own settings, under Kafka's names.
    overrides: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """The owner of the log directory; ``meta.properties`` has the same."""

    cluster_id: str
    node_id: int
    directory_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogContent:
    """All that a copy says."""

    #: One more with each change.
    version: int
    identity: MetaProperties
    #: By name, in the order of names.
    topics: Mapping[str, TopicEntry]
    #: All below may have been given.
    next_producer_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogCopies:
    """What the two files say."""

    #: The newest that is whole.
    content: CatalogContent | None
    #: What is wrong, by file.
    problems: Mapping[str, str]
    #: Both are there, and say the same.
    identical: bool


class Catalog:
    """The catalog of an open log directory. Every change is on the disk before it is visible."""

    def __init__(self, disk: Disk, content: CatalogContent) -> None:
        self._disk = disk
        self._content = content
        self._next_id = content.next_producer_id

    @classmethod
    def create(cls, disk: Disk, identity: MetaProperties) -> Catalog:
        """One without topics, of a new folder."""
        empty = CatalogContent(version=0, identity=identity, topics={}, next_producer_id=0)
        catalog = cls(disk, empty)
        catalog._save(empty)
        return catalog

    @classmethod
    def open(cls, disk: Disk, copies: CatalogCopies, report: Report) -> Catalog:
        """That of a folder which has a good copy; a bad one is written anew."""
        assert copies.content is not None
        for path, problem in copies.problems.items():
            report(f"{path}: {problem}; it is written anew from the other copy")
        catalog = cls(disk, copies.content)
        if not copies.identical:
            catalog._save(copies.content)
        return catalog

    @classmethod
    def adopt(
        cls,
        disk: Disk,
        identity: MetaProperties,
        topics: Mapping[str, TopicEntry],
        next_producer_id: int,
        before: CatalogContent | None = None,
    ) -> Catalog:
        """A new one of topics that were found, in place of one that does not hold any more."""
        content = CatalogContent(
            version=1 if before is None else before.version + 1,
            identity=identity,
            topics=_sort_topics(topics),
            next_producer_id=max(
                next_producer_id, 0 if before is None else before.next_producer_id
            ),
        )
        catalog = cls(disk, content)
        catalog._save(content)
        return catalog

    @property
    def identity(self) -> MetaProperties:
        """Whose folder it is."""
        return self._content.identity

    @property
    def topics(self) -> Mapping[str, TopicEntry]:
        """By name, in the order of names."""
        return self._content.topics

    def put(self, entry: TopicEntry) -> None:
        """Adds a topic, or changes what is known of it."""
        self.change_topics(put=[entry])

    def remove(self, name: str) -> None:
        """Takes a topic out."""
        self.change_topics(remove=[name])

    def change_topics(self, *, put: Iterable[TopicEntry] = (), remove: Iterable[str] = ()) -> None:
        """Adds topics or changes them, and takes others out, all at once."""
        gone = frozenset(remove)
        kept = {name: entry for name, entry in self.topics.items() if name not in gone}
        self._save_change(topics=_sort_topics({**kept, **{each.name: each for each in put}}))

    def new_producer_id(self) -> int:
        """An id that was never given before, not even by a process that was killed."""
        if self._next_id >= self._content.next_producer_id:
            self._save_change(next_producer_id=self._next_id + PRODUCER_ID_BLOCK)
        self._next_id += 1
        return self._next_id - 1

    def skip_producer_ids_through(self, seen: int) -> None:
        """Assigns neither this producer id nor a lower one from now on: it was found in a log."""
        self._next_id = max(self._next_id, seen + 1)

    def _save_change(
        self, *, topics: Mapping[str, TopicEntry] | None = None, next_producer_id: int | None = None
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

    def _save(self, new: CatalogContent) -> None:
        data = pack_catalog(new)
        try:
            self._disk.replace(CATALOG_FILE, data)
            self._disk.replace(CATALOG_COPY_FILE, data)
        except DiskError:
            if new is not self._content:
                self._undo_save()
            raise

    def _undo_save(self) -> None:
        """Undoes a failed change: it must not be there after a restart."""
        try:
            self._disk.replace(CATALOG_FILE, pack_catalog(self._content))
        except DiskError:
            with suppress(DiskError):  # a full disk: the second copy, still the old one, is enough
                self._disk.remove(CATALOG_FILE)
                self._disk.sync("")


def read_catalog_copies(disk: Disk) -> CatalogCopies:
    """Reads both copies; one that was never written is not bad."""
    found: list[CatalogContent] = []
    bad: dict[str, str] = {}
    for path in (CATALOG_FILE, CATALOG_COPY_FILE):
        size = disk.size(path)
        if size is None:  # the power was cut after the first was written for the first time
            continue
        try:
            found.append(unpack_catalog(disk.read(path, 0, size)))
        except (FormatError, DiskError) as error:
            bad[path] = str(error).removeprefix(f"{path}: ")
    return CatalogCopies(
        content=max(found, key=lambda each: each.version, default=None),
        problems=bad,
        identical=len(found) == 2 and found[0] == found[1],
    )


def pack_catalog(content: CatalogContent) -> bytes:
    """A copy's bytes: a line for each topic, so that it can be read by eye."""
    identity = content.identity
    head = json.dumps(
        {
            "version": content.version,
            "cluster.id": identity.cluster_id,
            "node.id": identity.node_id,
            "directory.id": identity.directory_id,
            "next.producer.id": content.next_producer_id,
        }
    )
    # with an indent, json does without its fast part: ten times slower for thousands of topics
    topics = ",\n".join(
        json.dumps(
            {
                "name": each.name,
                "id": uuid_to_text(each.id),
                "partitions": each.partitions,
                "settings": dict(sorted(each.overrides.items())),
            }
        )
        for each in content.topics.values()
    )
    body = f'{head[:-1]}, "topics": [\n{topics}\n]}}\n'.encode()
    return b"rota catalogue 1, checksum %08x\n%s" % (compute_crc32c(body), body)


def unpack_catalog(data: bytes) -> CatalogContent:
    """What a copy says.

    :raises FormatError: it is damaged
    """
    head = CATALOG_HEADER.match(data)
    if head is None:
        raise FormatError("its first line is none of a catalogue of Rota")
    body = data[head.end() :]
    if int(head[1], 16) != (made := compute_crc32c(body)):
        raise FormatError(f"its checksum is {made:08x}, its first line says {head[1].decode()}")
    try:
        said = json.loads(body)
        entries = [
            TopicEntry(
                name=each["name"],
                id=uuid_from_text(each["id"]),
                partitions=each["partitions"],
                overrides=MappingProxyType(each["settings"]),
            )
            for each in said["topics"]
        ]
        identity = MetaProperties(
            cluster_id=said["cluster.id"],
            node_id=said["node.id"],
            directory_id=said["directory.id"],
        )
        return CatalogContent(
            version=said["version"],
            identity=identity,
            topics=_sort_topics({entry.name: entry for entry in entries}),
            next_producer_id=said["next.producer.id"],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"its content is not a catalogue's: {error!r}") from error


def uuid_to_text(topic_id: bytes) -> str:
    """An id as Kafka writes it in texts."""
    return urlsafe_b64encode(topic_id).decode().rstrip("=")


def uuid_from_text(text: str) -> bytes:
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


def _sort_topics(topics: Mapping[str, TopicEntry]) -> Mapping[str, TopicEntry]:
    return MappingProxyType(dict(sorted(topics.items())))
