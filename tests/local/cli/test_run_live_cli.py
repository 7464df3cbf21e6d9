"""``rota run`` on a live cluster, as far as it goes without Spark: what it says, and refuses."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

import rota

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException

from rota.errors import Unreachable
from rota.pipeline import cluster, ingest
from rota.pipeline.cluster import LiveCluster, find_journal
from rota.pipeline.stages import BeforeEnd, FoundEvidence, RunOptions, time_window
from rota.pipeline.store import translate_spark_errors
from tests.support.command import RotaCommand
from tests.support.journal_folder import encode_journal_batch, offset_commit_entry, write_segment
from tests.support.live_group import commit_offsets

JOURNAL = "__consumer_offsets"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rota.Broker]:
    """It has a journal of two records."""
    folder = tmp_path_factory.mktemp("logs")
    write_segment(
        folder, 3, encode_journal_batch(offset_commit_entry("g"), offset_commit_entry("g", 2))
    )
    settings = {"offsets.topic.num.partitions": "4"}
    for number in (0, 1, 2):
        write_segment(folder, number, b"")
    with rota.Broker(folder, adopt=True, config=settings) as running:
        yield running


@pytest.fixture(autouse=True)
def clear_faults(broker: rota.Broker) -> Iterator[None]:
    yield
    broker.clear_faults()


RunCommand = Callable[..., tuple[int, str, str]]


@pytest.fixture
def rota_run(rota_command: RotaCommand) -> RunCommand:
    return partial(rota_command, "run")


def test_what_there_is_to_read(broker: rota.Broker) -> None:
    found = find_journal(LiveCluster(settings={"bootstrap.servers": broker.bootstrap_servers}))
    assert dict(found.log_ends) == {0: 0, 1: 0, 2: 0, 3: 2}
    assert found.size is None, "Rota's broker does not tell of its disk"
    assert str(found).endswith(f"{JOURNAL}, 4 partitions, at most 2 records")


def test_a_cluster_that_no_group_has_ever_used() -> None:
    with rota.Broker() as empty:
        found = find_journal(LiveCluster(settings={"bootstrap.servers": empty.bootstrap_servers}))
        assert not found.log_ends
        assert "does not exist: the cluster never had a group" in str(found)
        assert not found.records
        assert JOURNAL not in {*empty.topics}, "nothing is made by asking"
        again = find_journal(LiveCluster(settings={"bootstrap.servers": empty.bootstrap_servers}))
        assert not again.log_ends


@pytest.mark.parametrize("api", ["ListOffsets", "Fetch"])
def test_no_permission_names_the_acl_and_the_way_out(
    rota_run: RunCommand, broker: rota.Broker, tmp_path: Path, api: str
) -> None:
    broker.fail(api, "TOPIC_AUTHORIZATION_FAILED", times=None)
    words = ("--bootstrap-servers", broker.bootstrap_servers, "--out", str(tmp_path / "out"))
    code, _, text = rota_run(*words)
    assert code == 3
    assert f"Describe and Read on topic {JOURNAL}" in text
    assert "--poll" in text
    assert not (tmp_path / "out").exists(), "nothing was begun"


def test_it_is_said_first_what_it_needs(
    rota_run: RunCommand, broker: rota.Broker, tmp_path: Path
) -> None:
    broker.fail("Fetch", "TOPIC_AUTHORIZATION_FAILED")
    server = broker.bootstrap_servers
    _, _, text = rota_run("--bootstrap-servers", server, "--out", str(tmp_path))
    first = text.splitlines()[0]
    assert first.startswith(f"rota: reading {server}, nothing is written to it; if it uses ACLs")
    assert "Describe on the topics that groups have committed" in first
    broker.fail("Fetch", "TOPIC_AUTHORIZATION_FAILED")
    words = ("--bootstrap-servers", server, "--lookups", "0", "--out", str(tmp_path))
    _, _, text = rota_run(*words)
    assert "groups have committed" not in text.splitlines()[0]


@pytest.fixture
def shop() -> Iterator[rota.Broker]:
    """A broker with the groups billing and audit."""
    with rota.Broker() as running:
        running.create_topic("orders", 1)
        for group in ("billing", "audit"):
            commit_offsets(running, group, {("orders", 0): 0})
        yield running


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (("biling",), "--group biling: the cluster has no such group; did you mean billing? (a"),
        (("audit", "x"), "--group x: the cluster has no such group; known are audit, billing (a"),
    ],
)
def test_an_unknown_group_is_named_before_spark_starts(
    rota_run: RunCommand, shop: rota.Broker, tmp_path: Path, names: tuple[str, ...], problem: str
) -> None:
    words = [word for name in names for word in ("--group", name)]
    out = tmp_path / "out"
    code, _, text = rota_run("--bootstrap-servers", shop.bootstrap_servers, "--out", out, *words)
    assert code == 4
    assert problem in text
    assert text.endswith(f"journal still has records: --group '{names[-1]}*')\n")
    assert not out.exists()


def test_an_unknown_group_of_the_demo_is_named_before_the_day_is_simulated(
    rota_run: RunCommand, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    code, _, text = rota_run("--demo", "--group", "catalog-exprot", "--out", out)
    assert (code, out.exists()) == (4, False)
    assert "the demo has no such group; did you mean catalog-export?" in text


def test_a_group_that_may_be_in_the_journal_is_looked_for(shop: rota.Broker) -> None:
    found = LiveCluster(settings={"bootstrap.servers": shop.bootstrap_servers})
    cluster.check_groups_exist(found, ("billing", "deleted*"))
    shop.fail("ListGroups", "CLUSTER_AUTHORIZATION_FAILED")
    cluster.check_groups_exist(found, ("hidden",))


def test_nobody_there(
    rota_run: RunCommand, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cluster, "CONNECT_TIMEOUT", 0.3)
    words = ("--bootstrap-servers", "127.0.0.1:1", "--out", str(tmp_path / "out"))
    code, _, text = rota_run(*words)
    assert code == 3
    assert "127.0.0.1:1" in text.splitlines()[-1]


def test_something_else_listens(rota_run: RunCommand, tmp_path: Path) -> None:
    class Quiet(http.server.BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its name)
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    serving = threading.Thread(target=server.serve_forever, args=(0.02,))
    serving.start()
    try:
        address = f"127.0.0.1:{server.server_port}"
        code, _, text = rota_run("--bootstrap-servers", address, "--out", str(tmp_path / "out"))
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
    assert code == 3
    assert "an HTTP server" in text
    assert address in text


def test_wrong_credentials(rota_run: RunCommand, tmp_path: Path) -> None:
    login = "org.apache.kafka.common.security.plain.PlainLoginModule"
    settings = tmp_path / "client.properties"
    with rota.Broker(users={"ann": "right"}) as guarded:
        settings.write_text(
            f"bootstrap.servers={guarded.bootstrap_servers}\n"
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            f'sasl.jaas.config={login} required username="ann" password="wrong-one";\n'
        )
        words = ("--command-config", str(settings), "--out", str(tmp_path / "out"))
        code, _, text = rota_run(*words)
    assert code == 4
    assert "ann" in text or "credentials" in text
    assert "wrong-one" not in text


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--demo", "--bootstrap-servers", "h:1"), "--demo uses simulated data"),
        (
            ("--bootstrap-servers", "h:1", "--lookups", "-1"),
            "not a number between 0 and 1,000,000,000",
        ),
        (
            ("--bootstrap-servers", "h:1", "--lookups", "many"),
            "not a number between 0 and 1,000,000,000",
        ),
        (("--config", "a=b"), "no input"),
    ],
)
def test_a_wrong_command_line(rota_run: RunCommand, words: tuple[str, ...], problem: str) -> None:
    code, _, text = rota_run(*words)
    assert code == 2
    assert problem in text


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--bootstrap-servers", "nonsense"), "nonsense"),
        (("--bootstrap-servers", "h:1", "--config", "acks.more=1"), "acks.more"),
    ],
)
def test_wrong_settings_are_said_before_anything_runs(
    rota_run: RunCommand, words: tuple[str, ...], problem: str
) -> None:
    code, _, text = rota_run(*words)
    assert code == 4
    assert problem in text


def test_settings_of_consumers_in_the_file_do_no_harm() -> None:
    settings = {
        "bootstrap.servers": "h:1",
        "group.id": "g",
        "enable.auto.commit": "true",
        "auto.offset.reset": "earliest",
        "security.protocol": "PLAINTEXT",
    }
    live = cluster.LiveJournal(
        cluster=LiveCluster(settings=settings), log_starts={0: 1}, log_ends={0: 3}, size=None, at=0
    )
    options = live.source_options()
    assert {name for name in options if name.startswith("kafka.")} == {
        "kafka.bootstrap.servers",
        "kafka.client.id",
        "kafka.default.api.timeout.ms",
        "kafka.isolation.level",
        "kafka.security.protocol",
        "kafka.socket.connection.setup.timeout.ms",
    }
    assert options["endingOffsets"] == '{"__consumer_offsets": {"0": 3}}'


def test_a_broker_that_dies_in_between_is_named(broker: rota.Broker) -> None:
    broker.drop_response("ListOffsets", times=None)
    found = LiveCluster(settings={"bootstrap.servers": broker.bootstrap_servers}, timeout=1.5)
    with pytest.raises(Unreachable, match=broker.bootstrap_servers):
        find_journal(found)


def test_since_counts_back_from_now() -> None:
    """The folder's records are of another time."""
    live = cluster.LiveJournal(
        cluster=LiveCluster(settings={}),
        log_starts={0: 0},
        log_ends={0: 3},
        size=None,
        at=1_800_000_000_000,
    )
    found = FoundEvidence(segments=ingest.find_segments([]), live=live)
    since, until = time_window(RunOptions(since=BeforeEnd(3_600_000)), found.last)
    assert since == 1_800_000_000_000 - 3_600_000
    assert until is None


def test_an_error_of_a_task_is_told_as_ones_own(tmp_path: Path) -> None:
    said = """[PYTHON_DATA_SOURCE_ERROR] Failed: Traceback (most recent call last):
      File "peer.py", line 71, in connect
        raise TimedOut(self.trouble) from self.problem
    rota.errors.TimedOut: 127.0.0.1:1 of bootstrap.servers: the connection is refused
     SQLSTATE: 38000"""
    with (
        pytest.raises(Unreachable, match="^127.0.0.1:1 of bootstrap.servers"),
        translate_spark_errors(tmp_path),
    ):
        raise PySparkException(said)
