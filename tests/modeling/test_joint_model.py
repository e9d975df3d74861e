"""The joint model, with either encoder: what pads, masks and places may and may not change.

Shapes: B rows, T text tokens, R image tokens, D width.
"""

from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor, nn

from tandem.lab.training.losses import in_batch_softmax_loss, pair_classification_loss
from tandem.modeling.config import Encoder
from tandem.modeling.joint_encoder import JointEncoder
from tandem.modeling.joint_model import JointModel
from tandem.modeling.separate_encoders import SeparateEncoders
from tests.support.modeling.tiny_checkpoint import tiny_model

R, D = 49, 16
CLS_ID = 2

# torch's own comparison imports two seconds of distributed tensors.
CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-6}


@pytest.fixture(name="model", params=get_args(Encoder))
def _model(request: pytest.FixtureRequest) -> JointModel:
    return tiny_model(encoder=request.param)


def texts(batch: int, length: int, seed: int = 0) -> Tensor:
    """Returns random ids without padding, int64 [B, T]."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(4, 60, (batch, length), generator=generator)


def image_tokens(batch: int, seed: int = 0) -> Tensor:
    """Returns random tokens, float16 [B, R, D]."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, R, D, generator=generator).half()


@torch.inference_mode()
def test_pixels_become_a_grid_of_half_precision_tokens(model: JointModel) -> None:
    pixels = torch.randint(0, 256, (2, 112, 112, 3), dtype=torch.uint8)

    tokens = model.image_backbone(pixels)

    assert tokens.shape == (2, R, D)
    assert tokens.dtype is torch.float16
    assert_allclose(tokens, model.image_backbone.tokens(pixels).half(), **CLOSE)


@torch.inference_mode()
def test_a_drawing_changes_the_token_at_its_place(model: JointModel) -> None:
    blank = torch.full((1, 112, 112, 3), 255, dtype=torch.uint8)
    drawn = blank.clone()
    drawn[:, 0:16, 96:112] = 0

    change_R = (model.image_backbone(drawn) - model.image_backbone(blank)).float().norm(dim=-1)[0]

    assert change_R.argmax().item() == 6  # row 0, column 6


@torch.inference_mode()
@pytest.mark.parametrize("encoder", get_args(Encoder))
def test_cls_pooling_embeds_the_first_position(encoder: Encoder) -> None:
    mean = tiny_model(encoder=encoder)
    cls = JointModel(replace(mean.config, embedding_pooling="cls")).eval()
    cls.load_state_dict(mean.state_dict())
    ids, tokens = texts(3, 9), image_tokens(3)
    mask, image_mask = torch.ones_like(ids), torch.zeros((3, R), dtype=torch.int64)
    joint = mean.joint_encoder
    assert isinstance(joint, JointEncoder)
    states_BLD = joint.hidden_states(ids, mask, tokens, image_mask).float()

    def expected(pooled_BD: Tensor) -> Tensor:
        return nn.functional.normalize(pooled_BD, dim=-1)

    assert_allclose(cls.embed_texts(ids, mask), expected(states_BLD[:, 0]), **CLOSE)
    assert_allclose(mean.embed_texts(ids, mask), expected(states_BLD[:, :9].mean(1)), **CLOSE)
    logits = [each.match_logits(ids, mask, tokens) for each in (mean, cls)]
    assert_allclose(logits[0], logits[1], **CLOSE)


@torch.inference_mode()
def test_order_matters_in_both_modalities(model: JointModel) -> None:
    ids, tokens = texts(1, 8), image_tokens(1)
    mask = torch.ones_like(ids)

    for one, other in (
        (model.embed_texts(ids, mask), model.embed_texts(ids.flip(1), mask)),
        (model.embed_images(tokens, CLS_ID), model.embed_images(tokens.flip(1), CLS_ID)),
    ):
        assert (one - other).abs().max() > 1e-4


@torch.inference_mode()
def test_the_embedding_is_the_mean_of_the_positions_that_count(model: JointModel) -> None:
    encoder = model.joint_encoder
    is_pre_norm = isinstance(encoder, JointEncoder)
    hidden = _record(encoder.final_norm if is_pre_norm else encoder.layers[-1])  # type: ignore[arg-type]
    ids = texts(1, 6)
    mask = torch.tensor([[1, 1, 1, 1, 0, 0]])

    embedding = model.embed_texts(ids, mask)

    [hidden_BLD] = hidden
    mean_D = hidden_BLD[0, :4].mean(0)
    assert_allclose(embedding[0], mean_D / mean_D.norm(), **CLOSE)


@torch.inference_mode()
def test_the_logit_is_match_minus_no_match(model: JointModel) -> None:
    logits = _record(model.joint_encoder.classifier)  # type: ignore[arg-type]
    ids = texts(3, 6)

    match_logits_B = model.match_logits(ids, torch.ones_like(ids), image_tokens(3))

    [logits_B2] = logits
    assert_allclose(match_logits_B, logits_B2[:, 1] - logits_B2[:, 0], **CLOSE)
    assert_allclose(match_logits_B.sigmoid(), logits_B2.softmax(-1)[:, 1], **CLOSE)


@torch.inference_mode()
def test_words_are_scored_at_the_requested_positions(model: JointModel) -> None:
    ids, tokens = texts(3, 7), image_tokens(3)
    mask = torch.ones_like(ids)
    at = torch.zeros(3, 7, dtype=torch.bool)
    at[0, 4] = at[2, 1] = at[2, 6] = True
    longer = torch.cat([ids, texts(3, 5, seed=9)], dim=1)
    nowhere = torch.zeros(3, 5, dtype=torch.int64)

    logits_MV = model.word_logits(ids, mask, tokens, at)

    states = model.joint_encoder.hidden_states(ids, mask, tokens, torch.ones(3, R))
    words_VD = model.joint_encoder.word.weight
    expected = [words_VD @ states[row, place] for row, place in ((0, 4), (2, 1), (2, 6))]
    assert_allclose(logits_MV, torch.stack(expected), **CLOSE)
    padded = torch.cat([mask, nowhere], 1), tokens, torch.cat([at, nowhere.bool()], 1)
    assert_allclose(model.word_logits(longer, *padded), logits_MV, **CLOSE)
    of_others = model.word_logits(ids, mask, tokens.roll(1, 0), at)
    assert (of_others - logits_MV).abs().max() > 1e-3


def test_the_cross_encoder_of_two_scores_words() -> None:
    model = JointModel(replace(tiny_model().config, has_two_encoders=True))
    ids = texts(2, 5)
    at = torch.ones_like(ids).bool()

    model.word_logits(ids, torch.ones_like(ids), image_tokens(2), at).sum().backward()

    assert isinstance(model.joint_encoder, SeparateEncoders)
    assert _with_gradient(model.joint_encoder.cross_encoder)
    assert not _with_gradient(model.joint_encoder.bi_encoder)


def test_the_two_objectives_reach_every_weight_of_the_encoder(model: JointModel) -> None:
    ids, tokens = texts(4, 8), image_tokens(4)
    mask = torch.ones_like(ids)
    encoder = model.joint_encoder
    head = {"pooler.weight", "pooler.bias", "classifier.weight", "classifier.bias"}

    be_loss = in_batch_softmax_loss(
        model.embed_texts(ids, mask), model.embed_images(tokens, CLS_ID), temperature=0.1
    )
    be_loss.backward()
    learnt_by_be = _with_gradient(encoder)
    encoder.zero_grad()
    ce_loss = pair_classification_loss(
        model.match_logits(ids, mask, tokens), torch.tensor([1.0, 0.0, 1.0, 0.0])
    )
    ce_loss.backward()
    learnt_by_ce = _with_gradient(encoder)

    everything = {name for name, _ in encoder.named_parameters()}
    assert learnt_by_ce == everything
    assert learnt_by_be == everything - head


def _with_gradient(module: nn.Module) -> set[str]:
    return {
        name
        for name, parameter in module.named_parameters()
        if parameter.grad is not None and parameter.grad.abs().sum() > 0
    }


def _record(module: nn.Module) -> list[Tensor]:
    """Returns the list that the module's outputs will be put into."""
    outputs: list[Tensor] = []
    module.register_forward_hook(lambda _module, _inputs, output: outputs.append(output))
    return outputs
