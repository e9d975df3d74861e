"""A small model and its export, shared; and one thread a test process.

Test runs share cores, and torch's threads wait for one another.
"""

import shutil
from pathlib import Path

import pytest
import torch

from tandem.model_io.repository.precision import Precision
from tandem.modeling.export.export import export_model
from tests.support.modeling.tiny_checkpoint import save_tiny_checkpoint

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small model. Not to be changed."""
    folder = tmp_path_factory.mktemp("checkpoint")
    save_tiny_checkpoint(folder)
    return folder


@pytest.fixture(scope="session")
def exported(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its export in full precision. Not to be changed."""
    folder = tmp_path_factory.mktemp("exported")
    export_model(checkpoint, folder, Precision.FP32)
    return folder


@pytest.fixture
def repository(exported: Path, tmp_path: Path) -> Path:
    """A copy of the export, for a test to damage."""
    return shutil.copytree(exported, tmp_path / "repository")
