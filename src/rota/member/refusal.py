"""How a member speaks of the coordinator's codes."""

from __future__ import annotations

from rota.errors import AuthorizationFailed, Code, GroupError, RotaError
from rota.model.config import MemberConfig

NAMES = {int(code): code.name for code in Code}

NO_COORDINATOR = frozenset({Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR})
"""Answers of one who is not the coordinator, or not any more: another must be found."""


def code_name(code: int) -> str:
    """``25 UNKNOWN_MEMBER_ID``; of a code that is not known, the number alone."""
    return f"{int(code)} {NAMES[code]}" if code in NAMES else str(int(code))


def refused_for_good(config: MemberConfig, what: str, code: int) -> RotaError:
    """What the application is told of a code that will not pass by itself."""
    text = f"group {config.group!r}: {what} refused with {code_name(code)}"
    match code:
        case Code.GROUP_AUTHORIZATION_FAILED:
            advice = "this user has no permission to read as this group"
            return AuthorizationFailed(Code.GROUP_AUTHORIZATION_FAILED, f"{text}: {advice}")
        case Code.INVALID_SESSION_TIMEOUT:
            text += (
                f": session.timeout.ms = {config.session_timeout} is not between the broker's "
                "group.min.session.timeout.ms and group.max.session.timeout.ms"
            )
        case Code.GROUP_MAX_SIZE_REACHED:
            text += ": it has as many members as the broker's group.max.size allows"
        case Code.UNSUPPORTED_VERSION if config.static_id is not None:
            text += ": the broker is too old for group.instance.id"
        case _:
            pass
    return GroupError(text, code)
