"""VSE-infinity: its pooling by hand and at its two limits, and its picture by loops."""

import numpy as np
import pytest
import torch
from torch import nn

from tandem.lab.zoo.networks.vse_infinity import GeneralisedPool, VseInfinity
from tandem.modeling.families.loaded_model import parameter_count
from tests.support.zoo.by_hand import (
    Floats,
    both_ways,
    floats,
    linear,
    normed,
    relu,
    softmax,
    stirred,
    unit,
)
from tests.support.zoo.one_pair import one_pair
from tests.support.zoo.tiny_zoo import tiny_config

STATES = torch.tensor([[[1.0, 5.0], [3.0, 2.0], [2.0, 8.0], [9.0, 9.0]]])
MASK = torch.tensor([[1, 1, 1, 0]])


def _weights(pool: GeneralisedPool, count: int) -> Floats:
    """Returns the weight of each rank, from codes of sines and cosines."""
    codes = []
    for rank in range(count):
        code = np.zeros(32)
        for place in range(0, 32, 2):
            angle = rank / 10_000 ** (place / 32)
            code[place], code[place + 1] = np.sin(angle), np.cos(angle)
        codes.append(code)
    states = both_ways(pool.onward, pool.backward_gru, codes)
    return softmax([float(linear(pool.score, each)[0]) / 0.1 for each in states])


def _pooled(pool: GeneralisedPool, vectors: list[Floats]) -> Floats:
    ranked = np.sort(np.stack(vectors), axis=0)[::-1]
    out: Floats = _weights(pool, len(vectors)) @ ranked
    return out


@torch.inference_mode()
def test_weights_follow_from_how_many_there_are() -> None:
    """Chen et al. 2021, section 4; each feature is sorted by itself."""
    torch.manual_seed(0)
    pool = GeneralisedPool()

    weights = floats(pool.weights(MASK))[0]

    assert weights[:3] == pytest.approx(_weights(pool, 3), abs=1e-5)
    assert weights[3] == 0
    expected = weights[0] * np.array([3, 8]) + weights[1] * np.array([2, 5])
    expected = expected + weights[2] * np.array([1, 2])
    assert floats(pool(STATES, MASK))[0] == pytest.approx(expected, abs=1e-5)


@torch.inference_mode()
def test_its_limits_are_mean_and_maximum() -> None:
    pool = GeneralisedPool()
    nn.init.zeros_(pool.score.weight)
    assert floats(pool(STATES, MASK))[0] == pytest.approx([2.0, 5.0])

    class FirstRank(GeneralisedPool):
        def weights(self, mask_BL: torch.Tensor) -> torch.Tensor:
            return torch.eye(4)[:1]

    assert floats(FirstRank()(STATES, MASK))[0] == pytest.approx([3.0, 8.0])


def test_a_picture_pools_a_layer_and_an_mlp() -> None:
    network = VseInfinity(tiny_config("vse_infinity")).eval()
    stirred(network)
    pair = one_pair()
    states = [
        linear(network.project, each)
        + linear(network.widen, relu(normed(network.norm, linear(network.narrow, each))))
        for each in pair.features
    ]

    images, texts = pair.read(network)

    image = unit(_pooled(network.image_pool, states))
    text = unit(_pooled(network.text_pool, pair.words(network.words)))
    assert floats(images[0])[0] == pytest.approx(image, abs=1e-5)
    assert floats(texts[0])[0] == pytest.approx(text, abs=1e-5)


def test_training_leaves_regions_out() -> None:
    network = VseInfinity(tiny_config("vse_infinity"))
    pair = one_pair()
    torch.manual_seed(0)

    def embed() -> torch.Tensor:
        return network.read_images(pair.tokens.expand(2, -1, -1), pair.image_mask.expand(2, -1))[0]

    drawn = [embed() for _ in range(12)]

    assert len({tuple(each[0].tolist()) for each in drawn}) > 1
    assert all(each.isfinite().all() for each in drawn)
    network.eval()
    assert torch.equal(embed(), embed())


def test_the_pool_has_the_papers_size() -> None:
    """Two GRUs of 32 over codes of 32, and one weight for each state."""
    assert parameter_count(GeneralisedPool()) == 2 * 3 * (2 * 32 * 32 + 2 * 32) + 32
