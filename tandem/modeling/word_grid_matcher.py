"""Defines a fine-grained cross-encoder: each word looks for its part of the grid.

Similarity vectors with an attention filter, after SGRAF (Diao et al. 2021): a word's context is the
mean of the image tokens that it attends to; their difference becomes a similarity vector; a filter
weighs the words; the weighted sum becomes the match logit. Word and token states come from two
towers.

Shapes: P pictures, C captions, T words, R image tokens, D width of states, M width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tandem.modeling.config import JointConfig

# SCAN's inverse temperature of the attention over image tokens, for text to image; it is learned.
_FIRST_SHARPNESS = 9.0
_FIRST_LOGIT_SCALE = 10.0
_LEAK = 0.1


class WordGridMatcher(nn.Module):
    """Scores captions with pictures by their words and image tokens."""

    def __init__(self, config: JointConfig) -> None:
        super().__init__()
        width = config.matcher_width
        self.word_project = nn.Linear(config.width, width)
        self.grid_project = nn.Linear(config.head_width, width)
        self.local = nn.Linear(width, width)
        self.whole = nn.Linear(width, width)
        self.filter = nn.Linear(width, 1)
        self.score = nn.Linear(width, 1)
        self.sharpness = nn.Parameter(torch.tensor(_FIRST_SHARPNESS))
        self.logit_scale = nn.Parameter(torch.tensor(_FIRST_LOGIT_SCALE))

    def words(self, states_CTD: Tensor) -> Tensor:
        """Returns words of unit length, [C, T, M]."""
        return F.normalize(self.word_project(states_CTD), dim=-1)

    def grid(self, states_PRD: Tensor) -> Tensor:
        """Returns image tokens of unit length, [P, R, M]."""
        return F.normalize(self.grid_project(states_PRD), dim=-1)

    def forward(
        self, words_XCTM: Tensor, text_mask_XCT: Tensor, grid_PRM: Tensor, image_mask_PR: Tensor
    ) -> Tensor:
        """Returns match logits, float32 [P, C].

        words_XCTM, text_mask_XCT: the captions of each picture, or, where the first dimension X is
        1, the same captions for all pictures. Masks are 1 where a word or an image token counts.
        """
        is_word = text_mask_XCT.bool()
        fits_PCTR = torch.einsum("pctm,prm->pctr", words_XCTM, grid_PRM)
        fits_PCTR = F.leaky_relu(fits_PCTR, _LEAK) * is_word[..., None]
        # Each image token divides its attention between the caption's words.
        fits_PCTR = F.normalize(fits_PCTR, dim=2, eps=1e-8) * self.sharpness
        counts_P11R = image_mask_PR.bool()[:, None, None, :]
        weights_PCTR = fits_PCTR.masked_fill(~counts_P11R, -1e4).softmax(-1)
        context_PCTM = F.normalize(torch.einsum("pctr,prm->pctm", weights_PCTR, grid_PRM), dim=-1)
        local_PCTM = F.normalize(self.local((context_PCTM - words_XCTM).square()), dim=-1)

        # One vector of the whole caption with the whole picture, beside those of the words.
        text_XCM = F.normalize((words_XCTM * is_word[..., None]).sum(2), dim=-1)
        counts_PR1 = image_mask_PR[:, :, None].to(grid_PRM.dtype)
        image_PM = F.normalize((grid_PRM * counts_PR1).sum(1), dim=-1)
        apart_PCM = (image_PM[:, None] - text_XCM).square()
        whole_PC1M = F.normalize(self.whole(apart_PCM), dim=-1)[:, :, None]

        vectors = torch.cat([whole_PC1M, local_PCTM], dim=2)
        counts = torch.cat([torch.ones_like(is_word[..., :1]), is_word], dim=2)
        gates = torch.sigmoid(self.filter(vectors)) * counts[..., None]
        gates = gates / gates.sum(2, keepdim=True).clamp_min(1e-6)
        read_PCM = F.normalize((gates * vectors).sum(2), dim=-1)
        logits_PC: Tensor = self.score(read_PCM)[..., 0].float() * self.logit_scale
        return logits_PC
