"""The ``rota`` command: finds the command, runs it, turns errors into exit codes."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from enum import IntEnum

from rota import __version__
from rota.cli import plan
from rota.errors import RotaError


class Exit(IntEnum):
    """Exit codes, the same for every command."""

    DONE = 0
    LIMIT = 1
    USAGE = 2
    UNREACHABLE = 3
    BAD_INPUT = 4
    INTERRUPTED = 130


EXIT_CODES = """\
exit codes:
  0    done
  1    a limit that you gave was met (--max-moves)
  2    the command line is wrong
  3    a file or a server cannot be reached or read
  4    bad input, named in one line
  130  interrupted
"""


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(
        prog="rota",
        description="Kafka's consumer groups: who gets which partition, and what moves.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"rota {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    plan.add_to(commands, epilog=EXIT_CODES)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and gives its exit code."""
    args = parser().parse_args(arguments)
    try:
        limit_met = args.run(args)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _said("interrupted", Exit.INTERRUPTED)
    except BrokenPipeError:
        # the reader (head, less) has seen enough; keep Python from complaining at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.DONE
    except RotaError as error:
        return _said(str(error), Exit.BAD_INPUT)
    except OSError as error:
        return _said(f"{error.filename or 'output'}: {error.strerror}", Exit.UNREACHABLE)
    return Exit.LIMIT if limit_met else Exit.DONE


def _said(message: str, code: Exit) -> int:
    print(f"rota: {' '.join(message.split())}", file=sys.stderr)  # noqa: T201
    return code


if __name__ == "__main__":
    sys.exit(main())
