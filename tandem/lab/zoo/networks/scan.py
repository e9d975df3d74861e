"""Defines SCAN (Lee et al. 2018): words attend to regions, or regions to words.

Shapes: P pictures, C captions (X stands for P or 1), T words, R regions, D width, Q fragments that
ask.
"""

from typing import Final, Literal

from torch import Tensor

from tandem.lab.zoo.config import ZooConfig
from tandem.lab.zoo.network import Parts, ZooNetwork
from tandem.lab.zoo.networks.cross_attention import attended
from tandem.lab.zoo.region_inputs import UNREAD, RegionInputs, mean_of, projection, unit
from tandem.lab.zoo.word_readers import word_reader

ScanPooling = Literal["mean", "lse"]

_SHARPNESS: Final = {"t2i": 9.0, "i2t": 4.0}
_LSE_SHARPNESS: Final = {"t2i": 6.0, "i2t": 5.0}


class Scan(ZooNetwork):
    """Scores a pair by the cosines of one side's fragments with what they read of the other.

    `pooling` is the mean of the cosines (AVG), or the logarithm of the sum of their exponentials
    (LSE), which grows with the number of fragments.
    """

    def __init__(
        self,
        config: ZooConfig,
        asking: Literal["t2i", "i2t"] = "t2i",
        pooling: ScanPooling = "mean",
    ) -> None:
        super().__init__()
        self.asking, self.pooling = asking, pooling
        self.regions = RegionInputs(config.inputs)
        self.project = projection(self.regions.feature_width, config.width)
        self.words = word_reader(config, is_bidirectional=True)

    def read_texts(self, ids_BT: Tensor, mask_BT: Tensor) -> Parts:
        return unit(self.words(ids_BT, mask_BT)), mask_BT

    def read_images(self, tokens_BRI: Tensor, mask_BR: Tensor) -> Parts:
        return unit(self.project(self.regions(tokens_BRI))), mask_BR

    def scores(self, images: Parts, texts: Parts) -> Tensor:
        regions, words = tuple(each[:, None] for each in images), texts
        (asking_PCQD, asks_PCQ), read = (
            (words, regions) if self.asking == "t2i" else (regions, words)
        )
        context_PCQD = attended(asking_PCQD, read[0], asks_PCQ, read[1], _SHARPNESS[self.asking])
        cosines_PCQ = (asking_PCQD * unit(context_PCQD)).sum(-1)
        if self.pooling == "mean":
            return mean_of(cosines_PCQ[..., None], asks_PCQ)[..., 0]
        sharpness = _LSE_SHARPNESS[self.asking]
        counted_PCQ = (sharpness * cosines_PCQ).masked_fill(~asks_PCQ.bool(), UNREAD)
        return counted_PCQ.logsumexp(-1) / sharpness
