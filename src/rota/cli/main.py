"""The ``rota`` command: finds the subcommand, runs it, and turns errors into exit codes."""

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

DEBUG_VARIABLE = "ROTA_DEBUG"  # environment variable that prints the traceback of a bug


class ExitCode(IntEnum):
    DONE = 0
    LIMIT = 1
    USAGE = 2
    UNREACHABLE = 3
    BAD_INPUT = 4
    BUG = 70
    INTERRUPTED = 130


EXIT_CODES_HELP = f"""\
exit codes:
  0    done
{{limit}}\
  2    the command line is wrong
  3    a file or a server cannot be reached or read
  4    bad input; the message says what is wrong
  70   a bug in Rota; {DEBUG_VARIABLE}=1 prints the traceback
  130  interrupted
"""


def describe_exit_codes(*limits: str) -> str:
    """Returns the help text about exit codes, for a command with these limits."""
    text = f"  1    a limit is exceeded ({', '.join(limits)})\n" if limits else ""
    return EXIT_CODES_HELP.format(limit=text)


#: Modules of this package, each with HELP, DESCRIPTION, EXAMPLES, ``add_flags`` and ``run``.
COMMANDS = ("plan", "simulate", "run", "report", "why", "broker", "groups", "consume", "produce")


def build_parser(command: str | None = None) -> argparse.ArgumentParser:
    """Builds the parser of one command, or of all, which imports all their modules."""
    import argparse  # noqa: PLC0415

    from rota import __version__  # noqa: PLC0415
    from rota.cli.flags import CommandParser  # noqa: PLC0415

    top = CommandParser(
        prog="rota",
        description="Kafka's consumer groups: plan, simulate, run and analyse them.",
        epilog=describe_exit_codes(
            "--max-moves", "--max-downtime", "--fail-on", "--compare of rota report"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"rota {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in [command] if command in COMMANDS else COMMANDS:
        module = import_module(f"rota.cli.{name}")
        parser = commands.add_parser(
            name,
            help=module.HELP,
            description=module.DESCRIPTION,
            epilog=module.EXAMPLES + describe_exit_codes(*getattr(module, "LIMITS", ())),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        # the subcommands of rota groups have functions of their own
        parser.set_defaults(run=getattr(module, "run", None), error=parser.error)
        module.add_flags(parser)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code; Ctrl-C ends it cleanly, also during imports."""
    try:
        return _run_command(arguments)
    except KeyboardInterrupt:
        return _print_error("interrupted", ExitCode.INTERRUPTED)
    except BrokenPipeError:
        # the reader (head, less) closed the pipe; keep Python from reporting that at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.DONE
    except OSError as error:
        return _print_error(f"{error.filename or 'output'}: {error.strerror}", ExitCode.UNREACHABLE)
    except MemoryError:
        return _print_error("out of memory: the input is too large", ExitCode.BAD_INPUT)
    except Exception as error:  # noqa: BLE001 (nothing above this function catches it)
        if os.environ.get(DEBUG_VARIABLE):
            traceback.print_exc()
        bug = f"a bug in Rota: {type(error).__name__}: {error} ({DEBUG_VARIABLE}=1 shows where)"
        return _print_error(bug, ExitCode.BUG)


def _run_command(arguments: Sequence[str] | None) -> int:
    from rota.errors import RotaError, Unreachable  # noqa: PLC0415

    for stream in (sys.stdout, sys.stderr):
        # escape characters that the terminal's encoding does not have
        getattr(stream, "reconfigure", lambda **_: None)(errors="backslashreplace")
    try:
        given = sys.argv[1:] if arguments is None else arguments
        if not given:
            build_parser().print_help(sys.stderr)
            return ExitCode.USAGE
        args = build_parser(given[0]).parse_args(given)
        exceeded = args.run(args)
        sys.stdout.flush()
    except Unreachable as error:
        return _print_error(str(error), ExitCode.UNREACHABLE)
    except RotaError as error:
        return _print_error(str(error), ExitCode.BAD_INPUT)
    return ExitCode.LIMIT if exceeded else ExitCode.DONE


def _print_error(message: str, code: ExitCode) -> int:
    # names from a cluster must not move the cursor or colour the terminal
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in " ".join(message.split()))
    print(f"rota: {line}", file=sys.stderr)  # noqa: T201
    return code


if __name__ == "__main__":
    sys.exit(main())
