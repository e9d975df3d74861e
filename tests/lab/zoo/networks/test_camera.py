"""CAMERA: the views of a picture, a text's embedding, the score and the diversity, by loops."""

import numpy as np
import pytest
import torch
from torch import nn

from tandem.lab.zoo.network import Lesson
from tandem.lab.zoo.networks.camera import Camera, GatedSelfAttention
from tests.support.zoo.by_hand import (
    Floats,
    floats,
    linear,
    mean,
    mixed,
    normed,
    relu,
    sigmoid,
    softmax,
    stirred,
    unit,
)
from tests.support.zoo.one_pair import one_pair
from tests.support.zoo.tiny_zoo import tiny_config


def _attended(layer: GatedSelfAttention, added: list[Floats], states: list[Floats]) -> list[Floats]:
    """Returns one head's gated attention: the tiny width has no second."""
    assert layer.head_count == 1
    queries, keys, values = (
        [linear(part, each) for each in states] for part in (layer.query, layer.key, layer.value)
    )
    gated_queries, gated_keys = [], []
    for query, key in zip(queries, keys, strict=True):
        both = linear(layer.gate_query, query) * linear(layer.gate_key, key)
        gate = sigmoid(linear(layer.gate, both))
        gated_queries.append(query * gate[:16])
        gated_keys.append(key * gate[16:])
    out = []
    for query, own in zip(gated_queries, added, strict=True):
        weights = softmax([float(query @ key) / 4.0 for key in gated_keys])
        out.append(own + normed(layer.norm, mixed(weights, values)))
    return out


def _summary(network: Camera, regions: list[Floats]) -> list[Floats]:
    """Returns each region's score for each view, by the dilated windows one by one."""
    padded = dict(enumerate(regions))
    rows = []
    for place in range(len(regions)):
        read = []
        for window in network.views.windows:
            assert isinstance(window, nn.Conv1d)
            weight, total = floats(window.weight), floats(window.bias)  # type: ignore[arg-type]
            size, dilation = window.kernel_size[0], window.dilation[0]
            for k in range(size):
                other = place + (k - size // 2) * dilation
                if other in padded:
                    total = total + weight[:, :, k] @ padded[other]
            read.append(relu(total))
        rows.append(linear(network.views.view, np.concatenate(read)))
    return rows


def test_a_score_is_that_of_the_best_view() -> None:
    """Qu et al. 2020, section 3; boxes are those of a grid of two by two cells."""
    network = Camera(tiny_config("camera")).eval()
    stirred(network)
    pair = one_pair()
    boxes = [(0.0, 0.0), (0.5, 0.0), (0.0, 0.5)]
    places = [np.array([x, y, 0.5, 0.5, 1.0, 0.25]) for x, y in boxes]
    regions = [unit(linear(network.project, each)) for each in pair.features]
    placed = [
        region * sigmoid(linear(network.place, place))
        for region, place in zip(regions, places, strict=True)
    ]
    regions = [unit(each) for each in _attended(network.attend, regions, placed)]
    summary = _summary(network, regions)
    views = [
        unit(mixed(softmax([float(row[view]) for row in summary]), regions)) for view in range(12)
    ]
    words = [linear(network.text_project, each) for each in pair.words(network.words)]
    words = _attended(network.text_attend, words, words)
    inner, outer = network.feed_forward[0], network.feed_forward[2]
    fed = [
        each + normed(network.feed_forward_norm, linear(outer, relu(linear(inner, each))))
        for each in words
    ]
    text = unit(mean(fed))

    images, texts = pair.read(network)

    assert floats(images[0])[0] == pytest.approx(np.stack(views), abs=1e-5)
    assert floats(network.embedding(texts))[0] == pytest.approx(text, abs=1e-5)
    assert floats(network.embedding(images))[0] == pytest.approx(unit(mean(views)), abs=1e-5)
    assert pair.score(network) == pytest.approx(max(float(view @ text) for view in views), abs=1e-5)


def test_similar_views_add_to_the_loss() -> None:
    """0.01 of the squared off-diagonal of LᵀL, whose columns have unit length."""
    network = Camera(tiny_config("camera"))
    ids = torch.zeros(1, 3, dtype=torch.int64)
    lesson = Lesson(ids, ids, ids, torch.arange(1), share_done=0.0)
    apart = torch.eye(12)[None] * 3
    two_alike = apart.clone()
    two_alike[0, :, 1] = two_alike[0, :, 0]

    assert network.further_loss((apart, apart), (), lesson).item() == pytest.approx(0.0, abs=1e-6)
    assert network.further_loss((apart, two_alike), (), lesson).item() == pytest.approx(0.02)
