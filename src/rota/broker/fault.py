"""Faults on order, for tests: errors, delays and lost answers."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from rota.broker.alarm import Alarms
from rota.broker.call import Call
from rota.broker.dispatch import Handler
from rota.errors import Code, InputError
from rota.wire.api import Api

T = TypeVar("T", bound=enum.IntEnum)


@dataclass(slots=True, kw_only=True)
class Order:
    """What shall happen to requests of an API, and to how many of them."""

    api: Api
    left: int | None
    """So many requests more; None: all, until it is cancelled."""
    client_id: str | None
    """Only those of this client."""
    delay: int = 0
    """Milliseconds."""
    code: Code | None = None
    """The error to answer with, without a look at the request."""
    lost: bool = False
    """The request is handled, and the connection is cut in place of an answer."""

    def fits(self, call: Call) -> bool:
        """Is it meant for this request?"""
        return self.client_id is None or self.client_id == call.client.client_id


class Faults:
    """Orders, by API. A request takes the first delay that fits it and the first outcome."""

    def __init__(self, alarms: Alarms | None = None) -> None:
        self._alarms = Alarms() if alarms is None else alarms
        self._delays: dict[Api, list[Order]] = {}
        self._outcomes: dict[Api, list[Order]] = {}
        self._count = 0

    def order(self, order: Order) -> None:
        """From now on."""
        where = self._delays if order.delay else self._outcomes
        where.setdefault(order.api, []).append(order)

    def cancel(self, api: Api | None = None) -> None:
        """Forgets the orders for an API, or all; what is delayed already stays so."""
        for orders in (self._delays, self._outcomes):
            for each in list(orders) if api is None else [api]:
                orders.pop(each, None)

    def take(self, handler: Handler, call: Call, answer: Callable[[], None]) -> bool:
        """Does a fault take this call over? It may answer later, by calling ``answer``."""
        if not self._delays and not self._outcomes:
            return False
        delay = _first(self._delays, call)
        outcome = _first(self._outcomes, call)
        if delay is None and outcome is None:
            return False
        if delay is None:
            _happen(outcome, handler, call, answer)
            return True
        self._count += 1

        def ring(at: int) -> None:
            call.now = at
            _happen(outcome, handler, call, answer)

        self._alarms.start(("fault", self._count), call.now + delay.delay, ring)
        return True


def _first(orders: dict[Api, list[Order]], call: Call) -> Order | None:
    for order in orders.get(call.api, ()):
        if order.fits(call):
            if order.left is not None:
                order.left -= 1
                if not order.left:
                    orders[call.api].remove(order)
                    if not orders[call.api]:
                        del orders[call.api]
            return order
    return None


def _happen(order: Order | None, handler: Handler, call: Call, answer: Callable[[], None]) -> None:
    if order is not None and order.code is not None:
        response = handler.refuse(call, order.code)
        if response is None:  # acks=0: an end of the connection is all that a client can see
            call.drop(f"{api_name(call.api)} fails with {order.code.name}, on order")
        else:
            call.answer(response)
        return
    if order is not None and order.lost:
        call.reply = lambda _: call.drop(f"the answer to {api_name(call.api)} is lost, on order")
    answer()


def api_name(api: Api) -> str:
    """As Kafka writes it: ``JoinGroup``."""
    return "".join(part.capitalize() for part in api.name.split("_"))


def api_of(name: str | int) -> Api:
    """The API of this name (``JoinGroup``, ``join_group``) or key.

    :raises InputError: there is none; the message has the nearest
    """
    return _of(name, "API", {each: api_name(each) for each in Api})


def code_of(name: str | int) -> Code:
    """The error of this name (``NOT_COORDINATOR``, ``NotCoordinator``) or code.

    :raises InputError: there is none; the message has the nearest
    """
    names = {each: each.name for each in Code}
    del names[Code.NONE]
    return _of(name, "error", names)


def _of(name: str | int, what: str, names: dict[T, str]) -> T:
    if isinstance(name, int) and not isinstance(name, bool):
        for each in names:
            if each == name:
                return each
        known = ", ".join(f"{int(each)} {text}" for each, text in names.items())
        raise InputError(f"{what} {name}: there is none of this number; known are {known}")
    if not isinstance(name, str):
        raise InputError(f"{what} {name!r}: give its name or its number")
    for each, text in names.items():
        if _plain(text) == _plain(name):
            return each
    raise InputError(f"{what} {name!r}: there is none of this name{_nearest(name, names.values())}")


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").replace(" ", "").lower()


def _nearest(name: str, names: Iterable[str]) -> str:
    import difflib  # noqa: PLC0415 (for a mistake only)

    known = {_plain(each): each for each in names}
    near = difflib.get_close_matches(_plain(name), known, 3, 0.5)
    return f"; did you mean {' or '.join(known[each] for each in near)}?" if near else ""
