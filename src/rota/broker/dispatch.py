"""What a handler is, and what it works with: the request in flight, the broker's parts, the ready
queue.

A handler gets a :class:`HandlerContext` and an :class:`ServerRequest`, and answers at once or
later. The broker offers exactly the APIs and versions that have a handler.

Requests that waited (Fetch, ListOffsets) are resumed through the :class:`ReadyQueue`. One append
can wake every client of a broker, and each response may have many megabytes. So the node resumes
only some of them in each event, as long as the server has room for their responses.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from rota.broker.events import ConnectionId
from rota.broker.groups import GroupCoordinatorService
from rota.broker.timers import Timers
from rota.broker.topics import Topics
from rota.engine.model.config import BrokerConfig
from rota.errors import Code, DiskError, Refused
from rota.protocol.messages import Api, Message, Request
from rota.protocol.sasl import Mechanism, Users
from rota.protocol.schemas import ResponseT


@dataclass(slots=True, kw_only=True)
class ClientSession:
    """The client at the other end of a connection."""

    connection: ConnectionId
    host: str
    #: As its last request said.
    client_id: str = ""
    #: Name and version of its library, if it told (ApiVersions 3 on).
    software: str = ""
    #: Who has logged in.
    user: str | None = None
    #: A SASL exchange under way; :mod:`rota.broker.handlers.sasl` knows what it is.
    login: object = None
    #: Takes its frames in place of requests, while it logs in as clients did before Kafka 1.0: by
    #: frames that are nothing but what SASL says. It gives the answer, or raises Refused.
    raw_frame_handler: Callable[[bytes], bytes] | None = None
    #: What the one call that waits wants done when the connection is closed.
    on_disconnect: Callable[[], None] | None = None


RequestT = TypeVar("RequestT", bound=Request[Any])

RequestT_co = TypeVar("RequestT_co", bound=Request[Any], covariant=True)


@dataclass(slots=True, kw_only=True)
class ServerRequest(Generic[RequestT_co]):
    """A request that a client sent, and the way to respond, at once or later, but only once."""

    api: Api
    version: int
    client: ClientSession
    body: RequestT_co
    #: When it came in.
    now: int
    #: Bytes of its frame.
    size: int
    write_response: Callable[[Message | None], None] = field(repr=False)
    #: Ends the connection instead of an answer, for a reason that is logged.
    drop_connection: Callable[[str], None] = field(repr=False)
    responded: bool = False

    def respond(self: ServerRequest[Request[ResponseT]], response: ResponseT | None) -> None:
        """Sends the response; None where the request gets none (acks=0)."""
        if not self.responded:
            self.responded = True
            self.write_response(response)


# Calls that waited and may be answered now, each in its turn.
#
# One append can wake every client of a broker, and each answer may have many megabytes. So they are
# not answered at once: the node takes up some in each of its events, as long as the shell has room.

#: When answers of one event have so many, those that waited come in the next.
MAX_RESPONSE_BYTES_PER_EVENT = 1 << 20

#: So many that waited are looked at in one event, be their answers ever so small.
MAX_RESUMED_PER_EVENT = 100

#: What is done when the turn has come: it answers, or waits on.
ResumeRequest: TypeAlias = Callable[[], None]


class ReadyQueue:
    """Requests that can be resumed, first come, first served; a request that is already
    queued keeps its place.
    """

    def __init__(self) -> None:
        self._queue: OrderedDict[Hashable, tuple[ResumeRequest, bool]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, name: Hashable, take: ResumeRequest, *, long: bool = False) -> None:
        """Adds a request, unless it is in the queue.

        :param long: it takes so much work that no other request is resumed in the same event
        """
        self._queue.setdefault(name, (take, long))

    def remove(self, name: Hashable) -> None:
        """Removes a request, if it is in the queue."""
        self._queue.pop(name, None)

    def pop_next(self) -> tuple[ResumeRequest, bool]:
        """Removes and returns the first request, and whether it is a long one. The queue must
        not be empty.
        """
        return self._queue.popitem(last=False)[1]


#: Levels of :mod:`logging`.
INFO, WARNING, ERROR = 20, 30, 40


@dataclass(slots=True, kw_only=True)
class HandlerContext:
    """What handlers work with. The time comes with every request; nothing here has a clock."""

    config: BrokerConfig
    topics: Topics
    groups: GroupCoordinatorService
    timers: Timers
    #: Takes a level and a text.
    log: Callable[[int, str], None]
    #: The host and port that clients are told.
    address: tuple[str, int]
    #: Calls that waited and may be answered.
    ready_queue: ReadyQueue = field(default_factory=ReadyQueue)
    #: The APIs that clients are offered, with the lowest and highest version.
    advertised_versions: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    #: Who may log in; None: nobody has to.
    users: Users | None = None
    #: How to log in.
    mechanisms: tuple[Mechanism, ...] = tuple(Mechanism)
    #: Gives printable text that nobody can guess; needed where there are users.
    new_nonce: Callable[[], str] | None = None


@dataclass(frozen=True, slots=True)
class Handler(Generic[RequestT]):
    """An API: the versions that are handled, and the functions that handle it."""

    request_class: type[RequestT]
    min_version: int
    max_version: int
    #: Sends the response, at once or later.
    handle: Callable[[HandlerContext, ServerRequest[RequestT]], None]
    #: Makes the response that has this error wherever the API's schema has a field for one; None
    #: if the request gets no response.
    error_response: Callable[[ServerRequest[RequestT], Code], Message | None]
    #: The lowest version that clients see, if it is below the lowest one that is handled.
    advertised_from: int | None = None

    @property
    def api(self) -> Api:
        return self.request_class.API

    def supports_version(self, version: int) -> bool:
        """True if requests of this version are handled."""
        return self.min_version <= version <= self.max_version


#: For code that passes requests on without reading their fields.
AnyRequest: TypeAlias = ServerRequest[Any]

AnyHandler: TypeAlias = Handler[Any]


def explain_error(
    context: HandlerContext, error: Refused | DiskError, what: str
) -> tuple[Code, str]:
    """Returns the code and text for the response. A disk error is logged too."""
    if isinstance(error, Refused):
        return error.code, str(error)
    context.log(ERROR, f"{what}: {error}")
    return Code.KAFKA_STORAGE_ERROR, str(error)
