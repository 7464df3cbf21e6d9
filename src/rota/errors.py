"""Every error Rota raises on purpose, in one tree.

::

    RotaError
    ├── InputError              what the caller gave is wrong; says what and where
    │   ├── UnknownStrategy     no such strategy, or it cannot be loaded
    │   └── UnknownSolver       no such solver of the sticky family
    ├── FormatError             bytes that do not follow their format
    └── StrategyError           a strategy did not do its duty
        ├── StrategyFailed      it raised
        └── BrokenRule          its result breaks a rule of a valid assignment
"""

from __future__ import annotations


class RotaError(Exception):
    """Base of every error that Rota raises on purpose."""


class InputError(RotaError):
    """The caller's input is wrong. The message names what was wrong, and where."""


class UnknownStrategy(InputError):
    """A strategy that is not known or cannot be loaded. The message lists those that are."""


class UnknownSolver(InputError):
    """A solver that the sticky family does not have."""


class FormatError(RotaError):
    """Bytes that do not follow their format: truncated, negative lengths, impossible counts."""


class StrategyError(RotaError):
    """A strategy, usually a custom one, did not do its duty."""


class StrategyFailed(StrategyError):
    """The strategy raised; its exception is the cause of this one."""


class BrokenRule(StrategyError):
    """The strategy's result breaks a rule that every assignment must keep."""

    def __init__(self, strategy: str, rule: str, detail: str) -> None:
        super().__init__(f"strategy {strategy!r} broke the rule {rule!r}: {detail}")
        self.strategy = strategy
        self.rule = rule
        self.detail = detail

    def __reduce__(self) -> tuple[type[BrokenRule], tuple[str, str, str]]:
        return type(self), (self.strategy, self.rule, self.detail)
