"""The recorded broker's segments."""

from __future__ import annotations

import gzip
import tarfile
from functools import cache

from tests.support.paths import FIXTURES

RECORDED = FIXTURES / "kafka-4.3.1"
JOURNAL = "__consumer_offsets"


@cache
def segments() -> dict[str, bytes]:
    """Every log file, by its partition's folder: each has one."""
    found = {}
    with tarfile.open(RECORDED / "segments.tar.gz") as archive:
        for member in archive:
            folder, _, file = member.name.partition("/")
            if file.endswith(".log"):
                content = archive.extractfile(member)
                assert content is not None
                assert folder not in found
                found[folder] = content.read()
    return found


def journal_segments() -> dict[int, bytes]:
    """Those of the journal, by partition."""
    return {
        int(folder.rpartition("-")[2]): data
        for folder, data in segments().items()
        if folder.startswith(JOURNAL)
    }


def read_dump(name: str) -> list[str]:
    """What kafka-dump-log printed of a segment, without the lines in front."""
    with gzip.open(RECORDED / name, "rt") as lines:
        return [line.rstrip("\n") for line in lines][2:]
