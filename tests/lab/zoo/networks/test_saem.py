"""SAEM: a text's windows, a picture's layer, and the angular loss, by loops."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from tandem.lab.zoo.network import Lesson
from tandem.lab.zoo.networks.saem import Saem, angular_loss
from tests.support.zoo.by_hand import floats, linear, unit, windowed
from tests.support.zoo.one_pair import one_pair
from tests.support.zoo.tiny_zoo import tiny_config


def test_a_text_is_the_maxima_of_its_windows() -> None:
    network = Saem(tiny_config("saem")).eval()
    pair = one_pair()
    rows = windowed(network.windows.windows, pair.words(network.words))

    expected = unit(linear(network.text_project, np.max(rows, axis=0)))

    assert floats(pair.read(network)[1][0])[0] == pytest.approx(expected, abs=1e-5)


def test_a_picture_is_the_mean_of_a_layer_of_bert() -> None:
    """The layer is torch's own encoder layer with these weights; its mean is over what counts."""
    network = Saem(tiny_config("saem")).eval()
    pair = one_pair()
    layer = nn.TransformerEncoderLayer(16, 16, 128, 0.0, "gelu", batch_first=True, bias=True).eval()
    own = network.attend.state_dict()
    names = dict(
        zip(
            layer.state_dict(),
            _in_torch_order(own),
            strict=True,
        )
    )
    layer.load_state_dict({name: own[theirs] for name, theirs in names.items()})

    with torch.inference_mode():
        states = network.project(pair.tokens[:, :3].float())
        mean = layer(states).mean(1)[0]

    assert floats(pair.read(network)[0][0])[0] == pytest.approx(unit(floats(mean)), abs=1e-5)


def _in_torch_order(own: dict[str, torch.Tensor]) -> list[str]:
    """Returns the layer's names in the order of torch's: attention, feed-forward, norms."""
    parts = ("query_key_value", "attention_out", "feed_forward.0", "feed_forward.2")
    norms = ("attention_norm", "feed_forward_norm")
    names = [
        name
        for part in (*parts, *norms)
        for kind in ("weight", "bias")
        for name in own
        if part in name and name.endswith(kind) and ("norm" in name) == ("norm" in part)
    ]
    assert sorted(names) == sorted(own)
    return names


def test_the_angular_loss_is_that_of_its_definition() -> None:
    """4 (a + p) n - 4 a p, hardest negative of other groups, both directions."""
    generator = torch.Generator().manual_seed(3)
    images, texts = (
        nn.functional.normalize(torch.randn(3, 4, generator=generator), dim=-1) for _ in range(2)
    )
    groups = [0, 1, 0]
    total = 0.0
    for negatives in (floats(texts), floats(images)):
        for row in range(3):
            a, p = floats(images)[row], floats(texts)[row]
            values = [
                4 * float((a + p) @ negatives[n]) - 4 * float(a @ p)
                for n in range(3)
                if groups[n] != groups[row]
            ]
            total += math.log(1 + math.exp(max(values)))

    loss = angular_loss(images, texts, torch.tensor(groups)).item()

    assert loss == pytest.approx(total, abs=1e-5)


@pytest.mark.parametrize(("share", "weight"), [(0.0, 0.5), (0.2, 0.05), (0.9, 0.0)])
def test_the_angular_loss_fades(share: float, weight: float) -> None:
    network = Saem(tiny_config("saem")).eval()
    ids = torch.zeros(2, 3, dtype=torch.int64)
    unlike = torch.eye(2, 16)
    lesson = Lesson(ids, ids, ids, torch.arange(2), share_done=share)
    none = Lesson(ids, ids, ids, torch.arange(2), share_done=1.0)

    added = network.further_loss((unlike,), (unlike,), lesson)
    norms = network.further_loss((unlike,), (unlike,), none)

    angular = angular_loss(unlike, unlike, torch.arange(2)).item()
    assert added.item() - norms.item() == pytest.approx(weight * angular, abs=1e-4)
    assert norms.item() > 0
