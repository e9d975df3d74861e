"""Fixtures around real Triton servers, shared by the tests of all rooms that talk to one.

A plugin, named in tests/conftest.py, and not a conftest: a conftest's session has one server for
each folder.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from tandem.contract.model_description import ProbabilityCalibration
from tandem.inference.served_model import ServedModel
from tandem.local.free_ports import free_ports
from tandem.repository.calibration import Calibration, calibration_file, write_calibrations
from tandem.repository.config_pbtxt import INSTANCE_COUNT
from tandem.repository.manifest import IMAGE_BACKBONE, Manifest, read_manifest
from tandem.repository.precision import Precision
from tandem.triton.client import TritonClient
from tandem.triton.server import TritonServer

_TWO_INSTANCES = f"count: {INSTANCE_COUNT},"


@dataclass(frozen=True, slots=True)
class Serving:
    """A server, ready, and where it is."""

    server: TritonServer
    grpc_port: int
    metrics_port: int

    @property
    def address(self) -> str:
        """host:port for a TritonClient."""
        return f"127.0.0.1:{self.grpc_port}"

    @property
    def metrics_url(self) -> str:
        """Where Prometheus would scrape it."""
        return f"http://127.0.0.1:{self.metrics_port}/metrics"


@contextmanager
def serving(repository: Path) -> Iterator[Serving]:
    """Serves every model of the repository, and stops at the end."""
    grpc_port, metrics_port = free_ports(2)
    server = TritonServer(
        model_repository=repository,
        grpc_port=grpc_port,
        metrics_port=metrics_port,
        log_path=repository.with_name(f"{repository.name}.log"),
        thread_count=1,
    )
    server.start()
    try:
        yield Serving(server, grpc_port, metrics_port)
    finally:
        server.stop()


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
    """The folder of a small model's checkpoint."""
    # Here, not above: every test run loads this plugin, and few need torch's two seconds.
    from tests.support.triton.tiny_model import save_tiny_checkpoint

    return save_tiny_checkpoint(tmp_path_factory.mktemp("tiny") / "checkpoint")


@pytest.fixture(scope="session")
def tiny_repository(tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Path) -> Path:
    """The small model, exported, with a calibration. Not to be changed: copy it."""
    import torch

    from tandem.modeling.export.export import export_model

    # Workers share the cores, and torch's threads wait for one another.
    torch.set_num_threads(1)
    repository = tmp_path_factory.mktemp("tiny") / "model_repository"
    export_model(tiny_checkpoint, repository, Precision.FP32)
    measured = Calibration(
        read_manifest(repository).fingerprint, ProbabilityCalibration(scale=0.5), None
    )
    write_calibrations(calibration_file(repository), [measured])
    return repository


@pytest.fixture(scope="session")
def lone_instances(tmp_path_factory: pytest.TempPathFactory, tiny_repository: Path) -> Path:
    """The small model, exported, with one instance of each Triton model. Not to be changed.

    A start costs half: each instance imports torch. For tests that do not load both instances.
    """
    folder = tmp_path_factory.mktemp("tiny-lone") / "model_repository"
    return with_lone_instances(tiny_repository, folder)


@pytest.fixture(scope="session")
def tiny_manifest(tiny_repository: Path) -> Manifest:
    """The small model's manifest."""
    return read_manifest(tiny_repository)


@pytest.fixture(scope="session")
def tiny_serving(
    tmp_path_factory: pytest.TempPathFactory, tiny_repository: Path
) -> Iterator[Serving]:
    """A server of the small model for the whole session. Not to be harmed.

    Tests load both instances of the joint encoder alone.
    """
    folder = tmp_path_factory.mktemp("tiny-serving") / "model_repository"
    with serving(with_lone_instances(tiny_repository, folder, IMAGE_BACKBONE)) as running:
        yield running


@pytest.fixture(scope="session")
def odd_serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server of models that fail on request. Not to be harmed otherwise."""
    from tests.support.triton.odd_models import write_odd_models

    repository = write_odd_models(tmp_path_factory.mktemp("odd") / "model_repository")
    with serving(repository) as running:
        yield running


@pytest_asyncio.fixture(scope="session")
async def odd_client(odd_serving: Serving) -> AsyncIterator[TritonClient]:
    """A connection to that server."""
    client = TritonClient(odd_serving.address)
    yield client
    await client.close()


@pytest_asyncio.fixture(scope="session")
async def tiny_client(tiny_serving: Serving) -> AsyncIterator[TritonClient]:
    """A connection to that server."""
    client = TritonClient(tiny_serving.address)
    yield client
    await client.close()


@pytest.fixture(scope="session")
def tiny_served(tiny_client: TritonClient, tiny_manifest: Manifest) -> ServedModel:
    """The small model as the services see it."""
    return ServedModel(tiny_client, tiny_manifest)
