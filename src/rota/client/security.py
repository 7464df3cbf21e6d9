"""TLS and log-in, out of ``security.protocol`` and the ``ssl.*`` and ``sasl.*`` settings."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from rota.client import jaas
from rota.errors import InputError, Unreachable
from rota.model.client import TLS_VERSIONS, Login, Tls
from rota.model.text import shortened

_JKS, _JCEKS, _DER_SEQUENCE = b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce", b"\x30"
_PEM = b"-----BEGIN "
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)


def access(values: dict[str, object]) -> tuple[Tls | None, Login | None, list[str]]:
    """TLS and log-in as ``security.protocol`` wants them, and warnings.

    What it does not want is taken out.

    :raises InputError: what is given does not fit together, or cannot be done
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
    tls = _tls(values) if protocol.endswith("SSL") else None
    login = None
    if protocol.startswith("SASL"):
        login, more = _login(values)
        warnings.extend(more)
        if tls is None and login.mechanism == "PLAIN":
            warnings.append(
                "security.protocol: SASL_PLAINTEXT with sasl.mechanism PLAIN sends the password as "
                "it is; SASL_SSL or SCRAM would not"
            )
    return tls, login, warnings


def _tls(values: Mapping[str, object]) -> Tls:
    versions = tuple(map(str, values.get("ssl.enabled.protocols", TLS_VERSIONS)))  # type: ignore[call-overload]
    unknown = [name for name in versions if name not in TLS_VERSIONS]
    if unknown or not versions:
        what = shortened(unknown[0]) if unknown else "an empty list"
        raise InputError(
            f"ssl.enabled.protocols: {what} is not {' or '.join(TLS_VERSIONS)} (older versions of "
            "TLS are not safe)"
        )
    trusted, identity = _file("truststore", values), _file("keystore", values)
    chain, key = _pem("ssl.keystore.certificate.chain", values), _pem("ssl.keystore.key", values)
    authorities = _pem("ssl.truststore.certificates", values)
    if (chain is None) != (key is None):
        has, lacks = ("chain", "key") if key is None else ("key", "chain")
        names = {"chain": "ssl.keystore.certificate.chain", "key": "ssl.keystore.key"}
        raise InputError(f"{names[has]}: needs {names[lacks]} too")
    _either("ssl.keystore.location", identity, "ssl.keystore.key", key)
    _either("ssl.truststore.location", trusted, "ssl.truststore.certificates", authorities)
    return Tls(
        authorities=authorities,
        authorities_file=trusted,
        chain=chain,
        key=key,
        identity_file=identity,
        password=_text("ssl.key.password", values),
        checks_name=values.get("ssl.endpoint.identification.algorithm", "https") != "",
        versions=versions,
    )


def _login(values: Mapping[str, object]) -> tuple[Login, tuple[str, ...]]:
    mechanism = str(values.get("sasl.mechanism", "GSSAPI"))
    if mechanism not in jaas.MODULES:
        known = ", ".join(jaas.MODULES)
        default = "" if "sasl.mechanism" in values else ", which is Kafka's default,"
        what = {"GSSAPI": " (Kerberos)", "OAUTHBEARER": " (OAuth)"}.get(mechanism, "")
        raise InputError(
            f"sasl.mechanism: Rota does not log in by {shortened(mechanism)}{what}{default} but by "
            f"{known}: set one of these that the brokers have in sasl.enabled.mechanisms"
        )
    line = _text("sasl.jaas.config", values)
    if not line:
        raise InputError(
            "sasl.jaas.config: is missing; it has name and password: "
            f'{jaas.MODULES[mechanism]} required username="..." password="...";'
        )
    return jaas.login(line, mechanism)


def _text(key: str, values: Mapping[str, object]) -> str | None:
    value = values.get(key)
    return None if value is None else str(value)


def _pem(key: str, values: Mapping[str, object]) -> str | None:
    """PEM in lines, as OpenSSL wants it: Kafka also takes it all in one, with blanks between."""
    text = _text(key, values)
    if text is None:
        return None
    blocks = [
        f"-----BEGIN {kind}-----\n{body}\n-----END {kind}-----\n"
        for kind, body in ((each[1], _lines(each[2])) for each in _BLOCK.finditer(text))
    ]
    if not blocks:
        raise InputError(f"{key}: is not PEM: it has no -----BEGIN ...----- and -----END ...-----")
    return "".join(blocks)


def _lines(body: str) -> str:
    if ":" in body:  # headers of an encrypted key in the old form, whose lines count
        return body.strip()
    joined = "".join(body.split())
    return "\n".join(joined[at : at + 64] for at in range(0, len(joined), 64))


def _either(one: str, has_one: object, other: str, has_other: object) -> None:
    if has_one is not None and has_other is not None:
        raise InputError(f"{one} and {other} are both given: one of them is to be left out")


_TEXTS = {
    "truststore": ("ssl.truststore.certificates",),
    "keystore": ("ssl.keystore.key", "ssl.keystore.certificate.chain"),
}


def _file(store: str, values: Mapping[str, object]) -> str | None:
    """The file of a store, once it is certain that it is in PEM."""
    kind = str(values.get(f"ssl.{store}.type", "JKS"))
    for text in _TEXTS[store]:
        if text in values and kind != "PEM":
            raise InputError(f"{text}: is PEM: set ssl.{store}.type=PEM beside it")
    key = f"ssl.{store}.location"
    location = _text(key, values)
    if location is None:
        return None
    shown = shortened(location)
    match _recognised(key, location), kind:
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
        f"file of it: {_conversion(store, location, found)}; name that file, with "
        f"ssl.{store}.type=PEM{spare}"
    )


def _recognised(key: str, location: str) -> str | None:
    """What kind of store a file is, by its first bytes; None if it is none of those known."""
    try:
        with Path(location).open("rb") as file:
            start = file.read(1 << 20)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise Unreachable(f"{key}: {shortened(location)} cannot be read: {reason}") from error
    if _PEM in start:
        return "PEM"
    for magic, kind in ((_JKS, "JKS"), (_JCEKS, "JCEKS"), (_DER_SEQUENCE, "PKCS12")):
        if start.startswith(magic):
            return kind
    return None


def _conversion(store: str, location: str, kind: str) -> str:
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
