"""Rota's consumer in groups of real clients, against a real Kafka and against Rota's own broker."""

from __future__ import annotations

import pytest

# Cases are no test modules: their assertions must be told to speak.
for module in ("cluster", "group", "hands"):
    pytest.register_assert_rewrite(f"tests.system.consumer.{module}")
for kind in ("mix", "member", "topic", "presence", "position"):
    pytest.register_assert_rewrite(f"tests.system.consumer.{kind}_case")
