"""What the README and the how-tos show is what happens.

Python blocks run in order in one namespace, and print what the ``output`` block after them says.
In ``console`` blocks every line that starts with ``$ rota`` prints what follows it, and ``$ echo
$?`` the exit code of the one before. Where a page talks to a broker, its commands run in order,
with one of its own at the address it names. A ``yaml`` block is a workflow: what it runs of Rota
passes. A ``json`` block is a case that can be planned, a ``toml`` block with topics a scenario that
can be played. Command lines elsewhere are in ``test_docs_commands.py``.
"""

from __future__ import annotations

import re
import shlex

import pytest

from tests.support.paths import ROOT

pytest_plugins = ["pytester"]


def test_the_suite_of_the_readme_prints_what_is_shown(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (found,) = re.findall(r"^```python (test_\w+\.py)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (pytester.path / found[0]).write_text(found[1])
    shown = re.search(rf"^\$ pytest (.*{found[0]})\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert shown is not None
    done = pytester.runpytest_subprocess("-p", "no:cacheprovider", *shlex.split(shown[1]))
    assert (done.ret, done.outlines) == (0, shown[2].splitlines())
