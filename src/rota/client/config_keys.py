"""Every key of Kafka 4.3's consumer configuration, in one table.

A key is honoured, has no effect in Rota (it is accepted, and named in a warning), or is refused
with the reason and what to do instead. Keys that are fields of the configurations in
:mod:`rota.engine.model.config` take their defaults and bounds from there. The names that other
clients use are listed last, so that an error can give Kafka's name.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from types import MappingProxyType
from typing import Any

from rota.engine.assignors.sticky import DEFAULT_BUDGET_MS
from rota.engine.model.config import (
    MAX_INT,
    MAX_LONG,
    TLS_VERSIONS,
    ClientConfig,
    FetchConfig,
    MemberConfig,
)
from rota.engine.model.text import quote_shortened, suggest_names
from rota.errors import InputError

#: Instead of a default.
REQUIRED = "(required)"


class KeyType(enum.Enum):
    """The type of a setting, as Kafka calls it."""

    BOOLEAN = "boolean"
    STRING = "string"
    SHORT = "short"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    LIST = "list"
    CLASS = "class"
    PASSWORD = "password"  # noqa: S105 (a kind of setting)


class KeySupport(enum.Enum):
    """What becomes of a setting."""

    HONOURED = "honoured"
    NO_EFFECT = "without effect"
    REFUSED = "refused"


_TYPE_RANGES: Mapping[KeyType, tuple[float, float]] = {
    KeyType.SHORT: (-(2**15), 2**15 - 1),
    KeyType.INT: (-MAX_INT - 1, MAX_INT),
    KeyType.LONG: (-MAX_LONG - 1, MAX_LONG),
    KeyType.DOUBLE: (float("-inf"), float("inf")),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """A setting: what it is called, what it may be, and what becomes of it."""

    name: str
    kind: KeyType
    default: object = None
    support: KeySupport = KeySupport.HONOURED
    #: What it does; or why it is without effect or refused, and what to do instead.
    description: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    #: The case of letters does not count in ``choices``.
    ignores_case: bool = False
    #: Why ``choices`` are fewer than Kafka's.
    reason: str = ""
    #: Values that ask for what Rota does anyway.
    no_op_values: tuple[object, ...] = ()

    def parse(self, value: object) -> object:
        """The value that is meant: texts are read as Kafka reads them.

        :raises InputError: it is none, or out of bounds; names the key, and shows no password
        """
        if isinstance(value, str):
            value = value.strip()
        match self.kind:
            case KeyType.BOOLEAN:
                return self._boolean(value)
            case KeyType.LIST:
                return self._list(value)
            case KeyType.STRING:
                return self._string(value)
            case KeyType.PASSWORD:
                if not isinstance(value, str):
                    raise InputError(f"{self.name}: is text, not {_type_name(value)}")
                return value
            case KeyType.CLASS:
                return value
            case _:
                return self._number(value)

    def _boolean(self, value: object) -> bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in {"true", "false"}:
            return value.lower() == "true"
        raise InputError(f"{self.name}: {_show_value(value)} is neither true nor false")

    def _number(self, value: object) -> float:
        number: float | None = None
        if isinstance(value, str) and "_" not in value:
            try:
                if self.kind is not KeyType.DOUBLE:
                    number = int(value)
                elif value.isascii():
                    number = float(value)
            except ValueError:
                number = None
        elif type(value) is int or (type(value) is float and self.kind is KeyType.DOUBLE):
            number = value
        least, most = self.bounds
        if number is None or not least <= number <= most:
            kind = "a" if self.kind is KeyType.DOUBLE else "a whole"
            raise InputError(
                f"{self.name}: {_show_value(value)} is not {kind} number from {least} to {most}"
            )
        return number

    @property
    def bounds(self) -> tuple[float, float]:
        """The lowest and the highest that a number may be."""
        least, most = _TYPE_RANGES[self.kind]
        return (
            least if self.minimum is None else self.minimum,
            most if self.maximum is None else self.maximum,
        )

    def _string(self, value: object) -> str:
        if not isinstance(value, str):
            raise InputError(
                f"{self.name}: {_show_value(value)} is not text but {_type_name(value)}"
            )
        if not self.choices:
            return value
        for each in self.choices:
            if value == each or (self.ignores_case and value.lower() == each.lower()):
                return each
        known = ", ".join(map(repr, self.choices))
        why = f" ({self.reason})" if self.reason else ""
        meant = value.upper().replace("TLS", "SSL")  # SSL is what Kafka calls TLS
        near = meant if meant in self.choices else value.upper() if self.ignores_case else value
        hint = "" if self.reason else suggest_names(near, self.choices)
        raise InputError(f"{self.name}: {_show_value(value)} is not one of {known}{why}{hint}")

    def _list(self, value: object) -> tuple[object, ...]:
        """Of text, what is between the commas; of one thing, that."""
        if isinstance(value, str):
            items: list[object] = [each.strip() for each in value.split(",")] if value else []
        elif isinstance(value, Iterable) and not isinstance(value, (bytes, Mapping, type)):
            items = [each.strip() if isinstance(each, str) else each for each in value]
        else:
            items = [value]
        for at, item in enumerate(items):
            if item == "":
                raise InputError(f"{self.name}: the list has an empty item")
            if item in items[:at]:
                raise InputError(f"{self.name}: {_show_value(item)} is in the list twice")
        return tuple(items)


def _show_value(value: object) -> str:
    return quote_shortened(value) if isinstance(value, str) else quote_shortened(repr(value))[1:-1]


def _type_name(value: object) -> str:
    return type(value).__name__


_DESCRIPTIONS: Mapping[str, str] = {
    "allow.auto.create.topics": "Whether asking for a topic that is missing may create it, if the "
    "broker does such things.",
    "auto.commit.interval.ms": "How often positions are committed by themselves.",
    "auto.offset.reset": "Where to read where nothing is committed, or what was is gone: `earliest`"
    ", `latest`, `by_duration:PT1H` (an hour ago), or `none`: an error.",
    "check.crcs": "Whether the checksum of every batch is checked.",
    "client.id": "What brokers call this client in their logs and quotas. Without one: "
    "`consumer-GROUP-N`.",
    "client.rack": "Where this consumer is: it reads from replicas there, and strategies that know "
    "racks give it partitions there.",
    "connections.max.idle.ms": "How long a connection without traffic stays open; -1: for ever.",
    "default.api.timeout.ms": "How long a call may take that is given no `timeout`.",
    "enable.auto.commit": "Whether positions are committed by themselves. Without a group: false.",
    "exclude.internal.topics": "Whether a pattern leaves out the broker's own topics.",
    "fetch.max.bytes": "About how much all fetches under way may bring; about half as much "
    "waits besides. One fetch asks for 8 MiB at most, or `max.partition.fetch.bytes`.",
    "fetch.max.wait.ms": "How long a broker may wait for `fetch.min.bytes`.",
    "fetch.min.bytes": "How much a broker should have before it answers a fetch.",
    "group.id": "The group. Without one, partitions can be assigned by hand only.",
    "group.instance.id": "The id of a static member: a restart within the session timeout keeps "
    "its partitions.",
    "heartbeat.interval.ms": "How often the coordinator is told that the member lives; less than "
    "`session.timeout.ms`, best a third of it.",
    "isolation.level": "Whether records of open and aborted transactions are handed out.",
    "max.partition.fetch.bytes": "About how much of one partition a fetch may bring; less takes "
    "less memory and more requests. Kafka: 1048576.",
    "max.poll.interval.ms": "How long the application may take between two polls before its "
    "partitions go to others.",
    "max.poll.records": "How many records a poll gives at most.",
    "metadata.max.age.ms": "How often brokers, topics and leaders are looked up anew.",
    "metadata.recovery.rebootstrap.trigger.ms": "After how long without metadata "
    "`bootstrap.servers` are asked again.",
    "metadata.recovery.strategy": "Whether `bootstrap.servers` are asked again when no known "
    "broker can be reached.",
    "receive.buffer.bytes": "The system's buffer for what a connection receives; -1: as the system "
    "sees fit, which is faster than a fixed size on Linux. Kafka: 65536.",
    "reconnect.backoff.max.ms": "The longest pause before a broker is connected to again.",
    "reconnect.backoff.ms": "The first pause before a broker is connected to again. Set alone, the "
    "pause does not grow.",
    "request.timeout.ms": "How long one request may take.",
    "retry.backoff.max.ms": "The longest pause before a failed request is sent again.",
    "retry.backoff.ms": "The first pause before a failed request is sent again.",
    "send.buffer.bytes": "The system's buffer for what a connection sends; -1: as it sees fit.",
    "session.timeout.ms": "After how long without a heartbeat a member is taken for dead.",
    "socket.connection.setup.timeout.max.ms": "The longest time that connecting may take.",
    "socket.connection.setup.timeout.ms": "How long connecting may take at first; grows with every "
    "failure in a row.",
}


def _field_keys() -> Iterator[ConfigKey]:
    """Those that are fields."""
    seen = set()
    for config in (ClientConfig, FetchConfig, MemberConfig):
        for each in fields(config):
            name: str = each.metadata.get("key", "")
            if name in _DESCRIPTIONS and name not in seen:
                seen.add(name)
                yield _key_of_field(name, each)


def _key_of_field(name: str, each: Field[Any]) -> ConfigKey:
    about, meta = _DESCRIPTIONS[name], each.metadata
    default = None if each.default is MISSING else each.default
    if name in {"client.id", "client.rack"}:
        return ConfigKey(name=name, kind=KeyType.STRING, default="", description=about)
    if name == "auto.offset.reset":  # has its own syntax
        return ConfigKey(name=name, kind=KeyType.STRING, default=default, description=about)
    if "choices" in meta:
        any_case = name == "metadata.recovery.strategy"
        choices = meta["choices"]
        return ConfigKey(
            name=name,
            kind=KeyType.STRING,
            default=default,
            choices=choices,
            ignores_case=any_case,
            description=about,
        )
    if "least" in meta:
        kind = KeyType.INT if meta["most"] == MAX_INT else KeyType.LONG
        return ConfigKey(
            name=name,
            kind=kind,
            default=default,
            minimum=meta["least"],
            maximum=meta["most"],
            description=about,
        )
    kind = KeyType.BOOLEAN if isinstance(default, bool) else KeyType.STRING
    return ConfigKey(name=name, kind=kind, default=default, description=about)


def _other_keys() -> Iterator[ConfigKey]:
    """Those that are honoured, but are no fields by themselves."""
    yield ConfigKey(
        name="bootstrap.servers",
        kind=KeyType.LIST,
        default=REQUIRED,
        description="Where brokers are asked for all others: host:port, several with commas "
        "between.",
    )
    yield ConfigKey(
        name="client.dns.lookup",
        kind=KeyType.STRING,
        default="use_all_dns_ips",
        choices=("use_all_dns_ips",),
        reason="resolve_canonical_bootstrap_servers_only is for Kerberos, which Rota does not have",
        description="Every address of a host's name is tried.",
    )
    yield ConfigKey(
        name="partition.assignment.strategy",
        kind=KeyType.LIST,
        default=("range", "cooperative-sticky"),
        description="Strategies in order of preference: names, Java's class names, your own as "
        "`package.module:Class`, classes or instances.",
    )
    yield ConfigKey(
        name="assign.budget.ms",
        kind=KeyType.INT,
        default=DEFAULT_BUDGET_MS,
        minimum=0,
        maximum=MAX_INT,
        description="Rota's own: how long a strategy of the sticky family, on the group's "
        "leader, may "
        "look for fewer moves.",
    )
    yield ConfigKey(
        name="group.protocol",
        kind=KeyType.STRING,
        default="classic",
        choices=("classic",),
        ignores_case=True,
        reason="with 'consumer' the broker decides who gets what (KIP-848), not a strategy of the "
        "members: Rota's consumer speaks the classic protocol, which every Kafka serves",
        description="`classic`. `consumer` is refused: there the broker assigns, not the members.",
    )
    for side in ("key", "value"):
        yield ConfigKey(
            name=f"{side}.deserializer",
            kind=KeyType.CLASS,
            default="bytes",
            description=f"What makes a record's {side} out of bytes: a callable, `bytes`, "
            "`string`, "
            "`json`, `integer`, `long`... or the name of Java's class. Kafka has no default.",
        )
    for name in ("deserializer", "key.deserializer", "value.deserializer"):
        yield ConfigKey(
            name=f"{name}.encoding",
            kind=KeyType.STRING,
            default="UTF-8",
            description="The encoding of texts for the deserializer `string`; of `key.`, "
            "`value.` and "
            "neither, the one that says more counts.",
        )
    yield ConfigKey(
        name="interceptor.classes",
        kind=KeyType.LIST,
        default=(),
        description="Subclasses of `rota.ConsumerInterceptor`: classes, instances or "
        "`package.module:Class`.",
    )
    yield ConfigKey(
        name="security.protocol",
        kind=KeyType.STRING,
        default="PLAINTEXT",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        ignores_case=True,
        description="Whether connections have TLS, and whether somebody logs in.",
    )
    yield from _tls_keys()
    yield from _sasl_keys()


def _tls_keys() -> Iterator[ConfigKey]:
    for store, what in (("truststore", "whom to trust"), ("keystore", "who this client is")):
        yield ConfigKey(
            name=f"ssl.{store}.location",
            kind=KeyType.STRING,
            description=f"The file that says {what}, in PEM.",
        )
        yield ConfigKey(
            name=f"ssl.{store}.type",
            kind=KeyType.STRING,
            default="JKS",
            description=f"`PEM`, where a {store} is given: JKS and PKCS12 are refused, with "
            "the command "
            "that converts them.",
        )
    yield ConfigKey(
        name="ssl.truststore.certificates",
        kind=KeyType.PASSWORD,
        description="Certificates of those to trust, as PEM text. Without any: what the "
        "machine trusts.",
    )
    yield ConfigKey(
        name="ssl.keystore.certificate.chain",
        kind=KeyType.PASSWORD,
        description="This client's certificate and those above it, as PEM text.",
    )
    yield ConfigKey(
        name="ssl.keystore.key",
        kind=KeyType.PASSWORD,
        description="This client's private key, as PEM text.",
    )
    yield ConfigKey(
        name="ssl.key.password",
        kind=KeyType.PASSWORD,
        description="What the private key is encrypted with.",
    )
    yield ConfigKey(
        name="ssl.endpoint.identification.algorithm",
        kind=KeyType.STRING,
        default="https",
        choices=("https", ""),
        ignores_case=True,
        description="Whether the certificate must be for the host that is connected to; "
        "empty: any is "
        "taken.",
    )
    yield ConfigKey(
        name="ssl.enabled.protocols",
        kind=KeyType.LIST,
        default=TLS_VERSIONS,
        description="Versions of TLS that are accepted.",
    )


def _sasl_keys() -> Iterator[ConfigKey]:
    yield ConfigKey(
        name="sasl.mechanism",
        kind=KeyType.STRING,
        default="GSSAPI",
        description="`PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`. Kafka's default, `GSSAPI`, "
        "is refused.",
    )
    yield ConfigKey(
        name="sasl.jaas.config",
        kind=KeyType.PASSWORD,
        description="Name and password, as a JAAS line of PlainLoginModule or ScramLoginModule.",
    )


_NO_METRICS = "Rota measures no metrics of Kafka's kind"

_NO_KERBEROS = "for Kerberos, which Rota does not have"

_NO_OAUTH = "for OAUTHBEARER, which Rota does not have"

_NO_RENEWAL = "passwords need no renewal; for Kerberos and OAUTHBEARER, which Rota does not have"


def _ignored_key(  # noqa: PLR0913 (a row of the table)
    name: str,
    kind: KeyType,
    default: object,
    why: str,
    *,
    least: float | None = None,
    most: float | None = None,
    choices: tuple[str, ...] = (),
    any_case: bool = False,
    asks_nothing: tuple[object, ...] = (),
) -> ConfigKey:
    return ConfigKey(
        name=name,
        kind=kind,
        default=default,
        support=KeySupport.NO_EFFECT,
        description=why,
        minimum=least,
        maximum=most,
        choices=choices,
        ignores_case=any_case,
        no_op_values=asks_nothing,
    )


def _ignored_keys() -> Iterator[ConfigKey]:
    """Those that change nothing in Rota."""
    yield _ignored_key(
        "enable.metrics.push",
        KeyType.BOOLEAN,
        True,
        "Rota pushes no metrics",
        asks_nothing=(False,),
    )
    yield _ignored_key(
        "metric.reporters",
        KeyType.LIST,
        ("org.apache.kafka.common.metrics.JmxReporter",),
        _NO_METRICS,
        asks_nothing=((),),
    )
    yield _ignored_key("metrics.num.samples", KeyType.INT, 2, _NO_METRICS, least=1)
    levels = ("INFO", "DEBUG", "TRACE")
    yield _ignored_key(
        "metrics.recording.level", KeyType.STRING, "INFO", _NO_METRICS, choices=levels
    )
    yield _ignored_key("metrics.sample.window.ms", KeyType.LONG, 30_000, _NO_METRICS, least=0)
    yield _ignored_key(
        "internal.throw.on.fetch.stable.offset.unsupported",
        KeyType.BOOLEAN,
        False,
        "internal to Kafka's own tools",
        asks_nothing=(False,),
    )
    yield _ignored_key("ssl.protocol", KeyType.STRING, "TLSv1.3", "ssl.enabled.protocols decides")
    yield _ignored_key(
        "ssl.keymanager.algorithm", KeyType.STRING, "SunX509", "Java's; OpenSSL needs none"
    )
    yield _ignored_key(
        "ssl.trustmanager.algorithm", KeyType.STRING, "PKIX", "Java's; OpenSSL needs none"
    )
    yield _ignored_key(
        "ssl.secure.random.implementation", KeyType.STRING, None, "Java's; OpenSSL has its own"
    )
    yield from _ignored_sasl_keys()


def _ignored_sasl_keys() -> Iterator[ConfigKey]:
    text, number, long = KeyType.STRING, KeyType.INT, KeyType.LONG
    yield _ignored_key("sasl.kerberos.service.name", text, None, _NO_KERBEROS)
    yield _ignored_key("sasl.kerberos.kinit.cmd", text, "/usr/bin/kinit", _NO_KERBEROS)
    yield _ignored_key(
        "sasl.kerberos.ticket.renew.window.factor", KeyType.DOUBLE, 0.8, _NO_KERBEROS
    )
    yield _ignored_key("sasl.kerberos.ticket.renew.jitter", KeyType.DOUBLE, 0.05, _NO_KERBEROS)
    yield _ignored_key("sasl.kerberos.min.time.before.relogin", long, 60_000, _NO_KERBEROS)
    for name, kind, default, least, most in (
        ("window.factor", KeyType.DOUBLE, 0.8, 0.5, 1.0),
        ("window.jitter", KeyType.DOUBLE, 0.05, 0.0, 0.25),
        ("min.period.seconds", KeyType.SHORT, 60, 0, 900),
        ("buffer.seconds", KeyType.SHORT, 300, 0, 3_600),
    ):
        yield _ignored_key(
            f"sasl.login.refresh.{name}", kind, default, _NO_RENEWAL, least=least, most=most
        )
    yield _ignored_key("sasl.login.connect.timeout.ms", number, None, _NO_OAUTH)
    yield _ignored_key("sasl.login.read.timeout.ms", number, None, _NO_OAUTH)
    yield _ignored_key("sasl.login.retry.backoff.max.ms", long, 10_000, _NO_OAUTH)
    yield _ignored_key("sasl.login.retry.backoff.ms", long, 100, _NO_OAUTH)
    yield from _ignored_oauth_keys()


def _ignored_oauth_keys() -> Iterator[ConfigKey]:
    text, number, long = KeyType.STRING, KeyType.INT, KeyType.LONG
    package = "org.apache.kafka.common.security.oauthbearer"
    rows: tuple[tuple[str, KeyType, object], ...] = (
        ("jwt.retriever.class", KeyType.CLASS, f"{package}.DefaultJwtRetriever"),
        ("jwt.validator.class", KeyType.CLASS, f"{package}.DefaultJwtValidator"),
        ("scope", text, None),
        ("client.credentials.client.id", text, None),
        ("client.credentials.client.secret", KeyType.PASSWORD, None),
        ("assertion.claim.aud", text, None),
        ("assertion.claim.iss", text, None),
        ("assertion.claim.jti.include", KeyType.BOOLEAN, False),
        ("assertion.claim.sub", text, None),
        ("assertion.file", text, None),
        ("assertion.private.key.file", text, None),
        ("assertion.private.key.passphrase", KeyType.PASSWORD, None),
        ("assertion.template.file", text, None),
        ("scope.claim.name", text, "scope"),
        ("sub.claim.name", text, "sub"),
        ("token.endpoint.url", text, None),
        ("jwks.endpoint.url", text, None),
        ("jwks.endpoint.refresh.ms", long, 3_600_000),
        ("jwks.endpoint.retry.backoff.max.ms", long, 10_000),
        ("jwks.endpoint.retry.backoff.ms", long, 100),
        ("clock.skew.seconds", number, 30),
        ("expected.audience", KeyType.LIST, ()),
        ("expected.issuer", text, None),
        ("header.urlencode", KeyType.BOOLEAN, False),
    )
    prefix = "sasl.oauthbearer"
    for name, kind, default in rows:
        yield _ignored_key(f"{prefix}.{name}", kind, default, _NO_OAUTH)
    yield _ignored_key(
        f"{prefix}.assertion.algorithm",
        text,
        "RS256",
        _NO_OAUTH,
        choices=("ES256", "RS256"),
        any_case=True,
    )
    for claim, default, most in (("exp", 300, 86_400), ("nbf", 60, 3_600)):
        name = f"{prefix}.assertion.claim.{claim}.seconds"
        yield _ignored_key(name, number, default, _NO_OAUTH, least=0, most=most)


_NO_JAVA = "a class of Java's cannot be run"

_PEM_ONLY = "stores with passwords (JKS, PKCS12) cannot be read; give PEM, and ssl.key.password "


def _refused_keys() -> Iterator[ConfigKey]:
    """Those that ask for what Rota cannot do, and that must not be overlooked."""
    classic = "Rota's consumer speaks the classic protocol of groups"
    for name, kind, default, why in (
        (
            "group.remote.assignor",
            KeyType.STRING,
            None,
            f"is for group.protocol=consumer; {classic}: name partition.assignment.strategy",
        ),
        (
            "share.acknowledgement.mode",
            KeyType.STRING,
            "implicit",
            f"is for share groups; {classic}",
        ),
        (
            "share.acquire.mode",
            KeyType.STRING,
            "BATCH_OPTIMIZED",
            f"is for share groups; {classic}",
        ),
        (
            "config.providers",
            KeyType.LIST,
            (),
            f"{_NO_JAVA}: write the values themselves instead of ${{...}}",
        ),
        (
            "security.providers",
            KeyType.STRING,
            None,
            f"{_NO_JAVA}: what Python's OpenSSL provides is used, as the machine has set it up",
        ),
        (
            "ssl.provider",
            KeyType.STRING,
            None,
            f"{_NO_JAVA}: Python's OpenSSL is used; leave it out",
        ),
        (
            "ssl.cipher.suites",
            KeyType.LIST,
            (),
            "Python cannot choose those of TLS 1.3: leave it out, and restrict them on the broker "
            "or in the machine's OpenSSL",
        ),
        (
            "ssl.engine.factory.class",
            KeyType.CLASS,
            None,
            f"{_NO_JAVA}: give PEM files or texts (ssl.truststore.*, ssl.keystore.*)",
        ),
        ("ssl.keystore.password", KeyType.PASSWORD, None, f"{_PEM_ONLY}for an encrypted key"),
        ("ssl.truststore.password", KeyType.PASSWORD, None, f"{_PEM_ONLY}is not needed here"),
        *(
            (
                f"sasl.{name}.class",
                KeyType.CLASS,
                None,
                f"{_NO_JAVA}: give name and password in sasl.jaas.config",
            )
            for name in ("client.callback.handler", "login.callback.handler", "login")
        ),
    ):
        yield ConfigKey(
            name=name, kind=kind, default=default, support=KeySupport.REFUSED, description=why
        )


#: All keys by their names, in order.
KEYS: Mapping[str, ConfigKey] = MappingProxyType(
    {
        each.name: each
        for each in sorted(
            (*_field_keys(), *_other_keys(), *_ignored_keys(), *_refused_keys()),
            key=lambda each: each.name,
        )
    }
)

_PEM_TRUST = "ssl.truststore.location, with ssl.truststore.type=PEM"

_PEM_IDENTITY = "ssl.keystore.location, a file with certificate and key, with ssl.keystore.type=PEM"

_JAAS_LINE = "sasl.jaas.config, a line with username and password"

#: Where librdkafka, and so confluent-kafka, differs.
LIBRDKAFKA_NAMES: Mapping[str, str] = {
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.username": _JAAS_LINE,
    "sasl.password": _JAAS_LINE,
    "ssl.ca.location": _PEM_TRUST,
    "ssl.ca.pem": "ssl.truststore.certificates, with ssl.truststore.type=PEM",
    "ssl.certificate.location": _PEM_IDENTITY,
    "ssl.key.location": _PEM_IDENTITY,
    "ssl.certificate.pem": "ssl.keystore.certificate.chain, with ssl.keystore.type=PEM",
    "ssl.key.pem": "ssl.keystore.key, with ssl.keystore.type=PEM",
    "enable.ssl.certificate.verification": "ssl.truststore.*: certificates are always verified",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "receive.message.max.bytes": "fetch.max.bytes",
    "queued.max.messages.kbytes": "fetch.max.bytes, which bounds what is kept for later polls",
    "queued.min.messages": "fetch.max.bytes, which bounds what is kept for later polls",
    "socket.timeout.ms": "request.timeout.ms",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
    "enable.partition.eof": "nothing: compare position(...) with end_offsets(...)",
    "enable.auto.offset.store": "enable.auto.commit=false, and commit() or commit_async()",
    "auto.commit.enable": "enable.auto.commit",
    "statistics.interval.ms": "nothing: there are no statistics",
    "debug": "Python's logging of 'rota.consumer'",
    "log_level": "Python's logging of 'rota.consumer'",
    "error_cb": "nothing: errors are raised by the calls they concern",
    "on_commit": "an interceptor in interceptor.classes, or commit_async(callback=...)",
    "broker.address.family": "nothing: every address of a name is tried",
    "allow.auto.create.topic": "allow.auto.create.topics",
}

#: Where kafka-python and aiokafka differ by more than the dots.
KAFKA_PYTHON_NAMES: Mapping[str, str] = {
    "sasl_plain_username": _JAAS_LINE,
    "sasl_plain_password": _JAAS_LINE,
    "ssl_cafile": _PEM_TRUST,
    "ssl_certfile": _PEM_IDENTITY,
    "ssl_keyfile": _PEM_IDENTITY,
    "ssl_password": "ssl.key.password",
    "ssl_check_hostname": "ssl.endpoint.identification.algorithm, empty for no check",
    "api_version": "nothing: versions are found out from the broker",
    "consumer_timeout_ms": "poll(timeout=...)",
    "partition_assignment_strategy": "partition.assignment.strategy",
    "exclude_internal_topics": "exclude.internal.topics",
    "request_timeout_ms": "request.timeout.ms",
    "rebalance_timeout_ms": "max.poll.interval.ms",
}

#: Kafka's own, but not of consumers.
PRODUCER_KEYS = frozenset(
    {
        *("acks", "batch.size", "buffer.memory", "compression.type", "delivery.timeout.ms"),
        *("enable.idempotence", "key.serializer", "linger.ms", "max.block.ms", "max.request.size"),
        *("max.in.flight.requests.per.connection", "partitioner.class", "retries"),
        *("transaction.timeout.ms", "transactional.id", "value.serializer"),
    }
)

#: How librdkafka may write ``auto.offset.reset``.
RESET_ALIASES: Mapping[str, str] = {
    "smallest": "earliest",
    "beginning": "earliest",
    "largest": "latest",
    "end": "latest",
    "error": "none",
}


def explain_unknown_key(key: str) -> str:
    """Returns the error text for an unknown key, with the key that was probably meant."""
    dotted = key.replace("_", ".").lower()
    others = (("librdkafka", LIBRDKAFKA_NAMES), ("kafka-python", KAFKA_PYTHON_NAMES))
    for client, names in others:
        if key in names:
            return (
                f"{key}: is {client}'s name; Kafka's is {names[key]}"
                if not names[key].startswith("nothing")
                else f"{key}: is {client}'s; in its place there is {names[key]}"
            )
    if dotted in KEYS:
        return f"{key}: settings have Kafka's names: {dotted}"
    if key in PRODUCER_KEYS:
        return f"{key}: is a setting of producers, not of consumers"
    if key.startswith("config.providers."):
        return f"{key}: {KEYS['config.providers'].description}"
    return (
        f"{quote_shortened(key)} is not a setting of Kafka's consumers{suggest_names(dotted, KEYS)}"
    )
