"""Which topic a partition's folder is of: its ``partition.metadata`` says the topic's id."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode

from rota.storage.disk import Disk

NAME = "partition.metadata"
FORM = re.compile(rb"version: 0\ntopic_id: (?P<id>[A-Za-z0-9_-]{22})\n?")


def pack(topic_id: bytes) -> bytes:
    """The file's content."""
    return b"version: 0\ntopic_id: %s" % urlsafe_b64encode(topic_id).rstrip(b"=")


def name_folder(disk: Disk, folder: str, topic_id: bytes) -> None:
    """Makes a partition's folder, which says what topic it is of."""
    disk.make(folder)
    disk.remove(f"{folder}/{NAME}")
    disk.append(f"{folder}/{NAME}", pack(topic_id))


def stated(disk: Disk, folder: str) -> bytes | None:
    """The topic's id that a folder states; None: it does not."""
    found = FORM.fullmatch(_content(disk, folder))
    return None if found is None else urlsafe_b64decode(found["id"] + b"==")


def is_damaged(disk: Disk, folder: str, topic_id: bytes) -> bool:
    """Is what a folder states, which is not this topic, but one wrong character away from it?

    Ids are random: two that are so near are not of two topics.
    """
    said, right = _content(disk, folder).rstrip(b"\n"), pack(topic_id)
    return len(said) == len(right) and sum(a != b for a, b in zip(said, right, strict=True)) == 1


def _content(disk: Disk, folder: str) -> bytes:
    path = f"{folder}/{NAME}"
    size = disk.size(path)
    return b"" if size is None else disk.read(path, 0, size)
