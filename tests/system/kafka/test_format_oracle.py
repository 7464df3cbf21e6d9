"""Byte formats against Kafka's own classes: equal bytes, and each reads what the other wrote."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from rota.engine.formats import consumer_protocol
from rota.engine.formats.consumer_protocol import FEW_MEMBERS
from rota.engine.formats.hashing import hash_map_order
from rota.engine.model.member import Assignment, Subscription
from rota.engine.model.topic import Partitions
from rota.errors import FormatError
from tests.system.kafka import oracle

CASES = 2_000
ALPHABETS = ("abcdefgh._-09", "äöüßéñ", "漢字かな", "😀🚀𝒳ﬀ\uffee", "\x00\x7f ")


def ask(lines: Sequence[str]) -> list[str]:
    return oracle.ask("FormatOracle", lines)


def encode_text(value: str | bytes | None) -> str:
    if value is None:
        return "-"
    return "x" + (value.encode() if isinstance(value, str) else value).hex()


def join_list(values: Iterable[str]) -> str:
    return ",".join(values) or "-"


def partition_list(partitions: Partitions) -> str:
    return join_list(f"{encode_text(topic)}:{number}" for topic, number in partitions)


def random_name(rng: random.Random) -> str:
    if rng.random() < 0.2:  # names whose hashes collide: Aa and BB hash alike
        return "".join(rng.choice(("Aa", "BB")) for _ in range(rng.randint(1, 2)))
    alphabet = rng.choice(ALPHABETS) + ALPHABETS[0]
    return "".join(rng.choice(alphabet) for _ in range(rng.randint(0, 12)))


def random_names(rng: random.Random) -> list[str]:
    return [random_name(rng) for _ in range(rng.choice((0, 1, 2, 5, 12, 13, 14, 24, 25, 26, 100)))]


def random_partitions(rng: random.Random) -> Partitions:
    rows = [
        (topic, rng.choice((0, 1, 2, 300, 2**31 - 1)))
        for topic in random_names(rng)
        for _ in range(rng.choice((1, 1, 2, 5)))
    ]
    if rng.random() < 0.5:
        rng.shuffle(rows)
    return Partitions.of(rows)


def random_bytes(rng: random.Random) -> bytes | None:
    return rng.choice((None, b"", rng.randbytes(rng.randint(1, 40))))


def random_subscriptions() -> list[tuple[int, Subscription]]:
    rng = random.Random(1)
    return [
        (
            rng.choice((0, 1, 2, 3, 3, 9)),
            Subscription(
                topics=tuple(random_names(rng)),
                user_data=random_bytes(rng),
                owned=random_partitions(rng),
                generation=rng.choice((None, 0, 5, 2**31 - 1)),
                rack=rng.choice((None, "", random_name(rng))),
            ),
        )
        for _ in range(CASES)
    ]


def subscription_fields(value: Subscription) -> str:
    generation = -1 if value.generation is None else value.generation
    topics = ",".join(map(encode_text, value.topics))
    rack, user_data = encode_text(value.rack), encode_text(value.user_data)
    return f"{generation} {rack} {user_data} {topics} {partition_list(value.owned)}"


def test_subscriptions_have_javas_bytes() -> None:
    cases = random_subscriptions()
    questions = [
        f"write-subscription {version} {-1 if s.generation is None else s.generation} "
        f"{encode_text(s.rack)} {encode_text(s.user_data)} "
        f"{join_list(map(encode_text, s.topics))} {partition_list(s.owned)}"
        for version, s in cases
    ]
    for number, ((version, case), answer) in enumerate(zip(cases, ask(questions), strict=True)):
        assert encode_text(consumer_protocol.encode_subscription(case, version)) == answer, (
            f"case {number} of seed 1"
        )


def test_subscriptions_are_read_as_java_reads_them() -> None:
    written = [
        consumer_protocol.encode_subscription(case, version)
        for version, case in random_subscriptions()
    ]
    answers = ask([f"read-subscription {encode_text(data)}" for data in written])
    for number, (data, answer) in enumerate(zip(written, answers, strict=True)):
        assert subscription_fields(consumer_protocol.decode_subscription(data)) == answer, (
            f"case {number} of seed 1"
        )


def test_assignments_have_javas_bytes_and_are_read_alike() -> None:
    rng = random.Random(2)
    cases = [
        (rng.choice((0, 1, 2, 3, 7)), Assignment(random_partitions(rng), random_bytes(rng)))
        for _ in range(CASES)
    ]
    written = [consumer_protocol.encode_assignment(case, version) for version, case in cases]
    wrote = ask(
        [
            f"write-assignment {version} {encode_text(case.user_data)} "
            f"{partition_list(case.partitions)}"
            for version, case in cases
        ]
    )
    read = ask([f"read-assignment {encode_text(data)}" for data in written])
    for number, data in enumerate(written):
        assert encode_text(data) == wrote[number], f"case {number} of seed 2"
        ours = consumer_protocol.decode_assignment(data)
        assert f"{encode_text(ours.user_data)} {partition_list(ours.partitions)}" == read[number]


def test_sticky_user_data_has_javas_bytes_and_is_read_alike() -> None:
    rng = random.Random(3)
    cases = [(rng.choice((-1, 0, 7, 2**31 - 1)), random_partitions(rng)) for _ in range(CASES)]
    written = [
        consumer_protocol.encode_sticky_user_data(owned, generation) for generation, owned in cases
    ]
    wrote = ask(
        [f"write-sticky {generation} {partition_list(owned)}" for generation, owned in cases]
    )
    # a version 0 is a version 1 without its generation
    inputs = [data[:-4] if number % 3 == 0 else data for number, data in enumerate(written)]
    read = ask([f"read-sticky {encode_text(data)}" for data in inputs])
    for number, data in enumerate(written):
        assert encode_text(data) == wrote[number], f"case {number} of seed 3"
        ours = consumer_protocol.decode_sticky_user_data(inputs[number])
        assert ours.note is None
        assert f"{ours.generation} {partition_list(ours.partitions)}" == read[number]


def test_sticky_user_data_with_a_tail_or_cut_is_read_as_java_reads_it() -> None:
    rng = random.Random(7)
    inputs = []
    for _ in range(CASES):
        data = consumer_protocol.encode_sticky_user_data(
            random_partitions(rng), rng.choice((-1, 0, 7, 2**31 - 1))
        )
        version0 = data[:-4]
        inputs.append(
            rng.choice((data, version0, version0[:-1]))
            + rng.randbytes(rng.choice((0, 1, 3, 9, 40)))
        )
    inputs += [rng.randbytes(rng.randint(1, 40)) for _ in range(CASES)]
    inputs += [bytes(rng.randint(1, 8)) + rng.randbytes(rng.randint(0, 9)) for _ in range(CASES)]
    read = ask([f"read-sticky {encode_text(data)}" for data in inputs])
    tails = 0
    for number, (data, answer) in enumerate(zip(inputs, read, strict=True)):
        ours = consumer_protocol.decode_sticky_user_data(data)
        assert (
            consumer_protocol.decode_all_sticky_user_data([data] * FEW_MEMBERS)
            == [ours] * FEW_MEMBERS
        )
        if ours.note is None or "not UTF-8" not in ours.note:  # there Java puts other characters
            same = f"{ours.generation} {partition_list(ours.partitions)}"
            assert same == answer, f"case {number} of seed 7"
            tails += ours.note is None
    assert tails > CASES // 2


def test_cooperative_user_data_has_javas_bytes_and_is_read_alike() -> None:
    generations = [-1, 0, 1, 2**31 - 1, *random.Random(4).sample(range(2**31), 50)]
    written = [
        consumer_protocol.encode_cooperative_user_data(generation) for generation in generations
    ]
    assert [encode_text(data) for data in written] == ask(
        [f"write-cooperative {g}" for g in generations]
    )
    inputs = [*written, b"", b"\0\0\1", *(data + b"\0new" for data in written)]
    answers = ask([f"read-cooperative {encode_text(data)}" for data in inputs])
    for data, answer in zip(inputs, answers, strict=True):
        assert f"{consumer_protocol.decode_cooperative_user_data(data)[0]} -" == answer


def test_hash_map_order_is_javas() -> None:
    rng = random.Random(5)
    cases = [
        list(dict.fromkeys(random_names(rng) + random_names(rng))) or ["only"] for _ in range(500)
    ]
    # a bucket past eight keys makes a small table grow early; in a large one it becomes a tree,
    # whose order is not followed: names that crowd so do not happen by chance
    crowd = [f"{a}{b}{c}" for a in ("Aa", "BB") for b in ("Aa", "BB") for c in ("Aa", "BB")]
    cases += [crowd, [*crowd, "CcCcCc", "x", "y"]]
    answers = ask([f"map-order {join_list(map(encode_text, case))}" for case in cases])
    for number, (case, answer) in enumerate(zip(cases, answers, strict=True)):
        assert ",".join(map(str, hash_map_order(case))) == answer, f"case {number} of seed 5"


def test_what_java_refuses_is_refused() -> None:
    rng = random.Random(6)
    damaged = []
    for version, case in random_subscriptions():
        draft = bytearray(consumer_protocol.encode_subscription(case, version))
        for _ in range(rng.randint(1, 3)):
            draft[rng.randrange(len(draft))] = rng.choice((0, 1, 127, 255, rng.randrange(256)))
        damaged.append(bytes(draft[: rng.randint(0, len(draft))] if rng.random() < 0.3 else draft))
    answers = ask([f"read-subscription {encode_text(data)}" for data in damaged])
    refused = 0
    for number, (data, answer) in enumerate(zip(damaged, answers, strict=True)):
        expected = "error" if answer.startswith("error") else answer
        try:
            ours = subscription_fields(consumer_protocol.decode_subscription(data))
        except FormatError as error:
            # bytes that are not UTF-8 Java reads as replacement characters; here they are refused
            ours = expected if "not UTF-8" in str(error) else "error"
            refused += 1
        assert ours == expected, f"case {number} of seed 6"
    assert refused > CASES // 10
