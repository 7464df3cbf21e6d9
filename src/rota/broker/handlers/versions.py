"""ApiVersions: what clients are offered."""

from __future__ import annotations

import re

from rota.broker.call import Call
from rota.broker.dispatch import Handler
from rota.broker.part import Parts
from rota.errors import Code
from rota.wire.api import Api
from rota.wire.message import ApiVersionsResponse, Message

LOWEST, HIGHEST = 0, 4
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""What a client's library may be called, and its version."""


def handle(parts: Parts, call: Call) -> None:
    """Lists the APIs with their versions, and remembers what library the client uses."""
    request = call.request
    if call.version >= 3:
        name, version = request.client_software_name, request.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            return call.answer(refuse(call, Code.INVALID_REQUEST))
        call.client.software = f"{name} {version}"
    keys = [_key(api, *versions) for api, versions in sorted(parts.versions.items())]
    return call.answer(ApiVersionsResponse(error_code=Code.NONE, api_keys=keys))


def refuse(_: Call, code: Code) -> Message:
    """A client that asks in a version unknown here is told the versions of this API (KIP-511)."""
    known = [_key(Api.API_VERSIONS, LOWEST, HIGHEST)] if code is Code.UNSUPPORTED_VERSION else []
    return ApiVersionsResponse(error_code=code, api_keys=known)


def _key(api: int, lowest: int, highest: int) -> Message:
    return ApiVersionsResponse.ApiVersion(api_key=api, min_version=lowest, max_version=highest)


HANDLERS = (
    Handler(api=Api.API_VERSIONS, lowest=LOWEST, highest=HIGHEST, handle=handle, refuse=refuse),
)
