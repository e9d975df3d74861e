"""Every part of a cross-encoder family gives the same eager, traced, exported, and in any batch.

Transformers takes three seconds to import, and each export one.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

from tandem.model_io.repository.precision import Precision
from tandem.modeling.export.lowered import lowered_part
from tandem.modeling.families.published_model import CrossEncoderParts
from tandem.modeling.families.reader import read_published_model
from tests.support.modeling.exported_twice import (
    Inputs,
    exported,
    largest_difference,
    traced,
)
from tests.support.modeling.pair_inputs import pairs, pictures, texts

SIZES = ((1, 5), (3, 11), (5, 7), (2, 11), (1, 7))


class Part(NamedTuple):
    """A function of a family, an example to trace, and what may change."""

    module: nn.Module
    kind: str
    parts: CrossEncoderParts

    def inputs(self, batch: int, length: int) -> Inputs:
        """Returns inputs of this batch and text length."""
        if self.kind == "pixels":
            return (pictures(batch),)
        if self.kind == "text":
            return texts(batch, length)
        return pairs(batch, length, self.parts.image_token_count, self.parts.token_width)

    def cases(self) -> Iterator[Inputs]:
        """Yields inputs of sizes other than the traced one."""
        return (self.inputs(*size) for size in SIZES)

    @property
    def free(self) -> tuple[tuple[int, ...], ...]:
        """Returns the dimensions of each input that may change."""
        kinds = {"pixels": ((0,),), "text": ((0, 1),) * 2, "pair": ((0, 1), (0, 1), (0,), (0,))}
        return kinds[self.kind]


@pytest.fixture(scope="module")
def parts(published: Callable[[str], Path]) -> dict[str, Part]:
    found: dict[str, Part] = {}
    for name in ("blip", "blip-2", "vilt"):
        found |= _parts(published(name))
    return found


def _parts(folder: Path) -> dict[str, Part]:
    model = read_published_model(folder)
    pair = model.cross_encoder
    assert pair is not None
    found = {"pair": Part(pair.score_pair, "pair", pair)}
    if pair.image_tokens is not None:
        found["image"] = Part(pair.image_tokens, "pixels", pair)
    if model.bi_encoder is not None:
        found["text"] = Part(model.bi_encoder.embed_text, "text", pair)
        found["image"] = Part(model.bi_encoder.embed_image, "pixels", pair)
    return {f"{model.family} {name}": part for name, part in found.items()}


NAMES = (
    "blip text",
    "blip image",
    "blip pair",
    "blip-2 image",
    "blip-2 pair",
    "vilt image",
    "vilt pair",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_trace_equals_the_eager_part(parts: dict[str, Part], name: str) -> None:
    part = parts[name]

    served = traced(part.module, part.inputs(2, 7))

    assert largest_difference(served, part.module, part.cases()) < 1e-6


# Each takes seconds, and the exporter compares every part that it writes.
@pytest.mark.parametrize(
    "name",
    [each if each == "vilt pair" else pytest.param(each, marks=pytest.mark.slow) for each in NAMES],
)
def test_torch_export_equals_the_eager_part(parts: dict[str, Part], name: str) -> None:
    part = parts[name]

    served = exported(part.module, part.inputs(2, 7), part.free)

    assert largest_difference(served, part.module, part.cases()) < 1e-6


PAIRS = pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("pair")])


@PAIRS
@torch.inference_mode()
def test_a_pair_scores_the_same_alone_and_among_twenty(parts: dict[str, Part], name: str) -> None:
    part = parts[name]
    rows = part.inputs(20, 9)

    together = part.module(*rows)
    alone = torch.cat([part.module(*(each[row : row + 1] for each in rows)) for row in range(20)])

    assert (together - alone).abs().max() < 1e-4
    assert together.std() > 1e-3  # scores that were all equal would pass


@PAIRS
@torch.inference_mode()
def test_what_counts_changes_a_score_and_padding_does_not(
    parts: dict[str, Part], name: str
) -> None:
    part = parts[name]
    ids, mask, tokens, image_mask = part.inputs(3, 9)
    score = part.module(ids, mask, tokens, image_mask)

    assert torch.allclose(part.module(_longer(ids, 4), _longer(mask, 4), tokens, image_mask), score)
    # What stands in the place of padding is not read.
    garbage = torch.where(mask == 0, 5, ids)
    assert torch.allclose(part.module(garbage, mask, tokens, image_mask), score)
    other_picture = part.module(ids, mask, tokens.roll(1, 0), image_mask)
    other_word = ids.clone()
    other_word[:, 2] = torch.where(ids[:, 2] == 5, 6, 5)
    assert (other_picture - score).abs().min() > 1e-4
    assert (part.module(other_word, mask, tokens, image_mask) - score).abs().min() > 1e-4
    if name == "blip pair":  # every picture of a BLIP has all its tokens
        return
    image_mask[:, -3:] = 0
    less = part.module(ids, mask, tokens, image_mask)
    tokens[:, -3:] = 9.0
    assert torch.allclose(part.module(ids, mask, tokens, image_mask), less)
    assert not torch.allclose(less, score, atol=1e-4)


def _longer(rows: Tensor, count: int) -> Tensor:
    return torch.cat([rows, torch.zeros(len(rows), count, dtype=rows.dtype)], dim=1)


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
def match_logits(module: nn.Module, inputs: Inputs) -> Tensor:
    """Returns [B] match logits; a joint module gives an embedding before them."""
    answer = module(*inputs)
    return (answer[1] if isinstance(answer, tuple) else answer).reshape(-1)


@pytest.mark.parametrize("name", ["blip", "blip-2", "vilt", "visual_bert"])
def test_a_score_is_the_same_in_any_batch_and_finer_than_bf16(
    published: Callable[[str], Path], name: str
) -> None:
    """Or two candidates near each other would have one logit, and an order by chance."""
    module, inputs = scorer(published(name))
    lower = lowered_part(module, Precision.BF16)

    whole = match_logits(lower, inputs)
    alone = torch.cat(
        [match_logits(lower, tuple(each[n : n + 1] for each in inputs)) for n in range(BATCH)]
    )

    assert (whole - alone).abs().max() < 1e-3
    assert whole.max() - whole.min() > 2e-2  # positive control
    assert 1e-4 < (whole - match_logits(module, inputs)).abs().max() < 2e-2
    assert whole.dtype == torch.float32
    assert (whole != whole.bfloat16().float()).sum() > BATCH // 2
