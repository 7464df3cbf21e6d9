"""Writes consumer-settings.md from the table in rota.client.config_keys, and what each honoured key
does: ``make docs``.
"""

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

_DESERIALIZER = (
    "Turns the bytes of a record's {} into a value: a callable, `bytes`, `string`, `json`, "
    "`integer`, `long`... or the name of a Java class. Kafka has no default."
)

_ENCODING = (
    "The encoding of texts for the deserializer `string`. `key.deserializer.encoding` and "
    "`value.deserializer.encoding` win over `deserializer.encoding`."
)

_STORE_TYPE = (
    "`PEM`, if a {} is given: JKS and PKCS12 are refused, with the command that converts them."
)

DESCRIPTIONS = {
    "allow.auto.create.topics": "Whether a request for a missing topic may create it, if the "
    "broker allows that.",
    "assign.budget.ms": "Rota's own: how long a sticky strategy on the group's leader may search "
    "for an assignment with fewer moves.",
    "auto.commit.interval.ms": "The time between automatic commits.",
    "auto.offset.reset": "Where to start without a committed offset, or if its record is deleted: "
    "`earliest`, `latest`, `by_duration:PT1H` (an hour ago), or `none`: an error.",
    "bootstrap.servers": "Brokers to connect to first: host:port, separated by commas. The client "
    "finds the other brokers through them.",
    "check.crcs": "Whether the checksum of every batch is checked.",
    "client.dns.lookup": "Every address of a host name is tried.",
    "client.id": "The name of this client in the logs and quotas of brokers. Default: "
    "`consumer-GROUP-N`.",
    "client.rack": "The rack of this consumer: it fetches from replicas in the rack, and "
    "rack-aware strategies assign it partitions of the rack.",
    "connections.max.idle.ms": "How long a connection without traffic stays open; -1: no limit.",
    "default.api.timeout.ms": "How long a call without `timeout` may take.",
    "deserializer.encoding": _ENCODING,
    "enable.auto.commit": "Whether the consumer commits positions itself. Without a group: false.",
    "exclude.internal.topics": "Whether a pattern leaves out internal topics of the broker.",
    "fetch.max.bytes": "About how many bytes all fetches in flight may bring; about half as many "
    "are buffered. One fetch asks for 8 MiB at most, or `max.partition.fetch.bytes`.",
    "fetch.max.wait.ms": "How long a broker may wait for `fetch.min.bytes`.",
    "fetch.min.bytes": "How many bytes a broker collects before it answers a fetch.",
    "group.id": "The group. Without one, a consumer can assign partitions, but not subscribe.",
    "group.instance.id": "The id of a static member: a restart within the session timeout keeps "
    "its partitions.",
    "group.protocol": "`classic`. `consumer` is refused: with it the broker assigns, not a member.",
    "heartbeat.interval.ms": "The time between heartbeats to the coordinator; less than "
    "`session.timeout.ms`, at best a third.",
    "interceptor.classes": "Subclasses of `rota.ConsumerInterceptor`: classes, instances or "
    "`package.module:Class`.",
    "isolation.level": "Whether records of open and aborted transactions are returned.",
    "key.deserializer": _DESERIALIZER.format("key"),
    "key.deserializer.encoding": _ENCODING,
    "max.partition.fetch.bytes": "About how many bytes of one partition a fetch may bring; fewer "
    "take less memory and more requests. Kafka: 1048576.",
    "max.poll.interval.ms": "How long the application may take between two polls before the member "
    "leaves the group.",
    "max.poll.records": "The highest number of records that a poll returns.",
    "metadata.max.age.ms": "How often the client looks up brokers, topics and leaders again.",
    "metadata.recovery.rebootstrap.trigger.ms": "How long the client goes without metadata before "
    "it connects to `bootstrap.servers` again.",
    "metadata.recovery.strategy": "Whether the client connects to `bootstrap.servers` again when "
    "it can reach no known broker.",
    "partition.assignment.strategy": "Strategies in order of preference: names, Java class names, "
    "your own as `package.module:Class`, classes or instances.",
    "receive.buffer.bytes": "The system's receive buffer of a connection; -1: the system decides, "
    "which is faster than a fixed size on Linux. Kafka: 65536.",
    "reconnect.backoff.max.ms": "The longest pause before the client connects to a broker again.",
    "reconnect.backoff.ms": "The first pause before the client connects to a broker again. Set "
    "alone, the pause does not grow.",
    "request.timeout.ms": "How long one request may take.",
    "retry.backoff.max.ms": "The longest pause before a failed request is sent again.",
    "retry.backoff.ms": "The first pause before a failed request is sent again.",
    "sasl.jaas.config": "User name and password, as a JAAS line of Plain- or ScramLoginModule.",
    "sasl.mechanism": "`PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`. Kafka's default, `GSSAPI`, is "
    "refused.",
    "security.protocol": "Whether connections use TLS, and whether the client logs in.",
    "send.buffer.bytes": "The system's send buffer of a connection; -1: the system decides.",
    "session.timeout.ms": "How long the coordinator waits for a heartbeat before it removes the "
    "member.",
    "socket.connection.setup.timeout.max.ms": "The longest time that connecting may take.",
    "socket.connection.setup.timeout.ms": "How long connecting may take at first; grows with every "
    "failure in a row.",
    "ssl.enabled.protocols": "The accepted versions of TLS.",
    "ssl.endpoint.identification.algorithm": "Whether the broker's certificate must be for its "
    "host name; empty: every host name is accepted.",
    "ssl.key.password": "The password of the encrypted private key.",
    "ssl.keystore.certificate.chain": "This client's certificate and the certificates above it, as "
    "PEM text.",
    "ssl.keystore.key": "This client's private key, as PEM text.",
    "ssl.keystore.location": "The file with this client's certificate and key, in PEM.",
    "ssl.keystore.type": _STORE_TYPE.format("keystore"),
    "ssl.truststore.certificates": "The certificates to trust, as PEM text. Default: the "
    "certificates that the machine trusts.",
    "ssl.truststore.location": "The file with the certificates to trust, in PEM.",
    "ssl.truststore.type": _STORE_TYPE.format("truststore"),
    "value.deserializer": _DESERIALIZER.format("value"),
    "value.deserializer.encoding": _ENCODING,
}

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
        cells = f"{_default(key)} | {_values(key)} | {_cell(DESCRIPTIONS[key.name])}"
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
