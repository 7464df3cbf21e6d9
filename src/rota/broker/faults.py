"""Injected faults, for tests: error responses, delays and dropped responses.

Also finds an API or an error code by the name that a user gives.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from rota.broker.dispatch import AnyHandler, AnyRequest
from rota.broker.timers import Timers
from rota.errors import Code, InputError
from rota.protocol import schemas
from rota.protocol.messages import CLIENT_ONLY_APIS, Api

EnumT = TypeVar("EnumT", bound=enum.IntEnum)


@dataclass(slots=True, kw_only=True)
class InjectedFault:
    """A fault for requests of an API, and the number of requests it applies to."""

    api: Api
    #: So many requests more; None: all, until it is cancelled.
    remaining: int | None
    #: Only those of this client.
    client_id: str | None
    #: Milliseconds.
    delay: int = 0
    #: The error to answer with, without a look at the request.
    code: Code | None = None
    #: The request is handled, and the connection is cut in place of an answer.
    drop_response: bool = False
    #: A request has come for it.
    triggered: bool = False

    def matches(self, call: AnyRequest) -> bool:
        """Is it meant for this request?"""
        return self.client_id is None or self.client_id == call.client.client_id


class FaultInjector:
    """Injected faults by API. A request takes the first delay that matches it and the first
    outcome.
    """

    def __init__(self, alarms: Timers | None = None) -> None:
        self._alarms = Timers() if alarms is None else alarms
        self._delays: dict[Api, list[InjectedFault]] = {}
        self._outcomes: dict[Api, list[InjectedFault]] = {}
        self._count = 0

    def inject(self, order: InjectedFault) -> None:
        """Adds a fault."""
        where = self._delays if order.delay else self._outcomes
        where.setdefault(order.api, []).append(order)

    def clear(self, api: Api | None = None) -> int:
        """Removes the faults of an API, or all; requests that are already delayed stay so.
        Returns the number of faults that never triggered.
        """
        unmet = 0
        for orders in (self._delays, self._outcomes):
            for each in list(orders) if api is None else [api]:
                unmet += sum(not order.triggered for order in orders.pop(each, ()))
        return unmet

    def intercept(self, handler: AnyHandler, call: AnyRequest, answer: Callable[[], None]) -> bool:
        """True if a fault takes the request over. It may be handled later, by calling
        ``answer``.
        """
        if not self._delays and not self._outcomes:
            return False
        delay = _take_first_match(self._delays, call)
        outcome = _take_first_match(self._outcomes, call)
        if delay is None and outcome is None:
            return False
        if delay is None:
            _apply_fault(outcome, handler, call, answer)
            return True
        self._count += 1

        def ring(at: int) -> None:
            call.now = at
            _apply_fault(outcome, handler, call, answer)

        self._alarms.start(("fault", self._count), call.now + delay.delay, ring)
        return True


def _take_first_match(
    orders: dict[Api, list[InjectedFault]], call: AnyRequest
) -> InjectedFault | None:
    for order in orders.get(call.api, ()):
        if order.matches(call):
            order.triggered = True
            if order.remaining is not None:
                order.remaining -= 1
                if not order.remaining:
                    orders[call.api].remove(order)
                    if not orders[call.api]:
                        del orders[call.api]
            return order
    return None


def _apply_fault(
    order: InjectedFault | None, handler: AnyHandler, call: AnyRequest, answer: Callable[[], None]
) -> None:
    if order is not None and order.code is not None:
        response = handler.error_response(call, order.code)
        if response is None:  # acks=0: an end of the connection is all that a client can see
            call.drop_connection(f"{api_name(call.api)} fails with {order.code.name}, on order")
        else:
            call.respond(response)
        return
    if order is not None and order.drop_response:
        call.write_response = lambda _: call.drop_connection(
            f"the answer to {api_name(call.api)} is lost, on order"
        )
    answer()


def api_name(api: Api) -> str:
    """As Kafka writes it: ``JoinGroup``."""
    return "".join(part.capitalize() for part in api.name.split("_"))


def find_api(name: str | int) -> Api:
    """The API of this name (``JoinGroup``, ``join_group``) or key.

    :raises InputError: there is none; the message has the nearest
    """
    names = {each: api_name(each) for each in Api if each not in CLIENT_ONLY_APIS}
    found = _find_by_name(name, "API", names)
    if found is not None:
        return found
    if isinstance(name, int):
        known = ", ".join(f"{int(each)} {text}" for each, text in names.items())
        raise InputError(f"API {name}: Rota's broker serves none of this number; it has {known}")
    for other in schemas.list_schema_names():
        if other.endswith("Request") and _normalize_name(
            other.removesuffix("Request")
        ) == _normalize_name(name):
            raise InputError(f"API {name!r}: Rota's broker does not serve it")
    raise InputError(
        f"API {name!r}: there is none of this name{_suggest_nearest(name, names.values())}"
    )


def find_error_code(name: str | int) -> Code:
    """The error of this name (``NOT_COORDINATOR``, ``NotCoordinator``) or code.

    :raises InputError: there is none; the message has the nearest
    """
    names = {each: each.name for each in Code}
    found = _find_by_name(name, "error", names)
    if found is Code.NONE:
        raise InputError(f"error {name!r}: this one is no error")
    if found is not None:
        return found
    if isinstance(name, int):
        raise InputError(
            f"error {name}: Kafka has none of this number; they go from -1 to {max(names)}"
        )
    raise InputError(
        f"error {name!r}: there is none of this name{_suggest_nearest(name, names.values())}"
    )


def _find_by_name(name: str | int, what: str, names: dict[EnumT, str]) -> EnumT | None:
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise InputError(f"{what} {name!r}: give its name or its number")
    for each, text in names.items():
        if (
            each == name
            if isinstance(name, int)
            else _normalize_name(text) == _normalize_name(name)
        ):
            return each
    return None


def _normalize_name(name: str) -> str:
    return name.replace("_", "").replace("-", "").replace(" ", "").lower()


def _suggest_nearest(name: str, names: Iterable[str]) -> str:
    import difflib  # noqa: PLC0415 (for a mistake only)

    known = {_normalize_name(each): each for each in names}
    near = difflib.get_close_matches(_normalize_name(name), known, 3, 0.5)
    return f"; did you mean {' or '.join(known[each] for each in near)}?" if near else ""
