"""SCAN: the score of a pair, fragment by fragment, in both directions and poolings."""

from typing import Literal

import numpy as np
import pytest

from tandem.lab.zoo.config import ZooConfig
from tandem.lab.zoo.networks.scan import Scan, ScanPooling
from tandem.lab.zoo.zoo_model import NETWORKS
from tandem.modeling.config import JointConfig
from tandem.modeling.families.loaded_model import parameter_count
from tests.support.zoo.by_hand import attended, linear, unit
from tests.support.zoo.one_pair import one_pair
from tests.support.zoo.tiny_zoo import tiny_config

CASES = [("t2i", 9.0, 6.0), ("i2t", 4.0, 5.0)]


@pytest.mark.parametrize(("asking", "sharpness", "of_sum"), CASES)
@pytest.mark.parametrize("pooling", ["mean", "lse"])
def test_a_score_matches_its_fragments(
    asking: Literal["t2i", "i2t"], sharpness: float, of_sum: float, pooling: ScanPooling
) -> None:
    """Attention, context, cosine and pooling of Lee et al. 2018, section 3."""
    network = Scan(tiny_config("scan_t2i"), asking, pooling).eval()
    pair = one_pair()
    regions = [unit(linear(network.project, each)) for each in pair.features]
    words = [unit(each) for each in pair.words(network.words)]
    asks, read = (words, regions) if asking == "t2i" else (regions, words)

    contexts = attended(asks, read, sharpness)
    cosines = [float(one @ unit(other)) for one, other in zip(asks, contexts, strict=True)]
    mean = sum(cosines) / len(cosines)
    lse = float(np.log(sum(np.exp(of_sum * each) for each in cosines)) / of_sum)

    assert mean != pytest.approx(lse, abs=1e-2)
    assert pair.score(network) == pytest.approx(mean if pooling == "mean" else lse, abs=1e-5)


def test_its_size_at_the_papers_widths() -> None:
    """2,048 features, width 1,024, words of 300, Flickr30k's vocabulary of 8,481."""
    inputs = JointConfig(vocabulary_size=8_481, image_source="regions")
    gru = 3 * (1_024 * 300 + 1_024 * 1_024 + 2 * 1_024)

    count = parameter_count(NETWORKS["scan_t2i"](ZooConfig(model="scan_t2i", inputs=inputs)))

    assert count == 2_048 * 1_024 + 1_024 + 8_481 * 300 + 2 * gru
