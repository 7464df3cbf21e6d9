"""Which versions of an API both sides know."""

from __future__ import annotations

from collections.abc import Mapping

from rota.errors import Code, Refused
from rota.wire.api import Api
from rota.wire.message import Message, spoken
from rota.wire.schema import Versions


def api_name(api: Api) -> str:
    """As Kafka writes it: ``JoinGroup``."""
    return "".join(part.capitalize() for part in api.name.split("_"))


def offered(response: Message) -> dict[int, Versions]:
    """What a broker says it serves, by the API's key."""
    return {
        each.api_key: Versions(each.min_version, each.max_version) for each in response.api_keys
    }


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
