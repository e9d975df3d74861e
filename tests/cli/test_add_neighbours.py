"""`tandem models add-neighbours`, as typed."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.lab.neighbours.leaprr.saved_model import save_leaprr
from tandem.model_io.repository.manifest import Manifest
from tandem.model_io.repository.neighbour_manifest import neighbour_manifest_of
from tests.support.neighbours.served_corpus import tiny_leaprr

# On one worker: its tests share what takes long to make.
pytestmark = pytest.mark.xdist_group("export")


@pytest.fixture(name="repository")
def _repository(tiny_repository: Path, tmp_path: Path) -> Path:
    """A copy of the small model's, to change."""
    return shutil.copytree(tiny_repository, tmp_path / "repository")


@pytest.fixture(name="networks")
def _networks(tmp_path: Path) -> Path:
    """A file of networks that does not name the model that they were trained over."""
    path = tmp_path / "leaprr.safetensors"
    save_leaprr(path, tiny_leaprr("code"))
    return path


def run(networks: Path, repository: Path) -> tuple[int, str]:
    """Returns the exit status, and what was printed or raised."""
    words = ["models", "add-neighbours", str(networks), "--model-repository", str(repository)]
    result = CliRunner().invoke(app, words)
    return result.exit_code, " ".join(f"{result.output}{result.exception or ''}".split())


def test_networks_are_added_to_the_model_in_the_repository(
    networks: Path, repository: Path, tiny_manifest: Manifest
) -> None:
    """It says what they order, and whether the model is assumed."""
    status, printed = run(networks, repository)

    assert status == 0, printed
    added = neighbour_manifest_of(repository)
    assert added is not None
    assert added.base_fingerprint == tiny_manifest.fingerprint
    assert f"neighbour model {added.fingerprint[:12]} over {tiny_manifest.fingerprint[:12]}" in (
        printed
    )
    assert "orders 5 images for a text and 9 texts for an image" in printed
    assert "does not name the model that it was trained over; this one is assumed" in printed


def test_networks_of_another_model_are_refused(
    networks: Path, repository: Path, tiny_manifest: Manifest
) -> None:
    description = networks.with_name("training.json")
    lists: dict[str, object] = {"model_fingerprint": "b" * 64, "pool_size": 0}
    description.write_text(json.dumps({"plan": {"train": lists}}), encoding="utf-8")

    status, printed = run(networks.parent, repository)

    assert status == 1
    assert f"trained over model bbbbbbbbbbbb, and {repository} holds" in printed
    assert tiny_manifest.fingerprint[:12] in printed
    assert neighbour_manifest_of(repository) is None

    lists["model_fingerprint"] = tiny_manifest.fingerprint
    description.write_text(json.dumps({"plan": {"train": lists}}), encoding="utf-8")
    status, printed = run(networks.parent, repository)
    assert status == 0, printed
    assert "assumed" not in printed


def test_networks_over_a_rerank_say_of_which_rerank_k(
    networks: Path, repository: Path, tiny_manifest: Manifest
) -> None:
    lists = {"model_fingerprint": tiny_manifest.fingerprint, "pool_size": 20}
    training = {"plan": {"train": lists}, "scored_pairs": "own_pools"}
    networks.with_name("training.json").write_text(json.dumps(training), encoding="utf-8")

    status, printed = run(networks.parent, repository)

    assert status == 0, printed
    assert "9 texts for an image, over BE + CE 20" in printed
    added = neighbour_manifest_of(repository)
    assert added is not None
    assert added.describe().rerank_k == 20
