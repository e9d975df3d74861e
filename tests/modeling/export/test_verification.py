"""Verifying a model repository: what is whole passes, and each fault is named."""

import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tandem.model_io.repository.model_version import (
    ModelVersion,
    Serving,
    version_folder,
    write_serving,
)
from tandem.model_io.repository.precision import Precision
from tandem.modeling.export.export import export_model
from tandem.modeling.export.exported import ExportMismatch
from tandem.modeling.export.verification import verify_repository
from tandem.modeling.export.version_export import export_version
from tests.support.modeling.tiny_checkpoint import save_tiny_checkpoint

# On one worker: its tests share what takes long to make.
pytestmark = pytest.mark.xdist_group("export")


@pytest.fixture(name="exported", scope="module")
def _exported(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    export_model(checkpoint, folder, Precision.BF16)
    return folder


def put_in(repository: Path, name: str, content: bytes) -> None:
    """Replaces a model's file and tells the manifest, as a forger of both would."""
    (repository / name / "1" / "model.pt").write_bytes(content)
    path = repository / "manifest.json"
    fields = json.loads(path.read_text())
    fields["models"][name]["sha256"] = sha256(content).hexdigest()
    path.write_text(json.dumps(fields))


def test_an_export_passes_with_and_without_its_checkpoint(checkpoint: Path, exported: Path) -> None:
    alone = verify_repository(exported)

    assert alone.precision == Precision.BF16
    assert verify_repository(exported, checkpoint) == alone


def test_a_changed_file_is_named_before_it_is_loaded(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is not the exporter's is not run."""
    path = repository / "joint_encoder" / "1" / "model.pt"
    path.write_bytes(path.read_bytes() + b"x")
    monkeypatch.setattr(torch.jit, "load", lambda *_: pytest.fail("it was loaded"))

    with pytest.raises(ValueError, match=f"{path} is not the file that its manifest describes"):
        verify_repository(repository)


def test_a_repository_without_a_manifest_says_what_to_run(repository: Path) -> None:
    (repository / "manifest.json").unlink()

    with pytest.raises(ValueError, match=r"has no model of ours.*run tandem models add"):
        verify_repository(repository)


def test_a_file_that_is_not_torchscript_is_named(repository: Path) -> None:
    put_in(repository, "image_backbone", b"not a model")

    with pytest.raises(ExportMismatch, match=r"image_backbone/1/model\.pt is not TorchScript"):
        verify_repository(repository)


class Answering(nn.Module):
    """Takes what the joint encoder takes; answers in its shapes, wrongly by one thing."""

    def __init__(self, width: int, embedding: float, logit: float) -> None:
        super().__init__()
        self.width, self.embedding, self.logit = width, embedding, logit

    def forward(
        self, input_ids: Tensor, text_mask: Tensor, image_tokens: Tensor, image_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        embeddings = torch.full([input_ids.shape[0], self.width], self.embedding)
        return embeddings, torch.full([input_ids.shape[0], 1], self.logit)


@pytest.mark.parametrize(
    ("width", "embedding", "logit", "says"),
    [
        (16, 0.25, 0.0, None),  # sixteen quarters have unit length: the control
        (16, 0.3, 0.0, r"off unit length"),
        (16, 0.25, float("nan"), r"NaN or infinity"),
        (15, 0.25, 0.0, r"gives \[1, 15\] torch.float32 instead of \[1, 16\]"),
    ],
)
def test_a_model_that_contradicts_the_manifest_is_refused(
    repository: Path, width: int, embedding: float, logit: float, says: str | None
) -> None:
    path = repository / "other.pt"
    torch.jit.save(torch.jit.script(Answering(width, embedding, logit)), str(path))
    put_in(repository, "joint_encoder", path.read_bytes())

    if says is None:
        verify_repository(repository)
    else:
        with pytest.raises(ExportMismatch, match=f"joint_encoder: .*{says}"):
            verify_repository(repository)


def test_a_later_version_that_serves_is_verified_too(checkpoint: Path, repository: Path) -> None:
    folder = version_folder(repository, export_version(checkpoint, repository))
    write_serving(repository, Serving(version=2))
    verify_repository(repository, checkpoint)  # the control
    (folder / "model.pt").write_bytes(b"garbage")

    with pytest.raises(
        ValueError, match=r"serving.json says that version 2 serves.*2/model\.pt is not the file"
    ):
        verify_repository(repository)

    forged = replace(ModelVersion.read(folder), model_sha256=sha256(b"garbage").hexdigest())
    forged.write(folder)
    with pytest.raises(ExportMismatch, match=r"2/model\.pt is not TorchScript"):
        verify_repository(repository)


def test_another_checkpoints_export_is_refused_by_both_fingerprints(
    repository: Path, tmp_path: Path
) -> None:
    save_tiny_checkpoint(tmp_path / "other", seed=1)

    with pytest.raises(ExportMismatch, match=r"holds model [0-9a-f]{12}, and .*other would export"):
        verify_repository(repository, tmp_path / "other")


def test_answers_that_differ_from_the_checkpoints_are_refused(
    checkpoint: Path, repository: Path, tmp_path: Path
) -> None:
    module = torch.jit.load(str(repository / "joint_encoder/1/model.pt"))
    with torch.no_grad():
        for weight in module.parameters():
            weight.copy_(torch.rand_like(weight) - 0.5)
    torch.jit.save(module, str(tmp_path / "theirs.pt"))
    put_in(repository, "joint_encoder", (tmp_path / "theirs.pt").read_bytes())

    verify_repository(repository)  # without a checkpoint it cannot tell
    with pytest.raises(ExportMismatch, match="joint_encoder: exported and eager differ by"):
        verify_repository(repository, checkpoint)
