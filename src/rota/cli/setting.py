"""Where a cluster is and how to talk to it: flags that several commands have."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from rota.errors import InputError


def add_to(parser: argparse._ArgumentGroup) -> None:
    """The flags."""
    parser.add_argument(
        "--bootstrap-servers",
        metavar="HOST:PORT,...",
        help="brokers to ask first; the others are found through them",
    )
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        help="a client.properties: security.protocol, sasl.jaas.config and so on",
    )
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting under Kafka's name, over those of the file; may be given again",
    )


def given(args: argparse.Namespace) -> dict[str, object]:
    """What file and flags set.

    :raises InputError: the file is malformed
    :raises Unreachable: it cannot be read
    """
    from rota.client import setting  # noqa: PLC0415 (for those who connect)

    found: dict[str, object] = {}
    if args.command_config is not None:
        found.update(setting.load_properties(args.command_config))
    for each in args.config:
        key, sign, value = each.partition("=")
        if not sign or not key.strip():
            args.error(f"--config {each.partition('=')[0]!r}: not KEY=VALUE")
        found[key.strip()] = value.strip()
    if args.bootstrap_servers is not None:
        found["bootstrap.servers"] = args.bootstrap_servers
    if not found.get("bootstrap.servers"):
        args.error("--bootstrap-servers HOST:PORT is needed, or bootstrap.servers in the settings")
    return found


def topics(texts: Iterable[str]) -> list[str]:
    """Those of all ``--topic``, each of which may have several with commas between."""
    found = [name.strip() for text in texts for name in text.split(",")]
    if "" in found:
        raise InputError("--topic: the name of a topic is empty")
    return list(dict.fromkeys(found))
