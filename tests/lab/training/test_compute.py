"""Where a run computes. There is no GPU here: torch's "meta" device, which computes shapes alone,
stands for one, and refuses tensors of the CPU as a GPU does.
"""

from dataclasses import replace

import pytest
import torch

from tandem.lab.training.compute import Compute, device_named
from tandem.lab.training.data.batches import PairBatch, TextBatch
from tandem.lab.training.losses import (
    batch_hard_triplet_loss,
    in_batch_softmax_loss,
    labelling_loss,
    pair_classification_loss,
    sampled_triplet_loss,
)
from tandem.modeling.config import Encoder, ImageSource
from tandem.modeling.joint_model import JointModel
from tests.support.modeling.tiny_checkpoint import tiny_model

META = Compute(torch.device("meta"), "fp32")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("tpu", "no device 'tpu'; there are cpu, cuda"),
        ("cuda:99", "no device cuda:99: torch sees"),
    ],
)
def test_an_unknown_device_is_refused(name: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        device_named(name)


def test_a_batch_moves_whole() -> None:
    ids = torch.ones(2, 3, dtype=torch.int64)
    batch = PairBatch(TextBatch(ids, ids), torch.zeros(2, 4, 8), torch.ones(2, 4), torch.ones(2))

    moved = META.put(batch)

    tensors = (moved.texts.ids, moved.texts.mask, moved.tokens, moved.image_mask, moved.matches)
    assert {tensor.device.type for tensor in tensors} == {"meta"}
    assert batch.tokens.device.type == "cpu"


@pytest.mark.parametrize(
    ("encoder", "source"),
    [("pre_norm", "grid"), ("post_norm", "regions"), ("pre_norm", "efficientnet_lite0")],
)
def test_the_model_and_the_losses_make_no_tensor_on_another_device(
    encoder: Encoder, source: ImageSource
) -> None:
    """All run on the meta device; one tensor left on the CPU stops them, as in the last line."""
    config = replace(tiny_model(encoder=encoder).config, image_source=source)
    model = JointModel(config).to("meta").eval()
    ids = META.put(torch.ones(4, 6, dtype=torch.int64))
    if source == "regions":
        tokens = META.put(torch.zeros(4, config.image_token_count, config.token_width))
    else:
        tokens = model.image_backbone(META.put(torch.zeros(4, 112, 112, 3, dtype=torch.uint8)))

    texts, images = model.embed_texts(ids, ids), model.embed_images(tokens, 2)
    logits = model.match_logits(ids, ids, tokens)
    groups = META.put(torch.arange(4))
    values = [
        in_batch_softmax_loss(texts, images, 0.1),
        batch_hard_triplet_loss(texts, images, groups, 0.1),
        sampled_triplet_loss(texts.view(2, 2, -1), images.view(2, 2, -1), 0.1),
        pair_classification_loss(logits, groups),
        labelling_loss(META.put(torch.zeros(4, 49, 7)), META.put(torch.zeros(4, 49).long())),
    ]

    assert {value.device.type for value in values} == {"meta"}
    with pytest.raises(RuntimeError, match="device"):
        model.match_logits(ids, ids, torch.zeros(tokens.shape))


@pytest.mark.parametrize(
    ("precision", "dtype"), [("bf16", torch.bfloat16), ("fp32", torch.float32)]
)
def test_products_are_computed_in_the_configured_precision(
    precision: str, dtype: torch.dtype
) -> None:
    """Of float32 matrices."""
    ones = torch.ones(2, 2)

    with Compute(torch.device("cpu"), precision).autocast():
        assert (ones @ ones).dtype is dtype
