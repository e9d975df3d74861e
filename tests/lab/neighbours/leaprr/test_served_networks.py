"""The exported networks: what is written, and what is refused with nothing written."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tandem.lab.neighbours.leaprr.served_networks import install_leaprr, trained_over
from tandem.model_io.repository.manifest import Manifest, config_file, model_file, read_manifest
from tandem.model_io.repository.model_repository import remove_model, stored_models
from tandem.model_io.repository.neighbour_manifest import (
    NEIGHBOUR_MODEL,
    NeighbourModelManifest,
    neighbour_manifest_of,
    neighbours_file,
)
from tandem.modeling.export.exported import ExportMismatch
from tandem.modeling.export.installation import _kept_neighbours
from tandem.modeling.export.verification import verify_repository
from tandem.platform.files.json_object import FileInvalid
from tests.support.neighbours.served_corpus import FINGERPRINT, tiny_leaprr

pytestmark = pytest.mark.xdist_group("export")


@pytest.fixture
def repository(tmp_path: Path, tiny_repository: Path) -> Path:
    """A copy of the small model's, to change."""
    return shutil.copytree(tiny_repository, tmp_path / "model_repository")


def installed(repository: Path) -> tuple[Manifest, NeighbourModelManifest]:
    """Adds networks over the repository's own model."""
    base = read_manifest(repository)
    return base, install_leaprr(tiny_leaprr("code"), base.fingerprint, repository)


def test_written_networks_are_read_and_listed(repository: Path) -> None:
    """The model itself keeps its manifest and fingerprint, and the whole verifies."""
    base, written = installed(repository)

    assert neighbour_manifest_of(repository) == written
    assert written.base_fingerprint == base.fingerprint
    assert verify_repository(repository) == base
    [listed] = [each for each in stored_models(repository) if each.neighbours is not None]
    assert (listed.name, listed.manifest, listed.is_config_ours) == (NEIGHBOUR_MODEL, None, True)
    assert listed.file_bytes == model_file(repository, NEIGHBOUR_MODEL).stat().st_size


def test_a_fingerprint_is_of_weights_configuration_and_base(tmp_path: Path) -> None:
    """Equal for the same three, whatever bytes an export has."""
    fingerprints = [
        install_leaprr(model, base, tmp_path).fingerprint
        for model, base in [
            (tiny_leaprr("paper"), "a"),
            (tiny_leaprr("paper"), "a"),
            (tiny_leaprr("paper", seed=2), "a"),
            (tiny_leaprr("paper", affinity_sharpness=0.5), "a"),
            (tiny_leaprr("paper"), "b"),
        ]
    ]

    assert fingerprints[0] == fingerprints[1]
    assert len(set(fingerprints)) == 4


def test_weights_that_are_not_finite_change_nothing(tmp_path: Path) -> None:
    before = install_leaprr(tiny_leaprr("code"), FINGERPRINT, tmp_path)
    broken = tiny_leaprr("code", seed=2)
    with torch.no_grad():
        next(iter(broken.text_queries.parameters())).fill_(torch.nan)

    with pytest.raises(ExportMismatch, match="differ by nan"):
        install_leaprr(broken, FINGERPRINT, tmp_path)

    assert neighbour_manifest_of(tmp_path) == before
    before.verify(tmp_path)
    assert not list(tmp_path.rglob(".staging"))


def test_more_items_than_a_graph_may_have_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="item_count"):
        install_leaprr(tiny_leaprr("paper", image_query_neighbours=65), FINGERPRINT, tmp_path)

    assert neighbour_manifest_of(tmp_path) is None


def test_pillars_of_an_ablation_are_not_served(tmp_path: Path) -> None:
    """The index gives a query's nearest alone."""
    with pytest.raises(ValueError, match="only those with both pillars from the top are served"):
        install_leaprr(tiny_leaprr("paper", pillar_rank="bottom"), FINGERPRINT, tmp_path)


def test_another_models_export_removes_them_and_the_same_keeps_them(repository: Path) -> None:
    """Networks over other embeddings would order by noise."""
    base, written = installed(repository)

    assert _kept_neighbours(repository, base) == {NEIGHBOUR_MODEL}
    assert neighbour_manifest_of(repository) == written
    other = install_leaprr(tiny_leaprr("code"), "another-model", repository)
    assert neighbour_manifest_of(repository) == other
    assert _kept_neighbours(repository, base) == set()
    assert not neighbours_file(repository).exists()
    assert not (repository / NEIGHBOUR_MODEL).exists()


def test_removing_the_model_removes_them(repository: Path) -> None:
    """All but a configuration that an operator wrote."""
    installed(repository)
    config_file(repository, NEIGHBOUR_MODEL).write_text('name: "leaprr"', encoding="utf-8")

    deleted = remove_model(repository)

    assert {neighbours_file(repository), model_file(repository, NEIGHBOUR_MODEL)} <= {*deleted}
    assert [path.name for path in (repository / NEIGHBOUR_MODEL).iterdir()] == ["config.pbtxt"]


def _cut(repository: Path) -> None:
    path = neighbours_file(repository)
    path.write_text(path.read_text("utf-8")[:50], encoding="utf-8")


def _change(**fields: object) -> Callable[[Path], None]:
    def change(repository: Path) -> None:
        path = neighbours_file(repository)
        content = json.loads(path.read_text("utf-8")) | fields
        path.write_text(json.dumps(content), encoding="utf-8")

    return change


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (_cut, "not JSON"),
        (_change(format_version=2), "format 2 instead of 1"),
        (_change(pillar_count=0), "pillar_count"),
        (
            _change(text_query={"item_count": 9, "node_count": 10, "threshold_nodes": None}),
            "both directions have 10 nodes",
        ),
    ],
)
def test_a_damaged_description_is_named(
    tmp_path: Path, damage: Callable[[Path], None], why: str
) -> None:
    install_leaprr(tiny_leaprr("code"), FINGERPRINT, tmp_path)
    damage(tmp_path)

    with pytest.raises(FileInvalid, match=why) as caught:
        neighbour_manifest_of(tmp_path)
    assert str(neighbours_file(tmp_path)) in str(caught.value)


def test_another_file_under_its_name_is_found_out(tmp_path: Path) -> None:
    manifest = install_leaprr(tiny_leaprr("code"), FINGERPRINT, tmp_path)
    manifest.verify(tmp_path)
    model_file(tmp_path, NEIGHBOUR_MODEL).write_bytes(b"another")

    with pytest.raises(ValueError, match="is not the file"):
        manifest.verify(tmp_path)


def test_a_training_names_the_model_it_was_over(tmp_path: Path) -> None:
    """A folder of tandem train neighbours, or a bare file."""
    path = tmp_path / "leaprr.safetensors"
    assert trained_over(tmp_path) == (path, None, 0)
    description = tmp_path / "training.json"

    def write(content: object) -> None:
        description.write_text(json.dumps(content), encoding="utf-8")

    for pool_size, form in [(0, None), (20, "own_pools")]:
        lists = {"model_fingerprint": "model-a", "pool_size": pool_size}
        write({"plan": {"train": lists}, "scored_pairs": form})
        assert trained_over(tmp_path) == trained_over(path) == (path, "model-a", pool_size)
    write({"steps": 5})
    with pytest.raises(FileInvalid, match="no training of LeaPRR"):
        trained_over(tmp_path)
