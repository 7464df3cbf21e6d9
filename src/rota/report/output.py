"""Where a page is written to: a file, a pipe, or what a shell has opened already."""

from __future__ import annotations

import os
import re
from pathlib import Path

_DESCRIPTOR = re.compile(r"/dev/(?P<name>stdout|stderr)|/(?:dev|proc/self)/fd/(?P<number>[0-9]+)")
_NAMED = {"stdout": 1, "stderr": 2}


def write(text: str, path: Path) -> None:
    """Writes a text into a file, whole or not at all; into what is no file, like a pipe, as it
    comes; into what is open already, like ``/dev/stdout``, from where that is.

    :raises OSError: it cannot be; names the path as it was given
    """
    try:
        number = descriptor(path)
        if number is not None:
            # not by its path: that of a pipe leads nowhere, and that of a file begins at its start
            _put(os.dup(number), text, "w")
            return
        into = path.resolve()  # a link stays one
        if into.exists() and not into.is_file():
            _put(into, text, "w")
        else:
            _replace(into, text)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def descriptor(path: Path) -> int | None:
    """The number of the open file that a path stands for, like 1 of ``/dev/stdout``."""
    found = _DESCRIPTOR.fullmatch(str(path.absolute()))
    if found is None:
        return None
    return int(found["number"]) if found["name"] is None else _NAMED[found["name"]]


def is_stdout(path: Path) -> bool:
    """Whether what is written to a path comes out where a command prints to."""
    number = descriptor(path)
    try:
        return number is not None and os.path.samestat(os.fstat(number), os.fstat(1))
    except OSError:  # it is closed
        return False


def _replace(path: Path, text: str) -> None:
    made = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        _put(made, text, "x")
        made.replace(path)
    except BaseException:
        made.unlink(missing_ok=True)
        raise


def _put(file: Path | int, text: str, mode: str) -> None:
    with open(file, mode, encoding="utf-8", errors="replace", newline="\n") as opened:  # noqa: PTH123
        opened.write(text)
