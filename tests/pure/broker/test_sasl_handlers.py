"""Logging in over the wire: what comes in which order, and what happens when it does not."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from kafka.net.sasl.scram import ScramClient
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from rota.errors import Code
from tests.support.node import ClientConnection, InMemoryNode
from tests.support.requests import error_code, list_groups_request

#: connection.failed.authentication.delay.ms
PAUSE = 100

ALL = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
PASSWORDS = {"alice": "secret", "bob": "other"}
ALICE, BOB, WRONG = b"\0alice\0secret", b"\0bob\0other", b"\0alice\0wrong"
AUTHENTICATE = pytest.mark.parametrize("version", range(3))


@pytest.fixture
def node() -> InMemoryNode:
    return InMemoryNode(passwords=PASSWORDS)


@pytest.fixture
def peer(node: InMemoryNode) -> ClientConnection:
    return node.connect()


def handshake(peer: ClientConnection, mechanism: str = "PLAIN", version: int = 1) -> Any:
    return peer.ask(SaslHandshakeRequest(mechanism=mechanism), version)


def authenticate(peer: ClientConnection, data: bytes, version: int = 2) -> Any:
    """The answer; to who has failed it comes after a pause."""
    peer.send(SaslAuthenticateRequest(auth_bytes=data), version)
    if peer.waits:
        peer.node.advance(PAUSE)
    return peer.receive()


def is_served(peer: ClientConnection) -> bool:
    """Is another request answered?"""
    if peer.closed is None:
        peer.send(list_groups_request(), 4)
    return peer.closed is None and error_code(peer.receive()) is Code.NONE


@AUTHENTICATE
def test_plain(node: InMemoryNode, peer: ClientConnection, version: int) -> None:
    answer = handshake(peer)
    assert (error_code(answer), answer.mechanisms) == (Code.NONE, ALL)
    answer = authenticate(peer, ALICE, version)
    assert (error_code(answer), answer.auth_bytes, answer.session_lifetime_ms) == (
        Code.NONE,
        b"",
        0,
    )
    assert is_served(peer)
    assert node.logged("alice has logged in by PLAIN")


@AUTHENTICATE
@pytest.mark.parametrize("mechanism", ALL[1:])
def test_scram(peer: ClientConnection, mechanism: str, version: int) -> None:
    client: Any = ScramClient("alice", "secret", mechanism)  # type: ignore[no-untyped-call]
    handshake(peer, mechanism)
    first = authenticate(peer, client.first_message(), version)
    client.process_server_first_message(bytes(first.auth_bytes))
    last = authenticate(peer, client.final_message(), version)
    client.process_server_final_message(bytes(last.auth_bytes))
    assert is_served(peer)


def test_nothing_else_is_answered_before(peer: ClientConnection) -> None:
    assert not is_served(peer)
    assert peer.closed is not None
    assert "before a login" in peer.closed


@AUTHENTICATE
def test_a_wrong_password(node: InMemoryNode, peer: ClientConnection, version: int) -> None:
    handshake(peer)
    answer = authenticate(peer, WRONG, version)
    assert error_code(answer) is Code.SASL_AUTHENTICATION_FAILED
    assert "wrong user or password" in answer.error_message
    assert not is_served(peer)
    assert node.logged("wrong user or password")


def test_who_has_failed_must_wait(node: InMemoryNode, peer: ClientConnection) -> None:
    handshake(peer)
    peer.send(SaslAuthenticateRequest(auth_bytes=WRONG), 2)
    node.advance(PAUSE - 1)
    assert peer.waits
    node.advance(1)
    assert error_code(peer.receive()) is Code.SASL_AUTHENTICATION_FAILED
    assert peer.closed is not None
    for data in (WRONG, b"bare"):  # nothing is left of one who does not wait
        other = node.connect()
        handshake(other, version=1 if data == WRONG else 0)
        if data == WRONG:
            other.send(SaslAuthenticateRequest(auth_bytes=data), 2)
        else:
            other.send_frame(data)
        other.disconnect()
    assert not [name for name in node.node.context.timers.names if "login" in str(name)]


@pytest.mark.parametrize("version", range(2))
def test_a_mechanism_that_is_not_offered(peer: ClientConnection, version: int) -> None:
    answer = handshake(peer, "GSSAPI", version)
    assert (error_code(answer), answer.mechanisms) == (Code.UNSUPPORTED_SASL_MECHANISM, ALL)
    assert not is_served(peer)


def test_a_step_without_a_handshake(peer: ClientConnection) -> None:
    assert error_code(authenticate(peer, ALICE)) is Code.ILLEGAL_SASL_STATE
    assert not is_served(peer)


def test_a_step_after_the_last(peer: ClientConnection) -> None:
    handshake(peer)
    authenticate(peer, ALICE)
    assert error_code(authenticate(peer, ALICE)) is Code.ILLEGAL_SASL_STATE
    assert is_served(peer)


def test_what_another_has_said_is_of_no_use(node: InMemoryNode, peer: ClientConnection) -> None:
    client: Any = ScramClient("alice", "secret", "SCRAM-SHA-256")  # type: ignore[no-untyped-call]
    first = client.first_message()
    handshake(peer, "SCRAM-SHA-256")
    told = bytes(authenticate(peer, first).auth_bytes)
    client.process_server_first_message(told)
    final = client.final_message()
    other = node.connect()
    handshake(other, "SCRAM-SHA-256")
    authenticate(other, first)
    assert error_code(authenticate(other, final)) is Code.SASL_AUTHENTICATION_FAILED
    assert not is_served(other)
    assert error_code(authenticate(peer, final)) is Code.NONE


# again, over the same connection


def test_the_same_user_logs_in_again(peer: ClientConnection) -> None:
    for _ in range(2):
        assert error_code(handshake(peer)) is Code.NONE
        assert error_code(authenticate(peer, ALICE)) is Code.NONE
        assert is_served(peer)


def test_nobody_becomes_another_user(peer: ClientConnection) -> None:
    handshake(peer)
    authenticate(peer, ALICE)
    handshake(peer)
    assert error_code(authenticate(peer, BOB)) is Code.SASL_AUTHENTICATION_FAILED
    assert not is_served(peer)


def test_nobody_changes_the_mechanism(peer: ClientConnection) -> None:
    handshake(peer)
    authenticate(peer, ALICE)
    assert error_code(handshake(peer, "SCRAM-SHA-256")) is Code.UNSUPPORTED_SASL_MECHANISM
    assert not is_served(peer)


def test_a_wrong_password_ends_what_was_begun_with_a_right_one(peer: ClientConnection) -> None:
    handshake(peer)
    authenticate(peer, ALICE)
    handshake(peer)
    assert error_code(authenticate(peer, WRONG)) is Code.SASL_AUTHENTICATION_FAILED
    assert not is_served(peer)


# the handshake of version 0: what SASL says comes without a request around it


def send_without_frame(peer: ClientConnection, data: bytes) -> bytes:
    peer.send_frame(data)
    answer = peer.responses.popleft()
    assert answer is not None
    (size,) = struct.unpack_from(">i", answer)
    assert size == len(answer) - 4
    return answer[4:]


def test_bare_plain(peer: ClientConnection) -> None:
    assert error_code(handshake(peer, version=0)) is Code.NONE
    assert send_without_frame(peer, ALICE) == b""
    assert is_served(peer)


def test_bare_scram(peer: ClientConnection) -> None:
    client: Any = ScramClient("alice", "secret", "SCRAM-SHA-512")  # type: ignore[no-untyped-call]
    handshake(peer, "SCRAM-SHA-512", 0)
    client.process_server_first_message(send_without_frame(peer, client.first_message()))
    client.process_server_final_message(send_without_frame(peer, client.final_message()))
    assert is_served(peer)


@pytest.mark.parametrize("data", [WRONG, b"", b"\0", b"x" * 1_000])
def test_bare_nonsense(node: InMemoryNode, peer: ClientConnection, data: bytes) -> None:
    handshake(peer, version=0)
    peer.send_frame(data)
    node.advance(PAUSE - 1)
    assert peer.closed is None
    node.advance(1)
    assert not peer.responses
    assert peer.closed is not None
    assert is_served(node.connect()) is False  # another one is listened to, but must log in too
    assert node.logged("login failed")


# where nobody has to


def test_without_users_there_is_no_login() -> None:
    node = InMemoryNode()
    peer = node.connect()
    for version in range(2):
        answer = handshake(peer, version=version)
        assert (error_code(answer), answer.mechanisms) == (Code.ILLEGAL_SASL_STATE, [])
    assert error_code(authenticate(peer, ALICE)) is Code.ILLEGAL_SASL_STATE
    assert is_served(peer)
    assert node.logged("the broker has no users (is the client's security.protocol PLAINTEXT")
