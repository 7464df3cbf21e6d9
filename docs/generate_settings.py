"""Writes consumer-settings.md out of the table in rota.client.config_keys: ``make docs``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rota.client.config_keys import KEYS, REQUIRED, ConfigKey, KeySupport, KeyType

PAGE = Path(__file__).with_name("consumer-settings.md")

INTRO = """\
# A consumer's settings

<!-- Made by `make docs` from src/rota/client/config_keys.py. Do not edit. -->

`rota.Consumer`, `rota.AsyncConsumer` and the commands that talk to a cluster take Kafka's own
settings: a mapping in Python, a `client.properties` file on the command line (`--command-config`).
`rota.load_properties(path)` gives a file's settings to Python.
Every key of Kafka 4.3's consumer is in one of the three tables below; names, types, defaults and
bounds are compared with Kafka's classes by a test. Any other key is an error that names the nearest
one, and Kafka's name where another client has its own.

Values may be of Python's types or text as Kafka reads it; lists are lists, or text with commas;
None is the same as a key that is not there. Times are in milliseconds. No message shows a password.
"""

HONOURED = """\
## Honoured

A number may be of the range in the third column, bounds included.

| key | default | values | what it does |
|---|---|---|---|"""

IDLE = """\
## Without effect

Accepted, and named in a warning: what they steer is not there in Rota, and leaving them out loses
nothing.

| key | default in Kafka | why |
|---|---|---|"""

REFUSED = """\
## Refused

An error: they ask for what must not be overlooked. An empty value, or Kafka's default, is let pass.

| key | why, and what to do |
|---|---|"""

NOTES = """\
## Where Rota differs from Kafka

- `receive.buffer.bytes` is -1, not 65536: Linux grows the buffer with need.
- `max.partition.fetch.bytes` is 4 MiB, not 1 MiB: a request costs Python more than Java, and with
  1 MiB a consumer of one partition is half as fast.
- `key.deserializer` and `value.deserializer` may be left out: bytes are handed out. Text that is no
  text in its encoding makes a record undecodable (`rota.errors.RecordError`); Java's
  `StringDeserializer` puts U+FFFD there.
- Times that Kafka gives no lower bound may not be negative.
- The same address or strategy twice in a list is an error, as in Kafka 4.
- `ssl.*` and `sasl.*` settings that `security.protocol` does not ask for are named in a warning.
"""


def page() -> str:
    """The whole page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield INTRO
    yield HONOURED
    for key in _of(KeySupport.HONOURED):
        yield f"| `{key.name}` | {_default(key)} | {_values(key)} | {_cell(key.description)} |"
    yield ""
    yield IDLE
    for key in _of(KeySupport.NO_EFFECT):
        yield f"| `{key.name}` | {_default(key)} | {_cell(key.description)} |"
    yield ""
    yield REFUSED
    for key in _of(KeySupport.REFUSED):
        yield f"| `{key.name}` | {_cell(key.description)} |"
    yield ""
    yield NOTES.rstrip("\n")


def _of(fate: KeySupport) -> list[ConfigKey]:
    return [key for key in KEYS.values() if key.support is fate]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _default(key: ConfigKey) -> str:
    match key.default:
        case None | () | "":
            return ""
        case bool():
            return f"`{str(key.default).lower()}`"
        case tuple():
            return f"`{','.join(map(str, key.default))}`"
    return "required" if key.default == REQUIRED else f"`{key.default}`"


def _values(key: ConfigKey) -> str:
    if key.choices:
        return ", ".join(f"`{each}`" if each else "empty" for each in key.choices)
    if key.kind in {KeyType.INT, KeyType.LONG}:
        return f"from {key.minimum}"
    return {KeyType.BOOLEAN: "`true`, `false`", KeyType.LIST: "a list"}.get(key.kind, "")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
