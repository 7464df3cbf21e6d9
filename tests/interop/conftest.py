"""Cases are no test modules: their assertions must be told to speak."""

from __future__ import annotations

import pytest

for case in ("admin", "group", "record", "security", "tool"):
    pytest.register_assert_rewrite(f"tests.interop.{case}_case")
