"""What cannot work is reported before anything starts, with its cause and its fix."""

import fcntl
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.installation import PackageMissing
from tandem.local.item_store.item_store import ItemStore
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.stack.data_folder import DataFolder
from tandem.stack.ports import Ports
from tandem.stack.start_checks import check_machine, check_ports, shard_count
from tandem.stack.start_refused import StartRefused
from tandem.stages.item_write import Upsert
from tests.support.item_store.made_items import FINGERPRINT, text_item

HOLD = """
import sys
from pathlib import Path
from tandem.stack.data_folder import DataFolder
with DataFolder(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def held(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """A folder that another process serves, and its id."""
    folder = tmp_path / "held"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield folder, process.pid
        process.kill()


def made_store(folder: Path, shard_count: int) -> None:
    """Makes the store of the first shard of so many."""
    path = folder / "shard-0"
    path.mkdir(parents=True)
    ItemStore.open(path, 0, shard_count, map_bytes=1 << 20).close()


def test_a_folder_that_another_serves_is_named_with_its_process(held: tuple[Path, int]) -> None:
    folder, pid = held
    with pytest.raises(StartRefused, match=rf"another tandem up \(process {pid}\) serves {folder}"):
        DataFolder(folder).take()

    os.kill(pid, 9)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    with DataFolder(folder):
        pass


def test_a_store_that_a_service_writes_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was started by itself, and not one that is on its way out."""
    made_store(tmp_path, 1)
    with (tmp_path / "shard-0" / "writer.lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        leaving = threading.Timer(0.2, lock.close)
        leaving.start()
        with DataFolder(tmp_path):
            leaving.join()
    monkeypatch.setattr("tandem.stack.data_folder._WRITER_WAIT_SECONDS", 0.1)
    with (tmp_path / "shard-0" / "writer.lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StartRefused, match="has a writer already"):
            DataFolder(tmp_path).take()

    with DataFolder(tmp_path):  # neither is held by what was refused
        pass


def test_a_folder_is_closed_to_others_of_the_machine(tmp_path: Path) -> None:
    """Its stores and logs too where an earlier release left them open."""
    made_store(tmp_path / "data", 1)
    (tmp_path / "data" / "shard-0").chmod(0o755)
    with DataFolder(tmp_path / "data"), DataFolder(tmp_path / "new"):
        pass

    for name in ("data/shard-0", "data/logs", "new", "new/logs"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o700, name
    assert (tmp_path / "new" / "up.lock").stat().st_mode & 0o777 == 0o600


def test_a_demo_empties_only_tandems_own_folder(tmp_path: Path) -> None:
    """A caller's own folder keeps what is in it."""
    made_store(tmp_path, 1)
    (tmp_path / "letters").mkdir()
    (tmp_path / "shard-notes").touch()
    with DataFolder(tmp_path) as folder:
        (tmp_path / "logs" / "triton.log").touch()
        folder.clear()

    assert {path.name for path in tmp_path.rglob("*")} == {
        *("letters", "shard-notes", "logs", "up.lock")
    }


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/etc/hostname", "is a file"),
        ("/etc/hostname/data", "is a file, or lies in one"),
        ("/proc/tandem", "cannot hold data"),
        ("/dev/full", "is a file"),
    ],
)
def test_a_path_that_cannot_be_written_in_is_reported(path: str, why: str) -> None:
    with pytest.raises(StartRefused, match=f"{path} {why}.*--data"):
        DataFolder(Path(path)).take()


def test_the_folder_decides_the_number_of_shards(tmp_path: Path) -> None:
    """Another number is refused with both ways out; a new folder gets the requested one, or 2."""
    made_store(tmp_path, 3)
    stored = DataFolder(tmp_path).shard_count()

    assert stored == 3
    assert shard_count(None, stored, tmp_path) == shard_count(3, stored, tmp_path) == 3
    assert (shard_count(None, None, tmp_path), shard_count(5, None, tmp_path)) == (2, 5)
    with pytest.raises(StartRefused, match="has 3 shards, not 2: give --shards 3, or another"):
        shard_count(2, stored, tmp_path)
    assert DataFolder(tmp_path / "none").shard_count() is None


def test_a_missing_shard_is_named_where_another_one_has_items(tmp_path: Path) -> None:
    """A new store in its place would hide the loss. Without any item nothing can be lost."""
    for number in range(3):
        path = tmp_path / f"shard-{number}"
        path.mkdir()
        store = ItemStore.open(path, number, 3, map_bytes=1 << 20)
        if number == 1:
            store.apply([Upsert("scenes", FINGERPRINT, [text_item("a"), text_item("b")])])
        store.close()
    assert DataFolder(tmp_path).shard_count() == 3
    (tmp_path / "shard-2").rename(tmp_path / "away")

    for lost in ("shard-2", "shard-0"):
        (tmp_path / lost / "data.mdb").unlink(missing_ok=True)
        with pytest.raises(StartRefused, match=f"store of {lost} is missing, while shard-1 has 2"):
            DataFolder(tmp_path).shard_count()
        shutil.copytree(tmp_path / "away", tmp_path / "shard-2", dirs_exist_ok=True)

    (tmp_path / "shard-1" / "data.mdb").unlink()
    assert DataFolder(tmp_path).shard_count() == 3


def test_each_port_in_use_is_named_with_its_purpose() -> None:
    """A metrics' port counts as well."""
    ports = Ports.free(1)
    check_ports(ports)
    metrics = ports.metrics[ports.encoder]
    with (
        socket.create_server(("127.0.0.1", ports.orchestrator)),
        socket.create_server(("127.0.0.1", metrics)),
        pytest.raises(StartRefused) as refused,
    ):
        check_ports(ports)

    assert f"port {ports.orchestrator} (orchestrator), {metrics} (encoder's metrics)" in str(
        refused.value
    )
    assert "--free-ports" in str(refused.value)


def test_a_package_that_a_service_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)

    with pytest.raises(PackageMissing, match=r"torch.*pip install 'tandem-search\[models\]'"):
        check_machine(default_checkpoint())


def test_a_machine_without_triton_gets_an_install_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [Path("/nowhere/triton")]
    monkeypatch.setattr("tandem.triton.install._triton_folders", lambda: folders)

    with pytest.raises(StartRefused, match=r"pip install --no-deps --target /nowhere/triton"):
        check_machine(default_checkpoint())


def test_up_reports_mistakes_before_it_starts_anything(tmp_path: Path) -> None:
    data, repository = tmp_path / "data", tmp_path / "models"

    result = CliRunner().invoke(
        app,
        [
            *("up", "--free-ports", "--data", str(data), "--model-repository", str(repository)),
            *("--checkpoint", str(default_checkpoint())),
        ],
        env={"INDEX_RECALL_TARGET": "high"},
    )

    assert isinstance(result.exception, StartRefused)
    assert "INDEX_RECALL_TARGET" in str(result.exception)
    assert list((data / "logs").iterdir()) == []
    assert not repository.exists()
