"""Which versions of an API both sides know, and how a client learns a broker's."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Mapping
from typing import Protocol

from rota.errors import Code, FormatError, NotKafka, Refused, Unreachable
from rota.formats.buffer import Bytes
from rota.wire.api import Api
from rota.wire.message import ApiVersionsRequest, Message, read_response, spoken
from rota.wire.schema import Versions


class Asked(Protocol):
    """A connection that has just been made."""

    name: str

    def ask_raw(
        self, api: Api, version: int, request: Message, deadline: float
    ) -> Awaitable[Bytes]:
        """The frame of the answer."""


def api_name(api: Api) -> str:
    """As Kafka writes it: ``JoinGroup``."""
    return "".join(part.capitalize() for part in api.name.split("_"))


def highest(offers: Mapping[int, Versions], api: Api, most: int | None = None) -> int:
    """The highest version that both know.

    :param most: none above this
    :raises Refused: there is none; the message names both ranges
    """
    ours, theirs = spoken(api), offers.get(api)
    if theirs is None:
        raise Refused(Code.UNSUPPORTED_VERSION, f"the broker does not serve {api_name(api)}")
    high = min(ours.high, theirs.high) if most is None else min(ours.high, theirs.high, most)
    if high < max(ours.low, theirs.low):
        limit = "" if most is None else f", and {most} is the highest that serves here"
        raise Refused(
            Code.UNSUPPORTED_VERSION,
            f"{api_name(api)}: the broker serves versions {theirs.low} to {theirs.high}, "
            f"Rota speaks {ours.low} to {ours.high}{limit}",
        )
    return high


async def learn(connection: Asked, deadline: float) -> dict[int, Versions]:
    """What a broker serves, by the API's key: asked in the newest form, then in the one that an
    older broker names.

    :raises NotKafka: this is no answer
    """
    version = spoken(Api.API_VERSIONS).high
    request = ApiVersionsRequest(
        client_software_name="rota",
        client_software_version=importlib.import_module("rota").__version__,
    )
    while True:
        frame = await connection.ask_raw(Api.API_VERSIONS, version, request, deadline)
        # a version that the broker does not know is answered as version 0 is (KIP-511)
        refused = bytes(frame[4:6]) == Code.UNSUPPORTED_VERSION.to_bytes(2, "big")
        try:
            _, response = read_response(Api.API_VERSIONS, 0 if refused else version, frame)
        except FormatError as error:
            raise NotKafka(f"{connection.name}: what answers there is no Kafka: {error}") from error
        offers = {
            each.api_key: Versions(each.min_version, each.max_version) for each in response.api_keys
        }
        if refused and version > 0:
            own = offers.get(Api.API_VERSIONS)
            version = 0 if own is None else max(0, min(own.high, version - 1))
        elif response.error_code:
            raise Unreachable(
                f"{connection.name}: ApiVersions is answered with error {response.error_code}"
            )
        else:
            return offers
