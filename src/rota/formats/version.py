"""The version in front of subscriptions and assignments, and what is done with unknown ones."""

from __future__ import annotations

from rota.errors import FormatError
from rota.formats.primitive import Reader

HIGHEST_VERSION = 3


def read_version(reader: Reader) -> int:
    """The version to read by: a newer one is read as the highest known, a negative one refused."""
    version = reader.int16("version")
    if version < 0:
        raise reader.error("version", f"{version} is negative", at=reader.offset - 2)
    return min(version, HIGHEST_VERSION)


def written_version(version: int, subject: str) -> int:
    """The version to write: as Java does, the highest known for a newer one."""
    if version < 0:
        raise FormatError(f"{subject}: version {version} is negative")
    return min(version, HIGHEST_VERSION)
