"""SaslHandshake and SaslAuthenticate: how a client logs in.

After a handshake of version 0 the SASL tokens come as raw frames, without a request around them. A
client that has logged in may log in again over the same connection (KIP-368), as the same user and
with the same mechanism. Sessions do not expire.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from rota.broker.dispatch import (
    INFO,
    WARNING,
    ClientSession,
    Handler,
    HandlerContext,
    ServerRequest,
)
from rota.errors import Code, Refused
from rota.protocol.messages import Api, Message, SaslAuthenticateResponse, SaslHandshakeResponse
from rota.protocol.sasl import SaslReply, SaslServer, create_sasl_server

#: The handshake after which frames are bare.
RAW_FRAMES_VERSION = 0


@dataclass(slots=True)
class SaslLogin:
    """How a client logs in, or has logged in."""

    mechanism: str
    #: None once it is over.
    exchange: SaslServer | None


def _current_login(client: ClientSession) -> SaslLogin | None:
    assert client.login is None or isinstance(client.login, SaslLogin)
    return client.login


def _handle_handshake(parts: HandlerContext, call: ServerRequest) -> None:
    try:
        login = _begin_login(parts, call.client, call.request.mechanism)
    except Refused as error:
        call.answer(_handshake_response(parts, error.code))
        if parts.users is None:  # its other requests are served
            parts.log(WARNING, f"{call.client.host}: {error}")
        else:
            call.drop_connection(str(error))
        return
    call.client.login = login
    if call.version == RAW_FRAMES_VERSION:
        call.client.raw_frame_handler = partial(_handle_raw_frame, parts, call.client)
    call.answer(_handshake_response(parts, Code.NONE))


def _begin_login(parts: HandlerContext, client: ClientSession, mechanism: str) -> SaslLogin:
    if parts.users is None:
        raise Refused(
            Code.ILLEGAL_SASL_STATE,
            "a client wants to log in by SASL, but the broker has no users "
            "(is the client's security.protocol PLAINTEXT or SSL?)",
        )
    offered = ", ".join(parts.mechanisms)
    if mechanism not in parts.mechanisms:
        text = f"login failed: no SASL mechanism {mechanism!r}; there are {offered}"
        raise Refused(Code.UNSUPPORTED_SASL_MECHANISM, text)
    before = _current_login(client)
    if client.user is not None and before is not None and before.mechanism != mechanism:
        text = f"login failed: {client.user} logged in by {before.mechanism}, not by {mechanism}"
        raise Refused(Code.UNSUPPORTED_SASL_MECHANISM, text)
    assert parts.new_nonce is not None, "there are users, but no nonces for them"
    return SaslLogin(mechanism, create_sasl_server(mechanism, parts.users, parts.new_nonce))


def _handshake_response(parts: HandlerContext, code: Code) -> Message:
    mechanisms = [] if parts.users is None else [str(each) for each in parts.mechanisms]
    return SaslHandshakeResponse(error_code=code, mechanisms=mechanisms)


def _refuse_handshake(_call: ServerRequest, code: Code) -> Message:
    return SaslHandshakeResponse(error_code=code, mechanisms=[])


def _handle_authenticate(parts: HandlerContext, call: ServerRequest) -> None:
    try:
        step = _advance_login(parts, call.client, bytes(call.request.auth_bytes))
    except Refused as error:
        response = SaslAuthenticateResponse(error_code=error.code, error_message=str(error))
        if parts.users is None or error.code is Code.ILLEGAL_SASL_STATE:
            call.answer(response)
        else:
            _fail_after_pause(parts, call, response, str(error))
        return
    call.answer(SaslAuthenticateResponse(error_message="", auth_bytes=step.data))


def _fail_after_pause(
    parts: HandlerContext, call: ServerRequest, response: Message, reason: str
) -> None:
    """After a pause, as in Kafka, so that nobody tries passwords at a high rate."""
    name = ("login", call.client.connection)

    def fail(_: int) -> None:
        call.client.on_disconnect = None
        call.answer(response)
        call.drop_connection(reason)

    call.client.on_disconnect = partial(parts.timers.stop, name)
    parts.timers.start(name, call.now + parts.config.failed_authentication_delay, fail)


def _handle_raw_frame(parts: HandlerContext, client: ClientSession, data: bytes) -> bytes:
    step = _advance_login(parts, client, data)
    if step.done:
        client.raw_frame_handler = None
    return step.data


def _advance_login(parts: HandlerContext, client: ClientSession, data: bytes) -> SaslReply:
    login = _current_login(client)
    if login is None or login.exchange is None:
        known = "it has logged in already" if client.user is not None else "no handshake before it"
        raise Refused(Code.ILLEGAL_SASL_STATE, f"a step of a login, but {known}")
    step = login.exchange.step(data)
    if step.done:
        if client.user not in (None, step.user):
            text = f"login failed: {client.user} cannot become another user"
            raise Refused(Code.SASL_AUTHENTICATION_FAILED, text)
        client.user = step.user
        login.exchange = None
        parts.log(INFO, f"{client.host}: {step.user} has logged in by {login.mechanism}")
    return step


def _refuse_authenticate(_call: ServerRequest, code: Code) -> Message:
    return SaslAuthenticateResponse(error_code=code, error_message=code.name)


HANDLERS = (
    Handler(
        api=Api.SASL_HANDSHAKE,
        min_version=0,
        max_version=1,
        handle=_handle_handshake,
        error_response=_refuse_handshake,
    ),
    Handler(
        api=Api.SASL_AUTHENTICATE,
        min_version=0,
        max_version=2,
        handle=_handle_authenticate,
        error_response=_refuse_authenticate,
    ),
)
