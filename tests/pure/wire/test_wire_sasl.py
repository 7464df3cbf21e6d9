"""Logging in: PLAIN and SCRAM, as clients do it and as attackers might."""

from __future__ import annotations

import base64
import itertools
from typing import Any

import pytest
from kafka.net.sasl import scram

from rota.errors import Code, InputError, Refused
from rota.protocol.sasl import (
    SCRAM_HASHES,
    Mechanism,
    SaslReply,
    SaslServer,
    ScramCredential,
    Users,
    create_sasl_server,
)

RealClient: Any = scram.ScramClient
SHA_256 = Mechanism.SCRAM_SHA_256
both = pytest.mark.parametrize("mechanism", SCRAM_HASHES)


def users(**passwords: str) -> Users:
    counter = itertools.count()
    return Users(passwords or {"anna": "secret"}, lambda: next(counter).to_bytes(16, "big"))


def start_exchange(mechanism: str, who: Users, nonce: str = "servernonce") -> SaslServer:
    return create_sasl_server(mechanism, who, lambda: nonce)


def refuse_exchange(exchange: SaslServer, data: bytes) -> Refused:
    with pytest.raises(Refused) as caught:
        exchange.step(data)
    return caught.value


def failure_text(exchange: SaslServer, data: bytes) -> str:
    error = refuse_exchange(exchange, data)
    assert error.code == Code.SASL_AUTHENTICATION_FAILED
    assert refuse_exchange(exchange, data).code == Code.ILLEGAL_SASL_STATE, "a failed login is over"
    return str(error)


# PLAIN


def test_plain_logs_in_who_has_the_password() -> None:
    assert start_exchange("PLAIN", users()).step(b"\0anna\0secret") == SaslReply(b"", "anna")


def test_plain_takes_any_letters() -> None:
    who = users(zoë="pässwörd, =")
    assert start_exchange("PLAIN", who).step("\0zoë\0pässwörd, =".encode()).user == "zoë"


def test_plain_lets_a_user_act_for_himself_only() -> None:
    assert start_exchange("PLAIN", users()).step(b"anna\0anna\0secret").done
    assert "act for another" in failure_text(
        start_exchange("PLAIN", users()), b"bert\0anna\0secret"
    )


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"\0anna\0wrong", "wrong user or password"),
        (b"\0bert\0secret", "wrong user or password"),
        (b"\0anna\0secre", "wrong user or password"),
        (b"\0anna\0secrets", "wrong user or password"),
        (b"\0ANNA\0secret", "wrong user or password"),
        (b"\0anna\0", "no password"),
        (b"\0\0secret", "no user"),
        (b"\0\0", "no user"),
        (b"", "3 parts, not 1"),
        (b"anna\0secret", "3 parts, not 2"),
        (b"\0anna\0secret\0", "3 parts, not 4"),
        (b"\0anna\0\xff\xfe", "wrong user or password"),
    ],
)
def test_plain_lets_nobody_else_in(sent: bytes, said: str) -> None:
    assert said in failure_text(start_exchange("PLAIN", users()), sent)


def test_plain_is_one_step() -> None:
    exchange = start_exchange("PLAIN", users())
    assert exchange.step(b"\0anna\0secret").done
    assert refuse_exchange(exchange, b"\0anna\0secret").code == Code.ILLEGAL_SASL_STATE


# SCRAM


def test_scram_speaks_as_rfc_7677_shows() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    who = Users({"user": "pencil"}, lambda: salt)
    exchange = start_exchange(SHA_256, who, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    assert exchange.step(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == SaslReply(
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert exchange.step(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    ) == SaslReply(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", "user")


def finish_exchange(client: Any, exchange: SaslServer) -> SaslReply:
    client.process_server_first_message(exchange.step(client.first_message()).data)
    step = exchange.step(client.final_message())
    client.process_server_final_message(step.data)  # raises where the server proves nothing
    return step


@both
def test_scram_logs_in_a_real_client(mechanism: Mechanism) -> None:
    who = users(anna="secret", bert="pässwörd, =", carl="c")
    for user, password in (("anna", "secret"), ("bert", "pässwörd, ="), ("carl", "c")):
        client = RealClient(user, password, mechanism)
        assert finish_exchange(client, start_exchange(mechanism, who)).user == user


@both
def test_scram_knows_stored_credentials(mechanism: Mechanism) -> None:
    kept = ScramCredential.from_password(mechanism, "secret", b"saltsalt", 8192)
    text = (
        f"salt={base64.b64encode(kept.salt).decode()},"
        f"stored_key={base64.b64encode(kept.stored_key).decode()},"
        f"server_key={base64.b64encode(kept.server_key).decode()},iterations=8192"
    )
    assert ScramCredential.parse(mechanism, text) == kept
    who = Users({}, lambda: bytes(16), stored={mechanism: {"dora": kept}})
    assert (
        finish_exchange(
            RealClient("dora", "secret", mechanism), start_exchange(mechanism, who)
        ).user
        == "dora"
    )


@both
def test_scram_refuses_a_wrong_password_and_an_unknown_user_alike(mechanism: Mechanism) -> None:
    texts = set()
    for user in ("anna", "nobody"):
        client = RealClient(user, "wrong", mechanism)
        exchange = start_exchange(mechanism, users())
        client.process_server_first_message(exchange.step(client.first_message()).data)
        texts.add(failure_text(exchange, client.final_message()))
    assert texts == {"login failed: wrong user or password"}


def test_scram_gives_an_unknown_user_the_same_salt_each_time() -> None:
    who = users()
    for user in (b"anna", b"nobody"):
        first = b"n,,n=" + user + b",r=abc"
        assert start_exchange(SHA_256, who).step(first) == start_exchange(SHA_256, who).step(first)
    other = start_exchange(SHA_256, who).step(b"n,,n=somebody,r=abc")
    assert other != start_exchange(SHA_256, who).step(b"n,,n=nobody,r=abc")


def test_scram_refuses_what_was_said_in_another_exchange() -> None:
    who = users()
    client = RealClient("anna", "secret", SHA_256)
    first = client.first_message()
    client.process_server_first_message(start_exchange(SHA_256, who, "one").step(first).data)
    exchange = start_exchange(SHA_256, who, "two")
    exchange.step(first)
    assert "another exchange" in failure_text(exchange, client.final_message())


def test_scram_is_two_steps() -> None:
    client = RealClient("anna", "secret", SHA_256)
    exchange = start_exchange(SHA_256, users())
    finish_exchange(client, exchange)
    assert refuse_exchange(exchange, client.final_message()).code == Code.ILLEGAL_SASL_STATE


def test_scram_names_may_have_commas_and_equals_signs() -> None:
    who = users(**{"a,b=c=2C": "secret"})
    client = RealClient("a=2Cb=3Dc=3D2C", "secret", SHA_256)
    assert finish_exchange(client, start_exchange(SHA_256, who)).user == "a,b=c=2C"


def test_scram_skips_extensions_it_does_not_know() -> None:
    step = start_exchange(SHA_256, users()).step(b"n,,n=anna,r=abc,future=yes")
    assert step.data.startswith(b"r=abcservernonce,")


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"y,,n=anna,r=abc", "channel binding"),
        (b"p=tls-unique,,n=anna,r=abc", "channel binding"),
        (b"n,a=bert,n=anna,r=abc", "act for another"),
        (b"n,,n=anna,r=abc,tokenauth=true", "delegation tokens"),
        (b"n,,m=must,n=anna,r=abc", "not a valid first message"),
        (b"n,,n=anna", "not a valid first message"),
        (b"n,,n=,r=abc", "not a valid first message"),
        (b"n,,n=an=na,r=abc", "not a valid first message"),
        (b"n,,n=anna,r=", "not a valid first message"),
        (b"n,,n=anna,r=a b", "not a valid first message"),
        (b"n,,n=zo\xc3\xab,r=abc", "not a valid first message"),
        (b"n=anna,r=abc", "not a valid first message"),
        (b"\0anna\0secret", "not a valid first message"),
        (b"", "not a valid first message"),
        (b"\xff" * 100, "not a valid first message"),
    ],
)
def test_scram_refuses_a_first_message(sent: bytes, said: str) -> None:
    assert said in failure_text(start_exchange(SHA_256, users()), sent)


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"c=biws,r=abcservernonce,p=AAAA", "wrong user or password"),
        (b"c=biws,r=abcservernonce,p=", "wrong user or password"),
        (b"c=biws,r=abcservernonce,p=A", "broken base64"),
        (b"c=biw,r=abcservernonce,p=AAAA", "broken base64"),
        (b"c=eSws,r=abcservernonce,p=AAAA", "another header"),
        (b"c=biws,r=abc,p=AAAA", "another exchange"),
        (b"c=biws,r=abcservernonce", "not a valid final message"),
        (b"c=biws,r=abcservernonce,p=A*==", "not a valid final message"),
        (b"r=abcservernonce,p=AAAA", "not a valid final message"),
        (b"n,,n=anna,r=abc", "not a valid final message"),
        (b"", "not a valid final message"),
    ],
)
def test_scram_refuses_a_final_message(sent: bytes, said: str) -> None:
    exchange = start_exchange(SHA_256, users())
    exchange.step(b"n,,n=anna,r=abc")
    assert said in failure_text(exchange, sent)


# Around them


def test_another_mechanism_is_not_supported() -> None:
    for name in ("GSSAPI", "OAUTHBEARER", "scram-sha-256", "SCRAM-SHA-1", ""):
        with pytest.raises(Refused, match="PLAIN, SCRAM-SHA-256, SCRAM-SHA-512") as caught:
            start_exchange(name, users())
        assert caught.value.code == Code.UNSUPPORTED_SASL_MECHANISM


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("salt=AAAA", "without stored_key"),
        ("", "without salt"),
        ("salt=A,stored_key=AAAA,server_key=AAAA,iterations=4096", "cannot be read"),
        ("salt=AAAA,stored_key=AAAA,server_key=AAAA,iterations=many", "cannot be read"),
        ("salt=AAAA,stored_key=AAAA,server_key=AAAA,iterations=4096", "not one of SCRAM-SHA-256"),
    ],
)
def test_a_stored_credential_that_is_none_is_named(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        ScramCredential.parse(SHA_256, text)


def test_credentials_of_few_iterations_are_refused() -> None:
    with pytest.raises(InputError, match="4096 or more"):
        ScramCredential.from_password(SHA_256, "secret", b"salt", 1000)


@pytest.mark.parametrize("passwords", [{"": "x"}, {"x": ""}, {"a\0b": "x"}, {"x": "a\0b"}])
def test_users_need_a_name_and_a_password(passwords: dict[str, str]) -> None:
    with pytest.raises(InputError, match="a name and a password"):
        Users(passwords, lambda: bytes(16))


def test_secrets_are_not_shown() -> None:
    credential = ScramCredential.from_password(SHA_256, "secret", b"salt")
    assert repr(credential) == "ScramCredential(iterations=4096)"
