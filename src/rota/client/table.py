"""Every key of Kafka 4.3's consumer configuration, in one table.

A key is honoured, is without effect in Rota (accepted, and named in a warning), or is refused with
the reason and what to do instead. Those that are fields of the configurations in
:mod:`rota.model.client` and :mod:`rota.model.config` take their defaults and bounds from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields
from types import MappingProxyType
from typing import Any

from rota.client.key import REQUIRED, Fate, Key, Kind
from rota.model.client import TLS_VERSIONS, ClientConfig, ReadConfig
from rota.model.config import INT, MemberConfig
from rota.plan import DEFAULT_BUDGET_MS

_ABOUT: Mapping[str, str] = {
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


def _configured() -> Iterator[Key]:
    """Those that are fields."""
    seen = set()
    for config in (ClientConfig, ReadConfig, MemberConfig):
        for each in fields(config):
            name: str = each.metadata.get("key", "")
            if name in _ABOUT and name not in seen:
                seen.add(name)
                yield _of_field(name, each)


def _of_field(name: str, each: Field[Any]) -> Key:
    about, meta = _ABOUT[name], each.metadata
    default = None if each.default is MISSING else each.default
    if name in {"client.id", "client.rack"}:
        return Key(name=name, kind=Kind.STRING, default="", about=about)
    if name == "auto.offset.reset":  # has its own syntax
        return Key(name=name, kind=Kind.STRING, default=default, about=about)
    if "choices" in meta:
        any_case = name == "metadata.recovery.strategy"
        choices = meta["choices"]
        return Key(
            name=name,
            kind=Kind.STRING,
            default=default,
            choices=choices,
            any_case=any_case,
            about=about,
        )
    if "least" in meta:
        kind = Kind.INT if meta["most"] == INT else Kind.LONG
        return Key(
            name=name,
            kind=kind,
            default=default,
            least=meta["least"],
            most=meta["most"],
            about=about,
        )
    kind = Kind.BOOLEAN if isinstance(default, bool) else Kind.STRING
    return Key(name=name, kind=kind, default=default, about=about)


def _own() -> Iterator[Key]:
    """Those that are honoured, but are no fields by themselves."""
    yield Key(
        name="bootstrap.servers",
        kind=Kind.LIST,
        default=REQUIRED,
        about="Where brokers are asked for all others: host:port, several with commas between.",
    )
    yield Key(
        name="client.dns.lookup",
        kind=Kind.STRING,
        default="use_all_dns_ips",
        choices=("use_all_dns_ips",),
        reason="resolve_canonical_bootstrap_servers_only is for Kerberos, which Rota does not have",
        about="Every address of a host's name is tried.",
    )
    yield Key(
        name="partition.assignment.strategy",
        kind=Kind.LIST,
        default=("range", "cooperative-sticky"),
        about="Strategies in order of preference: names, Java's class names, your own as "
        "`package.module:Class`, classes or instances.",
    )
    yield Key(
        name="assign.budget.ms",
        kind=Kind.INT,
        default=DEFAULT_BUDGET_MS,
        least=0,
        most=INT,
        about="Rota's own: how long a strategy of the sticky family, on the group's leader, may "
        "look for fewer moves.",
    )
    yield Key(
        name="group.protocol",
        kind=Kind.STRING,
        default="classic",
        choices=("classic",),
        any_case=True,
        reason="with 'consumer' the broker decides who gets what (KIP-848), not a strategy of the "
        "members: Rota's consumer speaks the classic protocol, which every Kafka serves",
        about="`classic`. `consumer` is refused: there the broker assigns, not the members.",
    )
    for side in ("key", "value"):
        yield Key(
            name=f"{side}.deserializer",
            kind=Kind.CLASS,
            default="bytes",
            about=f"What makes a record's {side} out of bytes: a callable, `bytes`, `string`, "
            "`json`, `integer`, `long`... or the name of Java's class. Kafka has no default.",
        )
    for name in ("deserializer", "key.deserializer", "value.deserializer"):
        yield Key(
            name=f"{name}.encoding",
            kind=Kind.STRING,
            default="UTF-8",
            about="The encoding of texts for the deserializer `string`; of `key.`, `value.` and "
            "neither, the one that says more counts.",
        )
    yield Key(
        name="interceptor.classes",
        kind=Kind.LIST,
        default=(),
        about="Subclasses of `rota.ConsumerInterceptor`: classes, instances or "
        "`package.module:Class`.",
    )
    yield Key(
        name="security.protocol",
        kind=Kind.STRING,
        default="PLAINTEXT",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        any_case=True,
        about="Whether connections have TLS, and whether somebody logs in.",
    )
    yield from _tls()
    yield from _login()


def _tls() -> Iterator[Key]:
    for store, what in (("truststore", "whom to trust"), ("keystore", "who this client is")):
        yield Key(
            name=f"ssl.{store}.location",
            kind=Kind.STRING,
            about=f"The file that says {what}, in PEM.",
        )
        yield Key(
            name=f"ssl.{store}.type",
            kind=Kind.STRING,
            default="JKS",
            about=f"`PEM`, where a {store} is given: JKS and PKCS12 are refused, with the command "
            "that converts them.",
        )
    yield Key(
        name="ssl.truststore.certificates",
        kind=Kind.PASSWORD,
        about="Certificates of those to trust, as PEM text. Without any: what the machine trusts.",
    )
    yield Key(
        name="ssl.keystore.certificate.chain",
        kind=Kind.PASSWORD,
        about="This client's certificate and those above it, as PEM text.",
    )
    yield Key(
        name="ssl.keystore.key",
        kind=Kind.PASSWORD,
        about="This client's private key, as PEM text.",
    )
    yield Key(
        name="ssl.key.password",
        kind=Kind.PASSWORD,
        about="What the private key is encrypted with.",
    )
    yield Key(
        name="ssl.endpoint.identification.algorithm",
        kind=Kind.STRING,
        default="https",
        choices=("https", ""),
        any_case=True,
        about="Whether the certificate must be for the host that is connected to; empty: any is "
        "taken.",
    )
    yield Key(
        name="ssl.enabled.protocols",
        kind=Kind.LIST,
        default=TLS_VERSIONS,
        about="Versions of TLS that are accepted.",
    )


def _login() -> Iterator[Key]:
    yield Key(
        name="sasl.mechanism",
        kind=Kind.STRING,
        default="GSSAPI",
        about="`PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`. Kafka's default, `GSSAPI`, is refused.",
    )
    yield Key(
        name="sasl.jaas.config",
        kind=Kind.PASSWORD,
        about="Name and password, as a JAAS line of PlainLoginModule or ScramLoginModule.",
    )


_METRICS = "Rota measures no metrics of Kafka's kind"
_KERBEROS = "for Kerberos, which Rota does not have"
_OAUTH = "for OAUTHBEARER, which Rota does not have"
_RENEWAL = "passwords need no renewal; for Kerberos and OAUTHBEARER, which Rota does not have"


def _unused(  # noqa: PLR0913 (a row of the table)
    name: str,
    kind: Kind,
    default: object,
    why: str,
    *,
    least: float | None = None,
    most: float | None = None,
    choices: tuple[str, ...] = (),
    any_case: bool = False,
    asks_nothing: tuple[object, ...] = (),
) -> Key:
    return Key(
        name=name,
        kind=kind,
        default=default,
        fate=Fate.IDLE,
        about=why,
        least=least,
        most=most,
        choices=choices,
        any_case=any_case,
        asks_nothing=asks_nothing,
    )


def _idle() -> Iterator[Key]:
    """Those that change nothing in Rota."""
    yield _unused(
        "enable.metrics.push", Kind.BOOLEAN, True, "Rota pushes no metrics", asks_nothing=(False,)
    )
    yield _unused(
        "metric.reporters",
        Kind.LIST,
        ("org.apache.kafka.common.metrics.JmxReporter",),
        _METRICS,
        asks_nothing=((),),
    )
    yield _unused("metrics.num.samples", Kind.INT, 2, _METRICS, least=1)
    levels = ("INFO", "DEBUG", "TRACE")
    yield _unused("metrics.recording.level", Kind.STRING, "INFO", _METRICS, choices=levels)
    yield _unused("metrics.sample.window.ms", Kind.LONG, 30_000, _METRICS, least=0)
    yield _unused(
        "internal.throw.on.fetch.stable.offset.unsupported",
        Kind.BOOLEAN,
        False,
        "internal to Kafka's own tools",
        asks_nothing=(False,),
    )
    yield _unused("ssl.protocol", Kind.STRING, "TLSv1.3", "ssl.enabled.protocols decides")
    yield _unused("ssl.keymanager.algorithm", Kind.STRING, "SunX509", "Java's; OpenSSL needs none")
    yield _unused("ssl.trustmanager.algorithm", Kind.STRING, "PKIX", "Java's; OpenSSL needs none")
    yield _unused(
        "ssl.secure.random.implementation", Kind.STRING, None, "Java's; OpenSSL has its own"
    )
    yield from _idle_logins()


def _idle_logins() -> Iterator[Key]:
    text, number, long = Kind.STRING, Kind.INT, Kind.LONG
    yield _unused("sasl.kerberos.service.name", text, None, _KERBEROS)
    yield _unused("sasl.kerberos.kinit.cmd", text, "/usr/bin/kinit", _KERBEROS)
    yield _unused("sasl.kerberos.ticket.renew.window.factor", Kind.DOUBLE, 0.8, _KERBEROS)
    yield _unused("sasl.kerberos.ticket.renew.jitter", Kind.DOUBLE, 0.05, _KERBEROS)
    yield _unused("sasl.kerberos.min.time.before.relogin", long, 60_000, _KERBEROS)
    for name, kind, default, least, most in (
        ("window.factor", Kind.DOUBLE, 0.8, 0.5, 1.0),
        ("window.jitter", Kind.DOUBLE, 0.05, 0.0, 0.25),
        ("min.period.seconds", Kind.SHORT, 60, 0, 900),
        ("buffer.seconds", Kind.SHORT, 300, 0, 3_600),
    ):
        yield _unused(f"sasl.login.refresh.{name}", kind, default, _RENEWAL, least=least, most=most)
    yield _unused("sasl.login.connect.timeout.ms", number, None, _OAUTH)
    yield _unused("sasl.login.read.timeout.ms", number, None, _OAUTH)
    yield _unused("sasl.login.retry.backoff.max.ms", long, 10_000, _OAUTH)
    yield _unused("sasl.login.retry.backoff.ms", long, 100, _OAUTH)
    yield from _idle_tokens()


def _idle_tokens() -> Iterator[Key]:
    text, number, long = Kind.STRING, Kind.INT, Kind.LONG
    package = "org.apache.kafka.common.security.oauthbearer"
    rows: tuple[tuple[str, Kind, object], ...] = (
        ("jwt.retriever.class", Kind.CLASS, f"{package}.DefaultJwtRetriever"),
        ("jwt.validator.class", Kind.CLASS, f"{package}.DefaultJwtValidator"),
        ("scope", text, None),
        ("client.credentials.client.id", text, None),
        ("client.credentials.client.secret", Kind.PASSWORD, None),
        ("assertion.claim.aud", text, None),
        ("assertion.claim.iss", text, None),
        ("assertion.claim.jti.include", Kind.BOOLEAN, False),
        ("assertion.claim.sub", text, None),
        ("assertion.file", text, None),
        ("assertion.private.key.file", text, None),
        ("assertion.private.key.passphrase", Kind.PASSWORD, None),
        ("assertion.template.file", text, None),
        ("scope.claim.name", text, "scope"),
        ("sub.claim.name", text, "sub"),
        ("token.endpoint.url", text, None),
        ("jwks.endpoint.url", text, None),
        ("jwks.endpoint.refresh.ms", long, 3_600_000),
        ("jwks.endpoint.retry.backoff.max.ms", long, 10_000),
        ("jwks.endpoint.retry.backoff.ms", long, 100),
        ("clock.skew.seconds", number, 30),
        ("expected.audience", Kind.LIST, ()),
        ("expected.issuer", text, None),
        ("header.urlencode", Kind.BOOLEAN, False),
    )
    prefix = "sasl.oauthbearer"
    for name, kind, default in rows:
        yield _unused(f"{prefix}.{name}", kind, default, _OAUTH)
    yield _unused(
        f"{prefix}.assertion.algorithm",
        text,
        "RS256",
        _OAUTH,
        choices=("ES256", "RS256"),
        any_case=True,
    )
    for claim, default, most in (("exp", 300, 86_400), ("nbf", 60, 3_600)):
        name = f"{prefix}.assertion.claim.{claim}.seconds"
        yield _unused(name, number, default, _OAUTH, least=0, most=most)


_NO_JAVA = "a class of Java's cannot be run"
_PEM_ALONE = "stores with passwords (JKS, PKCS12) cannot be read; give PEM, and ssl.key.password "


def _refused() -> Iterator[Key]:
    """Those that ask for what Rota cannot do, and that must not be overlooked."""
    classic = "Rota's consumer speaks the classic protocol of groups"
    for name, kind, default, why in (
        (
            "group.remote.assignor",
            Kind.STRING,
            None,
            f"is for group.protocol=consumer; {classic}: name partition.assignment.strategy",
        ),
        ("share.acknowledgement.mode", Kind.STRING, "implicit", f"is for share groups; {classic}"),
        ("share.acquire.mode", Kind.STRING, "BATCH_OPTIMIZED", f"is for share groups; {classic}"),
        (
            "config.providers",
            Kind.LIST,
            (),
            f"{_NO_JAVA}: write the values themselves instead of ${{...}}",
        ),
        (
            "security.providers",
            Kind.STRING,
            None,
            f"{_NO_JAVA}: what Python's OpenSSL provides is used, as the machine has set it up",
        ),
        ("ssl.provider", Kind.STRING, None, f"{_NO_JAVA}: Python's OpenSSL is used; leave it out"),
        (
            "ssl.cipher.suites",
            Kind.LIST,
            (),
            "Python cannot choose those of TLS 1.3: leave it out, and restrict them on the broker "
            "or in the machine's OpenSSL",
        ),
        (
            "ssl.engine.factory.class",
            Kind.CLASS,
            None,
            f"{_NO_JAVA}: give PEM files or texts (ssl.truststore.*, ssl.keystore.*)",
        ),
        ("ssl.keystore.password", Kind.PASSWORD, None, f"{_PEM_ALONE}for an encrypted key"),
        ("ssl.truststore.password", Kind.PASSWORD, None, f"{_PEM_ALONE}is not needed here"),
        *(
            (
                f"sasl.{name}.class",
                Kind.CLASS,
                None,
                f"{_NO_JAVA}: give name and password in sasl.jaas.config",
            )
            for name in ("client.callback.handler", "login.callback.handler", "login")
        ),
    ):
        yield Key(name=name, kind=kind, default=default, fate=Fate.REFUSED, about=why)


KEYS: Mapping[str, Key] = MappingProxyType(
    {
        each.name: each
        for each in sorted(
            (*_configured(), *_own(), *_idle(), *_refused()), key=lambda each: each.name
        )
    }
)
"""All keys by their names, in order."""
