"""The interface of handlers: the request in flight, and the broker's parts that it uses.

A handler gets a :class:`ServerRequest`, and responds at once or later. The broker supports exactly
the APIs and versions that have a handler.

Requests that waited (Fetch, ListOffsets) are resumed through the ready queue. One append can wake
every client of a broker, and each response may have many megabytes. So the node resumes only some
requests in each event, as long as the server has room for their responses.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from logging import ERROR
from typing import Any, Generic, TypeAlias, TypeVar

from rota.broker.events import ConnectionId
from rota.broker.groups import GroupCoordinatorService
from rota.broker.timers import Timers
from rota.broker.topics import Topics
from rota.engine.model.config import BrokerConfig
from rota.errors import Code, DiskError, Refused
from rota.protocol.messages import Api, Message, Request, classes_by_api
from rota.protocol.sasl import Mechanism, SaslServer, Users
from rota.protocol.schemas import ResponseT


@dataclass(slots=True)
class SaslLogin:
    mechanism: str
    exchange: SaslServer | None  # None once the login is complete


@dataclass(slots=True, kw_only=True)
class ClientSession:
    connection: ConnectionId
    host: str
    client_id: str = ""
    software: str = ""  # name and version of the client library, from ApiVersions 3 on
    user: str | None = None
    login: SaslLogin | None = None
    #: Answers a login before Kafka 1.0, whose frames have no header, or raises Refused.
    raw_frame_handler: Callable[[bytes], bytes] | None = None
    on_disconnect: Callable[[], None] | None = None


RequestT = TypeVar("RequestT", bound=Request[Any])
RequestT_co = TypeVar("RequestT_co", bound=Request[Any], covariant=True)


@dataclass(slots=True, kw_only=True, eq=False)
class ServerRequest(Generic[RequestT_co]):
    """A request that a client sent, and the way to respond, at once or later, but only once."""

    context: HandlerContext = field(repr=False)
    api: Api
    version: int
    client: ClientSession
    body: RequestT_co
    now: int
    size: int  # bytes of the frame
    write_response: Callable[[Message | None], None] = field(repr=False)
    #: Closes the connection in place of a response; the reason is logged.
    drop_connection: Callable[[str], None] = field(repr=False)
    responded: bool = False

    def respond(self: ServerRequest[Request[ResponseT]], response: ResponseT | None) -> None:
        """Sends the response; None where the request gets none (acks=0)."""
        if not self.responded:
            self.responded = True
            self.write_response(response)

    def resume_later(self, resume: Callable[[], None], *, long: bool = False) -> None:
        """Queues ``resume``; if it is ``long``, no other request runs in the same event."""
        self.context.ready_queue.setdefault(self, (resume, long))

    def stop_waiting(self) -> None:
        self.client.on_disconnect = None
        self.context.ready_queue.pop(self, None)

    def explain_error(self, error: Refused | DiskError, operation: str) -> tuple[Code, str]:
        """Returns the code and text for the response. A disk error is logged too."""
        if isinstance(error, Refused):
            return error.code, str(error)
        self.context.log(ERROR, f"{operation}: {error}")
        return Code.KAFKA_STORAGE_ERROR, str(error)


AnyRequest: TypeAlias = ServerRequest[Any]  # for code that only passes requests on

#: With this many bytes of responses in an event, waiting requests are resumed in the next.
MAX_RESPONSE_BYTES_PER_EVENT = 1 << 20
MAX_RESUMED_PER_EVENT = 100


@dataclass(slots=True, kw_only=True)
class HandlerContext:
    config: BrokerConfig
    topics: Topics
    groups: GroupCoordinatorService
    timers: Timers
    log: Callable[[int, str], None]
    address: tuple[str, int]
    #: See :meth:`ServerRequest.resume_later`.
    ready_queue: OrderedDict[AnyRequest, tuple[Callable[[], None], bool]] = field(
        default_factory=OrderedDict
    )
    advertised_versions: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    users: Users | None = None  # None: clients do not log in
    mechanisms: tuple[Mechanism, ...] = tuple(Mechanism)
    new_nonce: Callable[[], str] | None = None  # makes unguessable text for SASL


def make_error_response(request: AnyRequest, code: Code) -> Message:
    """Returns the response for an API that has one error for the whole request."""
    response: Any = classes_by_api[request.api][1]()
    response.error_code = code
    if hasattr(response, "error_message"):
        response.error_message = code.name
    return response  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Handler(Generic[RequestT]):
    """An API: the versions that are handled, and the functions that handle it."""

    request_class: type[RequestT]
    min_version: int
    max_version: int
    handle: Callable[[ServerRequest[RequestT]], None]
    #: Makes the response with this error in every field for one; None: the request gets none.
    error_response: Callable[[ServerRequest[RequestT], Code], Message | None] = make_error_response
    advertised_from: int | None = None  # the lowest advertised version, if lower ones work too

    @property
    def api(self) -> Api:
        return self.request_class.API


AnyHandler: TypeAlias = Handler[Any]
