"""The data folder: whose it is, how its last use ended, its catalogue and its checkpoints."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from rota.broker.storage.log_directory import LOCK_FILE, DirectoryLock
from rota.errors import Unreachable
from tests.support.process import RunningCommand, run_command, run_python


def test_a_folder_has_one_user_at_a_time(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path / "data")
    used = rf"the folder .*data is in use by process {os.getpid()}$"
    for _ in range(2):
        with pytest.raises(Unreachable, match=used):
            DirectoryLock(tmp_path / "data")
    script = (
        "import sys, pathlib, rota.broker.storage.log_directory as f; "
        "f.DirectoryLock(pathlib.Path(sys.argv[1]))"
    )
    done = run_python(script, tmp_path / "data")
    assert f"in use by process {os.getpid()}" in done.err
    lock.release()
    lock.release()
    DirectoryLock(tmp_path / "data").release()


#: What a Kafka does with the file, as Java's locks are POSIX's.
POSIX_LOCK = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Java's locks are heeded on Linux only")
def test_a_folder_that_a_kafka_has_is_in_use(tmp_path: Path) -> None:
    (tmp_path / LOCK_FILE).write_bytes(b"")
    command = (sys.executable, "-c", POSIX_LOCK, tmp_path / LOCK_FILE)
    with RunningCommand(*command) as kafka:
        assert kafka.read_line() == "held\n"
        with pytest.raises(Unreachable, match="is in use by another process"):
            DirectoryLock(tmp_path)
        kafka.wait()
    lock = DirectoryLock(tmp_path)
    assert "BlockingIOError" in run_command(*command).err
    lock.release()
    run_command(*command).checked()
