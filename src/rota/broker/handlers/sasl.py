"""SaslHandshake and SaslAuthenticate: how a client logs in.

After a handshake of version 0 the SASL tokens come as raw frames, without a request around them. A
client that has logged in may log in again over the same connection (KIP-368), as the same user and
with the same mechanism. Sessions do not expire.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from logging import INFO, WARNING

from rota.broker.dispatch import (
    ClientSession,
    Handler,
    HandlerContext,
    SaslLogin,
    ServerRequest,
)
from rota.errors import Code, Refused
from rota.protocol.messages import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from rota.protocol.sasl import SaslReply, create_sasl_server

RAW_FRAMES_VERSION = 0


def _handle_handshake(request: ServerRequest[SaslHandshakeRequest]) -> None:
    context = request.context
    try:
        login = _begin_login(context, request.client, request.body.mechanism)
    except Refused as error:
        request.respond(_handshake_response(context, error.code))
        if context.users is None:  # its other requests are served
            context.log(WARNING, f"{request.client.host}: {error}")
        else:
            request.drop_connection(str(error))
        return
    request.client.login = login
    if request.version == RAW_FRAMES_VERSION:
        request.client.raw_frame_handler = partial(_handle_raw_frame, context, request.client)
    request.respond(_handshake_response(context, Code.NONE))


def _begin_login(context: HandlerContext, client: ClientSession, mechanism: str) -> SaslLogin:
    if context.users is None:
        raise Refused(
            Code.ILLEGAL_SASL_STATE,
            "a client wants to log in by SASL, but the broker has no users "
            "(is the client's security.protocol PLAINTEXT or SSL?)",
        )
    offered = ", ".join(context.mechanisms)
    if mechanism not in context.mechanisms:
        text = f"login failed: no SASL mechanism {mechanism!r}; there are {offered}"
        raise Refused(Code.UNSUPPORTED_SASL_MECHANISM, text)
    before = client.login
    if client.user is not None and before is not None and before.mechanism != mechanism:
        text = f"login failed: {client.user} logged in by {before.mechanism}, not by {mechanism}"
        raise Refused(Code.UNSUPPORTED_SASL_MECHANISM, text)
    assert context.new_nonce is not None, "there are users, but no nonces for them"
    return SaslLogin(mechanism, create_sasl_server(mechanism, context.users, context.new_nonce))


def _handshake_response(context: HandlerContext, code: Code) -> SaslHandshakeResponse:
    mechanisms = [] if context.users is None else [str(each) for each in context.mechanisms]
    return SaslHandshakeResponse(error_code=code, mechanisms=mechanisms)


def _handle_authenticate(request: ServerRequest[SaslAuthenticateRequest]) -> None:
    try:
        step = _advance_login(request.context, request.client, request.body.auth_bytes)
    except Refused as error:
        response = SaslAuthenticateResponse(error_code=error.code, error_message=str(error))
    else:
        return request.respond(SaslAuthenticateResponse(error_message="", auth_bytes=step.data))
    if request.context.users is None or response.error_code == Code.ILLEGAL_SASL_STATE:
        return request.respond(response)

    def fail(_: int) -> None:
        request.client.on_disconnect = None
        request.respond(response)
        request.drop_connection(response.error_message or "")

    return delay_failed_login(request.context, request.client, request.now, fail)


def delay_failed_login(
    context: HandlerContext, client: ClientSession, now: int, fail: Callable[[int], None]
) -> None:
    """Calls ``fail`` after a pause, as in Kafka, so that nobody tries passwords at a high rate."""
    name = ("login", client.connection)
    client.on_disconnect = partial(context.timers.stop, name)
    context.timers.start(name, now + context.config.failed_authentication_delay, fail)


def _handle_raw_frame(context: HandlerContext, client: ClientSession, data: bytes) -> bytes:
    step = _advance_login(context, client, data)
    if step.done:
        client.raw_frame_handler = None
    return step.data


def _advance_login(context: HandlerContext, client: ClientSession, data: bytes) -> SaslReply:
    login = client.login
    if login is None or login.exchange is None:
        state = "has logged in already" if client.user is not None else "has sent no SaslHandshake"
        raise Refused(Code.ILLEGAL_SASL_STATE, f"a SASL token came from a client that {state}")
    step = login.exchange.step(data)
    if step.done:
        if client.user not in (None, step.user):
            text = f"login failed: {client.user} cannot become another user"
            raise Refused(Code.SASL_AUTHENTICATION_FAILED, text)
        client.user = step.user
        login.exchange = None
        context.log(INFO, f"{client.host}: {step.user} has logged in by {login.mechanism}")
    return step


HANDLERS = (
    Handler(SaslHandshakeRequest, 0, 1, _handle_handshake),
    Handler(SaslAuthenticateRequest, 0, 2, _handle_authenticate),
)
