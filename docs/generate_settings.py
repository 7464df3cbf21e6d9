"""Writes consumer-settings.md from the table in rota.client.config_keys: ``make docs``."""

from __future__ import annotations

from pathlib import Path

from rota.client.config_keys import CONSUMER_KEYS, REQUIRED
from rota.engine.model.config import ConfigKey, ConfigType, KeySupport, format_config_value

PAGE = Path(__file__).with_name("consumer-settings.md")

INTRO = """\
# A consumer's settings

<!-- Made by `make docs` from src/rota/client/config_keys.py. Do not edit. -->

`rota.Consumer`, `rota.AsyncConsumer` and the commands that connect to a cluster take Kafka's own
settings: in Python a mapping, on the command line a `client.properties` file (`--command-config`).
`rota.load_properties(path)` reads such a file in Python.
Every key of Kafka 4.3's consumer is in one of the three tables below; a test compares names, types,
defaults and bounds with Kafka's classes. Any other key is an error that names the nearest key, or
Kafka's key if another client has this name.

A value is a Python value, or text as Kafka reads it; a list is a Python list, or text with commas;
None means that the key is absent. Times are in milliseconds. No message shows a password.
"""

HONOURED = """\
## Honoured

The third column has the lowest number, or all allowed values.

| key | default | values | what it does |
|---|---|---|---|"""

NO_EFFECT = """\
## Without effect

Rota accepts these keys and names them in a warning. They belong to features that Rota does not
have, so you can leave them out.

| key | default in Kafka | why |
|---|---|---|"""

REFUSED = """\
## Refused

These keys are an error, because Rota cannot do what they ask for. An empty value and Kafka's
default are accepted.

| key | why, and what to do |
|---|---|"""

NOTES = """\
## Where Rota differs from Kafka

- `receive.buffer.bytes` is -1, not 65536: Linux grows the buffer as needed.
- `max.partition.fetch.bytes` is 4 MiB, not 1 MiB: a request costs Python more than Java, and with
  1 MiB a consumer of one partition is half as fast.
- Without `key.deserializer` and `value.deserializer`, keys and values are bytes. Bytes that are not
  valid text make a record undecodable (`rota.errors.RecordError`); Java's `StringDeserializer`
  replaces them with U+FFFD.
- A time that has no lower bound in Kafka may not be negative.
- The same address or strategy twice in a list is an error, as in Kafka 4.
- A warning names `ssl.*` and `sasl.*` settings that `security.protocol` does not use.
"""


def page() -> str:
    """Returns the whole page."""
    lines = [INTRO, HONOURED]
    for key in _keys(KeySupport.HONOURED):
        cells = f"{_default(key)} | {_values(key)} | {_cell(key.description)}"
        lines.append(f"| `{key.name}` | {cells} |")
    lines += ["", NO_EFFECT]
    for key in _keys(KeySupport.NO_EFFECT):
        lines.append(f"| `{key.name}` | {_default(key)} | {_cell(key.description)} |")
    lines += ["", REFUSED]
    for key in _keys(KeySupport.REFUSED):
        lines.append(f"| `{key.name}` | {_cell(key.description)} |")
    return "\n".join([*lines, "", NOTES])


def _keys(support: KeySupport) -> list[ConfigKey]:
    return [key for key in CONSUMER_KEYS.values() if key.support is support]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _default(key: ConfigKey) -> str:
    if key.default in (None, (), ""):
        return ""
    return "required" if key.default == REQUIRED else f"`{format_config_value(key.default)}`"


def _values(key: ConfigKey) -> str:
    if key.choices:
        return ", ".join(f"`{each}`" if each else "empty" for each in key.choices)
    if key.type in {ConfigType.INT, ConfigType.LONG}:
        return f"from {key.minimum}"
    return {ConfigType.BOOLEAN: "`true`, `false`", ConfigType.LIST: "a list"}.get(key.type, "")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
