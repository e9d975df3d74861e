"""A Triton that we start: what it needs, how it can die, and that nothing of it stays."""

import asyncio
import os
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from tandem.errors import DeadlineExceeded, ModelUnavailable
from tandem.model_io.inference.model_runner import ModelAnswer, OutputSpec
from tandem.model_io.repository.manifest import Manifest
from tandem.model_io.repository.model_version import ModelVersion, version_folder, write_serving
from tandem.model_io.repository.model_version import Serving as Version
from tandem.stack.free_ports import free_ports
from tandem.triton.client import TritonClient
from tandem.triton.server import TritonServer, TritonUnavailable
from tests.support.triton.odd_models import (
    ECHO,
    MOODY,
    PLAIN,
    SLOW,
    UNBATCHED,
    write_echo,
    write_moody,
    write_unbatched,
)
from tests.support.triton.tiny_triton import OwnServing, serving

pytestmark = pytest.mark.xdist_group("triton-server")

STUB = "triton_python_backend_stub"
SHARED_MEMORY = Path("/dev/shm")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository of one model that loads soon."""
    return write_echo(tmp_path / "models")


@pytest.fixture
def echoing(repository: Path) -> Iterator[OwnServing]:
    """A server of that model; a test may do with it what it likes."""
    with serving(repository) as running:
        yield running


def processes_of_group(group: int) -> dict[int, str]:
    """Returns the processes that are not yet dead, by id, with their names."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = path.read_text().partition("(")[2].rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue
        state, _, its_group = rest.split()[:3]
        if int(its_group) == group and state != "Z":
            found[int(path.parent.name)] = name
    return found


def children_of(parent: int) -> dict[int, str]:
    """Returns the children's ids, with the commands that they run."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            its_parent = int(path.read_text().rpartition(")")[2].split()[1])
            command = (path.parent / "cmdline").read_bytes().split(b"\0")[0].decode()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if its_parent == parent:
            found[int(path.parent.name)] = Path(command).name
    return found


def regions(server: TritonServer) -> list[Path]:
    """Returns the server's shared memory."""
    return list(SHARED_MEMORY.glob(f"{server._region_prefix}*"))


def is_listening(port: int) -> bool:
    """Returns whether connections to the port are taken."""
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


def assert_nothing_is_left(running: OwnServing, group: int) -> None:
    """Fails if a process, a region, a port or a work folder of the server still is."""
    assert processes_of_group(group) == {}
    assert regions(running.server) == []
    assert not is_listening(running.grpc_port)
    assert not is_listening(running.metrics_port)
    assert running.server._work_folder is None
    assert not running.server.is_running()


def test_a_damaged_version_that_serves_is_not_started(
    tiny_repository: Path, tiny_manifest: Manifest, tmp_path: Path
) -> None:
    """To load a file is to run what is in it; it was whole when it was swapped in."""
    repository = shutil.copytree(tiny_repository, tmp_path / "repository")
    folder = version_folder(repository, 2)
    folder.mkdir()
    ModelVersion(
        fingerprint=tiny_manifest.fingerprint,
        precision="fp32",
        model_sha256=sha256(b"a model").hexdigest(),
        checkpoint={},
        calibration_fingerprint="",
    ).write(folder)
    (folder / "model.pt").write_bytes(b"garbage")
    write_serving(repository, Version(version=2))

    with (
        pytest.raises(
            TritonUnavailable, match=r"serving.json says that version 2 serves, .* is not the file"
        ),
        serving(repository),
    ):
        pass

    assert not repository.with_name("repository.log").exists()


async def answer_of(running: OwnServing, model: str = ECHO) -> list[float]:
    """Returns what a new client gets from the model for 1 and 2; never hangs."""
    client = TritonClient(running.address)
    output = OutputSpec("OUTPUT__0", np.float32, ())
    values = np.array([1, 2], dtype=np.float32)
    try:
        async with asyncio.timeout(60):
            answer = await client.infer(model, {"x": values}, [output], timeout_seconds=60.0)
    finally:
        await client.close()
    [array] = answer.arrays
    return array.tolist()


def stub_of(running: OwnServing) -> int:
    """Returns the id of the process that runs the model."""
    [stub] = [pid for pid, name in children_of(running.server.pid).items() if name == STUB]
    return stub


def kill_the_stub(running: OwnServing) -> None:
    """Ends the process that runs the model, as the kernel does when memory is short."""
    os.kill(stub_of(running), signal.SIGKILL)


async def test_stopping_cleans_up_and_it_restarts_at_its_address(echoing: OwnServing) -> None:
    """No process of its group, no shared memory with its prefix, no port, no folder; the same
    object then serves on the same ports, at once.
    """
    assert await answer_of(echoing) == [1, 2]
    group = echoing.server.pid
    # Positive control: while it runs, each of these is there to be found.
    assert len(processes_of_group(group)) == 2
    assert regions(echoing.server)
    assert is_listening(echoing.grpc_port)
    assert is_listening(echoing.metrics_port)

    echoing.server.stop()

    assert_nothing_is_left(echoing, group)
    echoing.server.stop()  # a second call does no harm

    echoing.server.start()

    assert await answer_of(echoing) == [1, 2]


async def test_a_killed_stub_is_an_error_and_no_hang(echoing: OwnServing) -> None:
    group = echoing.server.pid
    kill_the_stub(echoing)

    for _ in range(3):
        with pytest.raises(ModelUnavailable, match="its process in Triton is dead"):
            await answer_of(echoing)

    echoing.server.stop()
    assert_nothing_is_left(echoing, group)


async def test_a_server_that_leaves_is_unavailable_and_not_unknown(tmp_path: Path) -> None:
    """When it stops, it ends what it runs and says NOT_FOUND to others, who may go elsewhere."""
    repository = write_moody(tmp_path / "models")
    with serving(repository) as leaving:
        client = TritonClient(leaving.address)
        output = OutputSpec("OUTPUT__0", np.float32, (3,))

        async def moody(mood: float) -> ModelAnswer:
            values = np.full((8, 3), mood, dtype=np.float32)
            return await client.infer(MOODY, {"x": values}, [output], timeout_seconds=10.0)

        await moody(PLAIN)
        running = [asyncio.create_task(moody(SLOW)) for _ in range(2)]
        await asyncio.sleep(0.2)
        os.kill(leaving.server.pid, signal.SIGTERM)
        refused_count = 0
        deadline_time = time.monotonic() + 60
        while refused_count < 3 and time.monotonic() < deadline_time:
            try:
                await moody(PLAIN)
            except ModelUnavailable:  # whatever Triton says; it has said garbage
                refused_count += 1
            except DeadlineExceeded:  # one that it took as it left, on a machine that is busy
                deadline_time = time.monotonic() + 60
            await asyncio.sleep(0.02)
        await asyncio.gather(*running, return_exceptions=True)
        await client.close()

    assert refused_count == 3


async def test_a_killed_server_ends_its_stubs(echoing: OwnServing) -> None:
    """A stub that does not notice outlives its server; stop() finds it all the same."""
    group = echoing.server.pid
    os.kill(stub_of(echoing), signal.SIGSTOP)
    os.kill(group, signal.SIGKILL)
    await asyncio.to_thread(echoing.server._process.wait, 60)
    assert STUB[:15] in processes_of_group(group).values()

    with pytest.raises(ModelUnavailable):
        await answer_of(echoing)

    echoing.server.stop()
    assert_nothing_is_left(echoing, group)


async def test_it_serves_on_a_machine_as_it_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of the folder, a proxy, a locale and another Python's variables reach nothing of it."""
    repository = write_unbatched(tmp_path / "models")
    folder = tmp_path / "a folder" / "numpy"
    folder.mkdir(parents=True)
    for name in ("random", "torch", "json", "triton_python_backend_utils", "numpy/__init__"):
        (folder.parent / f"{name}.py").write_text("raise SystemExit('not meant')")
    monkeypatch.chdir(folder.parent)
    monkeypatch.setattr("tempfile.tempdir", str(folder.parent))
    for variable in ("http_proxy", "https_proxy", "grpc_proxy", "ALL_PROXY", "HTTP_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    for variable in ("no_proxy", "NO_PROXY", "HOME", "LANG"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("LC_ALL", "xx_YY.ISO-8859-77")
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    monkeypatch.setenv("PYTHONPATH", str(folder.parent))
    monkeypatch.setenv("PYTHONOPTIMIZE", "2")

    with serving(repository) as running:
        assert await answer_of(running, UNBATCHED) == [2, 4]


def test_stopped_during_its_start_it_leaves_nothing(repository: Path) -> None:
    grpc_port, metrics_port = free_ports(2)
    server = TritonServer(
        model_repository=repository,
        grpc_port=grpc_port,
        metrics_port=metrics_port,
        log_path=repository.with_name("triton.log"),
    )
    groups: list[int] = []

    def should_stop() -> bool:
        groups.append(server.pid)
        return True

    with pytest.raises(TritonUnavailable, match="stopped while Triton started"):
        server.start(should_stop)

    assert_nothing_is_left(OwnServing(grpc_port, metrics_port, server), groups[0])


class Crash:
    """Ends a server that starts by one signal after another: a `should_stop` that stays false."""

    def __init__(self, server: TritonServer, *numbers: signal.Signals) -> None:
        self.server, self.left = server, list(numbers)

    def __call__(self) -> bool:
        if self.left and self.server.is_running():
            os.kill(self.server.pid, self.left.pop(0))
            self.server._process.wait(60)
        return False


async def test_a_server_that_crashes_at_its_start_is_started_again(repository: Path) -> None:
    server = server_of(repository, free_ports(1)[0])
    try:
        server.start(Crash(server, signal.SIGSEGV, signal.SIGABRT))
        running = OwnServing(server._grpc_port, server._metrics_port, server)
        assert await answer_of(running) == [1, 2]
    finally:
        server.stop()


def test_a_server_that_always_crashes_says_how(repository: Path) -> None:
    server = server_of(repository, free_ports(1)[0])
    crash = Crash(server, signal.SIGABRT, signal.SIGABRT, signal.SIGSEGV)
    why = r"^Triton ended by SIGSEGV while starting\n(.*\n)+.*3 times.*start it again"

    with pytest.raises(TritonUnavailable, match=why):
        server.start(crash)

    assert crash.left == []
    assert not server.is_running()


def test_a_server_that_is_killed_at_its_start_is_not_started_again(repository: Path) -> None:
    server = server_of(repository, free_ports(1)[0])
    crash = Crash(server, signal.SIGKILL, signal.SIGKILL)

    with pytest.raises(TritonUnavailable, match=r"^Triton ended by SIGKILL while starting"):
        server.start(crash)

    assert crash.left == [signal.SIGKILL]


def server_of(repository: Path, grpc_port: int) -> TritonServer:
    """Returns a server that was not started."""
    return TritonServer(
        model_repository=repository,
        grpc_port=grpc_port,
        metrics_port=free_ports(1)[0],
        log_path=repository.with_name("triton.log"),
    )


def assert_refuses_to_start(server: TritonServer, why: str) -> None:
    """Fails unless start() says why it cannot, soon, and leaves nothing."""
    start_time = time.monotonic()
    with pytest.raises(TritonUnavailable, match=why):
        server.start()
    assert time.monotonic() - start_time < 60  # of the 120 that a start may take
    assert not server.is_running()
    assert server._work_folder is None
    with pytest.raises(TritonUnavailable, match="not started"):
        _ = server.pid


def test_a_port_in_use_is_refused(repository: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert_refuses_to_start(server_of(repository, port), f"127.0.0.1:{port} is not available")
