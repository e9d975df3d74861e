"""The exporter: what Triton will load gives what the checkpoint gives, or nothing is written."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor, nn

from tandem.contract.model_description import ProbabilityCalibration
from tandem.model_io.repository.calibration import (
    CALIBRATION_NAME,
    Calibration,
    calibration_file,
    calibration_in,
    read_calibrations,
    write_calibrations,
)
from tandem.model_io.repository.config_pbtxt import model_configs
from tandem.model_io.repository.manifest import read_manifest
from tandem.model_io.repository.precision import Precision
from tandem.modeling.checkpoint import load_checkpoint, save_checkpoint
from tandem.modeling.checkpoint_files import CheckpointFiles
from tandem.modeling.config import JointConfig
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export.export import export_model
from tandem.modeling.export.export_manifest import export_manifest
from tandem.modeling.export.exported import ExportMismatch
from tandem.modeling.export.lowered import lowered
from tandem.modeling.export.version_export import export_version
from tandem.modeling.joint_encoder import JointEncoder
from tandem.modeling.joint_model import JointModel
from tests.support.modeling.tiny_checkpoint import save_tiny_checkpoint, tiny_tokenizer

# On one worker: its tests share what takes long to make.
pytestmark = pytest.mark.xdist_group("export")

ROOT = Path(__file__).parents[3]
MODELS = ("image_backbone", "joint_encoder")

# torch's own comparison imports two seconds of distributed tensors.
CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5}


def files_of(folder: Path) -> dict[str, bytes]:
    """Returns every file under the folder with its bytes."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_an_export_is_a_whole_model_repository(exported: Path) -> None:
    folders = {str(path.relative_to(exported)) for path in exported.rglob("*") if path.is_dir()}
    assert folders == {*MODELS, *(f"{name}/1" for name in MODELS)}
    assert set(files_of(exported)) == {
        "image_backbone/1/model.pt",
        "image_backbone/config.pbtxt",
        "joint_encoder/1/model.pt",
        "joint_encoder/config.pbtxt",
        "manifest.json",
        "tokenizer.json",
    }
    read_manifest(exported).verify(exported)


def test_the_manifest_tells_of_the_checkpoint(checkpoint: Path, exported: Path) -> None:
    loaded = load_checkpoint(checkpoint)

    manifest = read_manifest(exported)

    assert (manifest.embedding_dim, manifest.token_width) == (16, 16)
    assert (manifest.picture.size, manifest.image_token_count) == (112, 49)
    assert manifest.text.max_tokens == manifest.text.lengths[-1] == 64
    assert manifest.text.vocabulary_size == loaded.model.config.vocabulary_size
    assert (manifest.text.pad_id, manifest.cls_id) == (0, 2)
    assert manifest.checkpoint == {"weights_sha256": loaded.weights_sha256}


@torch.inference_mode()
def test_exported_models_equal_the_checkpoint(checkpoint: Path, exported: Path) -> None:
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
        assert_allclose(exported, eager, **CLOSE)  # type: ignore[call-overload]


@torch.inference_mode()
# test_image_tokens compares bf16.
@pytest.mark.parametrize("precision", [Precision.FP16, Precision.INT8])
def test_an_export_in_fewer_bits_equals_the_lowered_model(
    checkpoint: Path, tmp_path: Path, precision: Precision
) -> None:
    fp32 = export_manifest(CheckpointFiles.read(checkpoint), Precision.FP32, {})
    model = lowered(load_checkpoint(checkpoint).model, precision)

    manifest = export_model(checkpoint, tmp_path, precision)

    backbone, encoder = (torch.jit.load(str(tmp_path / name / "1/model.pt")) for name in MODELS)
    pixels = torch.randint(0, 256, (4, 112, 112, 3), dtype=torch.uint8)
    tokens = backbone(pixels)
    ids = torch.randint(0, 20, (4, 11))
    inputs = (ids, torch.ones_like(ids), tokens, torch.ones(4, 49, dtype=torch.int64))
    assert_allclose(tokens, model.image_backbone(pixels), atol=1e-3)
    for exported, eager in zip(encoder(*inputs), model.joint_encoder(*inputs), strict=True):
        assert exported.dtype == torch.float32
        assert_allclose(exported, eager, atol=1e-3)
    assert read_manifest(tmp_path) == manifest
    assert manifest.precision == precision
    assert manifest.fingerprint != fp32.fingerprint
    for name in MODELS:
        kind = "KIND_GPU" if precision is Precision.FP16 else "KIND_CPU"
        assert f"kind: {kind}" in (tmp_path / name / "config.pbtxt").read_text()


def test_a_checkpoints_calibration_is_exported_with_it(checkpoint: Path, tmp_path: Path) -> None:
    calibrated = shutil.copytree(checkpoint, tmp_path / "calibrated")
    files = CheckpointFiles.read(checkpoint)
    measured = {
        precision: Calibration(
            export_manifest(files, precision, {}).fingerprint,
            ProbabilityCalibration(scale=scale),
            None,
        )
        for precision, scale in ((Precision.FP32, 0.5), (Precision.BF16, 0.75))
    }
    write_calibrations(calibrated / CALIBRATION_NAME, list(measured.values()))

    fingerprint = export_model(calibrated, tmp_path / "repository", Precision.BF16).fingerprint

    assert [*read_calibrations(calibration_file(tmp_path / "repository"))] == [
        measured[Precision.BF16]
    ]
    assert fingerprint == measured[Precision.BF16].fingerprint


def test_a_gpu_computes_an_fp32_export_in_fp32(exported: Path) -> None:
    """No convolution may be TF32's ten bits, though torch's own setting lets it be."""
    assert torch.backends.cudnn.allow_tf32
    # Held while its nodes are looked at, which are gone with it.
    graph = torch.jit.load(exported / "image_backbone" / "1" / "model.pt").inlined_graph
    # The last value that a traced convolution is given.
    told = [list(node.inputs())[-1] for node in graph.findAllNodes("aten::_convolution")]
    assert told
    assert not any(value.toIValue() for value in told)


def test_another_model_has_another_fingerprint(exported: Path, tmp_path: Path) -> None:
    save_tiny_checkpoint(tmp_path / "weights", seed=1)
    save_tiny_checkpoint(tmp_path / "words", texts=("two dogs left of one umbrella",))

    others = {
        export_manifest(CheckpointFiles.read(tmp_path / name), Precision.FP32, {}).fingerprint
        for name in ("weights", "words")
    }

    assert len({*others, read_manifest(exported).fingerprint}) == 3


def test_a_file_with_different_outputs_is_refused(
    checkpoint: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check is of the files as loaded again, and what was there before stays."""
    before = files_of(repository)
    monkeypatch.setattr(torch.jit, "load", _loading_with_a_weight_off(torch.jit.load))

    with pytest.raises(ExportMismatch, match="exported and eager differ by"):
        export_model(checkpoint, repository, Precision.FP32)

    assert files_of(repository) == before


def test_a_file_that_gives_nan_is_refused(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.jit, "load", _loading_with_a_weight_off(torch.jit.load, float("nan")))

    with pytest.raises(ExportMismatch, match="differ by nan"):
        export_model(checkpoint, tmp_path, Precision.FP32)

    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_a_model_whose_trace_bakes_in_a_size_is_refused(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python arithmetic on a shape becomes a constant: right for the traced size alone."""
    forward = JointEncoder.forward

    def baking(self: JointEncoder, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        embedding, logit = forward(self, *inputs)
        return embedding, logit + torch.tensor(int(inputs[0].shape[1]))

    monkeypatch.setattr(JointEncoder, "forward", baking)

    with pytest.raises(ExportMismatch, match="joint_encoder: exported and eager differ"):
        export_model(checkpoint, tmp_path, Precision.FP32)

    assert files_of(tmp_path) == {}


def test_an_export_that_breaks_off_leaves_no_manifest(checkpoint: Path, repository: Path) -> None:
    """Without it no service starts on what is half of one model and half of another."""
    tokenizer_path = repository / "tokenizer.json"
    tokenizer_path.unlink()
    tokenizer_path.mkdir()

    with pytest.raises(IsADirectoryError):
        export_model(checkpoint, repository, Precision.FP32)

    assert not (repository / "manifest.json").exists()
    assert not list(repository.rglob(".*"))


def test_an_export_follows_a_link(checkpoint: Path, exported: Path, tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        if Path(elsewhere).stat().st_dev == tmp_path.stat().st_dev:
            pytest.skip("there is one disk alone")
        link = tmp_path / "repository"
        link.symlink_to(elsewhere)
        shutil.copytree(exported, elsewhere, dirs_exist_ok=True)

        export_model(checkpoint, link, Precision.BF16).verify(Path(elsewhere))

        assert link.is_symlink()
        assert export_version(checkpoint, link) == 2


def test_an_export_replaces_one_in_the_same_folder(
    checkpoint: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = read_manifest(repository)
    monkeypatch.chdir(repository)

    manifest = export_model(checkpoint, Path(), Precision.FP32)

    manifest.verify(repository)
    assert manifest.fingerprint == before.fingerprint
    assert export_version(checkpoint, Path()) == 2


def test_a_model_of_the_smallest_sizes_is_exported(tmp_path: Path) -> None:
    config = JointConfig(
        vocabulary_size=tiny_tokenizer().get_vocab_size(),
        width=16,
        layer_count=2,
        head_count=2,
        image_size=32,
        max_text_tokens=3,
    )
    save_checkpoint(tmp_path / "checkpoint", JointModel(config), tiny_tokenizer(), {})

    manifest = export_model(tmp_path / "checkpoint", tmp_path / "repository", Precision.FP32)

    assert (manifest.image_token_count, manifest.text.lengths) == (4, (3,))


def test_the_shipped_model_is_calibrated_in_each_precision() -> None:
    files = CheckpointFiles.read(default_checkpoint())
    for precision in Precision:
        fingerprint = export_manifest(files, precision, {}).fingerprint
        found = calibration_in(default_checkpoint() / CALIBRATION_NAME, fingerprint)
        assert found is not None
        assert found.probability is not None
        assert found.adaptive_depth is not None
        assert found.adaptive_depth.stop_chance > 0


def test_the_committed_configurations_are_those_of_the_shipped_model() -> None:
    """model_repository/*/config.pbtxt is what an export of the default checkpoint writes."""
    files = CheckpointFiles.read(default_checkpoint())
    manifest = export_manifest(files, Precision.BF16, dict.fromkeys(MODELS, ""))

    for name, text in model_configs(manifest).items():
        committed = ROOT / "model_repository" / name / "config.pbtxt"
        assert committed.read_text(encoding="utf-8") == text, f"run tandem models add: {name}"


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
