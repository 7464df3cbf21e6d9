"""Why a broker refuses what an operator asks for, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

from rota.client.coordinator import name_of
from rota.errors import AuthorizationFailed, Code, GroupError, RotaError
from rota.model.topic import first_few

T = TypeVar("T")

DENIED = frozenset(
    {
        Code.GROUP_AUTHORIZATION_FAILED,
        Code.TOPIC_AUTHORIZATION_FAILED,
        Code.CLUSTER_AUTHORIZATION_FAILED,
    }
)
REASONS: Final[Mapping[int, str]] = {
    Code.NON_EMPTY_GROUP: "the group has members",
    Code.UNKNOWN_MEMBER_ID: "the group has members",
    Code.GROUP_SUBSCRIBED_TO_TOPIC: "a member subscribes to the topic",
    Code.GROUP_ID_NOT_FOUND: "there is no such group",
    Code.UNKNOWN_TOPIC_OR_PARTITION: "there is no such partition",
    **dict.fromkeys(DENIED, "no permission"),
}


def _reason(code: int) -> str:
    return f"{REASONS[code]} ({name_of(code)})" if code in REASONS else f"error {name_of(code)}"


def refused(code: Code, what: str) -> RotaError:
    """The error that says what cannot be done, and why."""
    return _error(code, f"{what}: {_reason(code)}")


def check(codes: Mapping[T, Code], what: str) -> None:
    """Looks whether all has been done.

    :raises GroupError: something has not; the message names it and why
    :raises AuthorizationFailed: the same, for lack of permission
    """
    failed: dict[Code, list[str]] = {}
    for name, code in codes.items():
        if code:
            failed.setdefault(code, []).append(str(name))
    if failed:
        reasons = "; ".join(
            f"{first_few(names)}: {_reason(code)}" for code, names in failed.items()
        )
        done = len(codes) - sum(map(len, failed.values()))
        rest = f"; the other {done} were" if done else ""
        raise _error(next(iter(failed)), f"{what}: {reasons}{rest}")


def _error(code: Code, message: str) -> RotaError:
    return AuthorizationFailed(code, message) if code in DENIED else GroupError(message, code)
