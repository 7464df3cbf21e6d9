"""What is written to topics, and what members have read of it."""

from __future__ import annotations

from rota.engine.model.topic import TopicPartition
from rota.engine.simulator.process import HOUR, HOURS_PER_DAY, Traffic, TrafficReader

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_without_anything_said_every_partition_gets_a_record_a_second() -> None:
    traffic = Traffic()
    assert [traffic.end_offset(T0, now) for now in (0, 999, 1_000, 90_500)] == [0, 0, 1, 90]


def test_busy_hours_have_more_records() -> None:
    hours = (0, 200) + (100,) * (HOURS_PER_DAY - 2)
    traffic = Traffic({"t": 1_000}, hours=hours)
    ends = [traffic.end_offset(T0, hour * HOUR // 2) for hour in range(8)]
    assert ends == [0, 0, 0, 1_000, 2_000, 2_500, 3_000, 3_500]
    assert traffic.end_offset(T0, 25 * HOUR) == traffic.end_offset(T0, 24 * HOUR) == 24_000


def test_what_was_written_a_week_ago_is_gone() -> None:
    traffic = Traffic({"t": 10}, since=-10 * 24 * HOUR)
    assert traffic.end_offset(T0, 0) == 2_400
    assert traffic.beginning_offset(T0, 0) == 720


def test_partitions_that_come_later_begin_at_nothing() -> None:
    traffic = Traffic({"t": 60}, created={T1: HOUR})
    assert [traffic.end_offset(T1, now) for now in (0, HOUR, 2 * HOUR)] == [0, 0, 60]


def test_a_member_reads_from_where_the_group_has_got_to_and_catches_up_at_its_rate() -> None:
    reader = TrafficReader(Traffic(), 4, {T0: 10}.get)  # two a second in each of two partitions
    reader.set_partitions((T0, T1), 100_000)
    reader.skip_to(100_000)
    found = []
    for now in (110_000, 130_000, 200_000):
        reader.advance(now)
        found.append([position.offset for position in reader.positions().values()])
    # the other partition, of which nothing is committed, is read from its end
    assert found == [[30, 110], [70, 130], [200, 200]]


def test_while_it_rests_it_falls_behind() -> None:
    reader = TrafficReader(Traffic(), 2, lambda _: None)
    reader.set_partitions((T0,), 0)
    reader.advance(60_000)
    reader.skip_to(120_000)
    reader.advance(130_000)
    assert reader.positions()[T0].offset == 60 + 20
