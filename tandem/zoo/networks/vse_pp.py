"""Defines VSE++ (Faghri et al. 2018): one vector of the picture, the last state of a GRU.

Shapes: B batch, T text tokens, R regions, F width of features, D width.
"""

from torch import Tensor, nn

from tandem.zoo.config import ZooConfig
from tandem.zoo.network import EmbeddingNetwork
from tandem.zoo.region_inputs import RegionInputs, mean_of, unit
from tandem.zoo.word_readers import word_reader


class VsePlusPlus(EmbeddingNetwork):
    """Embeds the mean of a picture's features, and a text's last state.

    The paper's picture is a network's last pooled feature, which is the mean of its grid.
    """

    def __init__(self, config: ZooConfig) -> None:
        super().__init__()
        self.regions = RegionInputs(config.inputs)
        self.project = nn.Linear(self.regions.feature_width, config.width)
        nn.init.xavier_uniform_(self.project.weight)
        nn.init.zeros_(self.project.bias)
        self.words = word_reader(config)

    def embed_images(self, tokens_BRI: Tensor, mask_BR: Tensor) -> Tensor:
        """Returns the normalised projection of the picture's normalised mean feature."""
        mean_BF = unit(mean_of(self.regions(tokens_BRI), mask_BR))
        return unit(self.project(mean_BF))

    def embed_texts(self, ids_BT: Tensor, mask_BT: Tensor) -> Tensor:
        """Returns the normalised state of the whole text."""
        return unit(self.words.whole(self.words(ids_BT, mask_BT), mask_BT))
