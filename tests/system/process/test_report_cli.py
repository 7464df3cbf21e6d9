"""``rota report``, and what ``rota run`` ends with: the page, and the story in 80 columns."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from tests.support.process import CommandResult, run_command, run_python

pytest.importorskip("pyarrow")

from tests.support.gold_tables import write_small


@pytest.fixture
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the current directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


ROTA = f"{shlex.quote(sys.executable)} -m rota report out"


def run_shell(words: str) -> CommandResult:
    """What comes of a line in bash, run in the current folder; without the progress that is told
    of where the machine takes long.
    """
    done = run_command("bash", "-c", words).checked()
    return done._replace(err=re.sub(r"^\S.* \.\.\.\n", "", done.err, flags=re.MULTILINE))


@pytest.mark.skipif(shutil.which("bash") is None, reason="these are lines of bash's")
@pytest.mark.parametrize(
    ("words", "beside"),
    [
        ("{rota} --out /dev/stdout | cat > page.html", "stderr"),
        ("{rota} --out /dev/stdout > page.html", "stderr"),
        ("{rota} --out /dev/fd/1 > page.html", "stderr"),
        ("{rota} --out >(cat > page.html); wait $!", "stdout"),
        ("{rota} --out /dev/fd/7 7> page.html", "stdout"),
        ("{rota} --out /dev/fd/7 7> >(cat > page.html); wait $!", "stdout"),
        ("{rota} --out /dev/stderr 2> page.html", "stdout"),
    ],
)
def test_the_page_goes_into_what_a_shell_has_opened(
    working_folder: Path, words: str, beside: str
) -> None:
    write_small(working_folder / "out")
    done = run_shell(words.format(rota=ROTA))
    page = (working_folder / "page.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert page.endswith("</html>\n")
    printed = {"stdout": done.out, "stderr": done.err}
    assert printed.pop(beside).startswith("6 groups: 3 unknown, 3 OK\n")
    assert list(printed.values()) == [""]


@pytest.mark.skipif(shutil.which("bash") is None, reason="these are lines of bash's")
def test_a_page_is_added_to_what_a_shell_has_written_before(working_folder: Path) -> None:
    write_small(working_folder / "out")
    run_shell(f"(echo before; {ROTA} --out /dev/stdout; echo after) >> all.html 2> told")
    lines = (working_folder / "all.html").read_text(encoding="utf-8").splitlines()
    assert (lines[0], lines[1], lines[-2:]) == (
        "before",
        "<!DOCTYPE html>",
        ["</html>", "after"],
    )
    json_too = run_shell(f"{ROTA} --json --out /dev/stdout > page.html")
    assert json.loads(json_too.err)["page"] == "/dev/stdout"


def test_a_disk_that_is_full_is_named_and_the_old_page_is_left(working_folder: Path) -> None:
    write_small(working_folder / "out")
    (working_folder / "out" / "report.html").write_text("as it was")
    words = f"ulimit -f 20; exec {shlex.quote(sys.executable)} -m rota report out"
    done = run_command("sh", "-c", words)
    assert done == (3, "", "rota: out/report.html: File too large\n")
    assert (working_folder / "out" / "report.html").read_text() == "as it was"
    assert not list((working_folder / "out").glob(".report*"))


def test_it_needs_arrow_alone(working_folder: Path) -> None:
    write_small(working_folder / "out")
    script = (
        "import sys\n"
        "class Nothing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name in {'pyspark', 'pandas', 'kafka', 'confluent_kafka'}:\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Nothing())\n"
        "from rota.cli.main import main\n"
        "sys.exit(main(['report', 'out']))\n"
    )
    done = run_python(script)
    assert done.checked().out.startswith("6 groups: 3 unknown, 3 OK\n")


def test_rota_why_loads_only_what_one_group_needs(working_folder: Path) -> None:
    """Every module costs time: the command should answer in about a second."""
    write_small(working_folder / "out")
    script = (
        "import sys\n"
        "from rota.cli.main import main\n"
        "code = main(['why', 'billing', 'out'])\n"
        "slow = {'pyspark', 'asyncio', 'rota.client.cluster', 'rota.engine.history.advice',\n"
        "        'rota.engine.history.causes', 'rota.report.page.document'}\n"
        "sys.exit(code or ', '.join(slow & set(sys.modules)) or 0)\n"
    )
    assert run_python(script).checked().out.startswith("billing: OK\n")
