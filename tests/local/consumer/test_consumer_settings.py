"""A consumer's settings, read under Kafka's names."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.client.config import load_properties, read_settings
from rota.engine.model.config import MemberConfig
from rota.errors import InputError, Unreachable


def test_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_bytes(
        b"# made by hand\n"
        b"bootstrap.servers = a:1,\\\n    b:2\n"
        b"group.id:caf\\u00e9\n"
        b"client.id caf\xe9\n"
    )
    found = read_settings(load_properties(file))
    assert list(map(str, found.client.bootstrap_servers)) == ["a:1", "b:2"]
    assert found.member == MemberConfig(group="café", client_id="café")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="none.properties cannot be read: No such file"):
        load_properties(tmp_path / "none.properties")
    broken = tmp_path / "broken.properties"
    broken.write_text("a=1\nb=\\u12\n")
    with pytest.raises(InputError, match=r"broken.properties, line 2: \\u without"):
        load_properties(broken)
