"""What holds for every legal input: who shares a batch, pads and masked values change nothing.

Legal is: ids below the vocabulary, masks with at least one 1 a row, image tokens within float16's
finite range, pixels of any value.

Shapes: B rows, T text tokens, R image tokens, D width.
"""

import random
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from torch import Tensor

from tandem.modeling.config import JointConfig
from tandem.modeling.joint_model import JointModel

VOCABULARY_SIZE, D, IMAGE_SIZE, T_MAX = 20, 8, 32, 6
R_MAX = (IMAGE_SIZE // 16) ** 2

Pixels = NDArray[np.uint8]

KINDS: dict[str, dict[str, object]] = {
    "pre_norm": {},
    "post_norm": {"encoder": "post_norm"},
}
every_kind = pytest.mark.parametrize("kind", KINDS)

CLOSE: dict[str, Any] = {"rtol": 0.0, "atol": 1e-5}
BRIEF = settings(max_examples=30)


@dataclass(frozen=True, slots=True)
class Inputs:
    """A batch as the encoder takes it: int64 [B, T] twice, float16 [B, R, D], int64 [B, R]."""

    ids: Tensor
    text_mask: Tensor
    tokens: Tensor
    image_mask: Tensor


@cache
def model(kind: str = "pre_norm") -> JointModel:
    """Returns a small model of that kind that attends sharply, as a trained one does.

    At the weights a model starts from, attention is all but even and a leak through the mask would
    be as faint as what is leaked.
    """
    with torch.random.fork_rng():
        torch.manual_seed(4)
        config = JointConfig(
            vocabulary_size=VOCABULARY_SIZE,
            width=D,
            layer_count=2,
            head_count=2,
            image_size=IMAGE_SIZE,
            max_text_tokens=T_MAX,
            **KINDS[kind],  # type: ignore[arg-type]
        )
        made = JointModel(config).eval()
    with torch.no_grad():
        made.joint_encoder.word.weight *= 50
        for layer in made.joint_encoder.layers:
            layer.query_key_value.weight *= 4
    return made


def halves(largest: float) -> st.SearchStrategy[float]:
    """Yields float16s of at most this size."""
    return st.floats(-largest, largest, width=16)


# As a backbone's norm leaves them, and more. Beyond, two huge tokens can cancel in float32, and the
# rest depends on the order of additions.
ORDINARY = halves(8.0)
ANY = halves(65_504.0)


@st.composite
def masks(draw: st.DrawFn, length: int) -> list[int]:
    """Yields a row's mask over both sides, with at least one 1 if there is any position."""
    mask = draw(st.lists(st.integers(0, 1), min_size=length, max_size=length))
    if length:
        mask[draw(st.integers(0, length - 1))] = 1
    return mask


@st.composite
def inputs_of(
    draw: st.DrawFn,
    batch: int,
    text_length: int,
    image_length: int,
    values: st.SearchStrategy[float],
) -> Inputs:
    """Yields batches of this size; a side may have no positions."""
    rows = [draw(masks(text_length + image_length)) for _ in range(batch)]
    mask_BL = torch.tensor(rows, dtype=torch.int64)
    ids = arrays(np.int64, (batch, text_length), elements=st.integers(0, VOCABULARY_SIZE - 1))
    tokens = arrays(np.float16, (batch, image_length, D), elements=values)
    return Inputs(
        torch.from_numpy(draw(ids)),
        mask_BL[:, :text_length],
        torch.from_numpy(draw(tokens)),
        mask_BL[:, text_length:],
    )


def inputs(values: st.SearchStrategy[float]) -> st.SearchStrategy[Inputs]:
    """Yields batches of every size, length and mask."""
    sizes = st.tuples(st.integers(1, 4), st.integers(1, T_MAX), st.integers(1, R_MAX))
    return sizes.flatmap(lambda size: inputs_of(*size, values))


def pictures() -> st.SearchStrategy[Pixels]:
    """Yields one to three pictures of any bytes."""
    return st.integers(1, 3).flatmap(
        lambda batch: arrays(np.uint8, (batch, IMAGE_SIZE, IMAGE_SIZE, 3))
    )


@torch.inference_mode()
def outputs(kind: str, given_inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Returns embeddings [B, D] and logits [B, 1]."""
    return model(kind).joint_encoder(
        given_inputs.ids,
        given_inputs.text_mask,
        given_inputs.tokens,
        given_inputs.image_mask,
    )


def assert_same(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> None:
    """Checks embeddings and logits."""
    for mine, its in zip(one, other, strict=True):
        assert_allclose(mine, its, **CLOSE)


@every_kind
@BRIEF
@given(batch=inputs(ORDINARY), rng=st.randoms(use_true_random=False))
def test_any_rows_of_a_batch_in_any_order_give_the_same(
    kind: str, batch: Inputs, rng: random.Random
) -> None:
    count = len(batch.ids)
    order = rng.sample(range(count), rng.randint(1, count))

    embeddings_BD, logits_B1 = outputs(kind, batch)

    chosen = Inputs(
        batch.ids[order],
        batch.text_mask[order],
        batch.tokens[order],
        batch.image_mask[order],
    )
    assert_same(outputs(kind, chosen), (embeddings_BD[order], logits_B1[order]))


@every_kind
@BRIEF
@given(data=st.data())
def test_padding_on_either_side_changes_nothing(kind: str, data: st.DataObject) -> None:
    batch = data.draw(inputs(ORDINARY))
    texts, images = batch.ids.shape[1], batch.tokens.shape[1]
    text_pads = data.draw(st.integers(0, T_MAX - texts))
    image_pads = data.draw(st.integers(0, R_MAX - images))
    pads = data.draw(inputs_of(len(batch.ids), text_pads, image_pads, ANY))

    padded = Inputs(
        torch.cat([batch.ids, pads.ids], dim=1),
        torch.cat([batch.text_mask, torch.zeros_like(pads.ids)], dim=1),
        torch.cat([batch.tokens, pads.tokens], dim=1),
        torch.cat([batch.image_mask, torch.zeros_like(pads.image_mask)], dim=1),
    )

    assert_same(outputs(kind, padded), outputs(kind, batch))


@every_kind
@BRIEF
@given(data=st.data())
def test_masked_values_have_no_influence(kind: str, data: st.DataObject) -> None:
    batch = data.draw(inputs(ANY))
    others = data.draw(inputs_of(*batch.ids.shape, batch.tokens.shape[1], ANY))  # type: ignore[call-arg]

    changed = Inputs(
        torch.where(batch.text_mask.bool(), batch.ids, others.ids),
        batch.text_mask,
        torch.where(batch.image_mask.bool()[:, :, None], batch.tokens, others.tokens),
        batch.image_mask,
    )

    assert_same(outputs(kind, changed), outputs(kind, batch))


@pytest.mark.parametrize("side", ["text", "image"])
@every_kind
def test_unmasked_values_have_influence(kind: str, side: str) -> None:
    """The control of the test above: without the mask the same change shows, and with it not."""
    generator = torch.Generator().manual_seed(3)
    ids_BT = torch.randint(0, VOCABULARY_SIZE, (1, R_MAX), generator=generator)
    tokens_BRD = torch.randn(1, R_MAX, D, generator=generator).half()
    one_11 = torch.ones(1, R_MAX, dtype=torch.int64)
    position, masked = 3, one_11.clone()
    masked[:, position] = 0
    other_ids_BT, other_tokens_BRD = ids_BT.clone(), tokens_BRD.clone()
    if side == "text":
        other_ids_BT[:, position] = (ids_BT[:, position] + 1) % VOCABULARY_SIZE
    else:
        other_tokens_BRD[:, position] = 1e4 * torch.randn(D, generator=generator).sign()

    def change(text_mask: Tensor, image_mask: Tensor) -> list[float]:
        before = outputs(kind, Inputs(ids_BT, text_mask, tokens_BRD, image_mask))
        after = outputs(kind, Inputs(other_ids_BT, text_mask, other_tokens_BRD, image_mask))
        return [(a - b).abs().max().item() for a, b in zip(after, before, strict=True)]

    assert min(change(one_11, one_11)) > 1e-3
    both = (masked, one_11) if side == "text" else (one_11, masked)
    assert max(change(*both)) < 1e-5


@every_kind
@BRIEF
@given(batch=inputs(ANY))
def test_every_legal_input_gives_finite_numbers(kind: str, batch: Inputs) -> None:
    embeddings_BD, logits_B1 = outputs(kind, batch)

    assert logits_B1.isfinite().all()
    assert_allclose(embeddings_BD.norm(dim=-1), torch.ones(len(batch.ids)), **CLOSE)


@BRIEF
@given(pictures())
@torch.inference_mode()
def test_every_picture_gives_tokens_that_the_index_can_store(pixels_BHWC: Pixels) -> None:
    tokens_BRD = model().image_backbone(torch.from_numpy(pixels_BHWC))

    assert tokens_BRD.shape == (len(pixels_BHWC), R_MAX, D)
    assert tokens_BRD.isfinite().all()
    assert tokens_BRD.abs().max() <= D**0.5 + 1e-3


@BRIEF
@given(st.data())
@torch.inference_mode()
def test_a_picture_has_the_same_tokens_in_any_batch(data: st.DataObject) -> None:
    pixels_BHWC = torch.from_numpy(data.draw(pictures()))
    order = data.draw(st.permutations(range(len(pixels_BHWC))))

    tokens_BRD = model().image_backbone.tokens(pixels_BHWC)

    assert_allclose(model().image_backbone.tokens(pixels_BHWC[order]), tokens_BRD[order], **CLOSE)
    assert_allclose(model().image_backbone.tokens(pixels_BHWC[:1]), tokens_BRD[:1], **CLOSE)
