"""Requests and responses as bytes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from rota.errors import Unreachable
from rota.protocol import schemas


def test_where_the_library_is_missing_its_name_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "kafka").mkdir()  # some other package of that name
    monkeypatch.setattr(sys, "path", [os.fspath(tmp_path)])
    monkeypatch.delitem(sys.modules, "kafka", raising=False)
    schemas.kafka_python_schema_folder.cache_clear()
    try:
        with pytest.raises(Unreachable, match=r"kafka-python 3.*pip install 'rota\[broker\]'"):
            schemas.require_schemas(["FetchRequest"])
    finally:
        schemas.kafka_python_schema_folder.cache_clear()
