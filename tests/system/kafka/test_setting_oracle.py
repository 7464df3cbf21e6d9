"""Settings against Kafka's own ConsumerConfig: names, types, defaults, bounds, and how texts are
read: values, ``.properties`` files, JAAS lines, durations.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence

import pytest

from rota.client import config
from rota.client.config import parse_properties, read_settings
from rota.client.config_keys import CONSUMER_KEYS, REQUIRED
from rota.engine.history import client_settings
from rota.engine.history.client_settings import CLIENT_LIBRARIES
from rota.engine.model import duration
from rota.engine.model.config import MAX_INT, MAX_LONG, ConfigKey, ConfigType, KeySupport
from rota.errors import InputError
from tests.system.kafka import oracle

CASES = 3_000

HIGHEST = {ConfigType.INT: MAX_INT, ConfigType.LONG: MAX_LONG}

#: Keys that ConsumerConfig does not have.
BEYOND = {
    "assign.budget.ms": "Rota's own",
    "deserializer.encoding": "read by Kafka's StringDeserializer, not by the consumer",
    "key.deserializer.encoding": "read by Kafka's StringDeserializer, not by the consumer",
    "value.deserializer.encoding": "read by Kafka's StringDeserializer, not by the consumer",
}

#: Keys with Kafka's default, ours, and why.
OTHER_DEFAULT = {
    "receive.buffer.bytes": ("65536", "-1", "Linux grows the buffer with need, up to megabytes"),
    "max.partition.fetch.bytes": (
        "1048576",
        "4194304",
        "a request costs Python more than Java: with 1 MiB a consumer of one partition is half as "
        "fast",
    ),
    "key.deserializer": (REQUIRED, "bytes", "bytes are what there is without a deserializer"),
    "value.deserializer": (REQUIRED, "bytes", "bytes are what there is without a deserializer"),
    "partition.assignment.strategy": (
        "class org.apache.kafka.clients.consumer.RangeAssignor,"
        "class org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
        "range,cooperative-sticky",
        "the same strategies by their names",
    ),
}

NEGATIVE = "a negative time has no meaning"
#: Numbers that Kafka gives no lower bound.
OTHER_LEAST: Mapping[str, tuple[int, str]] = {
    "session.timeout.ms": (1, NEGATIVE),
    "heartbeat.interval.ms": (1, NEGATIVE),
    "socket.connection.setup.timeout.ms": (0, NEGATIVE),
    "socket.connection.setup.timeout.max.ms": (0, NEGATIVE),
    "connections.max.idle.ms": (-1, "-1 is never, as Kafka's selector has it; less means nothing"),
}

#: What Kafka has and Rota refuses.
FEWER_CHOICES: Mapping[str, tuple[str, ...]] = {
    "client.dns.lookup": ("resolve_canonical_bootstrap_servers_only",),
    "group.protocol": ("CONSUMER",),
}

#: Texts that Kafka checks only when a connection is made.
OWN_CHOICES = {"ssl.endpoint.identification.algorithm": "Java's engine refuses others later on"}

#: Where the table alone does not check what Kafka's validator does.
ELSEWHERE = {
    "auto.offset.reset": "its durations are compared below",
    "group.instance.id": "empty is refused by MemberConfig",
}


def ask(lines: Sequence[str]) -> list[str]:
    return oracle.ask("SettingOracle", lines)


def encode_hex(text: str) -> str:
    return "x" + text.encode().hex()


def decode_text(word: str) -> str | None:
    return None if word == "-" else bytes.fromhex(word[1:]).decode()


def encode_pairs(word: str) -> dict[str, str]:
    if word == "-":
        return {}
    pairs = (part.split("=") for part in word.split(","))
    return {decode_text(key) or "": decode_text(value) or "" for key, value in pairs}


def kafka_text(value: object) -> str | None:
    """As Kafka writes it."""
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case tuple():
            return ",".join(map(str, value))
        case _:
            return str(value)


@pytest.fixture(scope="module")
def kafka_answers() -> dict[str, tuple[str, str | None, str]]:
    """Type, default and validator by key."""
    found = {}
    for each in ask(["keys"])[0].split():
        name, kind, default, validator = each.split(",")
        found[name] = (
            kind,
            REQUIRED if default == "!" else decode_text(default),
            decode_text(validator) or "",
        )
    return found


Theirs = dict[str, tuple[str, str | None, str]]


def test_every_key_is_there_and_no_other(kafka_answers: Theirs) -> None:
    assert set(CONSUMER_KEYS) - set(BEYOND) == set(kafka_answers)
    assert {key: CONSUMER_KEYS[key].type.name for key in kafka_answers} == {
        key: kind for key, (kind, _, _) in kafka_answers.items()
    }


def test_defaults_are_kafkas_but_for_those_that_are_said(kafka_answers: Theirs) -> None:
    differing = {
        key: (default, kafka_text(CONSUMER_KEYS[key].default))
        for key, (_, default, _) in kafka_answers.items()
        if kafka_text(CONSUMER_KEYS[key].default) != default
    }
    assert differing == {key: (kafka, ours) for key, (kafka, ours, _) in OTHER_DEFAULT.items()}


def test_bounds_and_choices_are_kafkas_but_for_those_that_are_said(kafka_answers: Theirs) -> None:
    for name, (_, _, validator) in kafka_answers.items():
        key = CONSUMER_KEYS[name]
        if name in ELSEWHERE or (key.support is KeySupport.REFUSED and "[" in validator):
            continue
        if bounds := re.fullmatch(r"\[([-\d.]+),\.\.\.,?([-\d.]*)\]", validator):
            assert key.minimum == float(bounds[1]), name
            assert key.bounds[1] == (float(bounds[2]) if bounds[2] else HIGHEST[key.type]), name
        elif key.type in {ConfigType.INT, ConfigType.LONG, ConfigType.SHORT, ConfigType.DOUBLE}:
            least, _ = OTHER_LEAST.get(name, (None, ""))
            assert key.minimum == least, name
        elif choices := re.fullmatch(r"(\(case insensitive\) )?\[(.*)\]", validator):
            assert key.ignores_case == bool(choices[1]), name
            folded = str.lower if key.ignores_case else str
            missing = set(map(folded, FEWER_CHOICES.get(name, ())))
            assert set(map(folded, choices[2].split(", "))) - missing == set(
                map(folded, key.choices)
            ), name
        else:
            assert not key.choices or name in OWN_CHOICES, name


def sample_values(key: ConfigKey, rng: random.Random) -> list[str]:
    some = ["", " ", "0", "1", "-1", "+7", " 42\t", "007", "1e3", "1.5", "0x10", "1_000", "NaN"]
    some += ["true", "FALSE", " True ", "yes", "latest", "a,b", "a, b ,c", "a,,b", "a,a", ",", "x"]
    some += [str(2**31), str(2**31 - 1), str(-(2**31)), str(2**63), str(2**63 - 1), "٣", "100000"]
    some += [choice for word in key.choices for choice in (word, word.upper(), word.title())]
    some += [str(rng.randrange(-(2**33), 2**33)) for _ in range(5)]
    if (
        key.type is ConfigType.DOUBLE
    ):  # Java has letters for its types, and its own words for infinity
        some = [each for each in some if each.strip().lower() != "nan"]
    return some


def test_a_text_is_read_as_kafka_reads_it() -> None:
    rng = random.Random(7)
    compared = (
        key
        for name, key in CONSUMER_KEYS.items()
        if name not in {*BEYOND, *ELSEWHERE, *OTHER_LEAST, *FEWER_CHOICES, *OWN_CHOICES}
        and key.type is not ConfigType.CLASS
        and key.support is not KeySupport.REFUSED
    )
    cases = [(key, each) for key in compared for each in sample_values(key, rng)]
    assert len(cases) > CASES
    answers = ask([f"parse {key.name} {encode_hex(given)}" for key, given in cases])
    for (key, given), answer in zip(cases, answers, strict=True):
        try:
            value = kafka_text(key.parse(given))
        except InputError:
            value = "error"
        expected = "error" if answer.startswith("error") else decode_text(answer)
        if key.name == "bootstrap.servers" and given.strip() == "":
            continue  # refused where addresses are read
        if key.ignores_case and expected != "error":
            assert value is not None
            assert expected is not None
            assert value.lower() == expected.lower(), (key.name, given)
        elif key.type is ConfigType.DOUBLE and "error" not in {value, expected}:
            assert float(value or "") == float(expected or ""), (key.name, given)
        else:
            assert value == expected, (key.name, given)


def test_what_follows_from_other_settings_is_what_kafka_makes_of_them() -> None:
    where = {"bootstrap.servers": "localhost:9092"}
    cases: list[tuple[str, dict[str, str], str]] = [
        ("enable.auto.commit", {}, "false"),
        ("enable.auto.commit", {"group.id": "g"}, "true"),
        ("enable.auto.commit", {"enable.auto.commit": "true"}, "error"),
        ("client.id", {"group.id": "g", "group.instance.id": "i"}, "consumer-g-i"),
        ("client.id", {"client.id": "me"}, "me"),
        ("client.id", {"group.instance.id": "i"}, "consumer-null-i"),
        ("client.id", {"group.id": "g", "group.instance.id": "a b"}, "error"),
        ("reconnect.backoff.max.ms", {"reconnect.backoff.ms": "7"}, "7"),
        ("sasl.mechanism", {"security.protocol": "SASL_SSL", "sasl.mechanism": ""}, "error"),
        ("group.protocol", {"group.remote.assignor": "uniform"}, "error"),
        ("group.protocol", {"share.acquire.mode": "record_limit"}, "error"),
        ("group.protocol", {"group.remote.assignor": " "}, "classic"),
    ]
    lines = []
    for asked, given, _ in cases:
        pairs = ",".join(f"{encode_hex(k)}={encode_hex(v)}" for k, v in (where | given).items())
        lines.append(f"config {asked} {pairs}")
    for (asked, given, expected), answer in zip(cases, ask(lines), strict=True):
        theirs = "error" if answer.startswith("error") else decode_text(answer)
        assert theirs == expected, (asked, given)
        if expected == "error":
            with pytest.raises(InputError):
                read_settings(where | given)
            continue
        found = read_settings(where | given)
        ours = {
            "enable.auto.commit": found.member is not None and found.member.auto_commit,
            "client.id": found.client.client_id,
            "reconnect.backoff.max.ms": found.client.reconnect_backoff_max,
            "group.protocol": "classic",
        }
        assert kafka_text(ours[asked]) == expected, (asked, given)


PIECES = [
    *("key", "a.b", "v", " ", "\t", "\f", "=", ":", "#", "!", "\\", "\\\\", "\n", "\r", "\r\n"),
    *("\\\n", "\\\r\n  ", "\\u0041", "\\u00e4", "\\t", "\\n", "\\:", "\\=", "\\ ", "\\#", "\\x"),
    *("\u00e4", '"', "'", ",", "\\u12", "\\ud83d\\ude00", "key=v", "k:w"),
]


HALF = re.compile(r"\\ude00(?<!\\ud83d\\ude00)|(?<=\\)\\ud83d|\\ud83d(?!\\ude00)")


def test_properties_files_are_read_as_java_reads_them() -> None:
    rng = random.Random(1)
    cases = ["".join(rng.choices(PIECES, k=rng.randint(0, 14))) for _ in range(CASES)]
    # Java makes an empty key of a text whose last line is a backslash.
    cases = [each for each in cases if not re.search(r"(^|[\r\n])[ \t\f]*\\\s*\Z", each)]
    answers = ask([f"properties x{each.encode('latin-1').hex()}" for each in cases])
    for given, answer in zip(cases, answers, strict=True):
        if answer.startswith("error"):
            with pytest.raises(InputError, match="hexadecimal"):
                parse_properties(given)
        elif HALF.search(given) is None:  # half of a pair, which Java writes as "?"
            assert parse_properties(given) == encode_pairs(answer), repr(given)


PLAIN = config.PLAIN_MODULE
WORDS = [
    *("username", "password", "=", "=", ";", ";", " ", " ", "\n", '"a b"', "'c'", '"d\\"e"', "a-b"),
    *('"\\101\\n\\q"', "word", "x_$1", "12", "-5", "!", '"', "'", "// note\n", "/* note */"),
    *("\u00e4", '"\u00e4\u20ac"', '""', '"\\777"', '"\\08"', "Required", "optional", "a.b.C"),
    *('"a;b=c"', '"\\\\"', "@", ",", PLAIN, "required"),
]


def test_jaas_lines_are_read_as_kafka_reads_them() -> None:
    """But a quote that is open at the end of its line is refused; Java closes it there."""
    rng = random.Random(2)
    cases = [
        "".join(rng.choices(WORDS, k=rng.randint(1, 12)))
        if rng.random() < 0.3
        else f"{PLAIN} required {' '.join(random_option(rng) for _ in range(rng.randint(0, 4)))};"
        for _ in range(CASES)
    ]
    accepted = 0
    for given, answer in zip(
        cases, ask([f"jaas {encode_hex(each)}" for each in cases]), strict=True
    ):
        found, problem = parse_line(given)
        if len(found) != 1:
            assert answer.startswith("error") or "quote is not closed" in problem, repr(given)
            continue
        accepted += 1
        module, _, more = answer.partition(" ")
        assert decode_text(module) == found[0][0], repr(given)
        assert encode_pairs(more) == found[0][1], repr(given)
    assert accepted > CASES / 10


def parse_line(line: str) -> tuple[list[tuple[str, dict[str, str]]], str]:
    try:
        return config.parse_jaas(line), ""
    except InputError as error:
        return [], str(error)


def random_option(rng: random.Random) -> str:
    return f"{rng.choice(WORDS)}{rng.choice(('=', ' = ', '=', ''))}{rng.choice(WORDS)}"


def test_durations_are_read_as_java_reads_them() -> None:
    rng = random.Random(3)
    pieces = ["P", "T", "1D", "2H", "30M", "5S", "0.5S", "1.S", ".5S", "-1H", "+3M", "-", "1"]
    pieces += ["t", "7d", "1,25s", "-0.001S", "0.0000001S", "0.1234567891S", "99999999999999D"]
    days = ["", "", "3D", "-1D", "+2d"]
    parts = [["", "1H", "-2H", "+3h"], ["", "90M", "-1m"], ["", "5S", "0.5S", "-0.001s", "1,25S"]]
    cases = [
        "P" * (rng.random() < 0.9) + "".join(rng.choices(pieces, k=rng.randint(0, 4)))
        if rng.random() < 0.5
        else "P" + rng.choice(days) + "T" + "".join(map(rng.choice, parts))
        for _ in range(CASES)
    ]
    cases = [each for each in cases if not each.endswith("t")]  # Java lets a lower-case t end it
    read_well = 0
    lines = [f"reset {encode_hex(f'by_duration:{each}')}" for each in cases]
    for given, answer in zip(cases, ask(lines), strict=True):
        if answer.startswith("error"):
            with pytest.raises(InputError):
                duration.parse_iso_duration(given, "auto.offset.reset")
        else:
            seconds, nanoseconds = map(int, answer.split())
            expected = -(-(seconds * 10**9 + nanoseconds) // 10**6)
            if expected > MAX_LONG:  # Java fails later, when it is taken from the time
                with pytest.raises(InputError, match="too long"):
                    duration.parse_iso_duration(given, "auto.offset.reset")
                continue
            assert duration.parse_iso_duration(given, "auto.offset.reset") == expected, given
            read_well += 1
    assert read_well > CASES / 10


def test_javas_consumer_takes_what_an_advice_sets_and_refuses_what_it_leaves_out() -> None:
    one = CLIENT_LIBRARIES[client_settings.JAVA]
    joined, left = (
        str(one.consumer_protocol_setting("range")),
        one.classic_protocol_setting("range", 600_000),
    )

    def asked(advised: str, **kept: str) -> str:
        lines = ("bootstrap.servers=127.0.0.1:1", *advised.splitlines())
        given = dict(line.split("=", 1) for line in lines)
        given |= {name.replace("_", "."): value for name, value in kept.items()}
        return "config group.protocol " + ",".join(
            f"{encode_hex(name)}={encode_hex(value)}" for name, value in given.items()
        )

    assert ask(
        [
            asked(joined),
            asked(joined, session_timeout_ms="600000"),
            asked(left),
            asked(left, group_remote_assignor="range"),
        ]
    ) == [
        encode_hex("consumer"),
        "error ConfigException",
        encode_hex("classic"),
        "error ConfigException",
    ]
