"""Who logs in, out of a JAAS line as Kafka's ``sasl.jaas.config`` has it::

    org.apache.kafka.common.security.plain.PlainLoginModule required
        username="alice" password="...";

No message shows a value: it may be the password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from rota.errors import InputError
from rota.model.client import Login

KEY = "sasl.jaas.config"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
MODULES = {"PLAIN": PLAIN_MODULE, "SCRAM-SHA-256": SCRAM_MODULE, "SCRAM-SHA-512": SCRAM_MODULE}
"""What logs in by each mechanism that Rota has."""

_FLAGS = ("required", "requisite", "sufficient", "optional")
_USED = ("username", "password")
_TEXT = ("word", "quoted")
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
_CONTROL = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One login module with its options."""

    module: str
    options: dict[str, str] = field(repr=False)


def login(text: str, mechanism: str) -> tuple[Login, tuple[str, ...]]:
    """Who logs in by a mechanism of :data:`MODULES`, and warnings.

    :raises InputError: the line is malformed, or is for another mechanism
    """
    entries = parse(text)
    if len(entries) != 1:
        raise InputError(f"{KEY}: has {len(entries)} login modules, one is needed")
    entry = entries[0]
    wanted = MODULES[mechanism]
    # Some platforms ship Kafka's classes under a prefix of their own.
    if entry.module != wanted and not entry.module.endswith(f".{wanted}"):
        fitting = [name for name, module in MODULES.items() if entry.module.endswith(module)]
        meant = (
            f"that is for sasl.mechanism {' or '.join(fitting)}"
            if fitting
            else "which Rota does not have"
        )
        raise InputError(
            f"{KEY}: the login module is {entry.module}, {meant}; "
            f"sasl.mechanism {mechanism} needs {wanted}"
        )
    for name in _USED:
        if name not in entry.options:
            raise InputError(f"{KEY}: the option {name} is missing")
    if entry.options.get("tokenauth", "").lower() == "true":
        raise InputError(
            f"{KEY}: tokenauth: Rota does not log in by delegation tokens; "
            "give the name and the password of a user"
        )
    unused = [name for name in entry.options if name not in (*_USED, "tokenauth")]
    warnings = tuple(f"{KEY}: the option {name} is without effect" for name in unused)
    username, password = entry.options["username"], entry.options["password"]
    return Login(mechanism=mechanism, username=username, password=password), warnings


def parse(text: str) -> list[Entry]:
    """The login modules of a line.

    :raises InputError: it is malformed; says where, but shows no value
    """
    tokens = _tokens(text)
    entries = []
    for kind, module in tokens:
        if kind not in _TEXT:
            raise InputError(f"{KEY}: begins with the class name of a login module")
        _, flag = next(tokens, ("", ""))
        if flag.lower() not in _FLAGS:
            raise InputError(
                f"{KEY}: behind the login module comes {', '.join(_FLAGS[:-1])} or {_FLAGS[-1]}"
            )
        entries.append(Entry(module, _options(tokens)))
    if not entries:
        raise InputError(f"{KEY}: is empty")
    return entries


def _options(tokens: Iterator[tuple[str, str]]) -> dict[str, str]:
    """Name, ``=`` and value, up to the ``;``."""
    options: dict[str, str] = {}
    for kind, name in tokens:
        if (kind, name) == ("sign", ";"):
            return options
        if kind not in _TEXT:
            raise InputError(
                f"{KEY}: between {_place(options)} and the next option, or the ';', something does "
                "not belong there: a value with other characters than letters, digits and _$.- "
                "must be in quotes"
            )
        if next(tokens, None) != ("sign", "="):
            raise InputError(
                f"{KEY}: {_place(options)} is followed by something that is neither an option with "
                "= and a value nor the ';' that ends the entry"
            )
        quoted, value = next(tokens, ("", ""))
        if quoted not in _TEXT:
            raise InputError(
                f"{KEY}: the value of the option {name} is missing, or needs quotes: without them "
                "it may have letters, digits and _$.- only, and begins with a letter"
            )
        options[name] = value
    raise InputError(f"{KEY}: the ';' at the end is missing")


def _place(options: dict[str, str]) -> str:
    return f"the option {list(options)[-1]}" if options else "the flag"


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """As Java's StreamTokenizer cuts it."""
    for token in _TOKEN.finditer(text):
        kind = token.lastgroup or ""
        if kind == "open":
            raise InputError(f"{KEY}: a quote is not closed on its line")
        if kind == "quoted":
            yield kind, _ESCAPE.sub(_meant, token[0][1:-1])
        elif kind != "blank":
            yield kind, token[0]


def _meant(escape: re.Match[str]) -> str:
    what = escape[1]
    return chr(int(what, 8)) if what.isdecimal() and what[0] < "8" else _CONTROL.get(what, what)
