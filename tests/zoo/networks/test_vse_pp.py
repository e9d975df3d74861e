"""VSE++: its two embeddings by loops, and its size at the paper's widths."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tandem.modeling.config import JointConfig
from tandem.modeling.families.loaded_model import parameter_count
from tandem.zoo.config import ZooConfig
from tandem.zoo.networks.vse_pp import VsePlusPlus
from tandem.zoo.word_readers import WordGru
from tandem.zoo.zoo_model import NETWORKS
from tests.support.zoo.tiny_zoo import all_regions, tiny_network, tiny_texts, tiny_tokens

Floats = NDArray[np.float64]


def _unit(vector: Floats) -> Floats:
    length = np.sqrt(sum(float(value) ** 2 for value in vector))
    unit: Floats = vector / length
    return unit


@torch.inference_mode()
def test_a_picture_is_its_projected_mean() -> None:
    """Mean of the regions that count, unit length, projection, unit length."""
    network = tiny_network("vse_pp")
    assert isinstance(network, VsePlusPlus)
    tokens = tiny_tokens()
    mask = all_regions(tokens)
    mask[0, 3] = 0
    weight, bias = (p.double().numpy() for p in network.project.parameters())

    embedded = network.read_images(tokens, mask)[0].numpy()

    for row, count in ((0, 3), (1, 4)):
        rows = [tokens[row, region].double().numpy() for region in range(count)]
        mean = np.sum(rows, axis=0) / count
        expected = _unit(weight @ _unit(mean) + bias)
        assert embedded[row] == pytest.approx(expected, abs=1e-5)


@torch.inference_mode()
def test_a_text_is_the_last_state_of_its_gru() -> None:
    """The gates of Cho et al. 2014, written out, up to the last word that counts."""
    network = tiny_network("vse_pp")
    assert isinstance(network, VsePlusPlus)
    assert isinstance(network.words, WordGru)
    ids, mask = tiny_texts()
    weights = {n: p.double().numpy() for n, p in network.words.onward.named_parameters()}
    table = network.words.word.weight.double().numpy()

    embedded = network.read_texts(ids, mask)[0].numpy()

    def gates(kind: str, vector: Floats) -> list[Floats]:
        whole = weights[f"weight_{kind}_l0"] @ vector + weights[f"bias_{kind}_l0"]
        return np.split(whole, 3)

    for row in range(len(ids)):
        state = np.zeros(16)
        for place in range(int(mask[row].sum())):
            (r_in, z_in, n_in), (r_old, z_old, n_old) = (
                gates("ih", table[ids[row, place]]),
                gates("hh", state),
            )
            reset, keep = (1 / (1 + np.exp(-each)) for each in (r_in + r_old, z_in + z_old))
            state = (1 - keep) * np.tanh(n_in + reset * n_old) + keep * state
        assert embedded[row] == pytest.approx(_unit(state), abs=1e-5)


def test_its_size_at_the_papers_widths() -> None:
    """A detector's 2,048 features or a ResNet's, width 1,024, words of 300, Flickr30k's 8,481."""
    inputs = JointConfig(vocabulary_size=8_481, image_source="regions")
    network = NETWORKS["vse_pp"](ZooConfig(model="vse_pp", inputs=inputs))

    picture = 2_048 * 1_024 + 1_024
    gru = 3 * (1_024 * 300 + 1_024 * 1_024 + 2 * 1_024)
    assert parameter_count(network) == picture + 8_481 * 300 + gru
