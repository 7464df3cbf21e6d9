"""TLS and SASL settings, read from ``security.protocol``, ``ssl.*`` and ``sasl.*``.

User and password come from a JAAS line, as in Kafka's ``sasl.jaas.config``. No error message shows
a value of that line, because it may be the password.
"""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rota.engine.model.config import TLS_VERSIONS, SaslConfig, TlsConfig
from rota.engine.model.text import quote_shortened
from rota.errors import InputError, Unreachable

#: First bytes of Java's stores; a PKCS12 file starts with a DER sequence.
_STORE_MAGIC = {b"\xfe\xed\xfe\xed": "JKS", b"\xce\xce\xce\xce": "JCEKS", b"\x30": "PKCS12"}
_BOTH_GIVEN = "are both given: leave one of them out"
_PEM_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)


def read_security(values: dict[str, Any]) -> tuple[TlsConfig | None, SaslConfig | None, list[str]]:
    """Reads the TLS and SASL settings of ``security.protocol``; returns both, and warnings."""
    protocol = values.get("security.protocol", "PLAINTEXT")
    has_tls, has_login = protocol.endswith("SSL"), protocol.startswith("SASL")
    warnings = []
    for prefix, is_used in (("ssl.", has_tls), ("sasl.", has_login)):
        unused = [] if is_used else [name for name in values if name.startswith(prefix)]
        if unused:
            names = ", ".join(unused)
            warnings.append(f"{names}: without effect while security.protocol is {protocol}")
        for name in unused:
            del values[name]
    tls = _read_tls(values) if has_tls else None
    if not has_login:
        return tls, None, warnings
    login, more = _read_login(values)
    warnings += more
    if tls is None and login.mechanism == "PLAIN":
        warnings.append(
            "security.protocol: SASL_PLAINTEXT with sasl.mechanism PLAIN sends the password as it "
            "is; SASL_SSL or SCRAM would not"
        )
    return tls, login, warnings


def _read_tls(values: Mapping[str, Any]) -> TlsConfig:
    versions = values.get("ssl.enabled.protocols", TLS_VERSIONS)
    unknown = [name for name in versions if name not in TLS_VERSIONS]
    if unknown or not versions:
        shown = quote_shortened(str(unknown[0])) if unknown else "an empty list"
        problem = f"{shown} is not {' or '.join(TLS_VERSIONS)} (older versions of TLS are not safe)"
        raise InputError(f"ssl.enabled.protocols: {problem}")
    trusted, identity = _store_file("truststore", values), _store_file("keystore", values)
    chain_name, key_name = "ssl.keystore.certificate.chain", "ssl.keystore.key"
    trust_name = "ssl.truststore.certificates"
    chain, key = _pem_text(chain_name, values), _pem_text(key_name, values)
    authorities = _pem_text(trust_name, values)
    if (chain is None) != (key is None):
        given, missing = (chain_name, key_name) if key is None else (key_name, chain_name)
        raise InputError(f"{given}: needs {missing} too")
    if identity and key:
        raise InputError(f"ssl.keystore.location and {key_name} {_BOTH_GIVEN}")
    if trusted and authorities:
        raise InputError(f"ssl.truststore.location and {trust_name} {_BOTH_GIVEN}")
    return TlsConfig(
        truststore_certificates=authorities,
        truststore_location=trusted,
        keystore_certificate_chain=chain,
        keystore_key=key,
        keystore_location=identity,
        key_password=values.get("ssl.key.password"),
        verifies_host_name=values.get("ssl.endpoint.identification.algorithm", "https") != "",
        enabled_protocols=versions,
    )


def _read_login(values: Mapping[str, Any]) -> tuple[SaslConfig, tuple[str, ...]]:
    mechanism = values.get("sasl.mechanism", "GSSAPI")
    if mechanism not in LOGIN_MODULES:
        default = "" if "sasl.mechanism" in values else ", which is Kafka's default,"
        what = {"GSSAPI": " (Kerberos)", "OAUTHBEARER": " (OAuth)"}.get(mechanism, "")
        raise InputError(
            "sasl.mechanism: Rota does not log in by "
            f"{quote_shortened(mechanism)}{what}{default} but by {', '.join(LOGIN_MODULES)}: set "
            "one that the brokers have in sasl.enabled.mechanisms"
        )
    line = values.get(JAAS_CONFIG)
    if not line:
        raise InputError(
            f"{JAAS_CONFIG}: is missing; it has name and password: "
            f'{LOGIN_MODULES[mechanism]} required username="..." password="...";'
        )
    return parse_login(line, mechanism)


def _pem_text(key: str, values: Mapping[str, Any]) -> str | None:
    """Returns PEM in lines, as OpenSSL needs it. Kafka also takes PEM in one line with blanks."""
    if key not in values:
        return None
    blocks = [
        f"-----BEGIN {block[1]}-----\n{_pem_lines(block[2])}\n-----END {block[1]}-----\n"
        for block in _PEM_BLOCK.finditer(values[key])
    ]
    if not blocks:
        raise InputError(f"{key}: is not PEM: it has no -----BEGIN ...----- and -----END ...-----")
    return "".join(blocks)


def _pem_lines(body: str) -> str:
    if ":" in body:  # headers of an encrypted key in the old form, whose lines count
        return body.strip()
    return textwrap.fill("".join(body.split()), 64)


def _store_file(store: str, values: Mapping[str, Any]) -> str | None:
    declared = values.get(f"ssl.{store}.type", "JKS")
    for name in ("certificates", "key", "certificate.chain"):
        text_key = f"ssl.{store}.{name}"
        if text_key in values and declared != "PEM":
            raise InputError(f"{text_key}: is PEM: set ssl.{store}.type=PEM too")
    key = f"ssl.{store}.location"
    location: str | None = values.get(key)
    if location is None:
        return None
    shown = quote_shortened(location)
    actual = _store_type(key, location)
    if actual == declared == "PEM":
        return location
    if actual == "PEM":
        raise InputError(f"{key}: {shown} is in PEM: set ssl.{store}.type=PEM too")
    if actual is None and declared == "PEM":
        raise InputError(f"{key}: {shown} is not in PEM: it has no -----BEGIN ...-----")
    actual = actual or declared
    spare = f", and leave out ssl.{store}.password" if f"ssl.{store}.password" in values else ""
    raise InputError(
        f"{key}: {shown} is a store of the type {actual}, which Rota cannot read. Convert it to "
        f"PEM: {_conversion_commands(store, location, actual)}; name the new file, with "
        f"ssl.{store}.type=PEM{spare}"
    )


def _store_type(key: str, location: str) -> str | None:
    """Returns the type of a store by its first bytes, or None if it is unknown."""
    try:
        with Path(location).open("rb") as file:
            start = file.read(1 << 20)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise Unreachable(f"{key}: {quote_shortened(location)} cannot be read: {reason}") from error
    if b"-----BEGIN " in start:
        return "PEM"
    return next((name for magic, name in _STORE_MAGIC.items() if start.startswith(magic)), None)


def _conversion_commands(store: str, location: str, store_type: str) -> str:
    name = os.fspath(Path(location).with_suffix(""))
    no_keys = "-nokeys " if store == "truststore" else ""
    if store_type == "PKCS12":
        return f"openssl pkcs12 -in {location} {no_keys}-out {name}.pem"
    return (
        f"keytool -importkeystore -srckeystore {location} -destkeystore {name}.p12 "
        f"-deststoretype PKCS12 && openssl pkcs12 -in {name}.p12 {no_keys}-out {name}.pem"
    )


JAAS_CONFIG = "sasl.jaas.config"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"

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


def parse_login(text: str, mechanism: str) -> tuple[SaslConfig, tuple[str, ...]]:
    """Parses a JAAS line for a mechanism of :data:`LOGIN_MODULES`; returns it and warnings."""
    entries = parse_jaas(text)
    if len(entries) != 1:
        raise InputError(f"{JAAS_CONFIG}: has {len(entries)} login modules, one is needed")
    module, options = entries[0]
    wanted = LOGIN_MODULES[mechanism]
    # Some platforms ship Kafka's classes under a prefix of their own.
    if module != wanted and not module.endswith(f".{wanted}"):
        fitting = [name for name, known in LOGIN_MODULES.items() if module.endswith(known)]
        use = f"is for sasl.mechanism {' or '.join(fitting)}" if fitting else "Rota does not have"
        text = f"{JAAS_CONFIG}: the login module is {module}, which {use}"
        raise InputError(f"{text}; sasl.mechanism {mechanism} needs {wanted}")
    for name in _USED_OPTIONS:
        if name not in options:
            raise InputError(f"{JAAS_CONFIG}: the option {name} is missing")
    if options.get("tokenauth", "").lower() == "true":
        raise InputError(
            f"{JAAS_CONFIG}: tokenauth: Rota does not log in by delegation tokens; "
            "give the name and the password of a user"
        )
    warnings = tuple(
        f"{JAAS_CONFIG}: the option {name} is without effect"
        for name in options
        if name not in (*_USED_OPTIONS, "tokenauth")
    )
    username, password = options["username"], options["password"]
    return SaslConfig(mechanism=mechanism, username=username, password=password), warnings


def parse_jaas(text: str) -> list[tuple[str, dict[str, str]]]:
    """Returns the login modules of a line with their options; errors do not show values."""
    tokens = _tokenize(text)
    entries = []
    for group, module in tokens:
        if group not in _TEXT_TOKENS:
            raise InputError(f"{JAAS_CONFIG}: must start with the class name of a login module")
        _, flag = next(tokens, ("", ""))
        if flag.lower() not in _CONTROL_FLAGS:
            flags = f"{', '.join(_CONTROL_FLAGS[:-1])} or {_CONTROL_FLAGS[-1]}"
            raise InputError(f"{JAAS_CONFIG}: after the login module comes {flags}")
        entries.append((module, _parse_options(tokens)))
    if not entries:
        raise InputError(f"{JAAS_CONFIG}: is empty")
    return entries


def _parse_options(tokens: Iterator[tuple[str, str]]) -> dict[str, str]:
    """Parses ``name=value`` pairs up to the ``;``."""
    options: dict[str, str] = {}
    for group, name in tokens:
        if (group, name) == ("sign", ";"):
            return options
        place = f"the option {list(options)[-1]}" if options else "the flag"
        if group not in _TEXT_TOKENS:
            raise InputError(
                f"{JAAS_CONFIG}: {place} is followed by characters that need quotes: a value "
                "without quotes has only letters, digits and _$.-"
            )
        if next(tokens, None) != ("sign", "="):
            raise InputError(
                f"{JAAS_CONFIG}: {place} is followed by something that is neither an option with = "
                "and a value nor the ';' that ends the entry"
            )
        value_type, value = next(tokens, ("", ""))
        if value_type not in _TEXT_TOKENS:
            raise InputError(
                f"{JAAS_CONFIG}: the value of the option {name} is missing, or needs quotes: "
                "without them it has only letters, digits and _$.-, and starts with a letter"
            )
        options[name] = value
    raise InputError(f"{JAAS_CONFIG}: the ';' at the end is missing")


def _tokenize(text: str) -> Iterator[tuple[str, str]]:
    """Yields tokens as Java's StreamTokenizer does."""
    for token in _TOKEN.finditer(text):
        group = token.lastgroup or ""
        if group == "open":
            raise InputError(f"{JAAS_CONFIG}: a quote is not closed on its line")
        if group == "quoted":
            yield group, _ESCAPE.sub(_unescape_match, token[0][1:-1])
        elif group != "blank":
            yield group, token[0]


def _unescape_match(escape: re.Match[str]) -> str:
    code = escape[1]
    if code.isdecimal() and code[0] < "8":
        return chr(int(code, 8))
    return _CONTROL_CHARACTERS.get(code, code)
