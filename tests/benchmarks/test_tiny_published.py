"""What the small trained models are saved as: folders that Tandem's readers take."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.support.emoji_batches import EmojiBatches
from benchmarks.support.tiny_published import (
    SIZE,
    Plan,
    negative_weights,
    train_blip,
    train_clip,
)
from tandem.modeling.families.reader import read_published_model

PLAN = Plan(seed=3, step_count=2, batch=6)


@pytest.fixture(scope="module")
def batches() -> EmojiBatches:
    """Noise for drawings: two of each of eight concepts."""
    pixels = np.random.default_rng(1).integers(0, 256, (16, SIZE, SIZE, 3), dtype=np.uint8)
    captions = [[f"concept {row % 8}", f"pojem {row % 8}"] for row in range(16)]
    return EmojiBatches(pixels, captions, [[row, row + 8] for row in range(8)])


def test_a_batch_has_each_concept_once(batches: EmojiBatches) -> None:
    generator = np.random.default_rng(1)
    for _ in range(5):
        pixels, texts = batches.draw(generator, 8)
        assert pixels.shape == (8, SIZE, SIZE, 3)
        assert len({text[-1] for text in texts}) == 8


def test_a_trained_clip_is_read(batches: EmojiBatches, tmp_path: Path) -> None:
    train_clip(tmp_path, PLAN, batches)

    parts = read_published_model(tmp_path).bi_encoder

    assert parts is not None
    assert (parts.image.size, parts.embedding_dim) == (SIZE, 128)


def test_a_trained_blip_is_read_with_enc_and_repeats_by_seed(
    batches: EmojiBatches, tmp_path: Path
) -> None:
    clip = tmp_path / "clip"
    train_clip(clip, PLAN, batches)
    losses = [train_blip(tmp_path / name, PLAN, batches, clip) for name in ("one", "two")]

    one, two = (read_published_model(tmp_path / name).cross_encoder for name in ("one", "two"))

    assert one is not None
    assert two is not None
    assert one.text.first_id == one.text.vocabulary_size - 1
    assert losses[0] == losses[1]
    states = [parts.score_pair.state_dict() for parts in (one, two)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    # It continues from a BLIP with the same tokenizer.
    harder = replace(PLAN, hard_share=0.5, has_both_ways=True)
    train_blip(tmp_path / "three", harder, batches, tmp_path / "two")
    names = ("two", "three")
    tokenizers = {(tmp_path / name / "tokenizer.json").read_text() for name in names}
    assert len(tokenizers) == 1


def test_negatives_are_drawn_by_chance_or_as_they_are_confused() -> None:
    """The second picture is as near to the first text as its own; the third is far."""
    similarity = torch.tensor([[5.0, 5.0, 0.0], [1.0, 9.0, 1.0], [0.0, 0.0, 9.0]])
    by_chance, half, hard = (negative_weights(similarity, share) for share in (0.0, 0.5, 1.0))
    near = 1 / (1 + np.exp(-5.0))
    torch.testing.assert_close(by_chance[0], torch.tensor([0.0, 0.5, 0.5]))
    torch.testing.assert_close(hard[0], torch.tensor([0.0, near, 1 - near]), check_dtype=False)
    torch.testing.assert_close(half, (by_chance + hard) / 2)
    for weights in (by_chance, half, hard):
        assert weights.diagonal().tolist() == [0.0, 0.0, 0.0]
        torch.testing.assert_close(weights.sum(dim=1), torch.ones(3))
