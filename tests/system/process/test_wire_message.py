"""Requests and responses as bytes."""

from __future__ import annotations

from tests.support.process import run_python

# The library that brings the schemas


def test_the_librarys_clients_are_not_imported() -> None:
    code = "import sys, rota.protocol.messages; print('kafka' in sys.modules)"
    assert run_python(code).checked().out.strip() == "False"
