"""The classes of all requests and responses, by their names in Kafka.

A message is an object with the fields of its schema, in snake case. The classes of the structs in a
message are attributes of the message's class. A UUID is 16 bytes, :data:`ZERO_UUID` if there is
none. The records of a decoded message are a view of its frame.

Type checkers and editors read the fields from ``messages.pyi``; ``make docs`` writes it.
"""

from __future__ import annotations

from rota.protocol.schemas import (
    CLIENT_ONLY_APIS,
    ZERO_UUID,
    Api,
    LazyMessageClass,
    Message,
    Request,
    api_name,
    require_schemas,
)

__all__ = ("CLIENT_ONLY_APIS", "ZERO_UUID", "Api", "Message", "Request", "classes_by_api")

#: The classes of each API's request and response.
classes_by_api = {
    api: tuple(LazyMessageClass(api, api_name(api) + suffix) for suffix in ("Request", "Response"))
    for api in Api
}

_classes = {each.name: each for pair in classes_by_api.values() for each in pair}

require_schemas(_classes)

globals().update(_classes)
