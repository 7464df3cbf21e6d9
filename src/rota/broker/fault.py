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
from rota.wire import schema
from rota.wire.api import ASKED_ONLY, Api

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
    met: bool = False
    """A request has come for it."""

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

    def cancel(self, api: Api | None = None) -> int:
        """Forgets the orders for an API, or all; what is delayed already stays so. Gives how many
        of them no request has met.
        """
        unmet = 0
        for orders in (self._delays, self._outcomes):
            for each in list(orders) if api is None else [api]:
                unmet += sum(not order.met for order in orders.pop(each, ()))
        return unmet

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
            order.met = True
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
    names = {each: api_name(each) for each in Api if each not in ASKED_ONLY}
    found = _find(name, "API", names)
    if found is not None:
        return found
    if isinstance(name, int):
        known = ", ".join(f"{int(each)} {text}" for each, text in names.items())
        raise InputError(f"API {name}: Rota's broker serves none of this number; it has {known}")
    for other in schema.names():
        if other.endswith("Request") and _plain(other.removesuffix("Request")) == _plain(name):
            raise InputError(f"API {name!r}: Rota's broker does not serve it")
    raise InputError(f"API {name!r}: there is none of this name{_nearest(name, names.values())}")


def code_of(name: str | int) -> Code:
    """The error of this name (``NOT_COORDINATOR``, ``NotCoordinator``) or code.

    :raises InputError: there is none; the message has the nearest
    """
    names = {each: each.name for each in Code}
    found = _find(name, "error", names)
    if found is Code.NONE:
        raise InputError(f"error {name!r}: this one is no error")
    if found is not None:
        return found
    if isinstance(name, int):
        raise InputError(
            f"error {name}: Kafka has none of this number; they go from -1 to {max(names)}"
        )
    raise InputError(f"error {name!r}: there is none of this name{_nearest(name, names.values())}")


def _find(name: str | int, what: str, names: dict[T, str]) -> T | None:
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise InputError(f"{what} {name!r}: give its name or its number")
    for each, text in names.items():
        if each == name if isinstance(name, int) else _plain(text) == _plain(name):
            return each
    return None


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").replace(" ", "").lower()


def _nearest(name: str, names: Iterable[str]) -> str:
    import difflib  # noqa: PLC0415 (for a mistake only)

    known = {_plain(each): each for each in names}
    near = difflib.get_close_matches(_plain(name), known, 3, 0.5)
    return f"; did you mean {' or '.join(known[each] for each in near)}?" if near else ""
