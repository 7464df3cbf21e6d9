"""What must differ between two brokers, given names; and where two answers differ."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from tests.support.differential_side import Message, Plain, Side

#: Each broker has its own words.
TEXTS = {"error_message", "batch_index_error_message", "documentation"}
#: Values that the broker makes up: named by the order in which they came.
SEEN = {
    "member_id": "member",
    "leader": "member",
    "producer_id": "producer",
    "session_id": "session",
}
#: By these the items of a list are told apart; the order of lists means nothing.
IDENTITIES = (
    *("name", "topic", "topic_name", "partition_index", "partition", "index"),
    *("group_id", "group", "key", "member_id", "api_key", "resource_name", "node_id", "topic_id"),
)


def mask_answer(side: Side, label: str, answer: Message) -> Plain:
    """An answer that can be compared with that of another broker."""
    return mask_value(side, answer.to_dict(json=False))


def mask_value(side: Side, found: Plain) -> Plain:
    if isinstance(found, dict):
        learn_names(side, found)
        return {
            key: mask_field(side, key, value)
            for key, value in found.items()
            if key != "throttle_time_ms"
        }
    if isinstance(found, list):
        items = [mask_value(side, each) for each in found]
        if all(isinstance(each, dict) for each in items):
            items.sort(key=identity)
        return items
    return found


def learn_names(side: Side, found: dict[str, Plain]) -> None:
    topic_id = found.get("topic_id")
    name = found.get("name") or found.get("topic_name") or found.get("topic")
    if topic_id and name and int(UUID(str(topic_id))):
        side.names.setdefault(str(topic_id), f"id of {name}")


def mask_field(side: Side, key: str, value: Plain) -> Plain:  # noqa: PLR0911 a case each
    if key == "topic_id":
        return (
            None if not value or not int(UUID(str(value))) else side.names.get(str(value), "an id")
        )
    if key == "port":
        return "its port" if value == side.port else value
    if key == "cluster_id":
        return "its id" if value else value
    if key in TEXTS:
        return "a text" if value else value
    if key == "log_append_time_ms":
        return "a time" if value > 0 else value
    if key in SEEN:
        return value if value in {"", -1, 0} else side.named(SEEN[key], value)
    if key == "records":
        return None if value is None else batches(bytes(value))
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, set | frozenset):
        return sorted(str(each) for each in value)
    return mask_value(side, value)


def batches(data: bytes) -> Plain:
    """What there is to say of record batches, up to the last byte."""
    return [
        {
            "base_offset": int.from_bytes(batch[:8], "big"),
            "leader_epoch": int.from_bytes(batch[12:16], "big"),
            "bytes": len(batch),
            "rest": hashlib.sha256(batch[16:]).hexdigest()[:12],
        }
        for batch in split_whole(data)
    ]


def split_whole(data: bytes) -> Iterator[bytes]:
    """The batches of which every byte is there."""
    position = 0
    while position + 12 <= len(data):
        size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        if position + size > len(data):
            return
        yield data[position : position + size]
        position += size


def identity(item: dict[str, Any], at: int | None = None) -> str:
    """What an item of a list is called; by its place, if it has no name."""
    values = [f"{item[key]!s:>6}" for key in IDENTITIES if item.get(key) is not None]
    return "/".join(values[:3]) if values else repr(item) if at is None else str(at)


def differences(ours: Plain, theirs: Plain, path: str = "") -> Iterator[tuple[str, Plain, Plain]]:
    """Where two answers differ, and what each has there."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted({*ours, *theirs}):
            yield from differences(
                ours.get(key, "absent"), theirs.get(key, "absent"), f"{path}.{key}"
            )
    elif is_item_list(ours) and is_item_list(theirs) and (ours or theirs):
        mine = {identity(item, at).replace(" ", ""): item for at, item in enumerate(ours)}
        other = {identity(item, at).replace(" ", ""): item for at, item in enumerate(theirs)}
        for key in [*mine, *(key for key in other if key not in mine)]:
            yield from differences(
                mine.get(key, "absent"), other.get(key, "absent"), f"{path}[{key}]"
            )
    elif ours != theirs:
        yield path, ours, theirs


def is_item_list(found: Plain) -> bool:
    return isinstance(found, list) and all(isinstance(each, dict) for each in found)
