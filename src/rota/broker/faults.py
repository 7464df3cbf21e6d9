"""Injected faults, for tests: error responses, delays and dropped responses. Also finds an API or
an error code by the name that a user gives.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from rota.broker.dispatch import AnyHandler, AnyRequest
from rota.broker.timers import Timers
from rota.errors import Code, InputError
from rota.protocol.messages import CLIENT_ONLY_APIS, Api
from rota.protocol.schemas import api_name, list_schema_names

EnumT = TypeVar("EnumT", bound=enum.IntEnum)


@dataclass(slots=True)
class InjectedFault:
    api: Api
    remaining: int | None  # number of requests; None: all until the fault is cleared
    client_id: str | None
    delay: int = 0  # milliseconds
    code: Code | None = None  # the error of the response; the request is not handled
    drop_response: bool = False  # the request is handled, then the connection is closed
    triggered: bool = False


class FaultInjector:
    """Injected faults by API. A request takes the first delay and outcome that match it."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._delays: dict[Api, list[InjectedFault]] = {}
        self._outcomes: dict[Api, list[InjectedFault]] = {}
        self._count = 0

    def inject(self, fault: InjectedFault) -> None:
        faults = self._delays if fault.delay else self._outcomes
        faults.setdefault(fault.api, []).append(fault)

    def clear(self, api: Api | None = None) -> int:
        """Removes the faults of an API, or all; returns how many never triggered."""
        untriggered = 0
        for faults in (self._delays, self._outcomes):
            for each in list(faults) if api is None else [api]:
                untriggered += sum(not fault.triggered for fault in faults.pop(each, ()))
        return untriggered

    def intercept(
        self, handler: AnyHandler, request: AnyRequest, handle: Callable[[], None]
    ) -> bool:
        """Returns whether a fault applies to the request; it may call ``handle`` later."""
        if not self._delays and not self._outcomes:
            return False
        delay = _take_first_match(self._delays, request)
        outcome = _take_first_match(self._outcomes, request)
        if delay is None and outcome is None:
            return False

        def run(at: int) -> None:
            request.now = at
            _apply_fault(outcome, handler, request, handle)

        if delay is None:
            run(request.now)
            return True
        self._count += 1
        self._timers.start(("fault", self._count), request.now + delay.delay, run)
        return True


def _take_first_match(
    faults: dict[Api, list[InjectedFault]], call: AnyRequest
) -> InjectedFault | None:
    for fault in faults.get(call.api, ()):
        if fault.client_id in {None, call.client.client_id}:
            fault.triggered = True
            if fault.remaining is not None:
                fault.remaining -= 1
                if not fault.remaining:
                    faults[call.api].remove(fault)
                    if not faults[call.api]:
                        del faults[call.api]
            return fault
    return None


def _apply_fault(
    fault: InjectedFault | None, handler: AnyHandler, call: AnyRequest, handle: Callable[[], None]
) -> None:
    name = api_name(call.api)
    if fault is not None and fault.code is not None:
        response = handler.error_response(call, fault.code)
        if response is None:  # acks=0: a client can only see the end of the connection
            call.drop_connection(f"injected fault: {name} fails with {fault.code.name}")
        else:
            call.respond(response)
        return
    if fault is not None and fault.drop_response:
        call.write_response = lambda _: call.drop_connection(
            f"injected fault: the response to {name} is dropped"
        )
    handle()


def find_api(name: str | int) -> Api:
    """Finds an API by name (``JoinGroup``, ``join_group``) or key."""
    names = {each: api_name(each) for each in Api if each not in CLIENT_ONLY_APIS}
    api = _find_by_name(name, "API", names)
    if api is not None:
        return api
    if isinstance(name, int):
        apis = ", ".join(f"{int(each)} {text}" for each, text in names.items())
        raise InputError(f"API {name}: Rota's broker has no API with this key; it has {apis}")
    if _normalize_name(f"{name}Request") in map(_normalize_name, list_schema_names()):
        raise InputError(f"API {name!r}: Rota's broker does not serve it")
    raise InputError(f"API {name!r}: no API has this name{_suggest_nearest(name, names.values())}")


def find_error_code(name: str | int) -> Code:
    """Finds an error by name (``NOT_COORDINATOR``, ``NotCoordinator``) or code."""
    names = {each: each.name for each in Code}
    code = _find_by_name(name, "error", names)
    if code is Code.NONE:
        raise InputError(f"error {name!r}: this code means success")
    if code is not None:
        return code
    if isinstance(name, int):
        raise InputError(f"error {name}: Kafka's error codes go from -1 to {max(names)}")
    nearest = _suggest_nearest(name, names.values())
    raise InputError(f"error {name!r}: no error has this name{nearest}")


def _find_by_name(name: str | int, kind: str, names: dict[EnumT, str]) -> EnumT | None:
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise InputError(f"{kind} {name!r}: pass its name or its number")
    if isinstance(name, int):
        return next((each for each in names if each == name), None)
    normalized = _normalize_name(name)
    return next((each for each, text in names.items() if _normalize_name(text) == normalized), None)


def _normalize_name(name: str) -> str:
    return name.replace("_", "").replace("-", "").replace(" ", "").lower()


def _suggest_nearest(name: str, names: Iterable[str]) -> str:
    import difflib  # noqa: PLC0415, for a mistake only

    known = {_normalize_name(each): each for each in names}
    near = difflib.get_close_matches(_normalize_name(name), known, 3, 0.5)
    return f"; did you mean {' or '.join(known[each] for each in near)}?" if near else ""
