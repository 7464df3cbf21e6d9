"""``rota broker``: exit codes, and one line for what is wrong."""

from __future__ import annotations

import os

import pytest

from tests.support.command import RotaCommand


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (["--host", "0.0.0.0"], 4, "without a login: give --users-file (or --user), or --all"),
        (["--host", "no.such.host.invalid"], 4, "host 'no.such.host.invalid'"),
        (["--config", "num.partition=1"], 4, "did you mean num.partitions"),
        (["--config", "num.partitions"], 2, "expected KEY=VALUE"),
        (
            ["--config-file", "missing.properties"],
            3,
            "missing.properties cannot be read: No such file",
        ),
        (["--users-file", "missing"], 3, "missing: No such file"),
        (["--user", "ann"], 4, "--user: expected NAME:PASSWORD"),
        (["--tls-key", "key.pem"], 2, "--tls-key needs --tls-cert"),
        (["--tls-cert", "missing.pem"], 3, "missing.pem: No such file"),
        (["--adopt"], 2, "--adopt needs --data-dir"),
        (["--port", "x"], 2, "'x' is not a port"),
        (["--sasl-mechanism", "PLAIN"], 2, "--sasl-mechanism needs --users-file or --user"),
        (["--user", "a:b", "--sasl-mechanism", "GSSAPI"], 4, "'GSSAPI'; known are PLAIN"),
        (["--user", "a:b", "--user", "a:c"], 4, "--user: a already has a password, from --user"),
        (["--users-file", os.devnull], 4, f"{os.devnull}: the file has no users"),
        (["--data-dir", ""], 2, "--data-dir is empty"),
        (["--advertise", "x"], 4, "'x' is not HOST:PORT"),
    ],
)
def test_wrong_words(
    arguments: list[str],
    code: int,
    problem: str,
    rota_command: RotaCommand,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rota.cli.broker._set_up_logging", lambda *, verbose: None)
    ran = rota_command("broker", "--port", "0", *arguments)
    printed = ran.err.splitlines()
    assert ran.code == code
    assert problem in printed[-1]
    assert code == 2 or len(printed) == 1


def test_exit_codes_are_those_of_the_command(rota_command: RotaCommand) -> None:
    limits = {"plan": "--max-moves, --max-downtime", "simulate": "--max-downtime", "broker": ""}
    for command, limit in limits.items():
        codes = rota_command(command, "--help").checked().out.partition("exit codes:")[2]
        assert ("is exceeded" in codes) == bool(limit)
        assert f"({limit})" in codes or not limit
