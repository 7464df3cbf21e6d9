"""The fixtures ``kafka`` and ``kafka_session``, inside and in a suite of a user's own."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.process import run_command

pytest_plugins = ["pytester"]


def run_pytest(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """A suite of a user's own, in a process of its own."""
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments)


def test_a_users_suite(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nkafka_config =\n    num.partitions = 3\n")
    pytester.makepyfile(
        """
        import pytest

        def test_settings_of_the_ini_file(kafka):
            kafka.produce("t", "x")
            assert kafka.topics == {"t": 3}

        @pytest.mark.kafka(config={"num.partitions": 4})
        def test_a_mark_goes_before_them(kafka):
            kafka.produce("t", "x")
            assert kafka.topics == {"t": 4}

        def test_a_failure_names_the_setting(kafka_session):
            assert kafka_session.topics == {}
        """
    )
    run_pytest(pytester, "--strict-markers").assert_outcomes(passed=3)


def test_what_is_wrong_is_said(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.kafka(config={"num.partition": 4})
        def test_setting(kafka): ...

        @pytest.mark.kafka({"num.partitions": 4})
        def test_mark(kafka): ...

        @pytest.mark.kafka(colour="blue")
        def test_word(kafka): ...

        @pytest.mark.kafka(config={"num.partitions": 4})
        def test_shared(kafka_session): ...
        """
    )
    result = run_pytest(pytester)
    result.assert_outcomes(errors=4)
    result.stdout.fnmatch_lines(
        [
            "*did you mean num.partitions*",
            "*takes keywords only*",
            "*rota.Broker has no argument colour; it has data_dir, port*",
            "*is for the fixture kafka: *kafka_config*",
        ]
    )


def test_without_the_extra_the_line_to_install_is_told(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("import sys\nsys.modules['crc32c'] = None\n")
    pytester.makepyfile("def test_it(kafka): ...")
    result = run_pytest(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*needs crc32c: pip install 'rota?broker?'*"])


def test_without_the_extra_python_tells_it_too(pytester: pytest.Pytester) -> None:
    code = """
    import sys
    sys.modules["kafka"] = None
    import rota
    try:
        rota.Broker()
    except rota.errors.Unreachable as error:
        print(error)
    """
    result = pytester.runpython(pytester.makepyfile(code))
    result.stdout.fnmatch_lines(["*needs kafka-python: pip install 'rota?broker?'*"])


def test_an_error_shows_the_line_that_asked(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(kafka):\n    kafka.read('nope')\n")
    result = run_pytest(pytester)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*there is no topic 'nope'*"])
    for module in ("running.py", "inside.py", "futures"):
        result.stdout.no_fnmatch_line(f"*{module}*")


def test_tests_without_the_fixture_do_not_load_the_broker(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_it():
            assert "rota.adapters.pytest_plugin" in sys.modules
            assert not [name for name in sys.modules if name.startswith("rota.broker")]
            assert "asyncio" not in sys.modules or "numpy" not in sys.modules
        """
    )
    run_pytest(pytester).assert_outcomes(passed=1)


def test_the_fixture_is_listed_with_its_words(tmp_path: Path) -> None:
    pytest_words = (sys.executable, "-m", "pytest", "--fixtures", "--markers", tmp_path)
    listed = run_command(*pytest_words, folder=tmp_path).out
    assert "@pytest.mark.kafka(config={...}" in listed


PAGE = ROOT / "docs" / "how-to" / "test-with-kafka.md"
FILE = re.compile(r"^```python (\w+\.py)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_suite_of_the_how_to(pytester: pytest.Pytester) -> None:
    pytest.importorskip("confluent_kafka")
    files = dict(FILE.findall(PAGE.read_text()))
    assert sorted(files) == ["conftest.py", "shop.py", "test_reading.py", "test_shop.py"]
    for name, text in files.items():
        (pytester.path / name).write_text(text)
    tests = re.findall(r"^def test_", "\n".join(files.values()), re.MULTILINE)
    run_pytest(pytester).assert_outcomes(passed=len(tests))
