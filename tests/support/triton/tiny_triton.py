"""Fixtures around the Triton that the whole session shares, and Tritons of a test's own; a plugin.

The first worker that needs the shared one starts it, others join it, and it stops with the last.
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pytest
import pytest_asyncio

from tandem.contract.model_description import ProbabilityCalibration
from tandem.model_io.inference.served_model import ServedModel
from tandem.model_io.repository.calibration import Calibration, calibration_file, write_calibrations
from tandem.model_io.repository.config_pbtxt import INSTANCE_COUNT
from tandem.model_io.repository.manifest import IMAGE_BACKBONE, Manifest, read_manifest
from tandem.model_io.repository.precision import Precision
from tandem.stack.free_ports import free_ports
from tandem.triton.client import TritonClient
from tandem.triton.server import TritonServer
from tests.support.once_a_session import at_session_end, locked, made_once, session_folder

_TWO_INSTANCES = f"count: {INSTANCE_COUNT},"


@dataclass(frozen=True, slots=True)
class Serving:
    """Where a server is that is ready."""

    grpc_port: int
    metrics_port: int

    @property
    def address(self) -> str:
        """Returns host:port for a TritonClient."""
        return f"127.0.0.1:{self.grpc_port}"

    @property
    def metrics_url(self) -> str:
        """Returns where Prometheus would scrape it."""
        return f"http://127.0.0.1:{self.metrics_port}/metrics"


@dataclass(frozen=True, slots=True)
class OwnServing(Serving):
    """A server that a test may stop and start."""

    server: TritonServer


@contextmanager
def serving(repository: Path) -> Iterator[OwnServing]:
    """Serves every model of the repository, and stops at the end."""
    running = _started(repository)
    try:
        yield running
    finally:
        running.server.stop()


def _started(repository: Path) -> OwnServing:
    grpc_port, metrics_port = free_ports(2)
    server = TritonServer(
        model_repository=repository,
        grpc_port=grpc_port,
        metrics_port=metrics_port,
        log_path=repository.with_name(f"{repository.name}.log"),
        thread_count=1,
    )
    server.start()
    return OwnServing(grpc_port, metrics_port, server)


def with_lone_instances(repository: Path, folder: Path, name: str = "*") -> Path:
    """Copies the repository to `folder` with one instance of each model, or of the named one;
    returns `folder`.

    Each instance imports torch, which takes seconds of CPU.
    """
    shutil.copytree(repository, folder)
    for path in folder.glob(f"{name}/config.pbtxt"):
        text = path.read_text(encoding="utf-8")
        assert text.count(_TWO_INSTANCES) == 1, path
        path.write_text(text.replace(_TWO_INSTANCES, "count: 1,"), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of a small model's checkpoint."""
    # Here, not above: every test run loads this plugin, and few need torch's two seconds.
    from tests.support.triton.tiny_model import save_tiny_checkpoint

    return made_once(tmp_path_factory, "tiny_checkpoint", save_tiny_checkpoint)


@pytest.fixture(scope="session")
def tiny_repository(tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Path) -> Path:
    """Returns the small model, exported, with a calibration. Not to be changed: copy it."""

    def export(folder: Path) -> None:
        from tandem.modeling.export.export import export_model

        export_model(tiny_checkpoint, folder, Precision.FP32)
        measured = Calibration(
            read_manifest(folder).fingerprint, ProbabilityCalibration(scale=0.5), None
        )
        write_calibrations(calibration_file(folder), [measured])

    return made_once(tmp_path_factory, "tiny_repository", export)


@pytest.fixture(scope="session")
def lone_instances(tmp_path_factory: pytest.TempPathFactory, tiny_repository: Path) -> Path:
    """Returns the small model, exported, with one instance of each Triton model. Not to be changed.

    A start costs half: each instance imports torch. For tests that do not load both instances.
    """
    return made_once(
        tmp_path_factory,
        "lone_instances",
        lambda folder: with_lone_instances(tiny_repository, folder),
    )


@pytest.fixture(scope="session")
def tiny_manifest(tiny_repository: Path) -> Manifest:
    """Returns the small model's manifest."""
    return read_manifest(tiny_repository)


@pytest.fixture(scope="session")
def served_models(tmp_path_factory: pytest.TempPathFactory, tiny_repository: Path) -> Path:
    """Returns what the shared server serves: the small model, odd ones, and LeaPRR's networks.

    Tests load both instances of the joint encoder alone.
    """

    def make(folder: Path) -> None:
        from tandem.lab.neighbours.leaprr.served_networks import install_leaprr
        from tests.support.neighbours.served_corpus import FINGERPRINT, tiny_leaprr
        from tests.support.triton.odd_models import write_odd_models

        with_lone_instances(tiny_repository, folder, IMAGE_BACKBONE)
        write_odd_models(folder)
        install_leaprr(tiny_leaprr("code"), FINGERPRINT, folder)

    return made_once(tmp_path_factory, "served_models", make)


@pytest.fixture(scope="session")
def shared_triton(tmp_path_factory: pytest.TempPathFactory, served_models: Path) -> Serving:
    """Returns the server that all workers share. Not to be harmed.

    Its own counts grow by the calls of other workers; what a test sends, its client counts.
    """
    folder = session_folder(tmp_path_factory)
    users = (folder / "triton.users").open("ab")
    fcntl.flock(users, fcntl.LOCK_SH)
    at_session_end(users.close)
    ports = folder / "triton.ports"
    with locked(folder / "triton.lock"):
        if not ports.exists():
            running = _started(served_models)
            at_session_end(lambda: _stop_after_others(users, ports, running.server))
            ports.write_text(f"{running.grpc_port} {running.metrics_port}")
        return Serving(*map(int, ports.read_text().split()))


def _stop_after_others(users: BinaryIO, ports: Path, server: TritonServer) -> None:
    """Waits until no other worker is a user; later ones wait for `users`, and start their own."""
    fcntl.flock(users, fcntl.LOCK_EX)
    server.stop()
    ports.unlink()


@pytest_asyncio.fixture(scope="session")
async def triton_client(shared_triton: Serving) -> AsyncIterator[TritonClient]:
    """Yields a connection to it."""
    client = TritonClient(shared_triton.address)
    yield client
    await client.close()


@pytest.fixture(scope="session")
def tiny_served(triton_client: TritonClient, tiny_manifest: Manifest) -> ServedModel:
    """Returns the small model as the services see it."""
    return ServedModel(triton_client, tiny_manifest)
