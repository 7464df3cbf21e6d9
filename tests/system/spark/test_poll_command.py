"""``rota run --poll`` as a person runs it: until Ctrl-C."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

import rota
from rota.pipeline.tables import COMMITS, ENDS, SAMPLES
from tests.support.command import ROTA
from tests.support.live_group import WAITING, LiveMember, add_members, commit_offsets
from tests.support.process import RunningCommand
from tests.support.waiting import wait_until
from tests.system.spark.pipeline_run import read_rows

#: Seconds until it must have asked once.
START = 120


@pytest.mark.nightly
def test_ctrl_c_ends_the_sampling_and_computes_what_there_is(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with rota.Broker(config=WAITING) as broker:
        broker.create_topic("orders", 1)
        commit_offsets(broker, "billing", {("orders", 0): 0})
        add_members(broker, "billing", [LiveMember(name="secret-pod", gets={"orders": [0]})])
        where = ("--bootstrap-servers", broker.bootstrap_servers, "--out", str(out))
        how = ("--poll", "200ms", "--for", "1h", "--group", "bill*", "--redact", "--json")
        with RunningCommand(*ROTA, "run", *where, *how) as running:
            wait_until(
                "it has asked once, or has ended",
                lambda: list(out.glob(".poll/*.parquet")) or not running.is_running,
                seconds=START,
            )
            time.sleep(2)  # there is nothing to see of a round from outside
            running.send_signal(signal.SIGINT)
            ended = running.wait(600)
    assert ended.code == 0, ended.err
    summary = json.loads(ended.out)
    assert summary["polled"]["groups"] == ["billing"]
    assert summary["polled"]["rounds"] >= 1
    assert summary["generations"] == 1
    assert not (out / ".poll").exists()
    (sample,) = read_rows(out, SAMPLES)
    assert sample["members"][0]["client_id"].startswith("client#")
    assert read_rows(out, COMMITS)[0]["offset"] == 0
    assert read_rows(out, ENDS)
    assert not any(b"secret-pod" in each.read_bytes() for each in out.rglob("*.parquet"))
