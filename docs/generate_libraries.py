"""Writes the settings of each client library, as in the advice of ``rota run``, into
how-to/migrate.md: ``make docs``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from docs.marked import replaced

from rota.engine.history.client_settings import (
    CLIENT_LIBRARIES,
    MIN_BROKER_VERSION,
    UNKNOWN_LIBRARY,
    ClientLibrary,
)
from rota.engine.history.facts import COOPERATIVE_STICKY, DEFAULT_SESSION_TIMEOUT

NEWLINE = "\n"
PAGE = Path(__file__).with_name("how-to") / "migrate.md"


def page(text: str) -> str:
    """Returns the page with the current table."""
    return replaced(text, "libraries", table())


def table() -> str:
    """Returns a table with a row for each library that ``rota run`` recognises."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield "| library | to cooperative-sticky | static members | session of 45 s | to KIP-848 |"
    yield "|---|---|---|---|---|"
    for name, one in CLIENT_LIBRARIES.items():
        if name != UNKNOWN_LIBRARY:
            static = _code(one.static_id_setting()) or "not supported"
            if one.static_since:
                static += f" ({one.static_since})"
            session = _code(one.session_setting(DEFAULT_SESSION_TIMEOUT))
            yield f"| {one.name} | {_cooperative(one)} | {static} | {session} | {_broker(one)} |"


def _code(setting: str | None) -> str:
    """Returns the setting as code, each of its lines alone."""
    return " and ".join(f"`{line}`" for line in (setting or "").splitlines())


def _cooperative(one: ClientLibrary) -> str:
    if not one.strategies:
        return "not supported: the library has its own strategies"
    if COOPERATIVE_STICKY not in one.strategies:
        return "not supported"
    way = "two rolling restarts" if one.allows_mixed_list else "all members must stop once"
    since = f"; {one.cooperative_since}" if one.cooperative_since else ""
    return f"{way}, `{one.strategy_setting(COOPERATIVE_STICKY)}`{since}"


def _broker(one: ClientLibrary) -> str:
    way = one.consumer_protocol
    if way is None:
        return "not supported"
    broker = f"Kafka {MIN_BROKER_VERSION} or newer"
    return f"{_code(NEWLINE.join(way.settings_for('uniform')))}; {way.minimum_client}, {broker}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
