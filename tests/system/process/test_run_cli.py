"""The command ``rota run``, as far as it goes without Spark."""

from __future__ import annotations

import pytest

from tests.support.process import run_python

pytest.importorskip("pyspark")


@pytest.mark.parametrize(
    "words", [["--version"], ["plan", "--help"], ["run", "--help"], ["report", "--help"]]
)
def test_other_commands_load_no_spark(words: list[str]) -> None:
    script = (
        "import sys\n"
        "from rota.cli.main import main\n"
        "try:\n"
        f"    main({words!r})\n"
        "except SystemExit:\n"
        "    pass\n"
        "heavy = {'pyspark', 'pyarrow', 'pandas'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)\n"
    )
    run_python(script).checked()
