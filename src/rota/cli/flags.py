"""Flags that several commands have: the cluster to connect to, its settings, and timeouts.

Imports are inside functions: ``--help`` should load neither rich nor a client.
"""

from __future__ import annotations

import argparse
import difflib
import math
import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from rota.client import explain_missing_packages
from rota.errors import InputError, Unreachable

if TYPE_CHECKING:
    from rota.client.admin import Admin

T = TypeVar("T")
DEFAULT_TIMEOUT = 30.0
CONNECT_TIMEOUT = 10.0  # seconds for the first response, so that a wrong address is reported soon
#: Defaults that the file and the flags override.
DEFAULT_SETTINGS = {"client.id": "rota", "socket.connection.setup.timeout.ms": 5_000}
STANDARD_INPUT = "standard input"
AddFlag: TypeAlias = Callable[..., None]  # adds one flag to a parser: :func:`flag_adder`


class CommandParser(argparse.ArgumentParser):
    """A parser whose errors name a misspelt option or command, and suggest the right one."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401
        groups = (each for each in self._actions if isinstance(each, argparse._SubParsersAction))
        commands = [name for each in groups for name in each.choices]
        word = args[0] if args else ""
        if commands and word not in {*commands, "-h", "--help", "--version"}:
            kind = "subcommand" if " " in self.prog else "command"
            if word and not word.startswith("-"):
                self._exit_unknown(kind, word, commands)
            self.exit(2, f"{self.prog}: a {kind} is missing: use one of {', '.join(commands)}\n")
        found, rest = super().parse_known_args(args, namespace)
        if rest:
            word = next((each for each in rest if each.startswith("-")), rest[0])
            kind = "option" if word.startswith("-") else "argument"
            self._exit_unknown(kind, word.partition("=")[0], self._option_string_actions)
        return found, rest

    def _exit_unknown(self, kind: str, word: str, names: Iterable[str]) -> None:
        near = difflib.get_close_matches(word, names, n=1, cutoff=0.7)
        hint = f": did you mean {near[0]}?" if near else ";"
        help_hint = f"{self.prog} --help lists all {kind}s"
        self.exit(2, f"{self.prog}: unknown {kind} {word}{hint} {help_hint}\n")


def flag_adder(parser: argparse._ActionsContainer, title: str | None = None) -> AddFlag:
    """Returns a function that adds a flag to the parser, or to a new group with this title. The
    form is that of the help: ``--group NAME`` takes a value, ``--json`` is a switch, and ``files
    FILE`` is an argument without a flag. A repeated flag collects its values in a list.
    """
    target = parser if title is None else parser.add_argument_group(title)

    def add(form: str, text: str, *, repeated: bool = False, **options: Any) -> None:  # noqa: ANN401
        words = form.split()
        names = [word for word in words if word.startswith("-")] or words[:1]
        if len(words) == len(names):
            options.setdefault("action", "store_true")
        else:
            options["metavar"] = words[-1]
        if repeated:
            options.update(action="append", default=[])
        target.add_argument(*names, help=text, **options)

    return add


def add_connection_flags(add: AddFlag) -> None:
    add("--bootstrap-servers HOST:PORT,...", "brokers to connect to first; they name the others")
    file_help = "a client.properties file: security.protocol, sasl.jaas.config and so on"
    add("--command-config FILE", file_help)
    setting_help = "a setting under Kafka's name, which wins over the file; may be repeated"
    add("--config KEY=VALUE", setting_help, repeated=True)


def add_admin_flags(add: AddFlag) -> None:
    add_connection_flags(add)
    text = f"time limit of each request to the cluster (default {DEFAULT_TIMEOUT:g}s)"
    add("--timeout TIME", text, type=_parse_timeout, default=DEFAULT_TIMEOUT)


def whole_number(description: str, least: int, most: int) -> Callable[[str], int]:
    """Returns a type for a flag. Its error says that the text is not ``description``."""

    def parse(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"{text!r} is not {description}")
        return int(text)

    return parse


def parse_seconds(text: str) -> float:
    """Parses a time, 0 or more, and returns seconds: a number of them, or a form like ``1h30m``."""
    from rota.engine.model.duration import parse_duration  # noqa: PLC0415 (not for --help)

    with suppress(ValueError):
        if 0 <= float(text) < math.inf:
            return float(text)
    with suppress(ValueError):
        return parse_duration(text) / 1000
    raise argparse.ArgumentTypeError(
        f"{text!r} is neither a number of seconds nor a time such as 90s, 5m or 1h30m"
    )


def _parse_timeout(text: str) -> float:
    seconds = parse_seconds(text)
    if not 0 < seconds <= 86_400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time above 0, of a day at most")
    return seconds


def parse_partition_numbers(text: str) -> list[int]:
    """Returns the numbers of a list such as ``0,3-5``; raises ValueError with an invalid item."""
    numbers: list[int] = []
    for item in text.split(","):
        match = re.fullmatch(r"(\d{1,7})(?:-(\d{1,7}))?", item.strip(), re.ASCII)
        if match is None:
            raise ValueError(item)
        numbers += range(int(match[1]), int(match[2] or match[1]) + 1)
    return numbers


def parse_iso_time(text: str) -> int:
    """Returns milliseconds since 1970; a time without a zone is UTC. Raises ValueError."""
    from datetime import UTC, datetime, timedelta  # noqa: PLC0415 (not for --help)

    time = datetime.fromisoformat(text)
    time = time.replace(tzinfo=time.tzinfo or UTC)
    return (time - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1)


def parse_time_bound(text: str) -> tuple[str, int]:
    """Returns ``("at", milliseconds)``, or ``("back", milliseconds before the last record)``."""
    from rota.engine.model.duration import parse_duration  # noqa: PLC0415 (not for --help)

    with suppress(ValueError):
        return "back", parse_duration(text)
    with suppress(ValueError):
        return "at", parse_iso_time(text)
    raise argparse.ArgumentTypeError(
        f"{text!r} is neither a time like 2026-11-15T06:00Z nor a duration like 6h"
    )


def add_admin_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    run: Callable[[argparse.Namespace], bool],
    about: str,
    epilog: str,
) -> AddFlag:
    """Adds a command with connection flags and ``--json``; returns a function for more flags."""
    parser = commands.add_parser(
        name,
        help=about,
        description=f"{about[0].upper()}{about[1:]}.",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_admin_flags(flag_adder(parser, "the cluster"))
    parser.set_defaults(run=run, error=parser.error)
    add = flag_adder(parser)
    add("--json", "print JSON")
    return add


def read_connection_settings(args: argparse.Namespace) -> dict[str, object]:
    """Returns the settings from the file and the flags; raises InputError or Unreachable."""
    from rota.client.config import load_properties  # noqa: PLC0415 (not for --help)

    settings: dict[str, object] = {}
    if args.command_config is not None:
        settings.update(load_properties(args.command_config))
    for key, value in split_pairs(args, "config", "KEY=VALUE"):
        settings[key] = value.strip()
    if args.bootstrap_servers is not None:
        settings["bootstrap.servers"] = args.bootstrap_servers
    if not settings.get("bootstrap.servers"):
        args.error("--bootstrap-servers HOST:PORT is needed, or bootstrap.servers in the settings")
    return settings


def split_pairs(args: argparse.Namespace, flag: str, form: str) -> Iterator[tuple[str, str]]:
    """Yields name and value of a repeated flag such as ``--config KEY=VALUE``."""
    for pair in getattr(args, flag):
        name, sign, value = pair.partition("=")
        if not sign or not name.strip():  # the message leaves out the value: it may be a password
            args.error(f"--{flag} {name!r}: expected {form}")
        yield name.strip(), value


@contextmanager
def notice_when_slow(seconds: float) -> Iterator[None]:
    """Prints a notice if no broker answers soon; ``seconds`` is how long the command tries."""
    from rota.cli.render import NOTICE_AFTER, print_notice, run_after  # noqa: PLC0415 (for --help)

    text = f"no broker has answered yet; trying for {seconds:g} s"
    with run_after(min(NOTICE_AFTER, seconds / 2), lambda: print_notice(text)):
        yield


def run_with_admin(args: argparse.Namespace, function: Callable[[Admin], Awaitable[T]]) -> T:
    """Connects to the cluster of the flags, and returns the result of the function."""
    if (problem := explain_missing_packages()) is not None:
        raise Unreachable(problem)
    import asyncio  # noqa: PLC0415 (not for --help)
    import logging  # noqa: PLC0415

    from rota.cli.render import print_notice  # noqa: PLC0415
    from rota.client.admin import Admin  # noqa: PLC0415
    from rota.client.cluster import ClusterClient  # noqa: PLC0415
    from rota.client.config import read_settings  # noqa: PLC0415

    async def connect_and_run() -> T:
        client = ClusterClient(settings.client)
        try:
            patience = min(args.timeout, CONNECT_TIMEOUT)
            with notice_when_slow(patience):
                await client.refresh((), deadline=client.deadline_after(patience))
            return await function(Admin(client, args.timeout))
        finally:
            await client.close()

    # a permanent problem is the command's error; a temporary one should not be logged
    logging.getLogger("rota.client").addHandler(logging.NullHandler())
    settings = read_settings({**DEFAULT_SETTINGS, **read_connection_settings(args)})
    for warning in settings.warnings:
        print_notice(warning)
    return asyncio.run(connect_and_run())


def split_names(values: Iterable[str] | None) -> list[str]:
    return [name.strip() for names in values or () for name in names.split(",")]


def read_text_file(path: str) -> tuple[str, str]:
    """Reads a file, or standard input for ``-``; returns the text and a name for messages."""
    if path == "-":
        return sys.stdin.read(), STANDARD_INPUT
    try:
        return Path(path).read_text(encoding="utf-8-sig"), path
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file: {error.reason}") from None


def suggest_command(text: str, source: str, command: str) -> str:
    """Returns the other command that reads this input: by content, else by file name."""
    import json  # noqa: PLC0415 (not for --help)
    import tomllib  # noqa: PLC0415

    named = {".json": "plan", ".toml": "simulate"}.get(Path(source).suffix)
    for name, parse, keys in (
        ("plan", json.loads, {"partitions", "members"}),
        ("simulate", tomllib.loads, {"topics", "members", "events"}),
    ):
        with suppress(ValueError, RecursionError):
            content = parse(text)
            named = name if isinstance(content, dict) and keys & content.keys() else None
    if named in {None, command}:
        return ""
    kind = "case file" if named == "plan" else "scenario"
    return f"this looks like a {kind}: rota {named} {'-' if source == STANDARD_INPUT else source}"


def custom_strategies(args: argparse.Namespace, reason: str) -> list[str]:
    """Returns the strategies of ``--strategy``; a built-in one is an error with this reason."""
    from rota.engine.assignors.registry import BUILT_IN, resolve_strategy  # noqa: PLC0415

    names = split_names(args.strategy)
    for name in names:
        if resolve_strategy(name).name in BUILT_IN:
            args.error(f"--strategy {name}: {reason}")
    return names


def import_from_working_directory(names: Iterable[str]) -> None:
    """Makes modules of the working directory importable if a name is package.module:Class."""
    if any(":" in name for name in names) and "" not in sys.path:
        sys.path.insert(0, "")
