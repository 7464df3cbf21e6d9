"""A connection from a process to the coordinator.

As in Kafka, a connection's requests are handled one at a time, in order: what is sent while a
join waits for its answer is read after it.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from rota.errors import Code
from rota.model.reply import CommitReply, HeartbeatReply, Reply
from rota.model.request import CommitOffsets, Heartbeat, Join, Request
from rota.sim.agenda import Entry
from rota.sim.node import Node
from rota.sim.stage import Stage
from rota.sim.trace import What

REQUEST_TIMEOUT = 30_000
"""``request.timeout.ms``: then a client gives a connection up."""
JOIN_LAPSE = 5_000
"""A join may take the rebalance timeout and this much more, as in Kafka's consumer."""


class End(Protocol):
    """The process at a link's near end."""

    @property
    def name(self) -> str:
        """The name of the process."""
        ...

    @property
    def frozen_until(self) -> int:
        """Until when it does not notice anything."""
        ...

    def replied(self, request_id: int, reply: Reply) -> None:
        """A reply has come."""
        ...

    def broken(self, link: Link, request_ids: list[int]) -> None:
        """The link is broken, and no reply to these will come."""
        ...


class _Call:
    """One request under way; the coordinator answers it."""

    __slots__ = ("link", "reply_delay", "request", "request_id")

    def __init__(self, link: Link, request_id: int, request: Request, reply_delay: int) -> None:
        self.link = link
        self.request_id = request_id
        self.request = request
        self.reply_delay = reply_delay

    def answered(self, reply: Reply) -> None:
        self.link.answered(self, reply)


class _Unheard:
    """Asked for a second time by a proxy: nobody hears the answer."""

    __slots__ = ()

    def answered(self, reply: Reply) -> None:
        """Nothing follows."""


class Link:
    """An open connection; once it is closed, nothing comes back through it."""

    __slots__ = (
        "_busy",
        "_end",
        "_last_reply",
        "_last_request",
        "_line",
        "_node",
        "_patience",
        "_stage",
        "is_open",
    )

    def __init__(self, stage: Stage, node: Node, end: End) -> None:
        self.is_open = True
        self._stage = stage
        self._node = node
        self._end = end
        self._line: deque[_Call] = deque()
        self._busy = False
        self._last_request = 0
        self._last_reply = 0
        self._patience: dict[int, Entry | None] = {}
        """The requests that wait for a reply, each with the end of the client's patience."""

    def send(self, request_id: int, request: Request) -> None:
        """Sends a request on its way."""
        stage = self._stage
        now = stage.now
        fate = stage.nature.request(self._end.name, request, now)
        heartbeat = type(request) is Heartbeat
        beat = heartbeat or type(request) is CommitOffsets
        self._patience[request_id] = None
        if fate.lost or not heartbeat:
            self._lose_patience_later(request_id, request)
        if not fate.lost:
            self._last_request = max(self._last_request, now + fate.delay)
            call = _Call(self, request_id, request, fate.reply_delay)
            holder = self._end if heartbeat else None
            stage.agenda.add(self._last_request, self._arrive, call, holder=holder, beat=beat)
        for delay in fate.copies:
            stage.agenda.add(now + delay, self._arrive_again, request)
        if fate.cut_after is not None:
            stage.agenda.add(now + fate.cut_after, self.fail)

    def _lose_patience_later(self, request_id: int, request: Request) -> None:
        patience = REQUEST_TIMEOUT
        if isinstance(request, Join):
            patience = max(patience, request.rebalance_timeout + JOIN_LAPSE)
        due = self._stage.now + patience
        self._patience[request_id] = self._stage.agenda.add(due, self.fail)

    # at the coordinator

    def _arrive(self, call: _Call) -> None:
        if self._node.coordinator is None:
            self._stage.agenda.add(self._stage.now + call.reply_delay, self.fail)
        elif not self._busy:
            self._hand_in(call)
        elif self.is_open:
            self._line.append(call)
            if self._patience.get(call.request_id, self) is None:
                self._lose_patience_later(call.request_id, call.request)

    def _arrive_again(self, request: Request) -> None:
        if self._node.coordinator is not None:
            self._node.request(_Unheard(), request)

    def _hand_in(self, call: _Call) -> None:
        self._busy = True
        if type(call.request) is not Heartbeat:
            news = type(call.request) is not CommitOffsets
            self._stage.tell(What.ASKED, self._end.name, call.request, news=news)
        self._node.request(call, call.request)

    def answered(self, call: _Call, reply: Reply) -> None:
        """The coordinator has answered: the reply leaves, and the next request is read."""
        stage = self._stage
        self._busy = False
        heartbeat = type(reply) is HeartbeatReply and reply.code is Code.NONE
        beat = heartbeat or (type(reply) is CommitReply and not any(reply.codes.values()))
        if not heartbeat:
            stage.tell(What.ANSWERED, self._end.name, reply, news=not beat)
        self._last_reply = max(self._last_reply, stage.now + call.reply_delay)
        given = (call.request_id, reply)
        holder = self._end if heartbeat else None
        stage.agenda.add(self._last_reply, self._come_back, given, holder=holder, beat=beat)
        if self._line:
            stage.agenda.add(stage.now, self._read_on)

    def _read_on(self, _: object) -> None:
        if not self._line or self._busy:
            return
        call = self._line.popleft()
        if self._node.coordinator is None:
            self.fail(None)
        elif self.is_open:
            self._hand_in(call)

    # at the process

    def _come_back(self, given: tuple[int, Reply]) -> None:
        if not self.is_open:
            return
        if self._end.frozen_until > self._stage.now:
            self._stage.agenda.add(self._end.frozen_until, self._come_back, given)
            return
        request_id, reply = given
        patience = self._patience.pop(request_id, None)
        if patience is not None:
            self._stage.agenda.cancel(patience)
        self._end.replied(request_id, reply)

    def fail(self, _: object) -> None:
        """The connection breaks, and the process notices."""
        if not self.is_open:
            return
        if self._end.frozen_until > self._stage.now:
            self._stage.agenda.add(self._end.frozen_until, self.fail)
            return
        waiting = list(self._patience)
        self.close()
        self._end.broken(self, waiting)

    def close(self) -> None:
        """Nothing comes back any more; what has been sent may still arrive."""
        self.is_open = False
        for patience in self._patience.values():
            if patience is not None:
                self._stage.agenda.cancel(patience)
        self._patience.clear()
        self._line.clear()
