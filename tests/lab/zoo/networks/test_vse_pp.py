"""VSE++: its two embeddings by loops, and its size at the paper's widths."""

import pytest

from tandem.lab.zoo.config import ZooConfig
from tandem.lab.zoo.networks.vse_pp import VsePlusPlus
from tandem.modeling.config import JointConfig
from tandem.modeling.families.loaded_model import parameter_count
from tests.support.zoo.by_hand import floats, linear, mean, unit
from tests.support.zoo.one_pair import one_pair
from tests.support.zoo.tiny_zoo import tiny_config


def test_a_picture_is_its_projected_mean_and_a_text_the_last_state_of_its_gru() -> None:
    """Of the regions and words that count: unit length, projection, unit length; Cho's gates."""
    network = VsePlusPlus(tiny_config("vse_pp")).eval()
    pair = one_pair()
    image = unit(linear(network.project, unit(mean(pair.features))))
    text = unit(pair.words(network.words)[-1])

    images, texts = pair.read(network)

    assert floats(images[0])[0] == pytest.approx(image, abs=1e-5)
    assert floats(texts[0])[0] == pytest.approx(text, abs=1e-5)


def test_its_size_at_the_papers_widths() -> None:
    """A detector's 2,048 features or a ResNet's, width 1,024, words of 300, Flickr30k's 8,481."""
    inputs = JointConfig(vocabulary_size=8_481, image_source="regions")
    network = VsePlusPlus(ZooConfig(model="vse_pp", inputs=inputs))

    picture = 2_048 * 1_024 + 1_024
    gru = 3 * (1_024 * 300 + 1_024 * 1_024 + 2 * 1_024)
    assert parameter_count(network) == picture + 8_481 * 300 + gru
