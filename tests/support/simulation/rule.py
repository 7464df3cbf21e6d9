"""How a broken promise is told."""

from __future__ import annotations


class RuleViolation(AssertionError):
    """A rule does not hold."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule


def must(holds: object, rule: str, *told: object) -> None:
    """What must be true of every world."""
    if not holds:
        raise RuleViolation(rule, " ".join(str(one) for one in told))
