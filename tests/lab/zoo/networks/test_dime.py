"""DIME: cells, routes and the score of a pair, fragment by fragment, in both directions."""

from typing import Literal

import numpy as np
import pytest
from torch import nn

from tandem.lab.zoo.networks.dime import CellLayer, CellRouter, Dime, FragmentAttention, Refinement
from tests.support.zoo.by_hand import (
    Floats,
    attended,
    linear,
    mean,
    mixed,
    normed,
    relu,
    softmax,
    stirred,
    unit,
    windowed,
)
from tests.support.zoo.by_hand import floats as values
from tests.support.zoo.one_pair import one_pair
from tests.support.zoo.tiny_zoo import tiny_config


def _guided(layer: CellLayer, own: list[Floats], whole: Floats) -> list[Floats]:
    fits = np.stack([linear(layer.guide, each) * whole for each in own])
    lengths = np.sqrt((fits**2).sum(axis=0))
    return [(1 + fit / lengths) * each for fit, each in zip(fits, own, strict=True)]


def _self_attended(layer: FragmentAttention, own: list[Floats]) -> list[Floats]:
    """Returns 16 heads of one feature each, then the feed-forward; both added."""
    queries, keys, read = (
        [linear(part, each) for each in own] for part in (layer.query, layer.key, layer.value)
    )
    out = []
    for place, state in enumerate(own):
        heads = []
        for head in range(16):
            logits = [float(queries[place][head] * key[head]) for key in keys]
            heads.append(float(softmax(logits) @ np.array([each[head] for each in read])))
        added = state + np.array(heads)
        first, second = layer.feed_forward[0], layer.feed_forward[2]
        out.append(added + linear(second, relu(linear(first, added))))
    return out


def _refined(layer: Refinement, own: list[Floats], context: list[Floats]) -> list[Floats]:
    out = []
    for fragment, read in zip(own, context, strict=True):
        moved = fragment * np.tanh(linear(layer.scale, read)) + linear(layer.shift, read)
        out.append(fragment + linear(layer.second, relu(linear(layer.first, moved))))
    return out


def _route(router: nn.Module, own: list[Floats]) -> Floats:
    assert isinstance(router, CellRouter)
    return relu(np.tanh(linear(router.route, relu(linear(router.hidden, mean(own))))))


def _next(
    layer: CellLayer, states: list[list[Floats]], other: list[Floats], whole: Floats
) -> list[list[Floats]]:
    """Returns what each next cell receives: shares of all cells, which have sum 1."""
    cells = [
        [relu(each) for each in states[0]],
        _guided(layer, states[1], whole),
        _self_attended(layer.attend, states[2]),
        _refined(layer.refine, states[3], attended(states[3], other, layer.sharpness)),
    ]
    routes = [_route(router, each) for router, each in zip(layer.routers, states, strict=True)]
    assert all((route > 1e-4).all() for route in routes)
    received = []
    for target in range(layer.next_count):
        shares = [float(route[target]) for route in routes]
        shares = [share / sum(shares) for share in shares]
        received.append(
            [mixed(shares, [cell[place] for cell in cells]) for place in range(len(states[0]))]
        )
    return received


@pytest.mark.parametrize(("refining", "sharpness"), [("i2t", 4.0), ("t2i", 9.0)])
def test_a_score_follows_its_routes(refining: Literal["i2t", "t2i"], sharpness: float) -> None:
    network = Dime(tiny_config("dime_i2t"), refining).eval()
    stirred(network)
    pair = one_pair()
    images, texts = pair.read(network)
    regions, words = ([values(each) for each in side[0][0, :3]] for side in (images, texts))
    image, text = values(images[1])[0], values(texts[1])[0]
    own, other, whole = (regions, words, text) if refining == "i2t" else (words, regions, image)
    states = [own] * 4
    for layer in network.layers:
        assert isinstance(layer, CellLayer)
        assert layer.sharpness == sharpness
        states = _next(layer, states, other, whole)

    ends = [normed(network.norm, each) for each in states[0]]
    score = float(unit(mean(ends) + np.max(ends, axis=0)) @ whole)

    assert pair.score(network) == pytest.approx(score, abs=1e-5)


def test_it_reads_both_sides() -> None:
    network = Dime(tiny_config("dime_t2i"), "t2i").eval()
    stirred(network)
    pair = one_pair()
    images, texts = pair.read(network)
    words = pair.words(network.words)
    own = [linear(network.text_project, each) for each in words]
    rows = windowed(network.windows.windows, words)
    project = network.window_project
    text = unit(linear(project, np.max(rows, axis=0)) + mean(own))

    for place in range(3):
        word = unit(linear(project, rows[place]) + own[place])
        assert values(texts[0])[0, place] == pytest.approx(word, abs=1e-5)
    assert values(texts[1])[0] == pytest.approx(text, abs=1e-5)
    regions = [linear(network.project, each) for each in pair.features]
    assert values(images[0])[0, 2] == pytest.approx(unit(regions[2]), abs=1e-5)
    whole = unit(normed(network.image_norm, mean(regions)))
    assert values(images[1])[0] == pytest.approx(whole, abs=1e-5)
