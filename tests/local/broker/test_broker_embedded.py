"""``rota.Broker``: its life, what it does from Python, faults on order, and virtual time."""

from __future__ import annotations

import contextlib
import gc
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka.partitioner.default import murmur2

import rota
from rota.broker.embedded import Broker
from rota.broker.events import NodeCommand, NodeEvent
from rota.broker.node import BrokerNode
from rota.engine.formats.consumer_protocol import encode_subscription as encoded_subscription
from rota.engine.formats.record_batch import BatchRecord, encode_batch
from rota.engine.model.member import Subscription
from rota.errors import Code, InputError, Refused, RotaError, TimedOut, Unreachable
from rota.protocol.messages import (
    Api,
    FetchRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    SyncGroupRequest,
)
from tests.support.raw_client import RawClient


@pytest.fixture
def broker() -> Iterator[Broker]:
    with rota.Broker() as one:
        yield one


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap_servers) as one:
        yield one


def request_metadata(client: RawClient) -> MetadataResponse:
    return client.ask(Api.METADATA, 9, MetadataRequest(topics=None))


# Life


def test_clients_are_served_as_soon_as_it_has_started(broker: Broker, client: RawClient) -> None:
    (node,) = request_metadata(client).brokers
    assert f"{node.host}:{node.port}" == broker.bootstrap_servers
    assert broker.running


def test_a_temporary_folder_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with rota.Broker() as broker:
        broker.produce("t", "x")
        assert list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())
    assert not broker.running


def test_one_that_does_not_stop_in_time_is_not_taken_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    broker = rota.Broker().start()
    running = broker._thread
    assert running is not None
    busy, done = threading.Event(), threading.Event()

    def hold() -> None:
        busy.set()
        done.wait(30)

    work = threading.Thread(target=lambda: running.call(hold), daemon=True)
    work.start()
    assert busy.wait(10)
    with monkeypatch.context() as patience:
        patience.setattr("rota.broker.embedded.STOP_TIMEOUT", 0.05)
        with pytest.raises(TimedOut, match="not stopped in 0.05 s: it is busy"):
            broker.stop()
    assert broker.running
    assert list(tmp_path.iterdir())
    with pytest.raises(RotaError, match="running already"):
        broker.start()
    done.set()
    broker.stop()
    work.join(10)
    assert not broker.running
    assert not list(tmp_path.iterdir())


def test_a_folder_is_kept_and_found_again(tmp_path: Path) -> None:
    for number in range(3):
        with rota.Broker(tmp_path) as broker:
            assert [record.offset for record in broker.produce("t", "x")] == [number]
            assert broker.data_dir == tmp_path
        assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_one_broker_starts_and_stops_many_times() -> None:
    broker = rota.Broker()
    for _ in range(3):
        broker.start()
        assert broker.topics == {}
        broker.stop()
        broker.stop()
    with pytest.raises(RotaError, match="does not run"):
        broker.create_topic("t")
    with broker, pytest.raises(RotaError, match="running already"):
        broker.start()


def test_two_brokers_do_not_share_a_folder(tmp_path: Path) -> None:
    with rota.Broker(tmp_path), pytest.raises(Unreachable, match="in use"):
        rota.Broker(tmp_path).start()
    with rota.Broker(tmp_path):
        pass


def test_a_port_of_ones_own_and_a_taken_one(tmp_path: Path) -> None:
    with rota.Broker() as broker:
        port = int(broker.bootstrap_servers.partition(":")[2])
        with pytest.raises(Unreachable, match=f"127.0.0.1:{port}: another process listens"):
            rota.Broker(tmp_path / "x", port).start()
    with rota.Broker(port=port) as broker:  # at once again
        assert broker.bootstrap_servers == f"127.0.0.1:{port}"


def test_what_cannot_be_is_said_before_anything_is_opened(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean num.partitions"):
        rota.Broker(config={"num.partition": 3})
    with pytest.raises(InputError, match="can be reached from other machines"):
        rota.Broker(host="0.0.0.0")
    with pytest.raises(InputError, match="'nowhere' is not HOST:PORT"):
        rota.Broker(advertise="nowhere")
    with pytest.raises(InputError, match="^there is no SASL mechanism 'GSSAPI'; known are PLAIN"):
        rota.Broker(users={"ann": "x"}, mechanisms=["GSSAPI"])
    with pytest.raises(InputError, match="data_dir is empty"):
        rota.Broker("")
    with pytest.raises(Unreachable, match=r"cert\.pem: No such file"):
        rota.Broker(tls=tmp_path / "cert.pem")
    (tmp_path / "mine.txt").write_text("not a log")
    with pytest.raises(InputError, match="does not belong to Rota, it has 'mine.txt'"):
        rota.Broker(tmp_path).start()


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"users": ["ann"]}, "users: .*is not a dict"),
        ({"users": {}}, "users is empty"),
        ({"users": {"ann": ""}}, "users: 'ann' and its password"),
        ({"users": {"ann": 5}}, "users: 'ann' and its password"),
        ({"mechanisms": ["PLAIN"]}, "mechanisms need users"),
        ({"users": {"ann": "x"}, "mechanisms": []}, "mechanisms is empty"),
        ({"users": {"ann": "x"}, "mechanisms": "PLAIN"}, "mechanisms: 'PLAIN' is not a list"),
        ({"port": 99_999}, "port 99999: a port is a number from 0 to 65535"),
        ({"port": "9092"}, "port '9092': a port is a number"),
        ({"tls": ()}, r"tls: \(\) is neither"),
        ({"tls": 5}, "tls: 5 is neither"),
        ({"tls": ("missing.pem",)}, "missing.pem: No such file"),
    ],
)
def test_a_wrong_argument_is_named(given: dict[str, Any], problem: str) -> None:
    with pytest.raises((InputError, Unreachable), match=problem):
        rota.Broker(**given)


def test_it_shows_where_it_is(tmp_path: Path) -> None:
    broker = rota.Broker(tmp_path)
    assert repr(broker) == f"<rota.Broker, not running, data_dir={str(tmp_path)!r}>"
    with broker:
        at = broker.bootstrap_servers
        assert repr(broker) == f"<rota.Broker at {at}, data_dir={str(tmp_path)!r}>"
    with rota.Broker() as other:
        assert other.data_dir is not None
        assert other.data_dir.is_dir()
        assert str(other.data_dir) in repr(other)
    assert other.data_dir is None


def test_a_broker_that_starts_again_has_its_port() -> None:
    broker = rota.Broker()
    with broker:
        before = broker.bootstrap_servers
    with broker:
        assert broker.bootstrap_servers == before


def test_a_restart_keeps_everything(broker: Broker, client: RawClient) -> None:
    broker.produce("t", "x", "y")
    member = join(client, "g")
    before, folder = broker.bootstrap_servers, broker.data_dir
    for _ in range(2):
        broker.restart()
        assert broker.bootstrap_servers == before
        assert broker.data_dir == folder
        assert [record.value for record in broker.read("t")] == [b"x", b"y"]
        with RawClient(before) as again:
            assert heartbeat(again, "g", member) == 0
    broker.stop()
    assert folder is not None
    assert not folder.exists()
    with pytest.raises(RotaError, match="does not run"):
        broker.restart()


def test_settings_without_effect_are_named(caplog: pytest.LogCaptureFixture) -> None:
    rota.Broker(config={"num.io.threads": 8, "zookeeper.connect": "x:1", "num.partitions": 2})
    (line,) = caplog.messages
    assert (
        line == "these settings of Kafka have no effect in Rota: num.io.threads, zookeeper.connect"
    )


def test_a_stop_that_was_not_clean_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for clean in (True, False):
        with rota.Broker(tmp_path) as broker:
            broker.produce("t", "x")
        if not clean:
            (tmp_path / ".kafka_cleanshutdown").unlink()
        with rota.Broker(tmp_path):
            pass
        assert ("was not closed cleanly" in caplog.text) != clean


def test_clients_are_told_another_address() -> None:
    with rota.Broker(config={"advertised.listeners": "PLAINTEXT://localhost:1234"}) as broker:
        assert broker.bootstrap_servers == "localhost:1234"


def test_settings_hold() -> None:
    with rota.Broker(config={"num.partitions": 3, "auto.create.topics.enable": True}) as broker:
        broker.produce("t", "x")
        assert broker.topics == {"t": 3}
    strict = rota.Broker(config={"auto.create.topics.enable": False})
    with strict, pytest.raises(Refused, match="there is no topic 't'"):
        strict.produce("t", "x")


# Topics and records


def test_records_go_in_and_come_out(broker: Broker) -> None:
    broker.create_topic("orders", partitions=2, config={"retention.ms": 1_000})
    assert broker.topics == {"orders": 2}
    (one,) = broker.produce(
        "orders", "first", key="k", headers={"h": "v", "none": None}, partition=1, timestamp=5
    )
    two, three = broker.produce("orders", b"second", None, partition=0)
    assert broker.read("orders") == [two, three, one]
    assert one == ("orders", 1, 0, 5, b"k", b"first", (("h", b"v"), ("none", None)))
    assert (two.offset, three.offset) == (0, 1)
    assert three.value is None
    assert broker.read("orders", partition=0, offset=1) == [three]
    assert broker.read("orders", partition=1, offset=1) == []


def test_topics_come_grow_and_go(broker: Broker) -> None:
    broker.create_topic("t")
    broker.create_partitions("t", 3)
    assert broker.topics == {"t": 3}
    broker.delete_topic("t")
    assert broker.topics == {}
    with pytest.raises(Refused, match="there is no topic 't'"):
        broker.delete_topic("t")
    with pytest.raises(Refused, match="there is no topic 't'"):
        broker.create_partitions("t", 5)
    with pytest.raises(InputError, match="partitions: '2' is not a whole number"):
        broker.create_topic("t", "2")  # type: ignore[arg-type]


def test_a_topic_has_as_many_partitions_as_is_set() -> None:
    with rota.Broker(config={"num.partitions": 3}) as broker:
        broker.create_topic("t")
        broker.create_topic("u", 1, {"retention.ms": 5, "preallocate": False})
        assert broker.topics == {"t": 3, "u": 1}


def test_more_records_than_a_batch_has_room_for(broker: Broker) -> None:
    broker.create_topic("t", config={"max.message.bytes": 1_000})
    values = ["x" * size for size in (1, 800, 800, 10, 10, 1)] + [None]
    produced = broker.produce("t", *values, key="k", headers={"h": "v"})
    assert [record.offset for record in produced] == list(range(7))
    assert broker.read("t") == produced
    with pytest.raises(Refused, match=r"max\.message\.bytes"):
        broker.produce("t", "x" * 1_000)


def test_records_with_a_key_go_where_a_producer_puts_them(broker: Broker) -> None:
    broker.create_topic("t", 10)
    for key in (b"a", b"b", b"longer", b""):
        (record,) = broker.produce("t", "x", key=key)
        hashed = murmur2(key)  # type: ignore[no-untyped-call]
        assert record.partition == (hashed & 0x7FFFFFFF) % 10


def test_records_are_awaited(broker: Broker) -> None:
    later = threading.Timer(0.05, lambda: broker.produce("t", "1", "2", "3"))
    later.start()
    assert [record.value for record in broker.wait_for_records("t", count=2)] == [b"1", b"2"]
    later.join()
    with pytest.raises(TimedOut, match="'t' has 3 records after 0.01 s, 4 were expected"):
        broker.wait_for_records("t", count=4, timeout=0.01)
    with pytest.raises(TimedOut, match="'u' has 0 records"):
        broker.wait_for_records("u", count=1, timeout=0)


def test_many_records_over_many_batches(broker: Broker) -> None:
    for number in range(50):
        broker.produce("t", *(f"{number}-{each}" for each in range(100)))
    records = broker.read("t")
    assert [record.offset for record in records] == list(range(5_000))
    assert records[4_999].value == b"49-99"
    assert len(broker.read("t", offset=4_990)) == 10
    assert broker.produce("t") == []


def test_what_is_not_there_is_said(broker: Broker) -> None:
    broker.create_topic("t", 2)
    with pytest.raises(Refused, match="there is a topic 't'"):
        broker.create_topic("t")
    with pytest.raises(Refused, match="there is no topic 'u'"):
        broker.read("u")
    with pytest.raises(InputError, match="partition 2: topic 't' has 2"):
        broker.read("t", partition=2)
    with pytest.raises(InputError, match="value 5 is neither bytes nor text"):
        broker.produce("t", 5)  # type: ignore[arg-type]
    with pytest.raises(Refused, match=r"'retention.mss'.*did you mean retention.ms"):
        broker.create_topic("v", config={"retention.mss": 5})


# Groups


def join(client: RawClient, group: str, *, group_instance_id: str | None = None) -> tuple[str, int]:
    """A member alone in its group, with its assignment; its id and generation."""
    client.ask(Api.FIND_COORDINATOR, 2, FindCoordinatorRequest(key=group, key_type=0))
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(
        name="range", metadata=encoded_subscription(Subscription(topics=("t",)))
    )

    def ask(member_id: str) -> JoinGroupResponse:
        return client.ask(
            Api.JOIN_GROUP,
            5,
            JoinGroupRequest(
                group_id=group,
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                member_id=member_id,
                group_instance_id=group_instance_id,
                protocol_type="consumer",
                protocols=[protocol],
            ),
        )

    joined = ask("")
    if joined.error_code == Code.MEMBER_ID_REQUIRED:
        joined = ask(joined.member_id)
    assert joined.error_code == 0
    synced = client.ask(
        Api.SYNC_GROUP,
        3,
        SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=group_instance_id,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(
                    member_id=joined.member_id,
                    assignment=bytes.fromhex("0001 00000001 0001 74 00000001 00000000 ffffffff"),
                )
            ],
        ),
    )
    assert synced.error_code == 0
    return joined.member_id, joined.generation_id


def heartbeat(client: RawClient, group: str, member: tuple[str, int]) -> int:
    request = HeartbeatRequest(group_id=group, member_id=member[0], generation_id=member[1])
    return int(client.ask(Api.HEARTBEAT, 2, request).error_code)


def test_a_group_is_seen(broker: Broker, client: RawClient) -> None:
    assert broker.groups == {}
    assert broker.group("g").state == "Dead"
    with pytest.raises(TimedOut, match="^there is no group 'g' after 0.01 s, 2 members expected"):
        broker.wait_for_group("g", members=2, timeout=0.01)
    member_id, _ = join(client, "g", group_instance_id="one")
    assert broker.groups == {"g": "Stable"}
    (member,) = broker.wait_for_group("g", members=1).members
    assert (member.id, member.group_instance_id, member.client_id) == (member_id, "one", "raw")
    assert member.topics == ("t",)
    assert member.partitions == (rota.TopicPartition("t", 0),)
    assert (broker.group("g").leader, broker.group("g").generation) == (member_id, 1)
    assert broker.committed("g") == {}
    with pytest.raises(TimedOut, match="is Stable with 1 members after 0.01 s, 2 members expected"):
        broker.wait_for_group("g", members=2, timeout=0.01)


@pytest.mark.parametrize("name", ["id", "group_instance_id", "client_id"])
def test_a_members_session_ends_on_order(broker: Broker, client: RawClient, name: str) -> None:
    member = join(client, "g", group_instance_id="one" if name == "group_instance_id" else None)
    (seen,) = broker.group("g").members
    broker.expire(getattr(seen, name))
    assert broker.wait_for_group("g", members=0).state == "Empty"
    assert heartbeat(client, "g", member) == Code.UNKNOWN_MEMBER_ID
    with pytest.raises(InputError, match="no member has it; members are: none"):
        broker.expire("nobody")


def test_a_coordinator_moves(broker: Broker, client: RawClient) -> None:
    member = join(client, "g")
    broker.move_coordinator("g")
    assert broker.group("g").state == "Stable"
    assert broker.committed("g") == {}
    assert broker.groups == {"g": "Stable"}
    assert heartbeat(client, "g", member) == Code.NOT_COORDINATOR
    client.ask(Api.FIND_COORDINATOR, 2, FindCoordinatorRequest(key="g", key_type=0))
    assert heartbeat(client, "g", member) == 0
    assert broker.group("g").state == "Stable"
    with pytest.raises(InputError, match="there is no group 'h'; groups are: g"):
        broker.move_coordinator("h")


# Faults


def test_the_next_requests_fail(broker: Broker, client: RawClient) -> None:
    member = join(client, "g")
    broker.fail("Heartbeat", "REBALANCE_IN_PROGRESS", times=2)
    codes = [heartbeat(client, "g", member) for _ in range(3)]
    assert codes == [Code.REBALANCE_IN_PROGRESS, Code.REBALANCE_IN_PROGRESS, 0]


def test_they_fail_until_it_is_healed(broker: Broker, client: RawClient) -> None:
    member = join(client, "g")
    broker.fail("heartbeat", 16, times=None)
    assert [heartbeat(client, "g", member) for _ in range(5)] == [16] * 5
    broker.clear_faults("Heartbeat")
    assert heartbeat(client, "g", member) == 0
    broker.fail("heartbeat", 16)
    broker.clear_faults()
    assert heartbeat(client, "g", member) == 0


def test_only_one_clients_requests_fail(broker: Broker, client: RawClient) -> None:
    member = join(client, "g")
    broker.fail("Heartbeat", "NotCoordinator", client_id="other")
    assert heartbeat(client, "g", member) == 0
    with RawClient(broker.bootstrap_servers, "other") as other:
        assert heartbeat(other, "g", member) == Code.NOT_COORDINATOR
        assert heartbeat(other, "g", member) == 0


def test_faults_with_wrong_names(broker: Broker) -> None:
    with pytest.raises(InputError, match="did you mean JoinGroup"):
        broker.fail("JoinGrup", 16)
    with pytest.raises(InputError, match="did you mean NOT_COORDINATOR"):
        broker.fail("JoinGroup", "NOT_COORDINATR")
    for times in (0, -1, 1.5, True):
        with pytest.raises(InputError, match="times"):
            broker.fail("JoinGroup", 16, times=times)  # type: ignore[arg-type]
    for seconds in (-1, float("nan"), float("inf"), "x", True):
        with pytest.raises(InputError, match="seconds: .* is not a number of seconds"):
            broker.delay("JoinGroup", seconds)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="seconds: .* is not a number of seconds"):
            broker.clock.advance(seconds)  # type: ignore[arg-type]


def test_a_fault_that_never_happened_is_counted(broker: Broker, client: RawClient) -> None:
    broker.fail("Metadata", "UNKNOWN", times=2)
    broker.fail("JoinGroup", 16, times=None)
    broker.delay("Heartbeat", 1)
    assert request_metadata(client) is not None
    assert broker.clear_faults("Heartbeat") == 1
    assert broker.clear_faults() == 1
    assert broker.clear_faults() == 0


def test_an_error_is_raised_where_it_was_asked_for(broker: Broker) -> None:
    with pytest.raises(Refused) as caught:
        broker.read("nope")
    assert "topics" not in {
        each.path.stem for each in caught.traceback if hasattr(each.path, "stem")
    }


def test_a_delay_runs_by_the_brokers_clock(broker: Broker, client: RawClient) -> None:
    broker.clock.freeze()
    broker.delay("Metadata", 60)
    client.send(Api.METADATA, 9, MetadataRequest(topics=None))
    client.socket.settimeout(0.1)
    with pytest.raises(TimeoutError):
        client.receive(Api.METADATA, 9)
    client.socket.settimeout(10)
    broker.clock.advance(60)
    assert client.receive(Api.METADATA, 9).brokers
    assert request_metadata(client).brokers


def test_a_delay_and_an_error_go_together(broker: Broker, client: RawClient) -> None:
    member = join(client, "g")
    broker.delay("Heartbeat", 0.05)
    broker.fail("Heartbeat", "NOT_COORDINATOR")
    started = time.monotonic()
    assert heartbeat(client, "g", member) == Code.NOT_COORDINATOR
    assert time.monotonic() - started >= 0.049


def produce(client: RawClient, value: bytes, *, acks: int = -1) -> None:
    topic, partition = ProduceRequest.TopicProduceData, ProduceRequest.PartitionProduceData
    records = encode_batch([BatchRecord(0, 1_000, None, value)])
    client.send(
        Api.PRODUCE,
        9,
        ProduceRequest(
            transactional_id=None,
            acks=acks,
            timeout_ms=1_000,
            topic_data=[
                topic(
                    name="t",
                    partition_data=[partition(index=0, records=records)],
                )
            ],
        ),
    )


def test_an_answer_is_lost_but_the_request_was_handled(broker: Broker, client: RawClient) -> None:
    broker.create_topic("t")
    broker.drop_response("Produce")
    produce(client, b"stored")
    assert client.closed
    assert [record.value for record in broker.read("t")] == [b"stored"]


def test_a_produce_without_acks_that_fails_ends_the_connection(
    broker: Broker, client: RawClient
) -> None:
    broker.create_topic("t")
    broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER")
    produce(client, b"refused", acks=0)
    assert client.closed  # it is all that a client without acks can see
    assert broker.read("t") == []


def test_clients_are_disconnected(broker: Broker) -> None:
    clients = [RawClient(broker.bootstrap_servers, name) for name in ("a", "a", "b")]
    for client in clients:
        request_metadata(client)
    assert broker.disconnect("a") == 2
    assert clients[0].closed
    assert clients[1].closed
    request_metadata(clients[2])
    with pytest.raises(InputError, match="client 'a' is not connected; clients are: b"):
        broker.disconnect("a")
    assert broker.disconnect() == 1
    for client in clients:
        client.close()


# Virtual time


def test_a_silent_member_is_removed_when_time_is_advanced(
    broker: Broker, client: RawClient
) -> None:
    member = join(client, "g")
    before = broker.clock.now()
    broker.clock.advance(9)
    assert heartbeat(client, "g", member) == 0
    broker.clock.advance(9)
    assert broker.group("g").state == "Stable"
    broker.clock.advance(2)
    assert broker.group("g").state == "Empty"
    assert broker.clock.now() >= before + 20_000


def test_weeks_are_advanced_without_a_stop_at_each_minute(
    broker: Broker, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What recurs is done often enough, and the last time at the end: old records are gone."""
    join(client, "orders")  # the journal's 50 partitions look for old offsets, too
    broker.create_topic("t", config={"segment.bytes": 1_048_576, "retention.ms": 86_400_000})
    for _ in range(3):
        broker.produce("t", b"x" * 600_000)
    stops = 0
    handle = BrokerNode.handle

    def counted(node: BrokerNode, event: NodeEvent, now: int, room: int) -> list[NodeCommand]:
        nonlocal stops
        stops += 1
        return handle(node, event, now, room)

    monkeypatch.setattr(BrokerNode, "handle", counted)
    broker.clock.advance(30 * 86_400)
    assert 100 < stops < 1_000
    assert broker.read("t") == []


def test_a_long_poll_ends_when_time_is_advanced(broker: Broker, client: RawClient) -> None:
    broker.create_topic("t")
    broker.clock.freeze()
    topic = FetchRequest.FetchTopic
    client.send(
        Api.FETCH,
        11,
        FetchRequest(
            replica_id=-1,
            max_wait_ms=30_000,
            min_bytes=1,
            max_bytes=1_000,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[
                topic(
                    topic="t",
                    partitions=[
                        FetchRequest.FetchPartition(
                            partition=0,
                            current_leader_epoch=-1,
                            fetch_offset=0,
                            log_start_offset=-1,
                            partition_max_bytes=1_000,
                        )
                    ],
                )
            ],
            forgotten_topics_data=[],
            rack_id="",
        ),
    )
    with RawClient(broker.bootstrap_servers) as other:
        request_metadata(other)  # the fetch has arrived by now
    broker.clock.advance(30)
    assert client.receive(Api.FETCH, 11).error_code == 0
    broker.clock.resume()


def test_calls_from_many_threads(broker: Broker) -> None:
    threads = [
        threading.Thread(target=lambda: [broker.produce("t", "x") for _ in range(50)])
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [record.offset for record in broker.read("t")] == list(range(400))


def test_ipv6_if_there_is_any() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with rota.Broker(host="::1") as broker:
        assert broker.bootstrap_servers.startswith("[::1]:")
        with RawClient(broker.bootstrap_servers) as client:
            assert request_metadata(client).brokers[0].host == "::1"


def test_who_connects_while_a_broker_stops_leaves_no_socket_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """asyncio forgets the sockets of those who are being let in when their server is closed."""
    lost: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda about: lost.append(about.exc_value))
    for _ in range(5):
        with contextlib.ExitStack() as clients, rota.Broker() as broker:
            host, port = broker.bootstrap_servers.split(":")
            for _ in range(200):
                clients.enter_context(socket.create_connection((host, int(port))))
    gc.collect()
    assert not lost
