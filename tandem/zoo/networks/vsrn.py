"""Defines VSRN (Li et al. 2019): regions reason over their graph, then a GRU reads them in order.

Shapes: B batch, T text tokens, R regions, D width.
"""

from typing import Final

from torch import Tensor, nn

from tandem.zoo.config import ZooConfig
from tandem.zoo.network import Lesson, Parts, ZooNetwork
from tandem.zoo.networks.caption_decoder import CaptionDecoder
from tandem.zoo.region_inputs import RegionInputs, unit
from tandem.zoo.word_readers import last_state, word_reader

_LAYER_COUNT: Final = 4


class Vsrn(ZooNetwork):
    """Embeds texts and pictures apart, and learns to tell the caption from the picture too."""

    embeds = True
    scores_pairs = False

    def __init__(self, config: ZooConfig) -> None:
        super().__init__()
        width = config.width
        self.regions = RegionInputs(config.inputs)
        self.project = nn.Linear(self.regions.feature_width, width)
        nn.init.xavier_uniform_(self.project.weight)
        nn.init.zeros_(self.project.bias)
        self.graph = nn.ModuleList(RegionGraph(width) for _ in range(_LAYER_COUNT))
        self.order = nn.GRU(width, width, batch_first=True)
        self.words = word_reader(config)
        self.decoder = CaptionDecoder(width, config.inputs.vocabulary_size)

    def read_texts(self, ids_BT: Tensor, mask_BT: Tensor) -> Parts:
        """Returns the embeddings."""
        return (unit(self.words.whole(self.words(ids_BT, mask_BT), mask_BT)),)

    def read_images(self, tokens_BRI: Tensor, mask_BR: Tensor) -> Parts:
        """Returns the embeddings, and the regions after the graph.

        The released code normalises regions over the axis of regions, a slip of its helper.
        """
        regions_BRD = self.project(self.regions(tokens_BRI))
        for layer in self.graph:
            regions_BRD = layer(regions_BRD, mask_BR)
        regions_BRD = unit(regions_BRD)
        read_BRD = self.order(regions_BRD)[0]
        return unit(last_state(read_BRD, mask_BR)), regions_BRD

    def embedding(self, parts: Parts) -> Tensor:
        """Returns the embeddings of what was read."""
        return parts[0]

    def scores(self, images: Parts, texts: Parts) -> Tensor:
        """Returns the cosines, [P, C]."""
        return (texts[0] @ images[0][..., None])[..., 0]

    def further_loss(self, images: Parts, texts: Parts, lesson: Lesson) -> Tensor:
        """Returns the negative log-likelihood of the captions."""
        return self.decoder.loss(images[1], lesson.image_mask, lesson.token_ids, lesson.text_mask)


class RegionGraph(nn.Module):
    """Adds to each region what it reads of all; it begins as the identity."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.theta, self.phi, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.norm = nn.BatchNorm1d(width)
        nn.init.zeros_(self.norm.weight)

    def forward(self, regions_BRD: Tensor, mask_BR: Tensor) -> Tensor:
        """Returns v + BN(W (theta(v)ᵀ phi(v) / N) g(v)), [B, R, D]."""
        counts_BR = mask_BR.to(regions_BRD.dtype)
        edges_BRR = self.theta(regions_BRD) @ self.phi(regions_BRD).transpose(1, 2)
        edges_BRR = edges_BRR * counts_BR[:, None] / counts_BR.sum(1).clamp_min(1.0)[:, None, None]
        read_BRD = self.out(edges_BRR @ self.value(regions_BRD))
        normed_BRD: Tensor = self.norm(read_BRD.flatten(0, 1)).view_as(read_BRD)
        return regions_BRD + normed_BRD
