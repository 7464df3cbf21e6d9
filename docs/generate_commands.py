"""Writes commands.md from the parsers of the command line: ``make docs``."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path

from rota.cli.main import COMMANDS, build_parser, describe_exit_codes

PAGE = Path(__file__).with_name("commands.md")

INTRO = """\
# Commands

<!-- Made by `make docs` from the parsers in src/rota/cli. Do not edit. -->

This page has the help texts of all commands (`rota COMMAND --help`). `python -m rota` does the same
as `rota`.
"""

CODES_INTRO = """\
## Exit codes

All commands have the same exit codes. Only the options that are named below return 1.
"""

#: Where the part of an epilog begins that all commands have in common.
CODES = "exit codes:\n"


def page() -> str:
    """The whole page."""
    return "\n".join(_lines()).rstrip("\n") + "\n"


def _lines() -> Iterator[str]:
    top = build_parser()
    commands = _commands(top)
    yield INTRO
    yield "| command | what it does |\n|---|---|"
    for name, about in _abouts(top):
        yield f"| [`rota {name}`](#rota-{name}) | {_cell(about)} |"
    yield "| `rota --version` | the version of Rota |\n"
    yield CODES_INTRO
    yield "| code | meaning |\n|---|---|"
    for line in describe_exit_codes(*_limits(top)).removeprefix(CODES).splitlines():
        code, meaning = line.split(maxsplit=1)
        yield f"| {code} | {_cell(meaning)} |"
    yield ""
    for name in COMMANDS:
        yield from _command(commands[name], "##")


def _command(command: argparse.ArgumentParser, heading: str) -> Iterator[str]:
    yield f"{heading} `{command.prog}`\n"
    yield f"`{_usage(command)}`\n"
    yield f"{(command.description or '').strip()}\n"
    inner = _commands(command)
    if inner:
        yield "| command | what it does |\n|---|---|"
        for name, about in _abouts(command):
            anchor = f"{command.prog} {name}".replace(" ", "-")
            yield f"| [`{name}`](#{anchor}) | {_cell(about)} |"
        yield ""
    yield from _options(command)
    text = (command.epilog or "").partition(CODES)[0].strip("\n")
    if text:
        yield f"```text\n{text}\n```\n"
    for one in inner.values():
        yield from _command(one, f"{heading}#")


def _options(command: argparse.ArgumentParser) -> Iterator[str]:
    """A table for each group of options, under the title that ``--help`` gives it."""
    for group in command._action_groups:
        actions = [one for one in group._group_actions if _is_shown(one)]
        if not actions:
            continue
        yield f"| {group.title} | |\n|---|---|"
        for action in actions:
            yield f"| `{_cell(_spelled(action))}` | {_cell(_help(action, command))} |"
        yield ""


def _usage(command: argparse.ArgumentParser) -> str:
    """Only what has to be given, and in which order."""
    actions = [one for one in command._actions if _is_shown(one)]
    needed = [_spelled(one) for one in actions if one.option_strings and one.required]
    places = [_spelled(one) for one in actions if not one.option_strings]
    optional = any(one.option_strings and not one.required for one in actions)
    then = "COMMAND ..." if _commands(command) else "[OPTION ...]" if optional else ""
    return " ".join(filter(None, [command.prog, *places, *needed, then]))


def _spelled(action: argparse.Action) -> str:
    value = _value(action)
    if not action.option_strings:
        return value
    names = ", ".join(action.option_strings)
    return f"{names} {value}" if value else names


def _value(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    name = action.metavar or action.dest
    shown = " ".join(name) if isinstance(name, tuple) else name
    match action.nargs:
        case "?":
            return f"[{shown}]"
        case "*":
            return f"[{shown} ...]"
        case "+":
            return f"{shown} ..."
    return shown


def _help(action: argparse.Action, command: argparse.ArgumentParser) -> str:
    """With the default, where the help itself does not speak of it."""
    text = (action.help or "") % {**vars(action), "prog": command.prog}
    if not isinstance(action.default, str | int | float) or isinstance(action.default, bool):
        return text
    if "default" in text or not action.default:
        return text
    return f"{text} (default {action.default})"


def _commands(command: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in command._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _abouts(command: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    for action in command._actions:
        if isinstance(action, argparse._SubParsersAction):
            for one in action._choices_actions:
                yield one.dest, one.help or ""


def _limits(top: argparse.ArgumentParser) -> Iterable[str]:
    """What may end a command with 1, as the whole command line names it."""
    line = next(one for one in (top.epilog or "").splitlines() if one.split()[0] == "1")
    return line.partition("(")[2].rstrip(")").split(", ")


def _is_shown(action: argparse.Action) -> bool:
    hidden = isinstance(action, argparse._HelpAction | argparse._SubParsersAction)
    return not hidden and action.help is not argparse.SUPPRESS


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
