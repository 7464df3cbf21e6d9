"""Logging in: SaslHandshake chooses how, SaslAuthenticate carries what SASL says.

After a handshake of version 0 what SASL says comes as bare frames, without a request around it.
Who has logged in may do so again over the same connection (KIP-368), as the same user and in the
same way. A session has no end: none of the clients has to.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from rota.broker.call import Call, Client
from rota.broker.dispatch import Handler
from rota.broker.part import INFO, WARNING, Parts
from rota.errors import Code, Refused
from rota.wire.api import Api
from rota.wire.message import Message, SaslAuthenticateResponse, SaslHandshakeResponse
from rota.wire.sasl import Exchange, Step, begin

RAW = 0
"""The handshake after which frames are bare."""


@dataclass(slots=True)
class Login:
    """How a client logs in, or has logged in."""

    mechanism: str
    exchange: Exchange | None
    """None once it is over."""


def _login(client: Client) -> Login | None:
    assert client.login is None or isinstance(client.login, Login)
    return client.login


# SaslHandshake


def _handshake(parts: Parts, call: Call) -> None:
    try:
        login = _begin(parts, call.client, call.request.mechanism)
    except Refused as error:
        call.answer(_shaken(parts, error.code))
        if parts.users is None:  # its other requests are served
            parts.log(WARNING, f"{call.client.host}: {error}")
        else:
            call.drop(str(error))
        return
    call.client.login = login
    if call.version == RAW:
        call.client.raw = partial(_bare, parts, call.client)
    call.answer(_shaken(parts, Code.NONE))


def _begin(parts: Parts, client: Client, mechanism: str) -> Login:
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
    before = _login(client)
    if client.user is not None and before is not None and before.mechanism != mechanism:
        text = f"login failed: {client.user} logged in by {before.mechanism}, not by {mechanism}"
        raise Refused(Code.UNSUPPORTED_SASL_MECHANISM, text)
    assert parts.new_nonce is not None, "there are users, but no nonces for them"
    return Login(mechanism, begin(mechanism, parts.users, parts.new_nonce))


def _shaken(parts: Parts, code: Code) -> Message:
    mechanisms = [] if parts.users is None else [str(each) for each in parts.mechanisms]
    return SaslHandshakeResponse(error_code=code, mechanisms=mechanisms)


def _refuse_handshake(_call: Call, code: Code) -> Message:
    return SaslHandshakeResponse(error_code=code, mechanisms=[])


# SaslAuthenticate


def _authenticate(parts: Parts, call: Call) -> None:
    try:
        step = _step(parts, call.client, bytes(call.request.auth_bytes))
    except Refused as error:
        response = SaslAuthenticateResponse(error_code=error.code, error_message=str(error))
        if parts.users is None or error.code is Code.ILLEGAL_SASL_STATE:
            call.answer(response)
        else:
            _fail_later(parts, call, response, str(error))
        return
    call.answer(SaslAuthenticateResponse(error_message="", auth_bytes=step.reply))


def _fail_later(parts: Parts, call: Call, response: Message, reason: str) -> None:
    """After a pause, as in Kafka, so that nobody tries passwords at a high rate."""
    name = ("login", call.client.connection)

    def fail(_: int) -> None:
        call.client.gone = None
        call.answer(response)
        call.drop(reason)

    call.client.gone = partial(parts.alarms.stop, name)
    parts.alarms.start(name, call.now + parts.config.login_pause, fail)


def _bare(parts: Parts, client: Client, data: bytes) -> bytes:
    step = _step(parts, client, data)
    if step.done:
        client.raw = None
    return step.reply


def _step(parts: Parts, client: Client, data: bytes) -> Step:
    login = _login(client)
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


def _refuse_authenticate(_call: Call, code: Code) -> Message:
    return SaslAuthenticateResponse(error_code=code, error_message=code.name)


HANDLERS = (
    Handler(
        api=Api.SASL_HANDSHAKE, lowest=0, highest=1, handle=_handshake, refuse=_refuse_handshake
    ),
    Handler(
        api=Api.SASL_AUTHENTICATE,
        lowest=0,
        highest=2,
        handle=_authenticate,
        refuse=_refuse_authenticate,
    ),
)
