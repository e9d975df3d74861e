"""Defines VSE-infinity (Chen et al. 2021): two towers with a learned pooling (GPO).

Shapes: B batch, T text tokens, R regions, L elements, F width of features, D width, W width of
codes.
"""

import math
from typing import Final

import torch
from torch import Tensor, nn

from tandem.lab.zoo.config import ZooConfig
from tandem.lab.zoo.network import EmbeddingNetwork, Parts
from tandem.lab.zoo.region_inputs import UNREAD, RegionInputs, unit
from tandem.lab.zoo.word_readers import reversed_places, word_reader

_REGION_DROP: Final = 0.2
_TEMPERATURE: Final = 0.1


class VseInfinity(EmbeddingNetwork):
    """Embeds regions by a layer and an MLP, words by a reader, and pools both by GPO.

    In training each region is left out with probability 0.2. The paper also drops words; a GRU
    would read the rest as another sentence, so here it does not.
    """

    def __init__(self, config: ZooConfig) -> None:
        super().__init__()
        self.regions = RegionInputs(config.inputs)
        wide, width = self.regions.feature_width, config.width
        self.project = nn.Linear(wide, width)
        self.narrow = nn.Linear(wide, width // 2)
        self.norm = nn.BatchNorm1d(width // 2)
        self.widen = nn.Linear(width // 2, width)
        self.words = word_reader(config, is_bidirectional=True)
        self.image_pool = GeneralisedPool()
        self.text_pool = GeneralisedPool()

    def read_images(self, tokens_BRI: Tensor, mask_BR: Tensor) -> Parts:
        features_BRF = self.regions(tokens_BRI)
        narrow_BRH = self.narrow(features_BRF)
        normed_BRH = self.norm(narrow_BRH.flatten(0, 1)).view_as(narrow_BRH).relu()
        states_BRD = self.project(features_BRF) + self.widen(normed_BRH)
        if self.training:
            mask_BR = _some_of(mask_BR)
        return (unit(self.image_pool(states_BRD, mask_BR)),)

    def read_texts(self, ids_BT: Tensor, mask_BT: Tensor) -> Parts:
        return (unit(self.text_pool(self.words(ids_BT, mask_BT), mask_BT)),)


class GeneralisedPool(nn.Module):
    """Pools elements by weights of their ranks, which follow from how many elements there are.

    Uniform weights are the mean, and a weight on only the first rank is the maximum.
    """

    def __init__(self, code_width: int = 32) -> None:
        super().__init__()
        self.code_width = code_width
        self.onward = nn.GRU(code_width, code_width, batch_first=True)
        self.backward_gru = nn.GRU(code_width, code_width, batch_first=True)
        self.score = nn.Linear(code_width, 1, bias=False)

    def forward(self, states_BLD: Tensor, mask_BL: Tensor) -> Tensor:
        """Returns [B, D]: each feature's values in descending order, weighted by rank."""
        counts_BL1 = mask_BL.bool()[..., None]
        ranked_BLD = states_BLD.masked_fill(~counts_BL1, UNREAD).sort(1, descending=True)[0]
        return (self.weights(mask_BL)[..., None] * ranked_BLD).sum(1)

    def weights(self, mask_BL: Tensor) -> Tensor:
        """Returns the weight of each rank, [B, L]; ranks beyond the number of elements have 0."""
        rank_BL = torch.ones_like(mask_BL).cumsum(1) - 1
        is_rank_BL = (rank_BL < mask_BL.sum(1, keepdim=True)).long()
        codes_BLW = _sinusoids(rank_BL, self.code_width)
        back_BL1 = reversed_places(is_rank_BL)[..., None].expand(-1, -1, self.code_width)
        turned_BLW = self.backward_gru(codes_BLW.gather(1, back_BL1))[0].gather(1, back_BL1)
        states_BLW = (self.onward(codes_BLW)[0] + turned_BLW) / 2
        scores_BL = self.score(states_BLW)[..., 0] / _TEMPERATURE
        weights_BL: Tensor = scores_BL.masked_fill(is_rank_BL == 0, UNREAD).softmax(1)
        return weights_BL


def _sinusoids(rank_BL: Tensor, width: int) -> Tensor:
    """Returns sines at even and cosines at odd places, [B, L, W]."""
    place_W = torch.ones_like(rank_BL[:1, :1]).expand(1, width).cumsum(1)[0] - 1
    rate_W = torch.exp(-(place_W // 2 * 2).float() * (math.log(10_000.0) / width))
    angle_BLW = rank_BL[..., None].float() * rate_W
    return torch.where(place_W % 2 == 0, angle_BLW.sin(), angle_BLW.cos())


def _some_of(mask_BR: Tensor) -> Tensor:
    """Returns the mask without a fifth of what counts, drawn at random; something always stays."""
    kept_BR = mask_BR * (torch.rand(mask_BR.shape, device=mask_BR.device) >= _REGION_DROP).long()
    return torch.where(kept_BR.sum(1, keepdim=True) > 0, kept_BR, mask_BR)
