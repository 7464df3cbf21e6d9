"""Topics that change under a stream: the same rows, offsets and failures from both sources."""

from __future__ import annotations

import pytest

from tests.system.spark.beside.case import EARLIEST, LOSE, at
from tests.system.spark.beside.shop import Shop
from tests.system.spark.beside.stage import Beside, Twins

LOST = "Some data may have been lost"


def begun(beside: Beside, topic: str, **more: str) -> Twins:
    """A stream that has read what was there."""
    twins = beside.twins({"subscribe": topic, **EARLIEST, **more})
    assert twins.run().count == 10
    return twins


def begun_twice(beside: Beside, topic: str) -> tuple[Twins, Twins]:
    """The same that fails when data is lost, and one that goes on."""
    strict = begun(beside, topic)
    return strict, lenient(strict)


def lenient(twins: Twins) -> Twins:
    """A stream from the same place on that goes on when data is lost."""
    return twins.copy({**twins.options, **LOSE})


def fails(twins: Twins, own: str, rota: str) -> None:
    """Both sources do, and say so."""
    first, second = twins.both()
    assert own in (first.refused or "no failure")
    assert rota in (second.refused or "no failure")


def test_more_records(shop: Shop, beside: Beside) -> None:
    shop.fill(shop.create("more"), 10)
    twins = begun(beside, "more")
    shop.fill("more", 5)
    assert twins.run().values == [str(number) for number in range(5)]
    assert twins.run().count == 0


def test_each_goes_on_with_the_others_checkpoint(shop: Shop, beside: Beside) -> None:
    shop.fill(shop.create("changed", 2), 10)
    twins = begun(beside, "changed", maxOffsetsPerTrigger="4")
    twins.swap()
    shop.fill("changed", 6)
    shop.fill("changed", 3, partition=1)
    seen = twins.run()
    assert seen.places == [
        *(("changed", 0, offset) for offset in range(10, 16)),
        *(("changed", 1, offset) for offset in range(3)),
    ]
    assert seen.last == at("changed", 16, 3)
    twins.swap()
    shop.fill("changed", 1, partition=1)
    assert twins.run().places == [("changed", 1, 3)]


def test_a_batch_that_did_not_end_is_read_again_by_the_other(shop: Shop, beside: Beside) -> None:
    shop.fill(shop.create("cut"), 10)
    twins = begun(beside, "cut")
    shop.fill("cut", 5)
    for place in twins.places:
        for name in ("0", ".0.crc"):
            (place / "commits" / name).unlink()
    twins.swap()
    seen = twins.run()
    assert list(map(len, seen.rows)) == [10, 5]
    assert seen.offsets == {0: at("cut", 10), 1: at("cut", 15)}


def test_a_new_partition_is_read_from_its_beginning(shop: Shop, beside: Beside) -> None:
    shop.fill(shop.create("grown"), 10)
    twins = begun(beside, "grown")
    shop.grow("grown", 2)
    shop.fill("grown", 3, partition=1)
    shop.fill("grown", 1)
    seen = twins.run()
    assert seen.places == [("grown", 0, 10), *(("grown", 1, offset) for offset in range(3))]
    assert seen.last == at("grown", 11, 3)


def test_a_new_partition_is_limited_like_others(shop: Shop, beside: Beside) -> None:
    shop.fill(shop.create("swollen"), 10)
    twins = begun(beside, "swollen", maxOffsetsPerTrigger="100")
    shop.grow("swollen", 2)
    shop.fill("swollen", 150, partition=1)
    shop.fill("swollen", 50)
    assert list(map(len, twins.run().rows)) == [100, 100]


def test_a_new_partition_that_does_not_begin_at_0(shop: Shop, beside: Beside) -> None:
    shop.fill(shop.create("clipped"), 10)
    strict, loose = begun_twice(beside, "clipped")
    shop.grow("clipped", 2)
    shop.fill("clipped", 5, partition=1)
    shop.expire("clipped", 2, partition=1)
    fails(strict, LOST, "clipped-1")
    assert loose.run().places == [("clipped", 1, offset) for offset in (2, 3, 4)]


def test_retention_overtakes(shop: Shop, beside: Beside) -> None:
    shop.fill(shop.create("overtaken"), 10)
    strict, loose = begun_twice(beside, "overtaken")
    shop.fill("overtaken", 10)
    shop.expire("overtaken", 14)
    fails(strict, "OffsetOutOfRange", "overtaken-0")
    assert loose.run().places == [("overtaken", 0, offset) for offset in range(14, 20)]


def test_retention_takes_all(shop: Shop, beside: Beside) -> None:
    shop.fill(shop.create("emptied"), 10)
    strict, loose = begun_twice(beside, "emptied")
    shop.fill("emptied", 10)
    shop.expire("emptied", 20)
    fails(strict, "OffsetOutOfRange", "emptied-0")
    seen = loose.run()
    assert (seen.count, seen.last) == (0, at("emptied", 20))


def test_made_again_with_fewer(shop: Shop, beside: Beside) -> None:
    shop.fill(shop.create("renewed"), 10)
    strict, loose = begun_twice(beside, "renewed")
    shop.delete("renewed")
    shop.fill(shop.create("renewed"), 4)
    fails(strict, "offset was changed from 10 to 4", "renewed-0")
    seen = loose.run()
    assert (seen.count, seen.last) == (0, at("renewed", 4))
    shop.fill("renewed", 2)
    assert loose.run().places == [("renewed", 0, 4), ("renewed", 0, 5)]


def test_made_again_with_fewer_partitions(shop: Shop, beside: Beside) -> None:
    shop.fill(shop.create("shrunk", 2), 10)
    strict, loose = begun_twice(beside, "shrunk")
    shop.delete("shrunk")
    shop.fill(shop.create("shrunk"), 12)
    fails(strict, "have been deleted", "shrunk-1")
    assert loose.run().places == [("shrunk", 0, 10), ("shrunk", 0, 11)]


@pytest.mark.parametrize("lose", [False, True])
def test_gone(shop: Shop, beside: Beside, *, lose: bool) -> None:
    topic = f"gone-{lose}".lower()
    shop.fill(shop.create(topic), 10)
    twins = begun(beside, topic, **(LOSE if lose else {}))
    shop.delete(topic)
    fails(twins, "UnknownTopicOrPartition", topic)


def test_topics_come_and_go_by_pattern(shop: Shop, beside: Beside) -> None:
    shop.fill(shop.create("leaf-1"), 10)
    strict = beside.twins({"subscribePattern": "^leaf-", **EARLIEST})
    strict.run()
    shop.fill(shop.create("leaf-2"), 2)
    assert strict.run().places == [("leaf-2", 0, 0), ("leaf-2", 0, 1)]
    loose = lenient(strict)
    shop.delete("leaf-1")
    shop.fill("leaf-2", 1)
    fails(strict, "have been deleted", "leaf-1-0")
    seen = loose.run()
    assert (seen.places, seen.last) == ([("leaf-2", 0, 2)], at("leaf-2", 3))


def test_while_it_runs(shop: Shop, beside: Beside) -> None:
    shop.fill(shop.create("live"), 10)
    twins = beside.twins({"subscribe": "live", **EARLIEST})
    with twins.running() as drained:
        assert drained() == [("live", 0, offset) for offset in range(10)]
        shop.fill("live", 2)
        assert drained()[10:] == [("live", 0, 10), ("live", 0, 11)]
        shop.grow("live", 2)
        shop.fill("live", 3, partition=1)
        assert drained()[12:] == [("live", 1, offset) for offset in range(3)]
