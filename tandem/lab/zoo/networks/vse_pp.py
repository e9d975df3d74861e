"""Defines VSE++ (Faghri et al. 2018): one vector of the picture, the last state of a GRU.

Shapes: B batch, T text tokens, R regions, F width of features, D width.
"""

from torch import Tensor

from tandem.lab.zoo.config import ZooConfig
from tandem.lab.zoo.network import EmbeddingNetwork, Parts
from tandem.lab.zoo.region_inputs import RegionInputs, mean_of, projection, unit
from tandem.lab.zoo.word_readers import word_reader


class VsePlusPlus(EmbeddingNetwork):
    """Embeds the mean of a picture's features, and a text's last state.

    The paper's picture is a network's last pooled feature, which is the mean of its grid.
    """

    def __init__(self, config: ZooConfig) -> None:
        super().__init__()
        self.regions = RegionInputs(config.inputs)
        self.project = projection(self.regions.feature_width, config.width)
        self.words = word_reader(config)

    def read_images(self, tokens_BRI: Tensor, mask_BR: Tensor) -> Parts:
        mean_BF = unit(mean_of(self.regions(tokens_BRI), mask_BR))
        return (unit(self.project(mean_BF)),)

    def read_texts(self, ids_BT: Tensor, mask_BT: Tensor) -> Parts:
        return (unit(self.words.whole(self.words(ids_BT, mask_BT), mask_BT)),)
