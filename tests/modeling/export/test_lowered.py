"""Fewer bits: what they change and what they must not."""

from collections.abc import Callable
from typing import get_args

import pytest
import torch
from torch import Tensor, nn

from tandem.model_io.repository.precision import Precision
from tandem.modeling.config import Encoder, ImageSource, JointConfig
from tandem.modeling.export.lowered import lowered
from tandem.modeling.joint_model import JointModel
from tests.support.modeling.tiny_checkpoint import tiny_model


@pytest.fixture(name="model", params=get_args(Encoder))
def _model(request: pytest.FixtureRequest) -> JointModel:
    return tiny_model(encoder=request.param)


def pairs(count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Returns random texts and image tokens."""
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(4, 20, (count, 9), generator=generator)
    return ids, torch.ones_like(ids), torch.randn(count, 49, 16, generator=generator).half()


def test_full_precision_is_the_model_itself(model: JointModel) -> None:
    assert lowered(model, Precision.FP32) is model


@torch.inference_mode()
def test_fewer_bits_change_little_and_leave_the_model_unchanged(model: JointModel) -> None:
    before = model.match_logits(*pairs(8))
    for precision, most in ((Precision.FP16, 2e-3), (Precision.BF16, 2e-2), (Precision.INT8, 5e-2)):
        logits = lowered(model, precision).match_logits(*pairs(8))
        assert logits.dtype == torch.float32
        assert 0 < (logits - before).abs().max().item() < most
    assert torch.equal(model.match_logits(*pairs(8)), before)


@torch.inference_mode()
@pytest.mark.parametrize(
    ("image_source", "encoder"),
    [("grid", "pre_norm"), ("patches", "post_norm"), ("efficientnet_lite0", "pre_norm")],
)
def test_a_half_precision_norm_reads_numbers_of_its_weights_type(
    encoder: Encoder, image_source: ImageSource
) -> None:
    """Else CUDA refuses to run it; a CPU takes the mixture, and so its answers do not tell."""
    config = JointConfig(
        vocabulary_size=100,
        width=16,
        layer_count=2,
        head_count=2,
        encoder=encoder,
        image_source=image_source,
    )
    half = lowered(JointModel(config).eval(), Precision.FP16)
    norms = {name: each for name, each in half.named_modules() if isinstance(each, nn.LayerNorm)}
    seen: dict[str, bool] = {}

    def note(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def hook(norm: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            seen[name] = inputs[0].dtype is norm.weight.dtype

        return hook

    for name, norm in norms.items():
        norm.register_forward_pre_hook(note(name))
    ids, mask, _ = pairs(2)
    tokens = half.image_backbone(torch.zeros(2, 112, 112, 3, dtype=torch.uint8))
    half.match_logits(ids, mask, tokens)

    assert seen == dict.fromkeys(norms, True)


@torch.inference_mode()
def test_a_bf16_score_is_the_same_in_every_batch(model: JointModel) -> None:
    half = lowered(model, Precision.BF16)
    inputs = pairs(16)
    together = half.match_logits(*inputs)

    alone = torch.cat([half.match_logits(*(each[n : n + 1] for each in inputs)) for n in range(16)])

    torch.testing.assert_close(alone, together, atol=1e-3, rtol=0)


@torch.inference_mode()
def test_an_int8_score_hangs_on_its_batch(model: JointModel) -> None:
    """What the documentation warns of: activations share one scale, so a loud row blurs others."""
    quantised = lowered(model, Precision.INT8)
    ids, mask, tokens = pairs(2)
    loud = torch.cat([tokens[:1], 50 * tokens[1:]])

    alone = quantised.match_logits(ids[:1], mask[:1], tokens[:1])
    beside_a_loud_one = quantised.match_logits(ids, mask, loud)[:1]

    assert not torch.equal(alone, beside_a_loud_one)
