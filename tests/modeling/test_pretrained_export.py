"""From a published encoder to Triton's files: saved, loaded, exported and lowered as ours are.

Shapes: B rows, T text tokens, R image tokens, D width.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor

from tandem.inference.buckets import pad_texts
from tandem.modeling.checkpoint import load_checkpoint, save_checkpoint
from tandem.modeling.checkpoint_files import CheckpointFiles
from tandem.modeling.export.export import export_model
from tandem.modeling.export.export_manifest import export_manifest
from tandem.modeling.export.lowered import lowered
from tandem.modeling.joint_model import JointModel
from tandem.modeling.published.checkpoint import PublishedCheckpoint
from tandem.repository.precision import Precision
from tandem.texts.text import TextPreprocessor
from tests.support.modeling.published_folders import published_bert, published_xlm_r

# On one worker: its tests share what takes long to make.
pytestmark = pytest.mark.xdist_group("pretrained_export")

PUBLISH: dict[str, Callable[[Path], object]] = {"bert": published_bert, "xlm-r": published_xlm_r}
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


@pytest.fixture(name="family", params=PUBLISH, scope="module")
def _family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(name="published", scope="module")
def _published(family: str, tmp_path_factory: pytest.TempPathFactory) -> PublishedCheckpoint:
    folder = tmp_path_factory.mktemp("published")
    PUBLISH[family](folder)
    return PublishedCheckpoint.open(str(folder))


@pytest.fixture(name="checkpoint", scope="module")
def _checkpoint(published: PublishedCheckpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of ours that began from the published one."""
    folder = tmp_path_factory.mktemp("checkpoint")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = JointModel(published.config)
    published.start(model.joint_encoder)
    save_checkpoint(folder, model, published.tokenizer, {})
    return folder


def test_a_checkpoint_says_which_encoder_it_has(
    published: PublishedCheckpoint, checkpoint: Path
) -> None:
    """Shape and tokenizer come back; nothing of the published folder is needed any more."""
    loaded = load_checkpoint(checkpoint)

    assert loaded.model.config == published.config
    assert loaded.model.config.encoder == "post_norm"
    assert loaded.tokenizer.to_str() == published.tokenizer.to_str()
    for name, weight in loaded.model.joint_encoder.state_dict().items():
        assert torch.equal(weight, weight.half().float()), name


def test_the_manifest_has_the_published_special_ids(family: str, checkpoint: Path) -> None:
    """BERT's tokenizer begins a text with 2 and pads with 0; XLM-R's begins with 0, pads with 1."""
    manifest = export_manifest(CheckpointFiles.read(checkpoint), Precision.FP32, {})

    ids = (manifest.cls_id, manifest.text.pad_id)
    assert ids == {"bert": (2, 0), "xlm-r": (0, 1)}[family]
    assert manifest.text.vocabulary_size == 20


@torch.inference_mode()
# test_export compares what half of the bits give (test_fewer_bits here, whether it is near).
@pytest.mark.parametrize(
    "precision",
    [
        Precision.FP32,
        Precision.INT8,
        *(pytest.param(each, marks=pytest.mark.slow) for each in (Precision.FP16, Precision.BF16)),
    ],
)
def test_an_export_equals_the_checkpoint(
    checkpoint: Path, tmp_path: Path, precision: Precision
) -> None:
    """Texts as the served tokenizer splits them, alone and with an image, in any precision."""
    model = lowered(load_checkpoint(checkpoint).model, precision)
    manifest = export_model(checkpoint, tmp_path, precision)
    preprocessor = TextPreprocessor.open(tmp_path, manifest.text)
    ids = [preprocessor.token_ids(text) for text in ("two dogs left of one umbrella", "one cat")]
    texts = tuple(map(torch.from_numpy, pad_texts(ids, 16, manifest.text.pad_id)))
    pixels = torch.randint(0, 256, (2, 112, 112, 3), dtype=torch.uint8)
    tokens = model.image_backbone(pixels)

    encoder = torch.jit.load(str(tmp_path / "joint_encoder/1/model.pt"))

    tolerance = 1e-5 if precision is Precision.FP32 else 1e-3
    for image in _absent_and_present(tokens):
        exported, eager = encoder(*texts, *image), model.joint_encoder(*texts, *image)
        for one, other in zip(exported, eager, strict=True):
            assert one.dtype == torch.float32
            assert_allclose(one, other, atol=tolerance)


@torch.inference_mode()
@pytest.mark.parametrize(
    ("precision", "tolerance"),
    [(Precision.BF16, 2e-2), (Precision.FP16, 2e-3), (Precision.INT8, 5e-2)],
)
def test_fewer_bits_change_a_little(
    checkpoint: Path, precision: Precision, tolerance: float
) -> None:
    """As much as the bits that went, and not nothing."""
    model = load_checkpoint(checkpoint).model
    ids = torch.randint(4, 12, (4, 9), generator=torch.Generator().manual_seed(0))

    before = model.embed_texts(ids, torch.ones_like(ids))
    after = lowered(model, precision).embed_texts(ids, torch.ones_like(ids))

    assert 0 < (after - before).abs().max().item() < tolerance


def test_another_encoder_has_another_fingerprint(checkpoint: Path, tmp_path: Path) -> None:
    """Its shape is part of what makes embeddings comparable."""
    loaded = load_checkpoint(checkpoint)
    manifest = export_manifest(loaded.files, Precision.FP32, {})
    loaded.model.config = replace(loaded.model.config, norm_epsilon=1e-3)
    save_checkpoint(tmp_path, loaded.model, loaded.tokenizer, {})

    other = export_manifest(CheckpointFiles.read(tmp_path), Precision.FP32, {})

    assert other.fingerprint != manifest.fingerprint
    assert np.array_equal(manifest.text.lengths, other.text.lengths)


def _absent_and_present(tokens_BRD: Tensor) -> list[tuple[Tensor, Tensor]]:
    present = torch.ones(tokens_BRD.shape[:2], dtype=torch.int64)
    nothing = torch.zeros_like(tokens_BRD[:, :1])
    return [(nothing, torch.zeros_like(present[:, :1])), (tokens_BRD, present)]
