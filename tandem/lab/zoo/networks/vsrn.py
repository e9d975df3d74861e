"""Defines VSRN (Li et al. 2019): regions reason over their graph, then a GRU reads them in order.

Shapes: B batch, T text tokens, R regions, D width of regions, H width of the decoder, V vocabulary.
"""

from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tandem.lab.zoo.config import ZooConfig
from tandem.lab.zoo.network import EmbeddingNetwork, Lesson, Parts
from tandem.lab.zoo.region_inputs import UNREAD, RegionInputs, projection, unit
from tandem.lab.zoo.word_readers import last_state, word_reader

_LAYER_COUNT: Final = 4


class Vsrn(EmbeddingNetwork):
    """Embeds texts and pictures apart, and learns to tell the caption from the picture too."""

    def __init__(self, config: ZooConfig) -> None:
        super().__init__()
        width = config.width
        self.regions = RegionInputs(config.inputs)
        self.project = projection(self.regions.feature_width, width)
        self.graph = nn.ModuleList(RegionGraph(width) for _ in range(_LAYER_COUNT))
        self.order = nn.GRU(width, width, batch_first=True)
        self.words = word_reader(config)
        self.decoder = CaptionDecoder(width, config.inputs.vocabulary_size)

    def read_texts(self, ids_BT: Tensor, mask_BT: Tensor) -> Parts:
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


class CaptionDecoder(nn.Module):
    """Reads regions by a GRU, and decodes a caption by another that attends to its states."""

    def __init__(self, width: int, vocabulary_size: int) -> None:
        super().__init__()
        hidden = width // 4
        self.encode = nn.GRU(width, hidden, batch_first=True)
        self.word = nn.Embedding(vocabulary_size, hidden)
        self.attend = nn.Linear(2 * hidden, hidden)
        self.weigh = nn.Linear(hidden, 1, bias=False)
        self.decode = nn.GRUCell(2 * hidden, hidden)
        self.choose = nn.Linear(hidden, vocabulary_size)
        self.read_dropout, self.write_dropout = nn.Dropout(0.2), nn.Dropout(0.5)

    def loss(
        self, regions_BRD: Tensor, is_region_BR: Tensor, ids_BT: Tensor, is_word_BT: Tensor
    ) -> Tensor:
        """Returns the negative log-likelihood of each next word, summed, a picture's mean."""
        states_BRH = self.read_dropout(self.encode(regions_BRD)[0])
        count_B = is_region_BR.sum(1)
        hidden_BH = states_BRH[torch.arange(len(count_B)), count_B - 1]
        words_BTH = self.word(ids_BT)
        steps = []
        for place in range(ids_BT.shape[1] - 1):
            context_BH = self._context(states_BRH, is_region_BR, hidden_BH)
            hidden_BH = self.decode(torch.cat([words_BTH[:, place], context_BH], -1), hidden_BH)
            steps.append(self.choose(self.write_dropout(hidden_BH)))
        each_BT = F.cross_entropy(torch.stack(steps, dim=2), ids_BT[:, 1:], reduction="none")
        return (each_BT * is_word_BT[:, 1:]).sum() / len(ids_BT)

    def _context(self, states_BRH: Tensor, is_region_BR: Tensor, hidden_BH: Tensor) -> Tensor:
        asked_BRH = hidden_BH[:, None].expand_as(states_BRH)
        fits_BRH = torch.tanh(self.attend(torch.cat([states_BRH, asked_BRH], dim=-1)))
        logits_BR = self.weigh(fits_BRH)[..., 0].masked_fill(is_region_BR == 0, UNREAD)
        context_BH: Tensor = (logits_BR.softmax(-1)[..., None] * states_BRH).sum(1)
        return context_BH
