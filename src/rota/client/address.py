"""Where brokers listen, as ``bootstrap.servers`` has it."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

from rota.errors import InputError
from rota.model.client import Address
from rota.model.text import misfit, shortened

KEY = "bootstrap.servers"
_NAMED = re.compile(r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9_+.-]*)://)?(?P<rest>.*)", re.DOTALL)
_SIX = re.compile(r"[0-9A-Fa-f:.]+")
_HOST = re.compile(r"[^\s/\\@?#\[\]:,]+")


def addresses(items: Iterable[object]) -> tuple[Address, ...]:
    """Each ``host:port``; an address of version 6 is in brackets.

    :raises InputError: one is none; names it, and what is wrong with it
    """
    found = tuple(map(_address, items))
    if not found:
        raise InputError(f"{KEY}: at least one host:port is needed")
    return found


def _address(item: object) -> Address:
    if not isinstance(item, str):
        raise InputError(f"{KEY}: {shortened(repr(item))[1:-1]} is not text of the form host:port")
    named = _NAMED.fullmatch(item)
    assert named is not None, "it matches everything"
    rest = named["rest"]
    if (scheme := named["scheme"]) is not None and scheme.lower() in {"http", "https"}:
        raise InputError(f"{KEY}: {shortened(item)} is the address of a web server, not host:port")
    # Kafka, too, takes PLAINTEXT://host:port, as listeners are written.
    if rest.startswith("["):
        host, bracket, tail = rest[1:].partition("]")
        if not bracket:
            raise InputError(f"{KEY}: {shortened(item)} has a '[' without its ']'")
        _check_six(host, item)
    else:
        host, colon, tail = rest.partition(":")
        if ":" in tail and _SIX.fullmatch(rest):
            raise InputError(
                f"{KEY}: {shortened(item)}: an address of version 6 is written [address]:port"
            )
        tail = colon + tail
        if not host:
            raise InputError(f"{KEY}: {shortened(item)} has no host")
        if _HOST.fullmatch(host) is None or misfit(host):
            raise InputError(f"{KEY}: {shortened(item)}: {shortened(host)} is not a host's name")
    return Address(host, _port(tail, item))


def _check_six(host: str, item: str) -> None:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        raise InputError(
            f"{KEY}: {shortened(item)}: {shortened(host)} is not an address of version 6"
        ) from None


def _port(tail: str, item: str) -> int:
    if tail in {"", ":"}:
        raise InputError(f"{KEY}: {shortened(item)} has no port: Kafka's is 9092 as a rule")
    digits = tail[1:]
    if not tail.startswith(":") or not (digits.isascii() and digits.isdecimal()):
        raise InputError(f"{KEY}: {shortened(item)}: {shortened(digits)} is not a port")
    if len(digits) > 5 or not 1 <= int(digits) <= 65_535:
        raise InputError(f"{KEY}: {shortened(item)}: a port is a number from 1 to 65535")
    return int(digits)
