"""Hypothesis profiles: dev while writing, ci at every run, nightly for long ones."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

# cases are no test modules: their assertions must be told to speak, before anybody imports them
for case in ("admin", "group", "record", "security", "tool"):
    pytest.register_assert_rewrite(f"tests.interop.{case}_case")
pytest.register_assert_rewrite("tests.spark.beside.stage")

quiet = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("dev", max_examples=30, deadline=None, suppress_health_check=quiet)
settings.register_profile(
    "ci",
    max_examples=200,
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=quiet,
)
settings.register_profile(
    "nightly", max_examples=10_000, deadline=None, print_blob=True, suppress_health_check=quiet
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
