"""What holds of every API in every version that is offered: refusals by fault, and before login."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from rota.broker.faults import InjectedFault, find_api
from rota.broker.node import ALLOWED_BEFORE_LOGIN
from rota.errors import Code
from rota.protocol.codec import RequestHeader, write_request
from rota.protocol.messages import Api
from rota.protocol.schemas import Message, api_name
from tests.support.node import VERSIONS, ClientConnection, InMemoryNode
from tests.support.wire_messages import full_message, message_classes

every_api = pytest.mark.parametrize("api", VERSIONS, ids=api_name)
#: What Kafka answers before a login.
UNTRUSTED = {Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE}


def fill_request(api: Api, version: int) -> Any:
    """With elements wherever it has room for them, so that the answer has places for errors."""
    message = full_message(message_classes(api)[0], version, random.Random(version))
    if api is Api.PRODUCE:
        message.acks = -1
    return message


def send_request(peer: ClientConnection, api: Api, version: int) -> None:
    frame = write_request(RequestHeader(api, version, 1, "app", 0), fill_request(api, version))
    peer.send_frame(bytes(frame)[4:])


def error_codes(message: Message, version: int) -> Iterator[int]:
    """Every error code in an answer of this version."""
    for field in message.STRUCT.fields:
        found = getattr(message, field.name)
        if field.name == "error_code" and version in field.versions:
            yield found
        for each in found if isinstance(found, list) else [found]:
            if isinstance(each, Message):
                yield from error_codes(each, version)


@every_api
def test_it_fails_on_order(api: Api) -> None:
    node = InMemoryNode()
    for version in VERSIONS[api]:
        order = InjectedFault(
            api=find_api(api_name(api)), remaining=1, client_id=None, code=Code.UNKNOWN
        )
        node.node.faults.inject(order)
        codes = set(error_codes(node.connect().ask(fill_request(api, version), version), version))
        assert codes == {Code.UNKNOWN}, f"v{version}"
        assert order.triggered
    assert node.log_lines == []


def test_a_produce_that_wants_no_answer_fails_with_its_connection() -> None:
    node = InMemoryNode()
    for version in VERSIONS[Api.PRODUCE]:
        node.node.faults.inject(
            InjectedFault(api=Api.PRODUCE, remaining=1, client_id=None, code=Code.UNKNOWN)
        )
        peer, message = node.connect(), fill_request(Api.PRODUCE, version)
        message.acks = 0
        peer.send_frame(
            bytes(write_request(RequestHeader(Api.PRODUCE, version, 1, "app", 0), message))[4:]
        )
        assert peer.closed == "injected fault: Produce fails with UNKNOWN"
        assert not peer.responses


@every_api
def test_only_what_a_login_needs_is_answered_before_it(api: Api) -> None:
    node = InMemoryNode(passwords={"user": "password"})
    for version in VERSIONS[api]:
        peer = node.connect()
        send_request(peer, api, version)
        if api in UNTRUSTED:
            assert "before a login" not in (peer.closed or "")
        else:
            assert not peer.responses
            assert peer.closed is not None
            assert f"{api_name(api)} before a login" in peer.closed
            node.jump(3_600_000)
            assert not peer.responses
    assert UNTRUSTED == ALLOWED_BEFORE_LOGIN
