"""Requests and responses as bytes."""

from __future__ import annotations

import subprocess
import sys

# The library that brings the schemas


def test_the_librarys_clients_are_not_imported() -> None:
    code = "import sys, rota.wire.message; print('kafka' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
