"""Fixtures of the tests that do no IO."""

from tests.support.examples import max_examples

__all__ = ["max_examples"]
