"""The ``rota`` command: finds the command, runs it, turns errors into exit codes."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from enum import IntEnum
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

DEBUG = "ROTA_DEBUG"
"""Set it to see the traceback of a bug."""


class Exit(IntEnum):
    """Exit codes, the same for every command."""

    DONE = 0
    LIMIT = 1
    USAGE = 2
    UNREACHABLE = 3
    BAD_INPUT = 4
    BUG = 70
    INTERRUPTED = 130


EXIT_CODES = f"""\
exit codes:
  0    done
{{limit}}\
  2    the command line is wrong
  3    a file or a server cannot be reached or read
  4    bad input, named in one line
  70   a bug in Rota; with {DEBUG}=1 its traceback is shown
  130  interrupted
"""


def exit_codes(*limits: str) -> str:
    """What the codes mean, for a command with these limits."""
    text = f"  1    a limit that you gave is exceeded ({', '.join(limits)})\n" if limits else ""
    return EXIT_CODES.format(limit=text)


COMMANDS = ("plan", "simulate", "run", "report", "broker", "groups", "consume", "produce")
"""Modules of this package, each with ``add_to`` and its ``LIMITS``."""


def parser(command: str | None = None) -> argparse.ArgumentParser:
    """The command line: whole, or of the one command that is wanted.

    Commands share few modules, and a broker should not wait for the strategies of a plan.
    """
    import argparse  # noqa: PLC0415

    from rota import __version__  # noqa: PLC0415

    top = argparse.ArgumentParser(
        prog="rota",
        description="Kafka's consumer groups: who gets which partition, and what moves.",
        epilog=exit_codes("--max-moves", "--max-stopped", "--fail-on"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"rota {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in [command] if command in COMMANDS else COMMANDS:
        module = import_module(f"rota.cli.{name}")
        module.add_to(commands, epilog=exit_codes(*module.LIMITS))
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and gives its exit code.

    What takes time, imports included, happens within, so that Ctrl-C is met at any moment.
    """
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        return _said("interrupted", Exit.INTERRUPTED)
    except BrokenPipeError:
        # the reader (head, less) has seen enough; keep Python from complaining at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.DONE
    except OSError as error:
        return _said(f"{error.filename or 'output'}: {error.strerror}", Exit.UNREACHABLE)
    except MemoryError:
        return _said("this group is too large for the machine's memory", Exit.BAD_INPUT)
    except Exception as error:  # noqa: BLE001 (the last one to catch it)
        if os.environ.get(DEBUG):
            traceback.print_exc()
        bug = f"a bug in Rota: {type(error).__name__}: {error} ({DEBUG}=1 shows where)"
        return _said(bug, Exit.BUG)


def _run(arguments: Sequence[str] | None) -> int:
    from rota.errors import RotaError, Unreachable  # noqa: PLC0415

    for stream in (sys.stdout, sys.stderr):
        # a name that the terminal's encoding cannot show is escaped, not an error
        getattr(stream, "reconfigure", lambda **_: None)(errors="backslashreplace")
    try:
        given = sys.argv[1:] if arguments is None else arguments
        if not given:
            parser().print_help(sys.stderr)
            return Exit.USAGE
        args = parser(given[0]).parse_args(given)
        exceeded = args.run(args)
        sys.stdout.flush()
    except Unreachable as error:
        return _said(str(error), Exit.UNREACHABLE)
    except RotaError as error:
        return _said(str(error), Exit.BAD_INPUT)
    return Exit.LIMIT if exceeded else Exit.DONE


def _said(message: str, code: Exit) -> int:
    # names out of a cluster must not move the cursor, or colour the screen
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in " ".join(message.split()))
    print(f"rota: {line}", file=sys.stderr)  # noqa: T201
    return code


if __name__ == "__main__":
    sys.exit(main())
