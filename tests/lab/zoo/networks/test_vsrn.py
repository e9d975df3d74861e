"""VSRN: a picture's embedding and the loss of its caption, region by region and word by word."""

import numpy as np
import pytest
import torch

from tandem.lab.zoo.network import Lesson
from tandem.lab.zoo.networks.vsrn import RegionGraph, Vsrn
from tests.support.zoo.by_hand import Floats, floats, gru, linear, normed, softmax, stirred, unit
from tests.support.zoo.one_pair import one_pair
from tests.support.zoo.tiny_zoo import tiny_config


def _graphed(layer: RegionGraph, regions: list[Floats]) -> list[Floats]:
    theta, phi, value = (
        [linear(part, each) for each in regions] for part in (layer.theta, layer.phi, layer.value)
    )
    out = []
    for place, region in enumerate(regions):
        read = np.zeros_like(region)
        for other in range(len(regions)):
            read = read + float(theta[place] @ phi[other]) / len(regions) * value[other]
        out.append(region + normed(layer.norm, linear(layer.out, read)))
    return out


def _regions(network: Vsrn) -> list[Floats]:
    regions = [linear(network.project, each) for each in one_pair().features]
    for layer in network.graph:
        assert isinstance(layer, RegionGraph)
        regions = _graphed(layer, regions)
    return [unit(each) for each in regions]


def test_a_picture_is_the_last_state_over_its_graph() -> None:
    """Li et al. 2019, sections 3.2 and 3.3; the graph is four layers of residual reasoning."""
    network = Vsrn(tiny_config("vsrn")).eval()
    stirred(network)
    pair = one_pair()

    image = unit(gru(network.order, _regions(network))[-1])
    text = unit(pair.words(network.words)[-1])

    images, texts = pair.read(network)
    assert floats(images[0])[0] == pytest.approx(image, abs=1e-5)
    assert floats(texts[0])[0] == pytest.approx(text, abs=1e-5)
    assert pair.score(network) == pytest.approx(float(image @ text), abs=1e-5)


def test_the_graph_begins_as_the_identity() -> None:
    """Its norms' weights are zero, as published."""
    layer = RegionGraph(8).eval()
    regions = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(0))

    assert torch.equal(layer(regions, torch.ones(2, 3)), regions)


def test_the_caption_loss_is_that_of_each_next_word() -> None:
    """Attention over the encoder's states, one GRU step a word, and the words that count alone."""
    network = Vsrn(tiny_config("vsrn")).eval()
    stirred(network)
    pair, decoder = one_pair(), network.decoder
    states = gru(decoder.encode, _regions(network))
    cell = torch.nn.GRU(8, 4, batch_first=True)
    cell.load_state_dict(
        {f"{name}_l0": value for name, value in decoder.decode.state_dict().items()}
    )
    hidden, loss = states[-1], 0.0
    for place in range(2):  # the second and the third word count
        fits = [
            float(
                linear(
                    decoder.weigh,
                    np.tanh(linear(decoder.attend, np.concatenate([state, hidden]))),
                )[0]
            )
            for state in states
        ]
        context = sum(w * state for w, state in zip(softmax(fits), states, strict=True))
        word = floats(decoder.word.weight[pair.ids[0, place]])
        with torch.inference_mode():
            read = torch.tensor(np.concatenate([word, context])).float()[None, None]
            hidden = floats(cell(read, torch.tensor(hidden).float()[None, None])[1])[0, 0]
        shares = softmax(linear(decoder.choose, hidden))
        loss -= float(np.log(shares[pair.ids[0, place + 1]]))

    images, texts = pair.read(network)
    lesson = Lesson(pair.ids, pair.text_mask, pair.image_mask, torch.arange(1), share_done=0.0)
    with torch.inference_mode():
        found = network.further_loss(images, texts, lesson).item()
    assert found == pytest.approx(loss, abs=1e-4)
