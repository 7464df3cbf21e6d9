"""mypy finds misspelt fields of requests and responses."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.support.paths import ROOT
from tests.support.process import run_command

#: A handler of the broker and a request of the client.
RIGHT = """\
from rota.broker.dispatch import Handler, ServerRequest
from rota.client.connection import BrokerConnection
from rota.errors import Code
from rota.protocol.messages import Api, HeartbeatRequest, HeartbeatResponse, MetadataRequest


def handle(request: ServerRequest[HeartbeatRequest]) -> None:
    request.context.log(20, request.body.group_id)
    request.respond(HeartbeatResponse(error_code=Code.NONE))


def refuse(_: ServerRequest[HeartbeatRequest], code: Code) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=code)


HANDLER = Handler(HeartbeatRequest, 0, 4, handle, refuse)


async def count_partitions(connection: BrokerConnection) -> int:
    topic = MetadataRequest.MetadataRequestTopic(name="orders")
    request = MetadataRequest(topics=[topic])
    response = await connection.send(Api.METADATA, request, deadline=1.0)
    return sum(len(each.partitions) for each in response.topics)
"""

#: Mistakes, and what mypy says of each.
MISTAKES = {
    ("request.body.group_id", "request.body.groupid"): "attr-defined",
    ("respond(HeartbeatResponse(error_code=", "respond(HeartbeatResponse(code="): "call-arg",
    ("error_code=Code.NONE", "error_code='none'"): "arg-type",
    ("request.respond(HeartbeatResponse(", "request.respond(HeartbeatRequest("): "arg-type",
    ("Handler(HeartbeatRequest,", "Handler(MetadataRequest,"): "arg-type",
    ("RequestTopic(name=", "RequestTopic(topic="): "call-arg",
    ('(name="orders")', "(name=5)"): "arg-type",
    ("MetadataRequest(topics=[topic])", "MetadataRequest(topics=topic)"): "arg-type",
    ("in response.topics", "in response.topic"): "attr-defined",
    ("each.partitions", "each.partition"): "attr-defined",
}


def mypy_errors(files: list[Path], cache: Path) -> list[tuple[str, str]]:
    """The file and the kind of each error."""
    done = run_command(
        *(sys.executable, "-m", "mypy", "--config-file", ROOT / "pyproject.toml"),
        *("--cache-dir", cache, "--no-error-summary", *files),
        folder=ROOT,
        seconds=600,  # without a cache mypy reads numpy's types, too
    )
    assert not done.err, done.err
    found = [re.search(r"(\w+)\.py:\d+: error: .*\[([a-z-]+)\]$", line) for line in done.lines]
    return [(each[1], each[2]) for each in found if each is not None]


def test_a_misspelt_field_fails_the_type_check(tmp_path: Path) -> None:
    right = tmp_path / "right.py"
    right.write_text(RIGHT)
    wrong = {}
    for number, ((before, after), kind) in enumerate(MISTAKES.items()):
        changed = RIGHT.replace(before, after, 1)
        assert changed != RIGHT, before
        file = tmp_path / f"wrong{number}.py"
        file.write_text(changed)
        wrong[file.stem] = kind
    found = mypy_errors([right, *(tmp_path / f"{name}.py" for name in wrong)], tmp_path / "cache")
    assert dict(found).keys() == wrong.keys()
    assert {*wrong.items()} <= {*found}
