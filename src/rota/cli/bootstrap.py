"""How commands reach a cluster: where it is, with which settings, for how long they try."""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from rota.cli import setting
from rota.cli.screen import plain
from rota.client import missing
from rota.errors import Unreachable

if TYPE_CHECKING:
    from rota.client.admin import Admin
    from rota.model.client import ClientConfig

T = TypeVar("T")

TIMEOUT = 30.0
CONNECT = 10.0
"""Seconds for the first answer: an address that is wrong should be said soon."""
SOON = 2.0
"""Seconds until somebody who waits for it wonders."""

DEFAULTS = {"client.id": "rota", "socket.connection.setup.timeout.ms": 5_000}
"""Where neither file nor flags say something else."""


def add_to(parser: argparse._ArgumentGroup) -> None:
    """The flags."""
    setting.add_to(parser)
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=TIMEOUT,
        metavar="SECONDS",
        help=f"for each question to the cluster (default {TIMEOUT:g})",
    )


def command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    run: Callable[[argparse.Namespace], bool],
    about: str,
    epilog: str,
) -> argparse.ArgumentParser:
    """A command that asks a cluster."""
    parser = commands.add_parser(
        name,
        help=about,
        description=f"{about[0].upper()}{about[1:]}.",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_to(parser.add_argument_group("the cluster"))
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run, error=parser.error)
    return parser


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0
    if not 0 < found <= 86_400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return found


def print_json(value: object) -> None:
    """As every command prints it."""
    print(json.dumps(value, indent=2, ensure_ascii=False))  # noqa: T201


def say(text: str) -> None:
    """Beside the output, so that it does not get into a file or a pipe."""
    print(f"rota: {plain(' '.join(text.split())).plain}", file=sys.stderr)  # noqa: T201


@contextmanager
def trying(seconds: float) -> Iterator[None]:
    """Where a broker does not answer soon: says that it is tried, and for how long."""
    text = f"no broker has answered yet; it is tried for {seconds:g} s"
    notice = threading.Timer(min(SOON, seconds / 2), say, [text])
    notice.daemon = True
    notice.start()
    try:
        yield
    finally:
        notice.cancel()


def asked(args: argparse.Namespace, ask: Callable[[Admin], Awaitable[T]]) -> T:
    """What comes of asking the cluster that the flags name.

    :raises Unreachable: it cannot be reached, or what a client needs is not installed
    """
    if (problem := missing()) is not None:
        raise Unreachable(problem)
    import asyncio  # noqa: PLC0415 (other commands do without it, and without a client)
    import logging  # noqa: PLC0415

    # what goes wrong for good is said by the error; what does not, by nothing
    logging.getLogger("rota.client").addHandler(logging.NullHandler())
    return asyncio.run(_asked(_config(args), args.timeout, ask))


def _config(args: argparse.Namespace) -> ClientConfig:
    from rota.client.setting import read  # noqa: PLC0415 (as above)

    settings = read({**DEFAULTS, **setting.given(args)})
    for warning in settings.warnings:
        say(warning)
    return settings.client


async def _asked(config: ClientConfig, timeout: float, ask: Callable[[Admin], Awaitable[T]]) -> T:
    from rota.client.admin import Admin  # noqa: PLC0415
    from rota.client.cluster import Client  # noqa: PLC0415

    client = Client(config)
    try:
        patience = min(timeout, CONNECT)
        with trying(patience):
            await client.refresh((), deadline=client.deadline(patience))
        return await ask(Admin(client, timeout))
    finally:
        await client.close()
