"""Every key of Kafka 4.3's consumer configuration, in one table.

A key is honoured (``docs/generate_settings.py`` says what it does), has no effect in Rota (it is
accepted, and named in a warning), or is refused with the reason and what to do instead. Keys that
are fields of the configurations in :mod:`rota.engine.model.config` take their defaults and bounds
from there. The names that other clients use are listed last, so that errors can give Kafka's name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rota.engine.assignors.sticky import DEFAULT_BUDGET_MS
from rota.engine.model import config
from rota.engine.model.config import ConfigKey, KeySupport

REQUIRED = "(required)"
BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, CLASS, PASSWORD = config.ConfigType


def _other_keys() -> Iterator[ConfigKey]:
    for name, type_, default in (
        ("bootstrap.servers", LIST, REQUIRED),
        ("partition.assignment.strategy", LIST, ("range", "cooperative-sticky")),
        ("interceptor.classes", LIST, ()),
        ("key.deserializer", CLASS, "bytes"),
        ("value.deserializer", CLASS, "bytes"),
        ("deserializer.encoding", STRING, "UTF-8"),
        ("key.deserializer.encoding", STRING, "UTF-8"),
        ("value.deserializer.encoding", STRING, "UTF-8"),
        ("ssl.truststore.location", STRING, None),
        ("ssl.truststore.type", STRING, "JKS"),
        ("ssl.keystore.location", STRING, None),
        ("ssl.keystore.type", STRING, "JKS"),
        ("ssl.enabled.protocols", LIST, config.TLS_VERSIONS),
        ("sasl.mechanism", STRING, "GSSAPI"),
    ):
        yield ConfigKey(name, type_, default)
    for name in (
        *("ssl.truststore.certificates", "ssl.keystore.certificate.chain", "ssl.keystore.key"),
        *("ssl.key.password", "sasl.jaas.config"),
    ):
        yield ConfigKey(name, PASSWORD)
    yield ConfigKey("assign.budget.ms", INT, DEFAULT_BUDGET_MS, minimum=0)
    for name, choices, reason in (
        ("ssl.endpoint.identification.algorithm", ("https", ""), ""),
        ("security.protocol", ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), ""),
        (
            "group.protocol",
            ("classic",),
            "with 'consumer' the broker computes the assignment (KIP-848), not a strategy of the "
            "members: Rota's consumer uses the classic protocol, which every Kafka serves",
        ),
    ):
        yield ConfigKey(name, STRING, choices[0], choices=choices, ignores_case=True, reason=reason)
    yield ConfigKey(
        "client.dns.lookup",
        STRING,
        "use_all_dns_ips",
        choices=("use_all_dns_ips",),
        reason="resolve_canonical_bootstrap_servers_only is for Kerberos, which Rota does not have",
    )


_NO_METRICS = "Rota does not have Kafka's metrics"
_NO_KERBEROS = "for Kerberos, which Rota does not have"
_NO_OAUTH = "for OAUTHBEARER, which Rota does not have"
_NO_RENEWAL = "passwords need no renewal; for Kerberos and OAUTHBEARER, which Rota does not have"
_JAVA_TLS = "for Java; OpenSSL does not need it"
_OAUTH_PACKAGE = "org.apache.kafka.common.security.oauthbearer"


def _keys_without_effect() -> Iterator[ConfigKey]:
    none = KeySupport.NO_EFFECT
    default: object
    reporters = ("org.apache.kafka.common.metrics.JmxReporter",)
    internal = "internal.throw.on.fetch.stable.offset.unsupported"
    for name, type_, default, why, no_op in (
        ("enable.metrics.push", BOOLEAN, True, "Rota pushes no metrics", False),
        ("metric.reporters", LIST, reporters, _NO_METRICS, ()),
        (internal, BOOLEAN, False, "internal to Kafka's own tools", False),
    ):
        yield ConfigKey(name, type_, default, why, no_op_values=(no_op,), support=none)
    for name, type_, default, why, least, most in (
        ("metrics.num.samples", INT, 2, _NO_METRICS, 1, None),
        ("metrics.sample.window.ms", LONG, 30_000, _NO_METRICS, 0, None),
        ("sasl.login.refresh.window.factor", DOUBLE, 0.8, _NO_RENEWAL, 0.5, 1.0),
        ("sasl.login.refresh.window.jitter", DOUBLE, 0.05, _NO_RENEWAL, 0.0, 0.25),
        ("sasl.login.refresh.min.period.seconds", SHORT, 60, _NO_RENEWAL, 0, 900),
        ("sasl.login.refresh.buffer.seconds", SHORT, 300, _NO_RENEWAL, 0, 3_600),
        ("sasl.oauthbearer.assertion.claim.exp.seconds", INT, 300, _NO_OAUTH, 0, 86_400),
        ("sasl.oauthbearer.assertion.claim.nbf.seconds", INT, 60, _NO_OAUTH, 0, 3_600),
    ):
        yield ConfigKey(name, type_, default, why, minimum=least, maximum=most, support=none)
    for name, choices, why in (
        ("metrics.recording.level", ("INFO", "DEBUG", "TRACE"), _NO_METRICS),
        ("sasl.oauthbearer.assertion.algorithm", ("RS256", "ES256"), _NO_OAUTH),
    ):
        any_case = name.startswith("sasl.")
        yield ConfigKey(
            name, STRING, choices[0], why, choices=choices, ignores_case=any_case, support=none
        )
    for name, type_, default, why in (
        ("ssl.protocol", STRING, "TLSv1.3", "ssl.enabled.protocols decides"),
        ("ssl.keymanager.algorithm", STRING, "SunX509", _JAVA_TLS),
        ("ssl.trustmanager.algorithm", STRING, "PKIX", _JAVA_TLS),
        ("ssl.secure.random.implementation", STRING, None, _JAVA_TLS),
        ("sasl.kerberos.service.name", STRING, None, _NO_KERBEROS),
        ("sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit", _NO_KERBEROS),
        ("sasl.kerberos.ticket.renew.window.factor", DOUBLE, 0.8, _NO_KERBEROS),
        ("sasl.kerberos.ticket.renew.jitter", DOUBLE, 0.05, _NO_KERBEROS),
        ("sasl.kerberos.min.time.before.relogin", LONG, 60_000, _NO_KERBEROS),
        ("sasl.login.connect.timeout.ms", INT, None, _NO_OAUTH),
        ("sasl.login.read.timeout.ms", INT, None, _NO_OAUTH),
        ("sasl.login.retry.backoff.max.ms", LONG, 10_000, _NO_OAUTH),
        ("sasl.login.retry.backoff.ms", LONG, 100, _NO_OAUTH),
    ):
        yield ConfigKey(name, type_, default, why, support=none)
    for name, type_, default in (
        ("jwt.retriever.class", CLASS, f"{_OAUTH_PACKAGE}.DefaultJwtRetriever"),
        ("jwt.validator.class", CLASS, f"{_OAUTH_PACKAGE}.DefaultJwtValidator"),
        ("client.credentials.client.secret", PASSWORD, None),
        ("assertion.private.key.passphrase", PASSWORD, None),
        ("assertion.claim.jti.include", BOOLEAN, False),
        ("header.urlencode", BOOLEAN, False),
        ("scope.claim.name", STRING, "scope"),
        ("sub.claim.name", STRING, "sub"),
        ("jwks.endpoint.refresh.ms", LONG, 3_600_000),
        ("jwks.endpoint.retry.backoff.max.ms", LONG, 10_000),
        ("jwks.endpoint.retry.backoff.ms", LONG, 100),
        ("clock.skew.seconds", INT, 30),
        ("expected.audience", LIST, ()),
    ):
        yield ConfigKey(f"sasl.oauthbearer.{name}", type_, default, _NO_OAUTH, support=none)
    for name in (
        *("scope", "client.credentials.client.id", "token.endpoint.url", "jwks.endpoint.url"),
        *("assertion.claim.aud", "assertion.claim.iss", "assertion.claim.sub", "expected.issuer"),
        *("assertion.file", "assertion.private.key.file", "assertion.template.file"),
    ):
        yield ConfigKey(f"sasl.oauthbearer.{name}", STRING, None, _NO_OAUTH, support=none)


_NO_JAVA = "Rota cannot run a Java class"
_PEM_ONLY = "stores with passwords (JKS, PKCS12) cannot be read; give PEM, and ssl.key.password"
_CLASSIC = "Rota's consumer uses the classic group protocol"
_USE_JAAS = f"{_NO_JAVA}: give name and password in sasl.jaas.config"


def _refused_keys() -> Iterator[ConfigKey]:
    """Yields the keys that ask for something Rota cannot do and must not ignore."""
    openssl = f"{_NO_JAVA}: Rota uses Python's OpenSSL"
    strategy = f"is for group.protocol=consumer; {_CLASSIC}: name partition.assignment.strategy"
    ciphers = (
        "Python cannot choose the cipher suites of TLS 1.3: leave it out, and restrict them on "
        "the broker or in the machine's OpenSSL"
    )
    pem = f"{_NO_JAVA}: give PEM files or texts (ssl.truststore.*, ssl.keystore.*)"
    literals = f"{_NO_JAVA}: write the values themselves instead of ${{...}}"
    for name, type_, default, why in (
        ("group.remote.assignor", STRING, None, strategy),
        ("share.acknowledgement.mode", STRING, "implicit", f"is for share groups; {_CLASSIC}"),
        ("share.acquire.mode", STRING, "BATCH_OPTIMIZED", f"is for share groups; {_CLASSIC}"),
        ("config.providers", LIST, (), literals),
        ("security.providers", STRING, None, f"{openssl} with the providers of this machine"),
        ("ssl.provider", STRING, None, f"{openssl}; leave it out"),
        ("ssl.cipher.suites", LIST, (), ciphers),
        ("ssl.engine.factory.class", CLASS, None, pem),
        ("ssl.keystore.password", PASSWORD, None, f"{_PEM_ONLY} for an encrypted key"),
        ("ssl.truststore.password", PASSWORD, None, f"{_PEM_ONLY} is not needed here"),
        ("sasl.client.callback.handler.class", CLASS, None, _USE_JAAS),
        ("sasl.login.callback.handler.class", CLASS, None, _USE_JAAS),
        ("sasl.login.class", CLASS, None, _USE_JAAS),
    ):
        yield ConfigKey(name, type_, default, why, support=KeySupport.REFUSED)


_FIELD_KEYS = config.field_keys(config.MemberConfig, config.FetchConfig, config.ClientConfig)
CONSUMER_KEYS: Mapping[str, ConfigKey] = config.index_keys(
    (*_FIELD_KEYS, *_other_keys(), *_keys_without_effect(), *_refused_keys())
)

_PEM_TRUST = "ssl.truststore.location, with ssl.truststore.type=PEM"
_PEM_IDENTITY = "ssl.keystore.location, a file with certificate and key, with ssl.keystore.type=PEM"
_JAAS_LINE = "sasl.jaas.config, a line with username and password"
_BUFFER_LIMIT = "fetch.max.bytes, which limits the records that are buffered for later polls"
_LOGGING = "Python's logging of 'rota.consumer'"

#: Names of other clients that differ from Kafka's by more than dots and case, with Kafka's name.
_NAMES_BY_CLIENT: Mapping[str, Mapping[str, str]] = {
    "librdkafka": {
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
        "queued.max.messages.kbytes": _BUFFER_LIMIT,
        "queued.min.messages": _BUFFER_LIMIT,
        "socket.timeout.ms": "request.timeout.ms",
        "socket.send.buffer.bytes": "send.buffer.bytes",
        "socket.receive.buffer.bytes": "receive.buffer.bytes",
        "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
        "enable.auto.offset.store": "enable.auto.commit=false, and commit() or commit_async()",
        "auto.commit.enable": "enable.auto.commit",
        "debug": _LOGGING,
        "log_level": _LOGGING,
        "on_commit": "an interceptor in interceptor.classes, or commit_async(callback=...)",
        "allow.auto.create.topic": "allow.auto.create.topics",
    },
    "kafka-python": {
        "sasl_plain_username": _JAAS_LINE,
        "sasl_plain_password": _JAAS_LINE,
        "ssl_cafile": _PEM_TRUST,
        "ssl_certfile": _PEM_IDENTITY,
        "ssl_keyfile": _PEM_IDENTITY,
        "ssl_password": "ssl.key.password",
        "ssl_check_hostname": "ssl.endpoint.identification.algorithm, empty for no check",
        "consumer_timeout_ms": "poll(timeout=...)",
        "rebalance_timeout_ms": "max.poll.interval.ms",
    },
}

#: Names of other clients that Kafka has no setting for, with what to do.
_NO_KAFKA_NAME: Mapping[str, tuple[str, str]] = {
    "enable.partition.eof": ("librdkafka", "compare position(...) with end_offsets(...)"),
    "statistics.interval.ms": ("librdkafka", "there are no statistics; leave it out"),
    "error_cb": ("librdkafka", "calls raise their errors; leave it out"),
    "broker.address.family": ("librdkafka", "every address of a name is tried; leave it out"),
    "api_version": ("kafka-python", "the broker reports its versions; leave it out"),
}

_PRODUCER_SETTINGS = frozenset(
    {
        *("acks", "batch.size", "buffer.memory", "compression.type", "delivery.timeout.ms"),
        *("enable.idempotence", "key.serializer", "linger.ms", "max.block.ms", "max.request.size"),
        *("max.in.flight.requests.per.connection", "partitioner.class", "retries"),
        *("transaction.timeout.ms", "transactional.id", "value.serializer"),
    }
)


def explain_unknown_key(key: str) -> str:
    """Returns the error text for an unknown key, with the key that was probably meant."""
    for client, names in _NAMES_BY_CLIENT.items():
        if key in names:
            return f"{key}: is {client}'s name; Kafka's is {names[key]}"
    if key in _NO_KAFKA_NAME:
        client, advice = _NO_KAFKA_NAME[key]
        return f"{key}: is {client}'s; Rota has no such setting: {advice}"
    if (dotted := key.replace("_", ".").lower()) in CONSUMER_KEYS:
        return f"{key}: settings have Kafka's names: {dotted}"
    if key in _PRODUCER_SETTINGS:
        return f"{key}: is a producer setting, not a consumer setting"
    if key.startswith("config.providers."):
        return f"{key}: {CONSUMER_KEYS['config.providers'].description}"
    return config.unknown_key_message(key, CONSUMER_KEYS, "a consumer setting")
