"""The catalog of a log directory: its topics with their settings, and the node that owns it.

The catalog is kept in two files with the same content: a line with a checksum, then JSON. Each
change writes both, one after the other, so one of them is whole at any time. The newer valid one is
used, and a damaged one is rewritten.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from rota.broker.storage.checkpoint import read_file
from rota.broker.storage.disk import Disk, Report
from rota.engine.formats.primitive import uuid_from_text, uuid_to_text
from rota.engine.formats.record_batch import compute_crc32c
from rota.errors import DiskError, FormatError

CATALOG_FILE, CATALOG_COPY_FILE = "rota.catalog", "rota.catalog.copy"
CATALOG_HEADER = re.compile(rb"rota catalogue 1, checksum ([0-9a-f]{8})\n")
PRODUCER_ID_BLOCK = 1_000  # producer ids reserved at a time; a crash loses the rest


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicEntry:
    name: str
    id: bytes
    partitions: int
    overrides: Mapping[str, str] = field(default_factory=dict)  # the topic's own, by Kafka's names


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """The owner of the log directory, as in ``meta.properties``."""

    cluster_id: str
    node_id: int
    directory_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogContent:
    version: int
    identity: MetaProperties
    topics: Mapping[str, TopicEntry]  # by name, sorted
    next_producer_id: int  # lower ids may have been assigned


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogCopies:
    content: CatalogContent | None  # the newest valid one
    problems: Mapping[str, str]
    identical: bool


class Catalog:
    """The catalog of an open log directory. Every change is on the disk before it is visible."""

    def __init__(self, disk: Disk, content: CatalogContent) -> None:
        self._disk = disk
        self._content = content
        self._next_id = content.next_producer_id

    @classmethod
    def create(
        cls,
        disk: Disk,
        identity: MetaProperties,
        topics: Mapping[str, TopicEntry] | None = None,
        next_producer_id: int = 0,
        before: CatalogContent | None = None,
    ) -> Catalog:
        """Writes a new catalog with adopted topics, if any, in place of the one ``before``."""
        if before is not None:
            next_producer_id = max(next_producer_id, before.next_producer_id)
        content = CatalogContent(
            version=0 if before is None else before.version + 1,
            identity=identity,
            topics=_sort_topics(topics or {}),
            next_producer_id=next_producer_id,
        )
        catalog = cls(disk, content)
        catalog._save(content)
        return catalog

    @classmethod
    def open(cls, disk: Disk, copies: CatalogCopies, report: Report) -> Catalog:
        """Opens the catalog of a directory with a valid copy, and rewrites a damaged one."""
        assert copies.content is not None
        for path, problem in copies.problems.items():
            report(f"{path}: {problem}; it is rewritten from the other copy")
        catalog = cls(disk, copies.content)
        if not copies.identical:
            catalog._save(copies.content)
        return catalog

    @property
    def identity(self) -> MetaProperties:
        return self._content.identity

    @property
    def topics(self) -> Mapping[str, TopicEntry]:
        return self._content.topics

    def change_topics(self, *, put: Iterable[TopicEntry] = (), remove: Iterable[str] = ()) -> None:
        """Adds, replaces and removes topics, all at once."""
        removed = frozenset(remove)
        kept = {name: entry for name, entry in self.topics.items() if name not in removed}
        topics = _sort_topics({**kept, **{each.name: each for each in put}})
        self._save_change(replace(self._content, topics=topics))

    def new_producer_id(self) -> int:
        """Returns an id that was never assigned before, not even by a process that was killed."""
        if self._next_id >= self._content.next_producer_id:
            end = self._next_id + PRODUCER_ID_BLOCK
            self._save_change(replace(self._content, next_producer_id=end))
        self._next_id += 1
        return self._next_id - 1

    def skip_producer_ids_through(self, producer_id: int) -> None:
        """Assigns only higher producer ids from now on, because a log has this one."""
        self._next_id = max(self._next_id, producer_id + 1)

    def _save_change(self, changed: CatalogContent) -> None:
        new = replace(changed, version=changed.version + 1)
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
        """Undoes a failed change, which must not reappear after a restart."""
        try:
            self._disk.replace(CATALOG_FILE, pack_catalog(self._content))
        except DiskError:
            with suppress(DiskError):  # the disk is full; the second copy still has the old content
                self._disk.remove(CATALOG_FILE)
                self._disk.sync("")


def read_catalog_copies(disk: Disk) -> CatalogCopies:
    """Reads both copies. A crash during the first start leaves only one, which is no problem."""
    found: list[CatalogContent] = []
    problems: dict[str, str] = {}
    for path in (CATALOG_FILE, CATALOG_COPY_FILE):
        try:
            if (data := read_file(disk, path)) is not None:
                found.append(unpack_catalog(data))
        except (FormatError, DiskError) as error:
            problems[path] = str(error).removeprefix(f"{path}: ")
    return CatalogCopies(
        content=max(found, key=lambda each: each.version, default=None),
        problems=problems,
        identical=len(found) == 2 and found[0] == found[1],
    )


def pack_catalog(content: CatalogContent) -> bytes:
    identity = content.identity
    fields = json.dumps(
        {
            "version": content.version,
            "cluster.id": identity.cluster_id,
            "node.id": identity.node_id,
            "directory.id": identity.directory_id,
            "next.producer.id": content.next_producer_id,
        }
    )
    # with an indent, json is ten times slower for thousands of topics
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
    body = f'{fields[:-1]}, "topics": [\n{topics}\n]}}\n'.encode()
    return b"rota catalogue 1, checksum %08x\n%s" % (compute_crc32c(body), body)


def unpack_catalog(data: bytes) -> CatalogContent:
    """:raises FormatError: the content is damaged"""
    header = CATALOG_HEADER.match(data)
    if header is None:
        raise FormatError("the first line is not that of a catalogue of Rota")
    body = data[header.end() :]
    if int(header[1], 16) != (computed := compute_crc32c(body)):
        raise FormatError(f"checksum {computed:08x}, but the first line has {header[1].decode()}")
    try:
        fields = json.loads(body)
        entries = [
            TopicEntry(
                name=each["name"],
                id=uuid_from_text(each["id"]),
                partitions=each["partitions"],
                overrides=MappingProxyType(each["settings"]),
            )
            for each in fields["topics"]
        ]
        identity = MetaProperties(
            cluster_id=fields["cluster.id"],
            node_id=fields["node.id"],
            directory_id=fields["directory.id"],
        )
        return CatalogContent(
            version=fields["version"],
            identity=identity,
            topics=_sort_topics({entry.name: entry for entry in entries}),
            next_producer_id=fields["next.producer.id"],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"the content is not that of a catalogue: {error!r}") from error


def _sort_topics(topics: Mapping[str, TopicEntry]) -> Mapping[str, TopicEntry]:
    return MappingProxyType(dict(sorted(topics.items())))
