"""``rota run --poll`` as a person runs it: until Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import rota
from rota.tables import COMMITS, ENDS, SAMPLES
from tests.support.live_group import WAITING, Seat, commit, seat
from tests.system.spark.played import rows

START = 120
"""Seconds until it must have asked once."""


@pytest.mark.nightly
def test_ctrl_c_ends_the_sampling_and_computes_what_there_is(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with rota.Broker(config=WAITING) as broker:
        broker.create_topic("orders", 1)
        commit(broker, "billing", {("orders", 0): 0})
        seat(broker, "billing", [Seat(name="secret-pod", gets={"orders": [0]})])
        where = ("--bootstrap-servers", broker.bootstrap_servers, "--out", str(out))
        how = ("--poll", "200ms", "--for", "1h", "--group", "bill*", "--redact", "--json")
        command = [sys.executable, "-m", "rota", "run", *where, *how]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
            end = time.monotonic() + START
            while not list(out.glob(".poll/*.parquet")):
                assert process.poll() is None
                assert time.monotonic() < end
                time.sleep(0.05)
            time.sleep(2)  # there is nothing to see of a round from outside
            process.send_signal(signal.SIGINT)
            printed, said = process.communicate(timeout=600)
    assert process.returncode == 0, said
    told = json.loads(printed)
    assert told["polled"]["groups"] == ["billing"]
    assert told["polled"]["rounds"] >= 1
    assert told["generations"] == 1
    assert not (out / ".poll").exists()
    (sample,) = rows(out, SAMPLES)
    assert sample["members"][0]["client_id"].startswith("client#")
    assert rows(out, COMMITS)[0]["offset"] == 0
    assert rows(out, ENDS)
    assert not any(b"secret-pod" in each.read_bytes() for each in out.rglob("*.parquet"))
