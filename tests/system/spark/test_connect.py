"""The same run over Spark Connect."""

from __future__ import annotations

import shutil
from pathlib import Path

import rota
from rota.tables import EVIDENCE
from tests.support.clients.link import Driver
from tests.system.spark.played import LOG, Ran, everything, recorded_segments


def test_a_connected_session_makes_the_same_tables(
    connected: Driver, segments: Path, logged: Ran, tmp_path: Path
) -> None:
    """Half of the journal out of folders, and half of it from a broker."""
    out, served = tmp_path / "out", recorded_segments(tmp_path / "served")
    copied = tmp_path / "copied"
    for number, folder in enumerate(sorted(segments.iterdir())):
        if number % 2:
            shutil.copytree(folder, copied / folder.name)
            shutil.rmtree(served / folder.name)
    with rota.Broker(served, adopt=True) as broker:
        broker.clock.freeze()
        address = broker.bootstrap_servers
        connected.ask("run", segments=str(copied), servers=address, log=str(LOG), out=str(out))
    sampled = {"bronze/ends", "gold/lag", "gold/status"}
    ours, theirs = (
        {name: rows for name, rows in everything(each).items() if name not in sampled}
        for each in (out, logged.out)
    )
    for (row,) in (ours[EVIDENCE.name], theirs[EVIDENCE.name]):
        del row["samples"]
    assert ours == theirs
