"""The exporter: what Triton will load gives what the checkpoint gives, or nothing is written."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor, nn

from tandem.model_io.config_pbtxt import joint_model_configs
from tandem.model_io.manifest import read_manifest
from tandem.modeling.checkpoint import load_checkpoint
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export import (
    ExportMismatch,
    _manifest,
    export_if_stale,
    export_model,
)
from tandem.modeling.joint_model import JointEncoder
from tests.modeling.tiny_checkpoint import save_tiny_checkpoint

# On one worker: its tests share what takes long to make.
pytestmark = pytest.mark.xdist_group("export")

ROOT = Path(__file__).parents[2]
MODELS = ("image_backbone", "joint_encoder")

# torch's own comparison imports two seconds of distributed tensors.
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


@pytest.fixture(name="checkpoint", scope="module")
def _checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    save_tiny_checkpoint(folder)
    return folder


@pytest.fixture(name="exported", scope="module")
def _exported(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export that no test changes."""
    folder = tmp_path_factory.mktemp("exported")
    export_model(checkpoint, folder)
    return folder


@pytest.fixture(name="repository")
def _repository(exported: Path, tmp_path: Path) -> Path:
    """A copy of the export, for a test to damage."""
    return shutil.copytree(exported, tmp_path / "repository")


def files_of(folder: Path) -> dict[str, bytes]:
    """Returns every file under the folder with its bytes."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_an_export_is_a_whole_model_repository(exported: Path) -> None:
    """Two models with configurations, one manifest, one tokenizer, and nothing left lying about."""
    assert set(files_of(exported)) == {
        "image_backbone/1/model.pt",
        "image_backbone/config.pbtxt",
        "joint_encoder/1/model.pt",
        "joint_encoder/config.pbtxt",
        "joint_encoder/manifest.json",
        "joint_encoder/tokenizer.json",
    }
    assert not exported.with_name(f".{exported.name}.staging").exists()
    read_manifest(exported).verify(exported)


def test_the_manifest_tells_of_the_checkpoint(checkpoint: Path, exported: Path) -> None:
    """Shapes, special ids and the weights' digest are those of the model exported."""
    loaded = load_checkpoint(checkpoint)

    manifest = read_manifest(exported)

    assert (manifest.embedding_dim, manifest.token_width) == (16, 16)
    assert (manifest.image_size, manifest.image_token_count) == (112, 49)
    assert manifest.max_text_tokens == manifest.text_length_buckets[-1] == 64
    assert manifest.vocabulary_size == loaded.model.config.vocabulary_size
    assert (manifest.pad_id, manifest.cls_id, manifest.sep_id) == (0, 2, 3)
    assert manifest.checkpoint == {"weights_sha256": loaded.weights_sha256}


@torch.inference_mode()
def test_exported_models_give_what_the_checkpoint_gives(checkpoint: Path, exported: Path) -> None:
    """On inputs that the exporter did not try, by the names that config.pbtxt gives them."""
    model = load_checkpoint(checkpoint).model
    backbone, encoder = (torch.jit.load(str(exported / name / "1/model.pt")) for name in MODELS)
    pixels = torch.randint(0, 256, (7, 112, 112, 3), dtype=torch.uint8)
    ids = torch.randint(0, 20, (7, 11))
    inputs = {
        "input_ids": ids,
        "text_mask": (ids > 5).long(),
        "image_tokens": model.image_backbone(pixels),
        "image_mask": torch.ones(7, 49, dtype=torch.int64),
    }

    assert_allclose(backbone(pixels=pixels), model.image_backbone(pixels), **CLOSE)
    for exported, eager in zip(encoder(**inputs), model.joint_encoder(**inputs), strict=True):
        assert_allclose(exported, eager, **CLOSE)


def test_exporting_twice_gives_one_fingerprint(
    checkpoint: Path, exported: Path, tmp_path: Path
) -> None:
    """Embeddings of both exports are comparable, whatever bytes the two files have."""
    assert export_model(checkpoint, tmp_path).fingerprint == read_manifest(exported).fingerprint


@pytest.mark.parametrize(
    "made_otherwise", [{"seed": 1}, {"texts": ("two dogs left of one umbrella",)}]
)
def test_another_model_has_another_fingerprint(
    exported: Path, tmp_path: Path, made_otherwise: dict[str, Any]
) -> None:
    """Other weights or another tokenizer make embeddings that must not be mixed."""
    save_tiny_checkpoint(tmp_path, **made_otherwise)

    other = _manifest(load_checkpoint(tmp_path), {})

    assert other.fingerprint != read_manifest(exported).fingerprint


def test_a_file_that_gives_something_else_is_refused(
    checkpoint: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check is of the files as loaded again, and what was there before stays."""
    before = files_of(repository)
    monkeypatch.setattr(torch.jit, "load", _loading_with_a_weight_off(torch.jit.load))

    with pytest.raises(ExportMismatch, match="exported and eager differ by"):
        export_model(checkpoint, repository)

    assert files_of(repository) == before


def test_a_file_that_gives_nan_is_refused(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NaN is within no tolerance, though no comparison with it is true."""
    monkeypatch.setattr(torch.jit, "load", _loading_with_a_weight_off(torch.jit.load, float("nan")))

    with pytest.raises(ExportMismatch, match="differ by nan"):
        export_model(checkpoint, tmp_path)

    assert files_of(tmp_path) == {}


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("dimension", [0, 1])
def test_a_model_whose_trace_bakes_in_a_size_is_refused(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dimension: int
) -> None:
    """Python arithmetic on a shape becomes a constant: right for the traced size alone."""
    forward = JointEncoder.forward

    def baking(self: JointEncoder, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        embedding, logit = forward(self, *inputs)
        return embedding, logit + torch.tensor(int(inputs[0].shape[dimension]))

    monkeypatch.setattr(JointEncoder, "forward", baking)

    with pytest.raises(ExportMismatch, match="joint_encoder: exported and eager differ"):
        export_model(checkpoint, tmp_path)

    assert files_of(tmp_path) == {}


def test_an_export_that_breaks_off_leaves_no_manifest(checkpoint: Path, repository: Path) -> None:
    """Without it no service starts on what is half of one model and half of another."""
    tokenizer_path = repository / "joint_encoder/tokenizer.json"
    tokenizer_path.unlink()
    tokenizer_path.mkdir()

    with pytest.raises(IsADirectoryError):
        export_model(checkpoint, repository)

    assert not (repository / "joint_encoder/manifest.json").exists()
    assert not repository.with_name(f".{repository.name}.staging").exists()


def test_a_folder_that_is_no_checkpoint_writes_nothing(tmp_path: Path) -> None:
    """Not even the repository's folder."""
    with pytest.raises(ValueError, match="is no checkpoint"):
        export_model(tmp_path / "nothing", tmp_path / "repository")

    assert not (tmp_path / "repository").exists()


def test_a_fresh_export_is_left_alone(checkpoint: Path, repository: Path) -> None:
    """No file is written again, so a server that reads them is not disturbed."""
    before = {path: path.stat().st_mtime_ns for path in repository.rglob("*")}
    manifest = read_manifest(repository)

    assert export_if_stale(checkpoint, repository) == manifest

    assert {path: path.stat().st_mtime_ns for path in repository.rglob("*")} == before


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("image_backbone/1/model.pt", "cut"),
        ("joint_encoder/config.pbtxt", "cut"),
        ("joint_encoder/tokenizer.json", "gone"),
        ("joint_encoder/manifest.json", "gone"),
    ],
)
def test_a_damaged_file_is_repaired(
    checkpoint: Path, repository: Path, name: str, damage: str
) -> None:
    """Whichever file it is: a start finds a whole model again."""
    path = repository / name
    whole = path.read_bytes()
    fingerprint = read_manifest(repository).fingerprint
    if damage == "cut":
        path.write_bytes(whole[: len(whole) // 2])
    else:
        path.unlink()

    manifest = export_if_stale(checkpoint, repository)

    assert manifest.fingerprint == fingerprint
    manifest.verify(repository)
    if not name.endswith(("model.pt", "manifest.json")):  # these differ between exports
        assert path.read_bytes() == whole


def test_another_checkpoint_replaces_the_export(
    repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A model trained anew is served at the next start."""
    folder = tmp_path_factory.mktemp("other")
    save_tiny_checkpoint(folder, seed=1)
    old = read_manifest(repository)

    new = export_if_stale(folder, repository)

    assert new.fingerprint != old.fingerprint
    assert read_manifest(repository) == new
    new.verify(repository)


def test_the_committed_configurations_are_those_of_the_shipped_model() -> None:
    """model_repository/*/config.pbtxt is what an export of the default checkpoint writes."""
    manifest = _manifest(load_checkpoint(default_checkpoint()), dict.fromkeys(MODELS, ""))

    for name, text in joint_model_configs(manifest).items():
        committed = ROOT / "model_repository" / name / "config.pbtxt"
        assert committed.read_text(encoding="utf-8") == text, f"run tandem models export: {name}"


def _loading_with_a_weight_off(
    load: Callable[[str], nn.Module], value: float = 3.0
) -> Callable[[str], nn.Module]:
    """Returns a torch.jit.load under which the last weight of each file was read wrong."""

    def load_wrongly(path: str) -> nn.Module:
        module = load(path)
        with torch.no_grad():
            *_, last = module.parameters()
            last.view(-1)[0] = value
        return module

    return load_wrongly
