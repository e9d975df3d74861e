"""CAMP: both stages' scores of a pair, and the second stage's loss, fragment by fragment."""

import math

import numpy as np
import pytest
import torch

from tandem.lab.zoo.networks.camp import Camp, GatedCamp
from tests.support.zoo.by_hand import (
    Floats,
    linear,
    mean,
    mixed,
    read_by,
    relu,
    sigmoid,
    softmax,
    unit,
)
from tests.support.zoo.one_pair import one_pair
from tests.support.zoo.tiny_zoo import tiny_config


def _messages(
    network: Camp | GatedCamp,
) -> tuple[list[Floats], list[Floats], list[Floats], list[Floats]]:
    pair = one_pair()
    regions = [linear(network.project, each) for each in pair.features]
    words = pair.words(network.words)
    region_keys = [linear(network.image_key, each) for each in regions]
    word_keys = [linear(network.text_key, each) for each in words]
    return (
        regions,
        words,
        read_by(region_keys, word_keys, words),
        read_by(word_keys, region_keys, regions),
    )


def test_the_first_stage_compares_messages() -> None:
    """Wang et al. 2019, section 3.2, each side's messages after they have read each other."""
    network = Camp(tiny_config("camp")).eval()
    _, _, to_regions, to_words = _messages(network)

    def whole(messages: list[Floats], query: torch.nn.Module, key: torch.nn.Module) -> Floats:
        queries, keys = ([linear(layer, each) for each in messages] for layer in (query, key))
        return unit(mean(read_by(queries, keys, messages)))

    image = whole(to_regions, network.region_query, network.region_key)
    text = whole(to_words, network.word_query, network.word_key)

    assert one_pair().score(network) == pytest.approx(float(image @ text), abs=1e-5)


def test_the_second_stage_gates_and_fuses_messages() -> None:
    """Sections 3.3 and 3.4."""
    network = GatedCamp(tiny_config("camp_gated")).eval()
    regions, words, to_regions, to_words = _messages(network)

    def whole(
        own: list[Floats], messages: list[Floats], fuse: torch.nn.Module, maps: torch.nn.Module
    ) -> Floats:
        assert isinstance(fuse, torch.nn.Sequential)
        assert isinstance(maps, torch.nn.Sequential)
        fused = []
        for one, message in zip(own, map(unit, messages), strict=True):
            gate = sigmoid(np.array(one @ message))
            fused.append(relu(linear(fuse[0], gate * np.concatenate([one, message]))) + one)
        logits = [linear(maps[2], relu(linear(maps[0], each))) for each in fused]
        read = [mixed(softmax([float(each[m]) for each in logits]), fused) for m in range(4)]
        return unit(mean(read))

    image = whole(regions, to_regions, network.fuse_regions, network.region_maps)
    text = whole(words, to_words, network.fuse_words, network.word_maps)
    hidden = relu(linear(network.score[0], np.concatenate([image, text])))
    score = sigmoid(linear(network.score[3], hidden))

    assert one_pair().score(network) == pytest.approx(float(score[0]), abs=1e-5)


def test_the_second_stage_learns_by_cross_entropy() -> None:
    network = GatedCamp(tiny_config("camp_gated"))
    scores = torch.tensor([[0.8, 0.3, 0.1], [0.2, 0.6, 0.4], [0.5, 0.1, 0.9]])
    groups = torch.arange(3)

    hardest = network.ranking_loss(scores, groups, 0.2, takes_hardest=True).item()
    every = network.ranking_loss(scores, groups, 0.2, takes_hardest=False).item()

    own = 2 * (math.log(0.8) + math.log(0.6) + math.log(0.9))
    rows = math.log(0.7) + math.log(0.6) + math.log(0.5)
    columns = math.log(0.5) + math.log(0.7) + math.log(0.6)
    assert hardest == pytest.approx(-(own + rows + columns), abs=1e-5)
    off = [0.3, 0.1, 0.2, 0.4, 0.5, 0.1]  # each in one row and one column, of two negatives
    assert every == pytest.approx(-(own + sum(math.log(1 - s) for s in off)), abs=1e-5)
