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
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from rota.errors import DiskError, FormatError
from rota.formats.batch.checksum import checksum
from rota.storage.disk import Disk

FIRST, SECOND = "rota.catalog", "rota.catalog.copy"
FORM = re.compile(rb"rota catalogue 1, checksum ([0-9a-f]{8})\n")
ID_BLOCK = 1_000
"""So many producer ids are set aside at a time; those that a crash leaves are never given."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """What the two files say."""

    content: Content | None
    """The newest that is whole."""
    bad: Mapping[str, str]
    """What is wrong, by file."""
    alike: bool
    """Both are there, and say the same."""


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
    def open(cls, disk: Disk, copies: Copies, report: Report) -> Catalog:
        """That of a folder which has a good copy; a bad one is written anew."""
        assert copies.content is not None
        for path, problem in copies.bad.items():
            report(f"{path}: {problem}; it is written anew from the other copy")
        catalog = cls(disk, copies.content)
        if not copies.alike:
            catalog._save(copies.content)
        return catalog

    @classmethod
    def adopt(
        cls,
        disk: Disk,
        identity: Identity,
        topics: Mapping[str, Entry],
        next_producer_id: int,
        before: Content | None = None,
    ) -> Catalog:
        """A new one of topics that were found, in place of one that does not hold any more."""
        content = Content(
            version=1 if before is None else before.version + 1,
            identity=identity,
            topics=_ordered(topics),
            next_producer_id=max(
                next_producer_id, 0 if before is None else before.next_producer_id
            ),
        )
        catalog = cls(disk, content)
        catalog._save(content)
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
        self.change(put=[entry])

    def remove(self, name: str) -> None:
        """Takes a topic out."""
        self.change(remove=[name])

    def change(self, *, put: Iterable[Entry] = (), remove: Iterable[str] = ()) -> None:
        """Adds topics or changes them, and takes others out, all at once."""
        gone = frozenset(remove)
        kept = {name: entry for name, entry in self.topics.items() if name not in gone}
        self._change(topics=_ordered({**kept, **{each.name: each for each in put}}))

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


def look(disk: Disk) -> Copies:
    """Reads both copies; one that was never written is not bad."""
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
    return Copies(
        content=max(found, key=lambda each: each.version, default=None),
        bad=bad,
        alike=len(found) == 2 and found[0] == found[1],
    )


def pack(content: Content) -> bytes:
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
                "id": id_text(each.id),
                "partitions": each.partitions,
                "settings": dict(sorted(each.overrides.items())),
            }
        )
        for each in content.topics.values()
    )
    body = f'{head[:-1]}, "topics": [\n{topics}\n]}}\n'.encode()
    return b"rota catalogue 1, checksum %08x\n%s" % (checksum(body), body)


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
