"""Defines SGR and SAF of SGRAF (Diao et al. 2021): a pair becomes a set of similarity vectors.

Each word has a vector of how it differs from what it reads of the picture, and the whole text one
of how it differs from the whole picture. SGR reasons over their graph, SAF weighs them. The matcher
of two towers (word_grid_matcher.py) is a descendant of SAF, with other attention and pooling.

Shapes: P pictures, C captions (X stands for P or 1), B batch, T words, R regions, L positions, N =
1 + T similarity vectors, D width, S width of similarity vectors.
"""

from typing import Final, Literal

import torch
from torch import Tensor, nn

from tandem.lab.zoo.config import ZooConfig
from tandem.lab.zoo.network import Parts, ZooNetwork
from tandem.lab.zoo.networks.cross_attention import attended
from tandem.lab.zoo.region_inputs import UNREAD, RegionInputs, mean_of, unit
from tandem.lab.zoo.word_readers import word_reader

_SHARPNESS: Final = 9.0
_DROPOUT: Final = 0.4
_STEP_COUNT: Final = 3


class Sgraf(ZooNetwork):
    """Scores a pair by reasoning over its similarity vectors (SGR) or by weighing them (SAF)."""

    def __init__(self, config: ZooConfig, reading: Literal["sgr", "saf"] = "saf") -> None:
        super().__init__()
        width = config.width
        narrow = width // 4
        self.regions = RegionInputs(config.inputs)
        self.project = nn.Linear(self.regions.feature_width, width)
        self.words = word_reader(config, is_bidirectional=True, dropout=_DROPOUT)
        self.image_whole = GatedWhole(width, config.inputs.image_token_count)
        self.text_whole = GatedWhole(width, None)
        self.local = nn.Linear(width, narrow)
        self.whole = nn.Linear(width, narrow)
        self.read: nn.Module = (
            SimilarityGraph(narrow) if reading == "sgr" else SimilarityFilter(narrow)
        )
        self.score = nn.Linear(narrow, 1)

    def read_texts(self, ids_BT: Tensor, mask_BT: Tensor) -> Parts:
        words_BTD = unit(self.words(ids_BT, mask_BT))
        return words_BTD, self.text_whole(words_BTD, mask_BT), mask_BT

    def read_images(self, tokens_BRI: Tensor, mask_BR: Tensor) -> Parts:
        regions_BRD = unit(self.project(self.regions(tokens_BRI)))
        return regions_BRD, self.image_whole(regions_BRD, mask_BR), mask_BR

    def scores(self, images: Parts, texts: Parts) -> Tensor:
        """Returns match probabilities, [P, C]."""
        regions_P1RD, image_P1D, is_region_P1R = (each[:, None] for each in images)
        words_XCTD, text_XCD, is_word_XCT = texts
        context_PCTD = unit(
            attended(words_XCTD, regions_P1RD, is_word_XCT, is_region_P1R, _SHARPNESS)
        )
        local_PCTS = unit(self.local((context_PCTD - words_XCTD).square()))
        whole_PCS = unit(self.whole((image_P1D - text_XCD).square()))
        vectors_PCNS = torch.cat([whole_PCS[:, :, None], local_PCTS], dim=2)
        counts_XCN = torch.cat([torch.ones_like(is_word_XCT[..., :1]), is_word_XCT], dim=2)
        counts_PCN = counts_XCN.expand(vectors_PCNS.shape[0], -1, -1)
        return torch.sigmoid(self.score(self.read(vectors_PCNS, counts_PCN)))[..., 0]

    def logits(self, scores: Tensor) -> Tensor:
        return torch.logit(scores, eps=1e-6)


class GatedWhole(nn.Module):
    """Weighs fragments by how they fit their mean; only a picture's have batch norms."""

    def __init__(self, width: int, region_count: int | None) -> None:
        super().__init__()
        self.fragment = nn.Linear(width, width)
        self.mean = nn.Linear(width, width)
        self.weigh = nn.Linear(width, 1)
        is_image = region_count is not None
        self.fragment_norm = nn.BatchNorm1d(region_count) if is_image else nn.Identity()  # type: ignore[arg-type]
        self.mean_norm = nn.BatchNorm1d(width) if is_image else nn.Identity()
        self.dropout = nn.Dropout(_DROPOUT)

    def forward(self, states_BLD: Tensor, mask_BL: Tensor) -> Tensor:
        parts_BLD = self.dropout(torch.tanh(self.fragment_norm(self.fragment(states_BLD))))
        mean_BD = mean_of(states_BLD, mask_BL)
        mean_BD = self.dropout(torch.tanh(self.mean_norm(self.mean(mean_BD))))
        logits_BL = self.weigh(parts_BLD * mean_BD[:, None])[..., 0]
        weights_BL = logits_BL.masked_fill(mask_BL == 0, UNREAD).softmax(-1)
        return unit((weights_BL[..., None] * states_BLD).sum(1))


class SimilarityGraph(nn.Module):
    """Reasons over the vectors' graph in three steps, and reads the node of the whole."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key, self.out = (
            nn.ModuleList(nn.Linear(width, width) for _ in range(_STEP_COUNT)) for _ in range(3)
        )

    def forward(self, vectors_PCNS: Tensor, counts_PCN: Tensor) -> Tensor:
        unread_PC1N = counts_PCN[:, :, None, :] == 0
        for query, key, out in zip(self.query, self.key, self.out, strict=True):
            edges_PCNN = query(vectors_PCNS) @ key(vectors_PCNS).transpose(-1, -2)
            edges_PCNN = edges_PCNN.masked_fill(unread_PC1N, UNREAD).softmax(-1)
            vectors_PCNS = torch.relu(out(edges_PCNN @ vectors_PCNS))
        return vectors_PCNS[:, :, 0]


class SimilarityFilter(nn.Module):
    """Weighs the vectors by a gate each, and sums them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weigh = nn.Linear(width, 1)
        self.norm = nn.BatchNorm1d(1)

    def forward(self, vectors_PCNS: Tensor, counts_PCN: Tensor) -> Tensor:
        gates_PCN = torch.sigmoid(self._normed(self.weigh(vectors_PCNS)[..., 0], counts_PCN))
        gates_PCN = gates_PCN * counts_PCN.to(gates_PCN.dtype)
        shares_PCN = gates_PCN / (gates_PCN.sum(-1, keepdim=True) + 1e-8)
        return unit((shares_PCN[..., None] * vectors_PCNS).sum(2))

    def _normed(self, values_PCN: Tensor, counts_PCN: Tensor) -> Tensor:
        """Returns the values after the batch norm, with statistics only of positions that count."""
        if not self.training:
            normed_PCN: Tensor = self.norm(values_PCN.reshape(-1, 1)).view_as(values_PCN)
            return normed_PCN
        counted = counts_PCN.bool()
        return values_PCN.masked_scatter(counted, self.norm(values_PCN[counted][:, None])[:, 0])
