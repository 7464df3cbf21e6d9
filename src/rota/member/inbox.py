"""Where answers come in, each to the part whose request it answers."""

from __future__ import annotations

from rota.errors import Code
from rota.member.commit import Commits
from rota.member.event import Note
from rota.member.join import Joiner
from rota.member.refusal import code_name
from rota.member.session import Open, Session
from rota.model.reply import (
    CommitReply,
    DescribeGroupsReply,
    HeartbeatReply,
    JoinReply,
    LeaveReply,
    Reply,
    SyncReply,
)
from rota.model.request import CommitOffsets, DescribeGroups, Heartbeat, Join, Leave, Sync


class Inbox:
    """Hands answers and failures on; those to requests that nobody waits for are dropped.

    A network may delay, repeat and reorder: a request's number is used once, and is forgotten with
    its first answer, with the coordinator, or with the generation that it was sent for.
    """

    def __init__(self, session: Session, joiner: Joiner, commits: Commits) -> None:
        self.session = session
        self.joiner = joiner
        self.commits = commits

    def answered(self, number: int, reply: Reply) -> None:
        """A reply has come."""
        found = self.session.open.pop(number, None)
        if found is None:
            return
        counts = number == self.session.rebalance_request
        match found.request, reply:
            case Heartbeat(), HeartbeatReply(code=code):
                self.session.heartbeat_answered(code, found.sender)
            case CommitOffsets(), CommitReply():
                self.commits.answered(number, reply, found.sender)
            case Join(), JoinReply():
                if counts:
                    self.joiner.joined(reply)
            case Sync(), SyncReply():
                if counts:
                    self.joiner.synced(reply)
            case Leave(), LeaveReply():
                self._left(reply)
            case DescribeGroups(), DescribeGroupsReply():
                self.joiner.described(number, reply)
            case _:
                self._lose(number, found, "an answer does not fit its request")

    def failed(self, number: int, error: Exception | None) -> None:
        """No reply will come; with an error, to none like it."""
        found = self.session.open.pop(number, None)
        if found is None:
            return
        if error is None:
            self._lose(number, found, "a request failed")
        else:
            self._refuse(number, found, error)

    def tell_given_up(self) -> None:
        """The coordinator was lost: what was under way to it has failed."""
        while self.session.given_up:
            self._give_up(*self.session.given_up.pop(0))

    def _lose(self, number: int, found: Open, why: str) -> None:
        self.session.lose_coordinator(why)
        self._give_up(number, found)

    def _give_up(self, number: int, found: Open) -> None:
        match found.request:
            case Join() | Sync():
                if number == self.session.rebalance_request:
                    self.joiner.failed()
            case Heartbeat():
                self.session.heartbeat_failed()
            case CommitOffsets():
                self.commits.failed(number)
            case DescribeGroups():
                self.joiner.described(number, None)
            case _:
                self.session.outbox.put(Note("leave not answered"))

    def _refuse(self, number: int, found: Open, error: Exception) -> None:
        match found.request:
            case Join() | Sync() if number == self.session.rebalance_request:
                self.joiner.refused(error)
            case CommitOffsets():
                self.commits.refused(number, error)
            case _:
                self.session.outbox.put(Note(str(error), warns=True))
                self._give_up(number, found)

    def _left(self, reply: LeaveReply) -> None:
        codes = {reply.code, *(member.code for member in reply.members)} - {Code.NONE}
        for code in sorted(codes):
            self.session.outbox.put(Note(f"leave refused with {code_name(code)}"))
