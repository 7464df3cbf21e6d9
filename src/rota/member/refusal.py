"""How a member speaks of the coordinator's codes."""

from __future__ import annotations

from rota.errors import Code

NAMES = {int(code): code.name for code in Code}

NO_COORDINATOR = frozenset({Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR})
"""Answers of one who is not the coordinator, or not any more: another must be found."""


def code_name(code: int) -> str:
    """``25 UNKNOWN_MEMBER_ID``; of a code that is not known, the number alone."""
    return f"{int(code)} {NAMES[code]}" if code in NAMES else str(int(code))
