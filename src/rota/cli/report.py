"""``rota report``: the tables of a run as one page, and a summary on the terminal."""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Sequence
from pathlib import Path

from rota.cli.flags import flag_adder
from rota.cli.render import print_notice, printable_text, report_progress
from rota.engine.model.text import suggest_or_list_names
from rota.errors import InputError, Unreachable

DEFAULT_OUT, DEFAULT_DEMO_OUT = "rota-out", "rota-demo"
#: File names of the page with all groups, and of a page with some groups.
PAGE_NAME, SELECTED_PAGE_NAME = "report.html", "report-selected.html"

HELP = "write the tables of rota run as one page, and print a summary"

DESCRIPTION = """\
Writes the tables of rota run as one HTML page that needs no network, and prints a summary: the
health of all groups, then the three worst groups with the cause, the downtime and what to do. rota
run ends with the same page and summary. The command reads only the tables: no cluster, no Spark.

With --compare it compares two runs, for example before and after a change, group by group: health,
downtime per hour and partition, mean lag, and rebalances per hour. A difference is clear if it is
larger than two standard deviations (if rebalances come at random, each with its own downtime), and
than the uncertainty of both runs: of downtime uncertainty_ms in gold/advice, of lag 5 s or an
eighth. A group got worse if one of these got clearly worse; more rebalances count only if nothing
else changed. So a group with few rebalances rarely has a clear difference.
"""

EXAMPLES = """\
examples:
  rota report
      reads rota-out, the default folder of rota run, or rota-demo if rota-out does not exist
  rota report rota-demo --open
      also opens the page in a browser
  rota report incident --group 'billing-*' --out billing.html
      a page with some groups, which does not name the others
  rota report --out /dev/stdout | ssh host 'cat > report.html'
      writes the page to a pipe and the summary to stderr
  rota report --compare incident rota-out
      before and after a change; for CI: exit code 1 if a group got worse
  rota report --json | jq '.groups[] | {group, health: .health.now, downtime_ms}'

"""


LIMITS = ("--compare: a group got worse",)  # options that can cause exit code 1


def add_flags(parser: argparse.ArgumentParser) -> None:
    add = flag_adder(parser)
    add("folder DIR", "the --out of rota run (default: rota-out, else rota-demo)", nargs="?")
    add("--out FILE", "the page (default: DIR/report.html, with --group DIR/report-selected.html)")
    add("--group NAME", "only these groups; * and ? are wildcards; repeatable", repeated=True)
    add("--open", "open the page in a browser")
    parser.add_argument(
        "--compare",
        nargs=2,
        metavar=("BEFORE", "AFTER"),
        help="compare two folders of rota run instead, group by group; writes no page",
    )
    add("--json", "print JSON")


def run(args: argparse.Namespace) -> bool:
    check_arrow("rota report")
    if args.compare is not None:
        if args.folder or args.out or args.open:
            args.error("--compare writes no page: leave out DIR, --out and --open")
        from rota.cli import report_compare  # noqa: PLC0415

        folders = [tables_folder(folder) for folder in args.compare]
        return report_compare.compare_runs(folders, args.group, as_json=args.json)
    from rota.cli import report_summary  # noqa: PLC0415 (other commands do without Arrow)

    folder = tables_folder(args.folder)
    name = SELECTED_PAGE_NAME if args.group else PAGE_NAME
    page = Path(folder, name) if args.out is None else _page_path(args.out)
    if args.open and page.exists() and not page.is_file():
        raise InputError(f"--open: {page} is not a regular file, a browser cannot show it")
    with report_progress() as show_step:
        tables, story = report_summary.read_story(folder, args.group, show_step)
        if args.group and not story.groups:
            names = tables.advice["group"].to_pylist()
            args.error(no_such_group_message("--group", args.group, names))
        report_summary.save_page(story, tables, page, show_step)
    report_summary.print_story(story, page, as_json=args.json)
    if args.open:
        import webbrowser  # noqa: PLC0415

        if not webbrowser.open(page.absolute().as_uri()):
            print_notice(f"found no browser to open {page}")
    return False


def check_arrow(command: str) -> None:
    if importlib.util.find_spec("pyarrow") is None:
        hint = "pip install 'rota[report]' ('.[report]' in a clone)"
        raise Unreachable(f"{command} needs Arrow: {hint}")


def tables_folder(given: str | None) -> str:
    if given is None:
        only_demo = Path(DEFAULT_DEMO_OUT).is_dir() and not Path(DEFAULT_OUT).is_dir()
        return DEFAULT_DEMO_OUT if only_demo else DEFAULT_OUT
    if Path(given).is_file():
        raise InputError(f"{given} is a file; give the folder that rota run wrote, its --out")
    return given


def _page_path(given: str) -> Path:
    path = Path(given)
    if path.is_dir():
        raise InputError(f"--out {given} is a folder; give a file, like {path / 'page.html'}")
    if not path.parent.is_dir():
        raise Unreachable(f"--out {given}: the folder {path.parent} does not exist")
    return path


def no_such_group_message(flag: str, selected: Sequence[str], names: Sequence[str]) -> str:
    if not names:
        return f"{flag}: the tables have no group with a rebalance"
    message = f"{flag} {' '.join(selected)}: the tables have no such group"
    return printable_text(message + suggest_or_list_names(selected, names)).plain
