"""Swaps with a Triton that is late, overloaded or gone: what passes costs no version."""

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tandem.model_io.repository.manifest import JOINT_ENCODER, Manifest
from tandem.model_io.repository.model_version import (
    SERVING_NAME,
    ModelVersion,
    Serving,
    Wanted,
    serving,
    version_folder,
    version_numbers,
    write_wanted,
)
from tandem.stack.stack import LocalStack, Ports
from tandem.stack.version_swaps import VersionSwaps
from tandem.triton.server import TritonServer

Fault = tuple[grpc.StatusCode, str]

LATE: Fault = (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
GONE: Fault = (grpc.StatusCode.UNAVAILABLE, "failed to connect to all addresses")
BUSY: Fault = (grpc.StatusCode.UNAVAILABLE, "Exceeds maximum queue size")
NOT_LOADED: Fault = (grpc.StatusCode.INTERNAL, "version 2 is at UNAVAILABLE state: no TorchScript")


class FailingTriton(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Fails on request, which no real Triton does; else it loads whatever is linked.

    What it infers is nothing at all.
    """

    def __init__(self, models: Path) -> None:
        self.models = models
        self.faults: dict[str, Fault] = {}
        self.loaded = {1}

    def RepositoryModelLoad(
        self, request: object, context: grpc.ServicerContext
    ) -> service_pb2.RepositoryModelLoadResponse:
        self._fail(context, "load")
        self.loaded = {int(path.name) for path in (self.models / JOINT_ENCODER).iterdir()}
        return service_pb2.RepositoryModelLoadResponse()

    def RepositoryIndex(
        self, request: object, context: grpc.ServicerContext
    ) -> service_pb2.RepositoryIndexResponse:
        self._fail(context, "index")
        models = [
            service_pb2.RepositoryIndexResponse.ModelIndex(
                name=JOINT_ENCODER, version=str(version), state="READY"
            )
            for version in self.loaded
        ]
        return service_pb2.RepositoryIndexResponse(models=models)

    def ModelStatistics(
        self, request: object, context: grpc.ServicerContext
    ) -> service_pb2.ModelStatisticsResponse:
        self._fail(context, "statistics")
        never = service_pb2.ModelStatistics(name=JOINT_ENCODER, last_inference=0)
        return service_pb2.ModelStatisticsResponse(model_stats=[never])

    def ServerMetadata(
        self, request: object, context: grpc.ServicerContext
    ) -> service_pb2.ServerMetadataResponse:
        return service_pb2.ServerMetadataResponse(name="triton", version="2.51.0")

    def ModelMetadata(
        self, request: object, context: grpc.ServicerContext
    ) -> service_pb2.ModelMetadataResponse:
        return service_pb2.ModelMetadataResponse(name=JOINT_ENCODER)

    def ModelInfer(
        self, request: object, context: grpc.ServicerContext
    ) -> service_pb2.ModelInferResponse:
        self._fail(context, "infer")
        return service_pb2.ModelInferResponse(model_name=JOINT_ENCODER)

    def _fail(self, context: grpc.ServicerContext, what: str) -> None:
        if fault := self.faults.get(what):
            context.abort(*fault)


class ServerWithoutProcess(TritonServer):
    """What the swaps know of a Triton, with no process to count."""

    def __init__(self, repository: Path, grpc_port: int, models: Path) -> None:
        super().__init__(
            model_repository=repository,
            grpc_port=grpc_port,
            metrics_port=0,
            log_path=models.with_name("log"),
            is_swappable=True,
        )
        self.models = models
        self.is_counted = True

    def loaded_folder(self, model: str) -> Path:
        return self.models / model

    def recount_processes(self, *, are_some_ending: bool = False) -> None:
        self.is_counted = not are_some_ending


class StackAround(LocalStack):
    """A stack whose Triton is that one."""

    def __init__(self, server: ServerWithoutProcess) -> None:
        super().__init__(server.models, server.model_repository, Ports.free(1), swaps=True)
        self.server = self.triton = server


@pytest.fixture(name="repository")
def _repository(tiny_repository: Path, tiny_manifest: Manifest, tmp_path: Path) -> Path:
    """A copy with a second version, whose file is not opened here."""
    repository = shutil.copytree(tiny_repository, tmp_path / "repository")
    folder = version_folder(repository, 2)
    folder.mkdir()
    (folder / "model.pt").write_bytes(b"a model")
    ModelVersion(
        fingerprint=tiny_manifest.fingerprint,
        precision="fp32",
        model_sha256=sha256(b"a model").hexdigest(),
        checkpoint={},
        calibration_fingerprint="",
    ).write(folder)
    return repository


@pytest.fixture(name="triton")
def _triton(tmp_path: Path, repository: Path) -> FailingTriton:
    models = tmp_path / "models"
    (models / JOINT_ENCODER).mkdir(parents=True)
    (models / JOINT_ENCODER / "1").symlink_to(version_folder(repository, 1))
    return FailingTriton(models)


@pytest.fixture(name="server")
def _server(triton: FailingTriton, repository: Path) -> Iterator[ServerWithoutProcess]:
    with ThreadPoolExecutor(2) as threads:
        listening = grpc.server(threads)
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(triton, listening)
        port = listening.add_insecure_port("127.0.0.1:0")
        listening.start()
        yield ServerWithoutProcess(repository, port, triton.models)
        listening.stop(None).wait()


@pytest.fixture(name="swaps")
def _swaps(server: ServerWithoutProcess, tiny_manifest: Manifest) -> VersionSwaps:
    return VersionSwaps(StackAround(server), tiny_manifest)


def asked_for(repository: Path, version: int) -> None:
    """Asks as tandem models swap does."""
    write_wanted(repository, Wanted(request_id=f"for {version}", version=version))


@pytest.mark.parametrize(
    ("faults", "says"),
    [
        ({"load": LATE}, "Deadline Exceeded"),
        ({"load": GONE}, "failed to connect"),
        ({"infer": BUSY}, "queue"),
        ({"infer": LATE}, "inference of joint_encoder"),
        ({"infer": BUSY, "index": GONE}, "queue"),
    ],
)
def test_a_version_that_could_not_be_tried_keeps_its_place(
    swaps: VersionSwaps,
    triton: FailingTriton,
    repository: Path,
    faults: dict[str, Fault],
    says: str,
) -> None:
    """A machine that is busy says nothing of the version; it can be asked for again."""
    triton.faults = faults
    asked_for(repository, 2)

    line = swaps.look()

    assert line is not None
    assert says in line
    assert "tandem models swap --to 2" in serving(repository).refusal
    assert serving(repository).version == 1
    assert version_numbers(repository) == [1, 2]


@pytest.mark.parametrize("fault", ["no load", "no answer", "another file"])
def test_a_version_that_is_not_fit_is_set_aside(
    swaps: VersionSwaps, triton: FailingTriton, repository: Path, fault: str
) -> None:
    """Triton cannot load it, it answers nothing, or it is not the file that was exported."""
    if fault == "no load":
        triton.faults = {"load": NOT_LOADED}
    elif fault == "another file":
        (version_folder(repository, 2) / "model.pt").write_bytes(b"a nodel")
    asked_for(repository, 2)

    swaps.look()

    assert "moved to refused-2" in serving(repository).refusal
    assert version_numbers(repository) == [1]


@pytest.mark.parametrize("late", ["load", "index", "statistics"])
def test_the_current_version_serves_while_an_old_one_cannot_be_unloaded(
    swaps: VersionSwaps,
    triton: FailingTriton,
    server: ServerWithoutProcess,
    repository: Path,
    late: str,
) -> None:
    """It is tried again with each look, and lost processes are reported once it is done."""
    triton.loaded = {1, 2}
    (triton.models / JOINT_ENCODER / "2").symlink_to(version_folder(repository, 2))
    swaps._leaving = 2
    triton.faults = {late: LATE}

    assert [swaps.look() for _ in range(2)] == [None, None]
    assert triton.loaded == {1, 2}
    triton.faults = {}
    swaps.look()

    assert triton.loaded == {1}
    assert server.is_counted
    asked_for(repository, 1)
    assert swaps.look() == "version 1 serves"


def test_a_version_that_is_loaded_too_late_is_unloaded_again(
    swaps: VersionSwaps, triton: FailingTriton, repository: Path
) -> None:
    """No call waits for it any more, and it has processes and memory."""
    triton.faults = {"load": LATE}
    asked_for(repository, 2)
    swaps.look()
    triton.loaded = {1, 2}  # it went on by itself

    triton.faults = {}
    swaps.look()

    assert triton.loaded == {1}


def test_a_refused_version_whose_unload_is_late_is_unloaded_again(
    swaps: VersionSwaps, triton: FailingTriton, server: ServerWithoutProcess, repository: Path
) -> None:
    """The error names its own fault, not Triton's."""
    asked_for(repository, 2)
    triton.faults = {"index": LATE}

    assert "moved to refused-2" in str(swaps.look())
    assert not server.is_counted
    triton.faults = {}
    swaps.look()

    assert triton.loaded == {1}
    assert server.is_counted


@pytest.fixture(name="full_disk")
def _full_disk(repository: Path) -> Path:
    """A folder under the name that the outcome is first written to: no file can be made there."""
    folder = repository / f".{SERVING_NAME}.{os.getpid()}"
    folder.mkdir()
    return folder


def test_an_unwritable_outcome_is_reported_once_and_written_later(
    swaps: VersionSwaps, triton: FailingTriton, repository: Path, full_disk: Path
) -> None:
    """A full disk ends nothing that serves."""
    triton.faults = {"load": LATE}
    asked_for(repository, 2)

    assert "make room" in str(swaps.look())
    assert swaps.look() is None
    assert serving(repository) == Serving()
    full_disk.rmdir()

    assert "Deadline Exceeded" in str(swaps.look())
    assert "tandem models swap --to 2" in serving(repository).refusal
    assert swaps.look() is None
