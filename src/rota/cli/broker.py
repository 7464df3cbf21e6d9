"""``rota broker``: a Kafka-compatible broker of one node."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from rota.broker import explain_missing_packages
from rota.cli.flags import flag_adder, split_pairs, whole_number
from rota.errors import InputError, Unreachable

if TYPE_CHECKING:
    from rota.broker.embedded import Broker

HELP = "a Kafka-compatible broker of one node"

DESCRIPTION = """\
Runs a Kafka-compatible broker of one node: topics in Kafka's own file formats, consumer groups,
admin requests, TLS and SASL, for every Kafka client. Ctrl-C or SIGTERM stops it cleanly.
"""

EXAMPLES = """\
examples:
  rota broker
      at 127.0.0.1:9092, in a temporary folder that is removed when the broker stops
  rota broker --data-dir ./kafka --port 19092
      in a folder that is kept
  rota broker --data-dir ./copy-of-kafka-logs --adopt
      with the topics of a Kafka broker; --adopt is needed once, see docs/how-to/broker.md
  rota broker --config auto.create.topics.enable=false --config num.partitions=4
      settings under Kafka's names
  rota broker --config-file server.properties -v
      settings of a Kafka broker; Rota prints the names of settings that have no effect
  rota broker --host 0.0.0.0 --advertise kafka.example:9092 --users-file users --data-dir ./kafka
      for other machines; clients must log in (SASL)
  rota broker --tls-cert cert.pem --tls-key key.pem
      with TLS (security.protocol=SSL, or SASL_SSL with users)

"""

DEFAULT_PORT = 9092
CHECK_INTERVAL = 0.5


def add_flags(parser: argparse.ArgumentParser) -> None:
    add = flag_adder(parser, "where")
    add("--data-dir DIR", "folder of the topics (default: temporary, removed at the end)")
    add(
        "--adopt",
        "take over a folder without Rota's catalogue: the log.dirs of a stopped Kafka broker, "
        "a copy of partition folders, or Rota's own folder with a damaged catalogue. Rota deletes "
        "none of these records until you set retention. Copy the folder first",
    )
    port = whole_number("a port from 0 to 65535", 0, 65_535)
    add("--port N", f"default {DEFAULT_PORT}; 0: any free port", type=port, default=DEFAULT_PORT)
    add("--host HOST", "default 127.0.0.1: this machine only", default="127.0.0.1")
    add(
        "--advertise HOST:PORT",
        "the address that the broker gives to clients (default: the setting "
        "advertised.listeners; else --host and --port, with this machine's name for 0.0.0.0 or ::)",
    )
    add = flag_adder(parser, "settings")
    add("--config KEY=VALUE", "a setting under Kafka's name; may be repeated", repeated=True)
    add("--config-file FILE", "a server.properties file; --config wins over it")
    add = flag_adder(parser, "who may connect")
    add(
        "--user NAME:PASSWORD",
        "a user that may log in; may be repeated. Other users of this machine can see the "
        "password: --users-file is safer",
        repeated=True,
    )
    add("--users-file FILE", "lines NAME:PASSWORD; the first colon ends the name; # is a comment")
    text = "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512; may be repeated (default: all)"
    add("--sasl-mechanism NAME", text, action="append")
    add("--tls-cert FILE", "a certificate, in PEM")
    add("--tls-key FILE", "the certificate's key, if it is in another file")
    add("--allow-anonymous", "accept clients of other machines without a login")
    flag_adder(parser)("-v --verbose", "log what happens to groups")


def run(args: argparse.Namespace) -> bool:
    if args.tls_key and not args.tls_cert:
        args.error("--tls-key needs --tls-cert")
    if args.data_dir == "":
        args.error("--data-dir is empty")
    if args.adopt and args.data_dir is None:
        args.error("--adopt needs --data-dir")
    if args.sasl_mechanism and not (args.user or args.users_file):
        args.error("--sasl-mechanism needs --users-file or --user: without users no client logs in")
    if (problem := explain_missing_packages()) is not None:
        raise Unreachable(problem)
    config = _read_broker_config(args)
    users = _read_users(args)
    from rota.broker.server import is_loopback  # noqa: PLC0415 (not for --help)

    if not users and not args.allow_anonymous and not is_loopback(args.host):
        raise InputError(
            f"--host {args.host or repr('')} can be reached from other machines without a "
            "login: give --users-file (or --user), or --allow-anonymous"
        )
    _set_up_logging(verbose=args.verbose)
    _raise_open_file_limit()
    from rota import Broker  # noqa: PLC0415 (not for --help)

    broker = Broker(
        args.data_dir,
        args.port,
        host=args.host,
        advertise=args.advertise,
        config=config,
        users=users or None,
        mechanisms=args.sasl_mechanism,
        tls=(args.tls_cert, args.tls_key) if args.tls_key else args.tls_cert,
        allow_anonymous=args.allow_anonymous,
        adopt=args.adopt,
    )
    with _catch_sigterm() as wait_for_sigterm, broker:
        print(f"ready: {_describe_location(args, broker)}", flush=True)  # noqa: T201
        while not wait_for_sigterm(CHECK_INTERVAL):  # Ctrl-C raises
            if not broker.running:
                raise Unreachable("the broker has stopped because of an error; see its log")
    return False


def _describe_location(args: argparse.Namespace, broker: Broker) -> str:
    """Returns the address for clients, the listening address if it differs, and the security."""
    shown = [broker.bootstrap_servers]
    if broker.listening != broker.bootstrap_servers:
        changes = "" if args.advertise else " (--advertise sets the address for clients)"
        shown.append(f"listening at {broker.listening}{changes}")
    has_login = bool(args.user or args.users_file)
    if has_login or args.tls_cert:
        shown.append(f"{'SASL_' if has_login else ''}{'SSL' if args.tls_cert else 'PLAINTEXT'}")
    temporary = "" if args.data_dir else ", a temporary folder"
    return ", ".join([*shown, f"topics in {broker.data_dir}{temporary}"])


@contextmanager
def _catch_sigterm() -> Iterator[Callable[[float], bool]]:
    """Yields a function that waits some seconds for SIGTERM, and returns whether it came. A SIGTERM
    while the broker starts counts too. A threading.Event would not do: Python can run the signal
    handler while Event.wait() holds the Event's lock, and Event.set() in the handler would then
    wait for that lock forever. SimpleQueue.put() of CPython is safe in a signal handler.
    """
    signals: SimpleQueue[int] = SimpleQueue()

    def wait(seconds: float) -> bool:
        with suppress(Empty):
            return bool(signals.get(timeout=seconds))
        return False

    before = signal.signal(signal.SIGTERM, lambda number, _frame: signals.put(number))
    try:
        yield wait
    finally:
        signal.signal(signal.SIGTERM, before)


def _read_broker_config(args: argparse.Namespace) -> dict[str, object]:
    """Returns the settings that have an effect, and prints the names of the others."""
    from rota.broker.config import parse_config  # noqa: PLC0415 (not for --help)
    from rota.client.config import load_properties  # noqa: PLC0415

    config: dict[str, object] = {}
    in_file: Collection[str] = ()
    if args.config_file:
        config.update(load_properties(args.config_file))
        try:
            in_file = parse_config(config).ignored_keys
        except InputError as error:
            raise InputError(f"{args.config_file}: {error}") from error
    for key, value in split_pairs(args, "config", "KEY=VALUE"):
        config[key] = value.strip()
    ignored = parse_config(config).ignored_keys
    in_flags = [key for key in ignored if key not in in_file]
    for source, keys in ((args.config_file, in_file), ("--config", in_flags)):
        if keys:
            text = f"rota: {source}: these settings have no effect: {', '.join(keys)}"
            print(text, file=sys.stderr)  # noqa: T201
    return {key: value for key, value in config.items() if key not in ignored}


def _read_users(args: argparse.Namespace) -> dict[str, str]:
    lines = [("--user", each) for each in args.user]
    if path := args.users_file:
        try:
            text = Path(path).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{path}: the file is not UTF-8 text") from error
        in_file = [
            (f"{path}, line {number}", line.strip())
            for number, line in enumerate(text.splitlines(), 1)
            if line.strip() and not line.startswith("#")
        ]
        if not in_file:
            raise InputError(f"{path}: the file has no users")
        lines += in_file
    sources: dict[str, str] = {}
    users: dict[str, str] = {}
    for source, line in lines:
        name, _, password = line.partition(":")
        if not name or not password:
            raise InputError(f"{source}: expected NAME:PASSWORD")
        if name in users:
            raise InputError(f"{source}: {name} already has a password, from {sources[name]}")
        users[name], sources[name] = password, source
    return users


def _set_up_logging(*, verbose: bool) -> None:
    import logging  # noqa: PLC0415

    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("rota")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO if verbose else logging.WARNING)


def _raise_open_file_limit() -> None:
    """Raises the limit to the highest allowed: every connection and open segment is a file."""
    import resource  # noqa: PLC0415

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):  # the hard limit may be more than the system has
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
