"""``rota why``: the flags. why_group.py reads the tables and prints the explanation."""

from __future__ import annotations

import argparse

from rota.cli import report
from rota.cli.flags import flag_adder, parse_time_bound

HELP = "explain one group: its health, rebalances, their cost, and what to do"

DESCRIPTION = """\
Explains one group: its health, what happened and why, the time that it cost, the last rebalances,
and what to do, with the settings to copy. The command reads only the tables of rota run: no
cluster, no Spark. It takes about a second. The exit code does not depend on the group's health.
"""

EXAMPLES = """\
examples:
  rota why billing
      reads rota-out, the default folder of rota run, or rota-demo if rota-out does not exist
  rota why billing incident --since 1h
      the rebalances, downtime and lag of the last hour of the evidence
  rota why billing --json | jq '.rebalances_shown[] | {at, cause, downtime_ms}'

"""


def add_flags(parser: argparse.ArgumentParser) -> None:
    add = flag_adder(parser)
    add("group GROUP", "name of the group")
    add("folder DIR", "the --out of rota run (default: rota-out, else rota-demo)", nargs="?")
    add(
        "--since TIME",
        "show only rebalances, downtime and lag after this time: 2026-11-15T06:00Z, or 1h or 2d "
        "before the end of the evidence; health and advice are those of the whole evidence",
        type=parse_time_bound,
    )
    add("--json", "print JSON; times are in milliseconds since 1970")


def run(args: argparse.Namespace) -> bool:
    report.check_arrow("rota why")
    from rota.cli import why_group  # noqa: PLC0415 (other commands do without Arrow)

    folder = report.tables_folder(args.folder)
    others = why_group.explain_group(args.group, folder, args.since, as_json=args.json)
    if others is not None:
        args.error(report.no_such_group_message("GROUP", [args.group], others))
    return False
