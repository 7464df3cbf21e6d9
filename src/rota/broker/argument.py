"""What a user gives a broker from Python, looked at before it is used: errors name the argument."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

from rota.broker.tls import server_context
from rota.errors import InputError
from rota.wire.sasl import Mechanism

Tls: TypeAlias = ssl.SSLContext | tuple[str | Path, ...] | list[str | Path] | str | Path


def passwords(users: Mapping[str, str] | None) -> dict[str, str]:
    """By user; none if nobody has to log in."""
    if users is None:
        return {}
    if not isinstance(users, Mapping):
        raise InputError(f"users: {users!r} is not a dict of passwords by user")
    if not users:
        raise InputError("users: there are none in it, so that nobody could log in; leave it out")
    for name, password in users.items():
        if not (isinstance(name, str) and isinstance(password, str) and name and password):
            raise InputError(f"users: {name!r} and its password must be texts that are not empty")
    return dict(users)


def mechanisms(names: Iterable[str] | None, users: Mapping[str, str]) -> tuple[Mechanism, ...]:
    """The ways to log in that clients are offered."""
    if names is None:
        return tuple(Mechanism)
    if not users:
        raise InputError("mechanisms need users: without them nobody has to log in")
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise InputError(f"mechanisms: {names!r} is not a list of names")
    known = {str(each): each for each in Mechanism}
    found = []
    for name in names:
        if name not in known:
            raise InputError(f"there is no SASL mechanism {name!r}; known are {', '.join(known)}")
        found.append(known[name])
    if not found:
        raise InputError("mechanisms: there are none in it, so that nobody could log in")
    return tuple(found)


def context(tls: Tls | None) -> ssl.SSLContext | None:
    """What TLS is spoken with, if it is."""
    if tls is None or isinstance(tls, ssl.SSLContext):
        return tls
    files = list(tls) if isinstance(tls, tuple | list) else [tls]
    if len(files) not in {1, 2} or not all(isinstance(each, str | Path) for each in files):
        raise InputError(
            f"tls: {tls!r} is neither a file with a certificate and its key, nor a pair of files"
        )
    return server_context(files[0], files[1] if len(files) > 1 else None)


def times(given: int | None) -> int | None:
    """How often."""
    if given is not None and (type(given) is not int or given < 1):
        raise InputError(f"times: {given!r} is not a number from 1 up, nor None")
    return given


def milliseconds(seconds: float) -> int:
    """Of seconds."""
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not number or not 0 <= seconds < 1e10:
        raise InputError(f"seconds: {seconds!r} is not a number of seconds")
    return round(seconds * 1_000)
