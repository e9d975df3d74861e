"""Defines a fine-grained cross-encoder: each word looks for its part of the grid.

Similarity vectors with an attention filter, after SGRAF (Diao et al. 2021): a word's context is the
mean of the image tokens that it attends to; their difference becomes a similarity vector; a filter
weighs the words; the weighted sum becomes the match logit. Word and token states come from two
towers.

Shapes: P pictures, C captions, T words, R image tokens, D width of states, M width.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tandem.modeling.config import JointConfig
from tandem.modeling.towers.attention_pool import AttentionPool

Parts = tuple[Tensor, Tensor, Tensor]
"""Unit vectors of the parts of a text or a picture and of the whole, and which parts count."""

# SCAN's inverse temperature of the attention over image tokens, for text to image; it is learned.
_FIRST_SHARPNESS = 9.0
_FIRST_LOGIT_SCALE = 10.0
# Squared differences of unit vectors are small next to a linear layer's bias.
_DIFFERENCE_SCALE = 8.0


class WordGridMatcher(nn.Module):
    """Scores captions with pictures by their words and image tokens."""

    def __init__(self, config: JointConfig) -> None:
        super().__init__()
        width = config.matcher_width
        self.word_project = nn.Linear(config.width, width)
        self.grid_project = nn.Linear(config.head_width, width)
        self.word_pool = AttentionPool(config.width, width)
        self.grid_pool = AttentionPool(config.head_width, width)
        self.local = nn.Linear(width, width)
        self.whole = nn.Linear(width, width)
        self.filter = nn.Linear(width, 1)
        self.score = nn.Linear(width, 1)
        self.log_sharpness = nn.Parameter(torch.tensor(math.log(_FIRST_SHARPNESS)))
        self.log_scale = nn.Parameter(torch.tensor(math.log(_FIRST_LOGIT_SCALE)))

    def words(self, states_CTD: Tensor, text_mask_CT: Tensor) -> Parts:
        """Returns unit vectors of words [C, T, M] and of whole captions [C, M], and the mask."""
        words_CTM = F.normalize(self.word_project(states_CTD).float(), dim=-1)
        return words_CTM, self.word_pool(states_CTD, text_mask_CT), text_mask_CT.bool()

    def grid(self, states_PRD: Tensor, image_mask_PR: Tensor) -> Parts:
        """Returns unit vectors of tokens [P, R, M] and of whole pictures [P, M], and the mask."""
        grid_PRM = F.normalize(self.grid_project(states_PRD).float(), dim=-1)
        return grid_PRM, self.grid_pool(states_PRD, image_mask_PR), image_mask_PR.bool()

    def forward(self, words: Parts, grid: Parts) -> Tensor:
        """Returns the match logits of caption n with picture n, float32 [P]."""
        words_PTM, text_PM, is_word_PT = words
        logits_P1: Tensor = self._scored(
            words_PTM[:, None], text_PM[:, None], is_word_PT[:, None], grid
        )
        return logits_P1[:, 0]

    def every(self, words: Parts, grid: Parts) -> Tensor:
        """Returns the match logits of all captions with all pictures, float32 [P, C]."""
        words_CTM, text_CM, is_word_CT = words
        return self._scored(words_CTM[None], text_CM[None], is_word_CT[None], grid)

    def _scored(
        self, words_XCTM: Tensor, text_XCM: Tensor, is_word_XCT: Tensor, grid: Parts
    ) -> Tensor:
        """Returns [P, C]; X is P, or 1 where all pictures have the same captions."""
        grid_PRM, image_PM, is_token_PR = grid
        # Each word attends to the image tokens that it fits; their mean is its context.
        fits_PCTR = torch.einsum("pctm,prm->pctr", words_XCTM, grid_PRM) * self.log_sharpness.exp()
        weights_PCTR = fits_PCTR.masked_fill(~is_token_PR[:, None, None, :], -1e4).softmax(-1)
        context_PCTM = F.normalize(torch.einsum("pctr,prm->pctm", weights_PCTR, grid_PRM), dim=-1)
        local_PCTM = self._vector(self.local, context_PCTM, words_XCTM)
        whole_PC1M = self._vector(self.whole, image_PM[:, None], text_XCM)[:, :, None]

        # The filter weighs the words' vectors and that of the whole.
        vectors = torch.cat([whole_PC1M, local_PCTM], dim=2)
        counts = torch.cat([torch.ones_like(is_word_XCT[..., :1]), is_word_XCT], dim=2)
        gates = torch.sigmoid(self.filter(vectors).float()) * counts[..., None]
        gates = gates / gates.sum(2, keepdim=True).clamp_min(1e-6)
        read_PCM = F.normalize((gates * vectors).sum(2).float(), dim=-1)
        logits_PC: Tensor = self.score(read_PCM)[..., 0].float() * self.log_scale.exp()
        return logits_PC

    @staticmethod
    def _vector(layer: nn.Module, one: Tensor, other: Tensor) -> Tensor:
        return F.normalize(layer((one - other).square() * _DIFFERENCE_SCALE).float(), dim=-1)
