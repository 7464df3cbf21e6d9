"""Hypothesis profiles: dev while writing, ci at every run, nightly for long ones."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

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
