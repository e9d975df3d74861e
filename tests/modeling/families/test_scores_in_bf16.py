"""A cross-encoder's scores in bf16: the same alone and in a batch, and finer than bf16's steps."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tandem.modeling.export.lowered import lowered_part
from tandem.modeling.families.reader import read_published_model
from tandem.repository.precision import Precision
from tests.support.modeling.pair_inputs import pairs

Published = Callable[[str], Path]
Inputs = tuple[Tensor, ...]

BATCH = 20


def scorer(folder: Path) -> tuple[nn.Module, Inputs]:
    """Returns the module that scores pairs, and the inputs of a batch."""
    model = read_published_model(folder)
    if model.region_joint is not None:
        parts = model.region_joint
        return parts.joint, pairs(BATCH, 9, 6, parts.regions.vector_width)
    assert model.cross_encoder is not None
    width, count = model.cross_encoder.token_width, model.cross_encoder.image_token_count
    return model.cross_encoder.score_pair, pairs(BATCH, 9, count, width)


@torch.inference_mode()
def logits(module: nn.Module, inputs: Inputs) -> Tensor:
    """Returns [B] match logits; a joint module gives an embedding before them."""
    answer = module(*inputs)
    return (answer[1] if isinstance(answer, tuple) else answer).reshape(-1)


@pytest.mark.parametrize("name", ["blip", "blip-2", "vilt", "visual_bert"])
def test_a_score_is_the_same_in_any_batch_and_finer_than_bf16(
    published: Published, name: str
) -> None:
    """Or two candidates near each other would have one logit, and an order by chance."""
    module, inputs = scorer(published(name))
    lower = lowered_part(module, Precision.BF16)

    whole = logits(lower, inputs)
    alone = torch.cat(
        [logits(lower, tuple(each[n : n + 1] for each in inputs)) for n in range(BATCH)]
    )

    assert (whole - alone).abs().max() < 1e-3
    assert whole.max() - whole.min() > 2e-2  # positive control
    assert 1e-4 < (whole - logits(module, inputs)).abs().max() < 2e-2
    assert whole.dtype == torch.float32
    assert (whole != whole.bfloat16().float()).sum() > BATCH // 2
