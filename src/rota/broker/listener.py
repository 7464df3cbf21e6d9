"""The sockets that the broker listens on, and the address that it advertises to clients."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket

from rota.errors import InputError, Unreachable

BIND_ATTEMPTS = 10
ALL_INTERFACES = ("0.0.0.0", "::")  # noqa: S104, compared only

_BIND_ERRORS = {
    errno.EADDRINUSE: "another process listens on this port",
    errno.EADDRNOTAVAIL: "this machine has no such address",
    errno.EACCES: "permission denied (ports below 1024 are reserved for the system)",
}


def bind_sockets(host: str, port: int) -> list[socket.socket]:
    """Binds every address of a host to one port (0: any); raises InputError or Unreachable."""
    addresses = resolve_host(host, port)
    tries = BIND_ATTEMPTS if port == 0 else 1
    while True:
        tries -= 1
        try:
            return _bind_all(addresses)
        except OSError as error:
            if not tries:
                reason = _BIND_ERRORS.get(error.errno or 0) or error.strerror
                text = f"cannot listen on {format_address(host, port)}: {reason}"
                raise Unreachable(text) from error


def resolve_host(host: str, port: int = 0) -> list[tuple[socket.AddressFamily, tuple[str, int]]]:
    """Returns the addresses of a host, IPv4 first."""
    if not 0 <= port <= 65_535:
        raise InputError(f"port {port}: a port is a number from 0 to 65535")
    try:
        infos = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"host {host!r}: {reason}") from error
    addresses = {(family, (str(where[0]), port)) for family, _, _, _, where in infos}
    return sorted(addresses, key=lambda each: (each[0] != socket.AF_INET, each[1]))


def is_loopback(host: str) -> bool:
    return all(
        ipaddress.ip_address(address.partition("%")[0]).is_loopback
        for _, (address, _) in resolve_host(host)
    )


def check_exposure(host: str, *, guarded: bool, allow_anonymous: bool) -> None:
    """Raises InputError if other machines could connect without a login."""
    if not guarded and not allow_anonymous and not is_loopback(host):
        text = f"{host or 'every address'} can be reached from other machines without a login"
        raise InputError(f"{text}: pass users, or allow_anonymous=True")


def advertised_address(host: str, port: int) -> tuple[str, int]:
    """Returns the default of ``advertised.listeners``: a host that clients can look up."""
    return (socket.gethostname() if host in {"", *ALL_INTERFACES} else host), port


def parse_address(text: str) -> tuple[str, int]:
    """Parses ``host:port``."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not (host and colon and port.isascii() and port.isdecimal() and int(port) <= 65_535):
        raise InputError(f"{text!r} is not HOST:PORT")
    return host, int(port)


def format_address(host: str, port: int) -> str:
    """Returns ``host:port``, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _bind_all(addresses: list[tuple[socket.AddressFamily, tuple[str, int]]]) -> list[socket.socket]:
    """Binds all addresses to one port; skips a later one that is missing (often ``::1``)."""
    sockets: list[socket.socket] = []
    for family, (address, port) in addresses:
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            if os.name == "posix":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind((address, sockets[0].getsockname()[1] if sockets else port))
            sock.listen()
        except OSError as error:
            sock.close()
            if not sockets or error.errno == errno.EADDRINUSE:
                for each in sockets:
                    each.close()
                raise
        else:
            sockets.append(sock)
    return sockets
