"""SGR and SAF: the score of a pair from its similarity vectors, one at a time."""

from typing import Literal

import numpy as np
import pytest

from tandem.lab.zoo.networks.sgraf import GatedWhole, Sgraf, SimilarityFilter, SimilarityGraph
from tests.support.zoo.by_hand import (
    Floats,
    attended,
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


def _whole(pool: GatedWhole, states: list[Floats], *, is_image: bool) -> Floats:
    parts = [linear(pool.fragment, each) for each in states]
    whole = linear(pool.mean, mean(states))
    if is_image:  # a norm over the regions' places, and one over features
        norm = pool.fragment_norm
        places = np.stack([*parts, np.zeros_like(parts[0])], axis=1)
        rows = [normed(norm, places[feature]) for feature in range(len(parts[0]))]
        parts = [np.array([row[place] for row in rows]) for place in range(len(parts))]
        whole = normed(pool.mean_norm, whole)
    fits = [float(linear(pool.weigh, np.tanh(each) * np.tanh(whole))[0]) for each in parts]
    return unit(mixed(softmax(fits), states))


def _graph(read: SimilarityGraph, vectors: list[Floats]) -> Floats:
    for query, key, out in zip(read.query, read.key, read.out, strict=True):
        queries, keys = ([linear(layer, each) for each in vectors] for layer in (query, key))
        edges = [softmax([float(one @ other) for other in keys]) for one in queries]
        vectors = [relu(linear(out, mixed(row, vectors))) for row in edges]
    return vectors[0]


def _filter(read: SimilarityFilter, vectors: list[Floats]) -> Floats:
    gates = [float(sigmoid(normed(read.norm, linear(read.weigh, each)))[0]) for each in vectors]
    return unit(mixed([gate / (sum(gates) + 1e-8) for gate in gates], vectors))


@pytest.mark.parametrize("reading", ["sgr", "saf"])
def test_a_score_matches_its_vectors(reading: Literal["sgr", "saf"]) -> None:
    """Global and local vectors, then the graph or the filter, of Diao et al. 2021, section 3."""
    network = Sgraf(tiny_config("sgr"), reading).eval()
    stirred(network)
    pair = one_pair()
    regions = [unit(linear(network.project, each)) for each in pair.features]
    words = [unit(each) for each in pair.words(network.words)]
    image = _whole(network.image_whole, regions, is_image=True)
    text = _whole(network.text_whole, words, is_image=False)

    contexts = [unit(each) for each in attended(words, regions, 9.0)]
    vectors = [unit(linear(network.whole, (image - text) ** 2))]
    for word, context in zip(words, contexts, strict=True):
        vectors.append(unit(linear(network.local, (context - word) ** 2)))
    if reading == "sgr":
        assert isinstance(network.read, SimilarityGraph)
        read = _graph(network.read, vectors)
    else:
        assert isinstance(network.read, SimilarityFilter)
        read = _filter(network.read, vectors)
    logit = linear(network.score, read)

    assert pair.score(network) == pytest.approx(float(sigmoid(logit)[0]), abs=1e-5)
    assert len(floats(network.score.weight)[0]) == 4


def test_a_logit_ranks_as_its_probability() -> None:
    """It is the log odds."""
    network = Sgraf(tiny_config("saf")).eval()
    pair = one_pair()

    images, texts = pair.read(network)
    probability = network.row_by_row(images, texts)

    assert sigmoid(floats(network.logits(probability))) == pytest.approx(
        floats(probability), abs=1e-6
    )
