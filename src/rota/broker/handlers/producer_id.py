"""InitProducerId: a number that no other producer has, for idempotent writes.

A producer that has an id and asks again (version 3 on, after an error) gets a new one, as in
Kafka: only transactional producers keep theirs, and this broker has no transactions.
"""

from __future__ import annotations

from rota.broker.call import Call
from rota.broker.dispatch import Handler
from rota.broker.handlers.partition import reason
from rota.broker.part import WARNING, Parts
from rota.errors import Code, DiskError, Refused
from rota.wire.api import Api
from rota.wire.message import InitProducerIdResponse, Message


def handle(parts: Parts, call: Call) -> None:
    """Gives out an id."""
    request = call.request
    if (request.producer_id == -1) != (request.producer_epoch == -1) or (
        request.transactional_id == ""
    ):
        return call.answer(refuse(call, Code.INVALID_REQUEST))
    if request.transactional_id is not None:
        parts.log(
            WARNING,
            f"{call.client.host}: transactional.id {request.transactional_id!r} is refused: "
            "this broker has no transactions",
        )
        # the code that every library takes for final; others are tried again until a timeout
        return call.answer(refuse(call, Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    try:
        producer = parts.topics.new_producer_id()
    except (Refused, DiskError) as error:
        return call.answer(refuse(call, reason(parts, error, "a new producer id")[0]))
    return call.answer(_response(Code.NONE, producer, 0))


def refuse(_: Call, code: Code) -> Message:
    """The error, and no id."""
    return _response(code, -1, -1)


def _response(code: Code, producer: int, epoch: int) -> Message:
    return InitProducerIdResponse(
        throttle_time_ms=0, error_code=code, producer_id=producer, producer_epoch=epoch
    )


HANDLERS = (Handler(api=Api.INIT_PRODUCER_ID, lowest=0, highest=5, handle=handle, refuse=refuse),)
