"""CRC-32C, the checksum of batches."""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from types import ModuleType

from rota.formats.batch.extra import load
from rota.formats.buffer import Bytes

LIBRARY = "crc32c"


@functools.cache
def function() -> Callable[[Bytes], int]:
    """The function itself, for those who call it for every batch."""
    library = _extension() or load(LIBRARY, "the checksum of record batches")
    found: Callable[[Bytes], int] = library.crc32c
    return found


def checksum(data: Bytes) -> int:
    """The checksum of some bytes."""
    return function()(data)


def _extension() -> ModuleType | None:
    """What the library has written in C, alone: the rest of it looks up its own version, which
    takes a tenth of the time that a broker has to be there. None where it is built otherwise.
    """
    package = None if LIBRARY in sys.modules else importlib.util.find_spec(LIBRARY)
    places = None if package is None else package.submodule_search_locations
    spec = None if places is None else PathFinder.find_spec(f"{LIBRARY}._{LIBRARY}", places)
    if spec is None or spec.loader is None:
        return None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made if hasattr(made, LIBRARY) else None
