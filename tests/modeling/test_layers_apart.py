"""Layers apart: what is computed at ingest and what at a search give what was trained together.

Shapes: B rows, T text tokens, R image tokens, D width, L = T + R.
"""

from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor

from tandem.model_io.manifest import read_manifest
from tandem.model_io.precision import Precision
from tandem.modeling.checkpoint import load_checkpoint
from tandem.modeling.checkpoint_files import CheckpointFiles
from tandem.modeling.config import Encoder
from tandem.modeling.export.export import export_model
from tandem.modeling.export.export_manifest import export_manifest
from tandem.modeling.export.exported import ExportMismatch
from tandem.modeling.export.lowered import lowered
from tandem.modeling.export.served_parts import served_parts
from tandem.modeling.joint_model import JointModel
from tests.support.modeling.tiny_checkpoint import save_tiny_checkpoint, tiny_model

# On one worker: its tests share what takes long to make.
pytestmark = pytest.mark.xdist_group("export")

CLS_ID = 2
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


@pytest.fixture(name="model", params=get_args(Encoder))
def _model(request: pytest.FixtureRequest) -> JointModel:
    return tiny_model(encoder=request.param, apart_layer_count=1)


@pytest.fixture(name="inputs")
def _inputs() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns pairs of texts, the second padded, and images, the third with tokens masked."""
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(4, 60, (3, 9), generator=generator)
    text_mask = torch.ones_like(ids)
    text_mask[1, 5:] = 0
    image_mask = torch.ones(3, 49, dtype=torch.int64)
    image_mask[2, 40:] = 0
    tokens = torch.randn(3, 49, 16, generator=generator).half()
    return ids, text_mask, tokens, image_mask


@torch.inference_mode()
def test_apart_is_attention_masked_between_the_sides(
    model: JointModel, inputs: tuple[Tensor, Tensor, Tensor, Tensor]
) -> None:
    """Both sides through the lower layers at once, with a mask between them, is the same model."""
    ids, text_mask, tokens, image_mask = inputs
    encoder = model.joint_encoder
    text_length = ids.shape[1]
    whole = tiny_whole(model)
    mask_BL = torch.cat([text_mask, image_mask], dim=1).bool()
    is_text_L = torch.arange(mask_BL.shape[1]) < text_length
    same_side_LL = is_text_L[:, None] == is_text_L[None, :]
    attends_B1LL = (mask_BL[:, None, :] & same_side_LL)[:, None]

    embedded_BLD = torch.cat(
        [
            whole.joint_encoder.text_side(ids, text_mask),
            whole.joint_encoder.image_side(tokens, image_mask),
        ],
        dim=1,
    )
    masked_BLD = whole.joint_encoder.layers[0](embedded_BLD, attends_B1LL)
    image_BRD = masked_BLD[:, text_length:].half().float()
    expected = encoder.joined(masked_BLD[:, :text_length], text_mask, image_BRD, image_mask)

    for apart, masked in zip(encoder(*inputs), expected, strict=True):
        assert_allclose(apart, masked, **CLOSE)
    # The control: without the mask it is another model.
    assert (encoder(*inputs)[1] - whole.joint_encoder(*inputs)[1]).abs().max() > 1e-3


@torch.inference_mode()
def test_the_served_parts_give_what_the_model_gives(model: JointModel) -> None:
    """Text alone, image alone and pairs; what the first part gives is what an index stores."""
    backbone, encoder = served_parts(model)
    pixels = torch.randint(0, 256, (3, 112, 112, 3), dtype=torch.uint8)
    ids = torch.randint(4, 60, (3, 9))
    mask, one = torch.ones_like(ids), torch.ones(3, 1, dtype=torch.int64)
    every, absent = torch.ones(3, 49, dtype=torch.int64), torch.zeros(3, 1, dtype=torch.int64)

    stored, tokens = backbone(pixels), model.image_backbone(pixels)
    cls, nothing = CLS_ID * one, torch.zeros(3, 1, 16)

    assert stored.shape == (3, 49, 16)
    assert stored.dtype is torch.float16
    for served, trained in (
        (encoder(ids, mask, stored, every), model.joint_encoder(ids, mask, tokens, every)),
        (encoder(cls, one, stored, every), model.joint_encoder(cls, one, tokens, every)),
        (encoder(ids, mask, nothing, absent), model.joint_encoder(ids, mask, nothing, absent)),
    ):
        for mine, eager in zip(served, trained, strict=True):
            assert_allclose(mine, eager, **CLOSE)
    assert_allclose(encoder(ids, mask, nothing, absent)[0], model.embed_texts(ids, mask), **CLOSE)
    assert_allclose(
        encoder(cls, one, stored, every)[0], model.embed_images(tokens, CLS_ID), **CLOSE
    )


@torch.inference_mode()
def test_what_is_masked_has_no_influence(
    model: JointModel, inputs: tuple[Tensor, Tensor, Tensor, Tensor]
) -> None:
    """Neither padded ids nor tokens of an image that do not count."""
    ids, text_mask, tokens, image_mask = inputs
    other_ids = torch.where(text_mask.bool(), ids, ids.flip(1))
    other_tokens = torch.where(image_mask.bool()[:, :, None], tokens, -3 * tokens)

    changed = model.joint_encoder(other_ids, text_mask, other_tokens, image_mask)

    assert (other_ids != ids).any()
    for mine, expected in zip(changed, model.joint_encoder(*inputs), strict=True):
        assert_allclose(mine, expected, **CLOSE)


@torch.inference_mode()
def test_an_image_stores_what_no_text_changes(model: JointModel) -> None:
    """A pair's logit with what was stored for the image is that of the pair read together."""
    tokens = torch.randn(1, 49, 16).half()
    every = torch.ones(1, 49, dtype=torch.int64)
    stored = model.joint_encoder.image_side(tokens, every)

    for length in (3, 12):
        ids = torch.randint(4, 60, (1, length))
        mask = torch.ones_like(ids)
        text = model.joint_encoder.text_side(ids, mask)
        _, logit = model.joint_encoder.joined(text, mask, stored, every)
        assert_allclose(logit[:, 0], model.match_logits(ids, mask, tokens), **CLOSE)


@torch.inference_mode()
@pytest.mark.parametrize("precision", list(Precision))
def test_it_is_exported_with_the_width_of_its_layers(tmp_path: Path, precision: Precision) -> None:
    """The manifest's token width is all that serving needs to know; every weight is kept once."""
    checkpoint = tmp_path / "checkpoint"
    save_tiny_checkpoint(checkpoint, apart_layer_count=1)
    model = lowered(load_checkpoint(checkpoint).model, precision)

    manifest = export_model(checkpoint, tmp_path / "repository", precision)

    backbone, encoder = (
        torch.jit.load(str(tmp_path / "repository" / name / "1/model.pt"))
        for name in ("image_backbone", "joint_encoder")
    )
    pixels = torch.randint(0, 256, (4, 112, 112, 3), dtype=torch.uint8)
    ids = torch.randint(4, 20, (4, 11))
    mask, every = torch.ones_like(ids), torch.ones(4, 49, dtype=torch.int64)
    trained = model.joint_encoder(ids, mask, model.image_backbone(pixels), every)
    tolerance = CLOSE if precision is Precision.FP32 else {"atol": 1e-3}
    for exported, eager in zip(encoder(ids, mask, backbone(pixels), every), trained, strict=True):
        assert_allclose(exported, eager, **tolerance)
    assert manifest == read_manifest(tmp_path / "repository")
    assert manifest.token_width == model.config.width
    assert "encoder.word.weight" not in backbone.state_dict()
    assert "encoder.image_project.weight" not in encoder.state_dict()


def test_the_width_stored_is_the_encoders_and_not_the_image_sources() -> None:
    """Patches are 768 wide as they come and as wide as the model behind its first layer."""
    config = replace(tiny_model().config, image_source="patches")

    assert config.served_token_width == 768
    assert replace(config, apart_layer_count=1).served_token_width == config.width


def test_parts_that_do_not_fit_together_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exporter compares what is served with what was trained, not with itself."""
    save_tiny_checkpoint(tmp_path / "checkpoint", apart_layer_count=1)
    monkeypatch.setattr(
        "tandem.modeling.export.exported.served_parts",
        lambda _: served_parts(tiny_model(seed=1, vocabulary_size=200, apart_layer_count=1)),
    )

    with pytest.raises(ExportMismatch, match="both parts: exported and eager differ"):
        export_model(tmp_path / "checkpoint", tmp_path / "repository", Precision.FP32)


def test_it_has_a_fingerprint_of_its_own_and_the_others_keep_theirs(tmp_path: Path) -> None:
    """Tokens of both forms must not be mixed; a model without layers apart is as it was."""
    apart, whole = tmp_path / "apart", tmp_path / "whole"
    save_tiny_checkpoint(apart, apart_layer_count=1)
    save_tiny_checkpoint(whole)

    fingerprints = {
        export_manifest(CheckpointFiles.read(folder), Precision.FP32, {}).fingerprint
        for folder in (apart, whole)
    }

    assert len(fingerprints) == 2
    assert "apart_layer_count" not in CheckpointFiles.read(whole).config.to_dict()


@pytest.mark.parametrize("count", [-1, 2])
def test_at_least_one_layer_joins(count: int) -> None:
    """A model that never reads both together is no cross-encoder."""
    with pytest.raises(ValueError, match="at least one joins text and image"):
        tiny_model(apart_layer_count=count)


def tiny_whole(model: JointModel) -> JointModel:
    """Returns the same weights without layers apart."""
    whole = JointModel(replace(model.config, apart_layer_count=0)).eval()
    whole.load_state_dict(model.state_dict())
    return whole
