"""TLS and SASL settings, read from ``security.protocol``, ``ssl.*`` and ``sasl.*``.

User and password come from a JAAS line, as in Kafka's ``sasl.jaas.config``::

    org.apache.kafka.common.security.plain.PlainLoginModule required
        username="alice" password="...";

No error message shows a value of that line, because it may be the password.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rota.engine.model.config import TLS_VERSIONS, SaslConfig, TlsConfig
from rota.engine.model.text import quote_shortened
from rota.errors import InputError, Unreachable

_JKS, _JCEKS, _DER_SEQUENCE = b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce", b"\x30"

_PEM_START = b"-----BEGIN "

_PEM_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)


def read_security(
    values: dict[str, object],
) -> tuple[TlsConfig | None, SaslConfig | None, list[str]]:
    """Reads TLS and SASL settings; returns both and warnings.

    Removes settings that ``security.protocol`` does not use.

    :raises InputError: settings contradict each other, or are not supported
    :raises Unreachable: a file cannot be read
    """
    protocol = str(values.get("security.protocol", "PLAINTEXT"))
    warnings = []
    for part, wanted in (("ssl", protocol.endswith("SSL")), ("sasl", protocol.startswith("SASL"))):
        spare = [name for name in values if name.startswith(f"{part}.")]
        if spare and not wanted:
            warnings.append(
                f"{', '.join(spare)}: without effect while security.protocol is {protocol}"
            )
            for name in spare:
                del values[name]
    tls = _read_tls(values) if protocol.endswith("SSL") else None
    login = None
    if protocol.startswith("SASL"):
        login, more = _read_login(values)
        warnings.extend(more)
        if tls is None and login.mechanism == "PLAIN":
            warnings.append(
                "security.protocol: SASL_PLAINTEXT with sasl.mechanism PLAIN sends the password as "
                "it is; SASL_SSL or SCRAM would not"
            )
    return tls, login, warnings


def _read_tls(values: Mapping[str, object]) -> TlsConfig:
    versions = tuple(map(str, values.get("ssl.enabled.protocols", TLS_VERSIONS)))  # type: ignore[call-overload]
    unknown = [name for name in versions if name not in TLS_VERSIONS]
    if unknown or not versions:
        what = quote_shortened(unknown[0]) if unknown else "an empty list"
        raise InputError(
            f"ssl.enabled.protocols: {what} is not {' or '.join(TLS_VERSIONS)} (older versions of "
            "TLS are not safe)"
        )
    trusted, identity = _store_file("truststore", values), _store_file("keystore", values)
    chain, key = (
        _pem_text("ssl.keystore.certificate.chain", values),
        _pem_text("ssl.keystore.key", values),
    )
    authorities = _pem_text("ssl.truststore.certificates", values)
    if (chain is None) != (key is None):
        has, lacks = ("chain", "key") if key is None else ("key", "chain")
        names = {"chain": "ssl.keystore.certificate.chain", "key": "ssl.keystore.key"}
        raise InputError(f"{names[has]}: needs {names[lacks]} too")
    _check_exclusive("ssl.keystore.location", identity, "ssl.keystore.key", key)
    _check_exclusive("ssl.truststore.location", trusted, "ssl.truststore.certificates", authorities)
    return TlsConfig(
        truststore_certificates=authorities,
        truststore_location=trusted,
        keystore_certificate_chain=chain,
        keystore_key=key,
        keystore_location=identity,
        key_password=_text_value("ssl.key.password", values),
        verifies_host_name=values.get("ssl.endpoint.identification.algorithm", "https") != "",
        enabled_protocols=versions,
    )


def _read_login(values: Mapping[str, object]) -> tuple[SaslConfig, tuple[str, ...]]:
    mechanism = str(values.get("sasl.mechanism", "GSSAPI"))
    if mechanism not in LOGIN_MODULES:
        known = ", ".join(LOGIN_MODULES)
        default = "" if "sasl.mechanism" in values else ", which is Kafka's default,"
        what = {"GSSAPI": " (Kerberos)", "OAUTHBEARER": " (OAuth)"}.get(mechanism, "")
        raise InputError(
            "sasl.mechanism: Rota does not log in by "
            f"{quote_shortened(mechanism)}{what}{default} but by "
            f"{known}: set one of these that the brokers have in sasl.enabled.mechanisms"
        )
    line = _text_value("sasl.jaas.config", values)
    if not line:
        raise InputError(
            "sasl.jaas.config: is missing; it has name and password: "
            f'{LOGIN_MODULES[mechanism]} required username="..." password="...";'
        )
    return parse_login(line, mechanism)


def _text_value(key: str, values: Mapping[str, object]) -> str | None:
    value = values.get(key)
    return None if value is None else str(value)


def _pem_text(key: str, values: Mapping[str, object]) -> str | None:
    """PEM in lines, as OpenSSL wants it: Kafka also takes it all in one, with blanks between."""
    text = _text_value(key, values)
    if text is None:
        return None
    blocks = [
        f"-----BEGIN {kind}-----\n{body}\n-----END {kind}-----\n"
        for kind, body in ((each[1], _pem_lines(each[2])) for each in _PEM_BLOCK.finditer(text))
    ]
    if not blocks:
        raise InputError(f"{key}: is not PEM: it has no -----BEGIN ...----- and -----END ...-----")
    return "".join(blocks)


def _pem_lines(body: str) -> str:
    if ":" in body:  # headers of an encrypted key in the old form, whose lines count
        return body.strip()
    joined = "".join(body.split())
    return "\n".join(joined[at : at + 64] for at in range(0, len(joined), 64))


def _check_exclusive(one: str, has_one: object, other: str, has_other: object) -> None:
    if has_one is not None and has_other is not None:
        raise InputError(f"{one} and {other} are both given: one of them is to be left out")


_PEM_TEXT_KEYS = {
    "truststore": ("ssl.truststore.certificates",),
    "keystore": ("ssl.keystore.key", "ssl.keystore.certificate.chain"),
}


def _store_file(store: str, values: Mapping[str, object]) -> str | None:
    """The file of a store, once it is certain that it is in PEM."""
    kind = str(values.get(f"ssl.{store}.type", "JKS"))
    for text in _PEM_TEXT_KEYS[store]:
        if text in values and kind != "PEM":
            raise InputError(f"{text}: is PEM: set ssl.{store}.type=PEM beside it")
    key = f"ssl.{store}.location"
    location = _text_value(key, values)
    if location is None:
        return None
    shown = quote_shortened(location)
    match _store_type(key, location), kind:
        case "PEM", "PEM":
            return location
        case "PEM", _:
            raise InputError(f"{key}: {shown} is in PEM: set ssl.{store}.type=PEM beside it")
        case None, "PEM":
            raise InputError(f"{key}: {shown} is not in PEM: it has no -----BEGIN ...-----")
        case found, _:
            found = found or kind
    spare = f", and leave out ssl.{store}.password" if f"ssl.{store}.password" in values else ""
    raise InputError(
        f"{key}: {shown} is a store of the type {found}, which cannot be read here. Make a PEM "
        f"file of it: {_conversion_commands(store, location, found)}; name that file, with "
        f"ssl.{store}.type=PEM{spare}"
    )


def _store_type(key: str, location: str) -> str | None:
    """What kind of store a file is, by its first bytes; None if it is none of those known."""
    try:
        with Path(location).open("rb") as file:
            start = file.read(1 << 20)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise Unreachable(f"{key}: {quote_shortened(location)} cannot be read: {reason}") from error
    if _PEM_START in start:
        return "PEM"
    for magic, kind in ((_JKS, "JKS"), (_JCEKS, "JCEKS"), (_DER_SEQUENCE, "PKCS12")):
        if start.startswith(magic):
            return kind
    return None


def _conversion_commands(store: str, location: str, kind: str) -> str:
    """The commands that make a PEM file of a store."""
    name = os.fspath(Path(location).with_suffix(""))
    steps = []
    source = location
    if kind != "PKCS12":
        source = f"{name}.p12"
        steps.append(
            f"keytool -importkeystore -srckeystore {location} -destkeystore {source} "
            "-deststoretype PKCS12"
        )
    what = "-nokeys " if store == "truststore" else ""
    steps.append(f"openssl pkcs12 -in {source} {what}-out {name}.pem")
    return " && ".join(steps)


JAAS_CONFIG = "sasl.jaas.config"

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"

SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"

#: What logs in by each mechanism that Rota has.
LOGIN_MODULES = {
    "PLAIN": PLAIN_MODULE,
    "SCRAM-SHA-256": SCRAM_MODULE,
    "SCRAM-SHA-512": SCRAM_MODULE,
}

_CONTROL_FLAGS = ("required", "requisite", "sufficient", "optional")

_USED_OPTIONS = ("username", "password")

_TEXT_TOKENS = ("word", "quoted")

_TOKEN = re.compile(
    r"""
    (?P<blank>   [\x00-\x20]+ | //[^\r\n]* | /\*.*?\*/ )
  | (?P<quoted>  "(?:\\[^\r\n]|[^"\\\r\n])*" | '(?:\\[^\r\n]|[^'\\\r\n])*' )
  | (?P<open>    ["'] )
  | (?P<word>    [A-Za-z_$\u00a0-\U0010ffff][\w$.\-\u00a0-\U0010ffff]* )
  | (?P<sign>    [=;] )
  | (?P<other>   [^\x00-\x20"'=;]+ )
    """,
    re.VERBOSE | re.DOTALL,
)

_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)

_CONTROL_CHARACTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """One login module with its options."""

    module: str
    options: dict[str, str] = field(repr=False)


def parse_login(text: str, mechanism: str) -> tuple[SaslConfig, tuple[str, ...]]:
    """Who logs in by a mechanism of :data:`MODULES`, and warnings.

    :raises InputError: the line is malformed, or is for another mechanism
    """
    entries = parse_jaas(text)
    if len(entries) != 1:
        raise InputError(f"{JAAS_CONFIG}: has {len(entries)} login modules, one is needed")
    entry = entries[0]
    wanted = LOGIN_MODULES[mechanism]
    # Some platforms ship Kafka's classes under a prefix of their own.
    if entry.module != wanted and not entry.module.endswith(f".{wanted}"):
        fitting = [name for name, module in LOGIN_MODULES.items() if entry.module.endswith(module)]
        meant = (
            f"that is for sasl.mechanism {' or '.join(fitting)}"
            if fitting
            else "which Rota does not have"
        )
        raise InputError(
            f"{JAAS_CONFIG}: the login module is {entry.module}, {meant}; "
            f"sasl.mechanism {mechanism} needs {wanted}"
        )
    for name in _USED_OPTIONS:
        if name not in entry.options:
            raise InputError(f"{JAAS_CONFIG}: the option {name} is missing")
    if entry.options.get("tokenauth", "").lower() == "true":
        raise InputError(
            f"{JAAS_CONFIG}: tokenauth: Rota does not log in by delegation tokens; "
            "give the name and the password of a user"
        )
    unused = [name for name in entry.options if name not in (*_USED_OPTIONS, "tokenauth")]
    warnings = tuple(f"{JAAS_CONFIG}: the option {name} is without effect" for name in unused)
    username, password = entry.options["username"], entry.options["password"]
    return SaslConfig(mechanism=mechanism, username=username, password=password), warnings


def parse_jaas(text: str) -> list[JaasEntry]:
    """The login modules of a line.

    :raises InputError: it is malformed; says where, but shows no value
    """
    tokens = _tokenize(text)
    entries = []
    for kind, module in tokens:
        if kind not in _TEXT_TOKENS:
            raise InputError(f"{JAAS_CONFIG}: begins with the class name of a login module")
        _, flag = next(tokens, ("", ""))
        if flag.lower() not in _CONTROL_FLAGS:
            raise InputError(
                f"{JAAS_CONFIG}: behind the login module comes "
                f"{', '.join(_CONTROL_FLAGS[:-1])} or {_CONTROL_FLAGS[-1]}"
            )
        entries.append(JaasEntry(module, _parse_options(tokens)))
    if not entries:
        raise InputError(f"{JAAS_CONFIG}: is empty")
    return entries


def _parse_options(tokens: Iterator[tuple[str, str]]) -> dict[str, str]:
    """Name, ``=`` and value, up to the ``;``."""
    options: dict[str, str] = {}
    for kind, name in tokens:
        if (kind, name) == ("sign", ";"):
            return options
        if kind not in _TEXT_TOKENS:
            raise InputError(
                f"{JAAS_CONFIG}: between {_describe_place(options)} and the next option, or "
                "the ';', something does "
                "not belong there: a value with other characters than letters, digits and _$.- "
                "must be in quotes"
            )
        if next(tokens, None) != ("sign", "="):
            raise InputError(
                f"{JAAS_CONFIG}: {_describe_place(options)} is followed by something that is "
                "neither an option with "
                "= and a value nor the ';' that ends the entry"
            )
        quoted, value = next(tokens, ("", ""))
        if quoted not in _TEXT_TOKENS:
            raise InputError(
                f"{JAAS_CONFIG}: the value of the option {name} is missing, or needs quotes: "
                "without them "
                "it may have letters, digits and _$.- only, and begins with a letter"
            )
        options[name] = value
    raise InputError(f"{JAAS_CONFIG}: the ';' at the end is missing")


def _describe_place(options: dict[str, str]) -> str:
    return f"the option {list(options)[-1]}" if options else "the flag"


def _tokenize(text: str) -> Iterator[tuple[str, str]]:
    """As Java's StreamTokenizer cuts it."""
    for token in _TOKEN.finditer(text):
        kind = token.lastgroup or ""
        if kind == "open":
            raise InputError(f"{JAAS_CONFIG}: a quote is not closed on its line")
        if kind == "quoted":
            yield kind, _ESCAPE.sub(_unescape_match, token[0][1:-1])
        elif kind != "blank":
            yield kind, token[0]


def _unescape_match(escape: re.Match[str]) -> str:
    what = escape[1]
    return (
        chr(int(what, 8))
        if what.isdecimal() and what[0] < "8"
        else _CONTROL_CHARACTERS.get(what, what)
    )
