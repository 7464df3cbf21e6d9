"""``rota.Broker`` in a program of its own."""

from __future__ import annotations

from pathlib import Path

from tests.support.process import run_python


def test_a_forgotten_broker_does_not_keep_the_interpreter(tmp_path: Path) -> None:
    done = run_python(
        f"import rota; b = rota.Broker({str(tmp_path / 'data')!r}).start(); b.produce('t', 'x')"
    )
    assert (done.code, done.err) == (0, "")
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_a_child_keeps_nothing_of_its_parents_broker(tmp_path: Path) -> None:
    """The port, the clients and the folder are free when the parent has stopped."""
    done = run_python(f"""
import os, socket, sys, warnings
import rota
warnings.simplefilter("ignore", DeprecationWarning)  # of a fork while there are threads
folder = {str(tmp_path)!r}
with rota.Broker(folder) as broker:
    host, port = broker.bootstrap_servers.split(":")
    client = socket.create_connection((host, int(port)))
    client.sendall(bytes.fromhex("0000000a 0012 0000 00000001 ffff"))  # ApiVersions
    assert client.recv(1 << 16)  # so the broker knows of this connection before the fork
    ready, done = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        try:
            broker.topics
        except rota.errors.RotaError as error:
            os.write(ready[1], str(error).encode())
        broker.stop()
        os.read(done[0], 1)
        os._exit(0)
    assert b"not in this fork" in os.read(ready[0], 1000)
    assert broker.topics == {{}}
client.settimeout(10)
assert client.recv(1) == b""
with rota.Broker(folder, int(port)) as broker:
    assert broker.topics == {{}}
os.write(done[1], b"x")
os.waitpid(child, 0)
""")
    assert (done.code, done.err) == (0, "")


def test_importing_rota_does_not_load_the_broker() -> None:
    done = run_python(
        "import sys, rota; rota.TopicPartition; print([m for m in sys.modules if 'broker' in m])"
    )
    assert done.out == "[]\n"
