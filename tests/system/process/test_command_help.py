"""``rota COMMAND --help`` shows flags, and loads nothing that only the work needs."""

from __future__ import annotations

import pytest

from tests.support.process import run_python

HEAVY = ("numpy", "rich", "asyncio", "kafka", "confluent_kafka", "rota.protocol.messages")


@pytest.mark.parametrize("command", ["consume", "produce", "broker"])
def test_help_loads_no_library_of_the_work(command: str) -> None:
    program = (
        "import sys\nfrom rota.cli.main import main\n"
        f"try:\n    main(['{command}', '--help'])\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)\n"
    )
    done = run_python(program).checked()
    assert done.out.startswith(f"usage: rota {command}")
    assert done.err == "[]\n"
