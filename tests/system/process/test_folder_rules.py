"""A test that uses more than its folder allows fails, and is told where it belongs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.process import environment, run_command

pytestmark = pytest.mark.quick

TESTS = {
    "pure": """
import asyncio, contextlib, multiprocessing, pathlib, socket, subprocess, threading
import pytest

def test_reads_a_file_of_the_checkout():
    assert pathlib.Path(__file__).read_text()

def test_runs_an_event_loop():
    assert asyncio.run(asyncio.sleep(0, "done")) == "done"

def test_writes_a_file():
    pathlib.Path(__file__).with_suffix(".txt").write_text("x")

def test_has_a_fixture_that_writes(tmp_path):
    pass

def test_listens():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))

def test_looks_up_a_name():
    socket.getaddrinfo("localhost", 9092)

def test_starts_a_process():
    subprocess.run(["true"])

def test_starts_a_thread():
    threading.Thread(target=print).start()

def test_starts_a_process_by_multiprocessing():
    multiprocessing.get_context("spawn").Process(target=print).start()

@pytest.fixture
def closed_with_a_process():
    yield
    subprocess.run(["true"])

def test_has_a_fixture_that_ends_with_a_process(closed_with_a_process):
    pass

def test_swallows_the_refusal():
    with contextlib.suppress(Exception):
        subprocess.run(["true"])
""",
    "local": """
import os, pathlib, shutil, socket, subprocess, tempfile, threading, time
import pytest

OUTSIDE = pathlib.Path(__file__).parent

@pytest.fixture(scope="module")
def background():
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    yield
    done.set()
    thread.join()

def test_shares_a_thread(background):
    pass

def test_leaves_a_thread():
    threading.Thread(target=time.sleep, args=(60,), daemon=True, name="left").start()

def test_writes_makes_renames_and_removes_below_the_temporary_folder(tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("x")
    (tmp_path / "folder").rename(tmp_path / "renamed")
    shutil.rmtree(tmp_path / "renamed")
    monkeypatch.chdir(tmp_path)
    with open("file", "w"), tempfile.TemporaryFile(), open(os.devnull, "w"):
        os.remove("file")

def test_writes_a_file_elsewhere():
    (OUTSIDE / "file").write_text("x")

def test_writes_elsewhere_by_a_relative_path(tmp_path, monkeypatch):
    monkeypatch.chdir(OUTSIDE)
    open("file", "ab")

def test_writes_elsewhere_by_dots(tmp_path):
    up = "../" * (len(tmp_path.parts) - 1)
    (tmp_path / f"{up}{OUTSIDE}/file").write_text("x")

def test_writes_elsewhere_by_a_link(tmp_path):
    (tmp_path / "link").symlink_to(OUTSIDE)
    (tmp_path / "link" / "file").write_text("x")

def test_makes_a_folder_elsewhere():
    (OUTSIDE / "folder").mkdir()

def test_removes_a_file_elsewhere():
    (OUTSIDE / "kept").unlink()

def test_removes_a_folder_elsewhere():
    shutil.rmtree(OUTSIDE / "folder of files")

def test_renames_a_file_to_elsewhere(tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "file").rename(OUTSIDE / "file")

def test_renames_a_file_from_elsewhere(tmp_path):
    (OUTSIDE / "kept").rename(tmp_path / "file")

def test_links_a_file_elsewhere(tmp_path):
    (OUTSIDE / "link").symlink_to(tmp_path)

def test_changes_the_mode_of_a_file_elsewhere():
    (OUTSIDE / "kept").chmod(0o600)

def test_talks_to_this_machine():
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(("localhost", server.getsockname()[1])).close()
    with socket.socket(type=socket.SOCK_DGRAM) as client:
        client.sendto(b"x", ("127.0.0.1", 9))

def test_looks_up_a_name_that_nobody_has():
    with pytest.raises(socket.gaierror):
        socket.getaddrinfo("broker.invalid", 9092)

def test_looks_up_another_machine():
    socket.getaddrinfo("127.example.org", 9092)

def test_looks_up_the_name_of_another_machine():
    socket.gethostbyaddr("192.0.2.1")

def test_listens_to_other_machines():
    with socket.socket() as listener:
        listener.bind(("0.0.0.0", 0))

def test_sends_to_another_machine():
    with socket.socket(type=socket.SOCK_DGRAM) as client:
        client.sendto(b"x", ("192.0.2.1", 9))

def test_starts_a_thread():
    thread = threading.Thread(target=print)
    thread.start()
    thread.join()

def test_starts_a_process():
    subprocess.run(["true"])

def test_talks_to_another_machine():
    with socket.socket() as client:
        client.settimeout(0.01)
        client.connect(("192.0.2.1", 9092))
""",
}
AT_IMPORT = """
import subprocess
subprocess.run(["true"])
"""
#: A thread that does not end shows after this.
SHORT = "from tests.support import folder_rules\n\nfolder_rules.JOIN_TIMEOUT = 0.2\n"
REFUSED = {
    "pure/test_import.py": "tests/pure starts no process: move this test",
    "pure/test_it.py::test_writes_a_file": "tests/pure writes no file: move this test",
    "pure/test_it.py::test_has_a_fixture_that_writes": "tests/pure writes no file: move this test",
    "pure/test_it.py::test_listens": "tests/pure uses no network: move this test to tests/local",
    "pure/test_it.py::test_looks_up_a_name": "tests/pure uses no network: move this test",
    "pure/test_it.py::test_starts_a_process": "tests/pure starts no process: move this test",
    "pure/test_it.py::test_starts_a_thread": "tests/pure starts no thread: move this test",
    "pure/test_it.py::test_starts_a_process_by_multiprocessing": "tests/pure starts no process",
    "pure/test_it.py::test_has_a_fixture_that_ends_with": "tests/pure starts no process: move this",
    "local/test_it.py::test_leaves_a_thread": "threads of this test go on after it: left",
    "pure/test_it.py::test_swallows_the_refusal": "tests/pure starts no process: move this test",
    "local/test_it.py::test_starts_a_process": "tests/local starts no process: move this test",
    "local/test_it.py::test_talks_to_another_machine": "not to 192.0.2.1",
    "local/test_it.py::test_writes_a_file_elsewhere": "below the temporary folder alone (open /",
    "local/test_it.py::test_writes_elsewhere_by_a_relative": "temporary folder alone (open /",
    "local/test_it.py::test_writes_elsewhere_by_dots": "temporary folder alone (open /",
    "local/test_it.py::test_writes_elsewhere_by_a_link": "temporary folder alone (open /",
    "local/test_it.py::test_makes_a_folder_elsewhere": "temporary folder alone (os.mkdir /",
    "local/test_it.py::test_removes_a_file_elsewhere": "temporary folder alone (os.remove /",
    "local/test_it.py::test_removes_a_folder_elsewhere": "temporary folder alone (os.remove /",
    "local/test_it.py::test_renames_a_file_to_elsewhere": "temporary folder alone (os.rename /",
    "local/test_it.py::test_renames_a_file_from_elsewhere": "temporary folder alone (os.rename /",
    "local/test_it.py::test_links_a_file_elsewhere": "temporary folder alone (os.symlink /",
    "local/test_it.py::test_changes_the_mode_of_a_file": "temporary folder alone (os.chmod /",
    "local/test_it.py::test_looks_up_another_machine": "this machine alone, not 127.example.org",
    "local/test_it.py::test_looks_up_the_name_of_another": "this machine alone, not 192.0.2.1",
    "local/test_it.py::test_listens_to_other_machines": "not to 0.0.0.0 (socket.bind)",
    "local/test_it.py::test_sends_to_another_machine": "not to 192.0.2.1 (socket.sendto)",
}


def test_each_folder_refuses_what_it_does_not_allow(tmp_path: Path) -> None:
    for folder, text in TESTS.items():
        place = tmp_path / "tests" / folder
        place.mkdir(parents=True)
        (place / "test_it.py").write_text(text)
    (tmp_path / "tests" / "pure" / "test_import.py").write_text(AT_IMPORT)
    (tmp_path / "tests" / "conftest.py").write_text(SHORT)
    kept = [place / "kept", place / "folder of files" / "kept"]
    for file in kept:
        file.parent.mkdir(exist_ok=True)
        file.write_text("x")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.folder_rules", "-rA", "-q"]
    command += ["-p", "no:cacheprovider", "--import-mode=importlib", "--rootdir", str(tmp_path)]
    command.append("--continue-on-collection-errors")
    env = environment(COLUMNS="400", TMPDIR=str(temporary))
    done = run_command(*command, tmp_path / "tests", env=env, folder=tmp_path)
    failed = [line for line in done.lines if line.startswith(("FAILED ", "ERROR "))]
    assert len(failed) == len(REFUSED), done.out
    for test, reason in REFUSED.items():
        assert any(test in line and reason in line for line in failed), (test, failed)
    assert len([line for line in done.lines if line.startswith("PASSED ")]) == 9
    left = {path for path in place.rglob("*") if "__pycache__" not in path.parts}
    assert left == {place / "test_it.py", place / "folder of files", *kept}
