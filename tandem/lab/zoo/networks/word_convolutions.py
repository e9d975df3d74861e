"""Reads words in windows of one, two and three, as the text sides of SAEM and DIME do.

Shapes: B batch, T words, W width of words, D width of one window's features.
"""

from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tandem.lab.zoo.region_inputs import UNREAD

# Words before and after the one that a window belongs to.
_MARGINS: Final = ((0, 0), (0, 1), (1, 1))


class WordConvolutions(nn.Module):
    """Gives features of the windows at each word, and their maxima over the text.

    Beyond a text's last word a window reads zeros, so that padding has no influence; the authors'
    codes read what BERT makes of it.
    """

    def __init__(self, word_width: int, width: int) -> None:
        super().__init__()
        self.windows = nn.ModuleList(
            nn.Conv1d(word_width, width, size + 1) for size in range(len(_MARGINS))
        )

    def forward(self, words_BTW: Tensor, mask_BT: Tensor) -> tuple[Tensor, Tensor]:
        """Returns [B, T, 3 D], and the maxima [B, 3 D]."""
        counts_BT1 = mask_BT[..., None].to(words_BTW.dtype)
        words_BWT = (words_BTW * counts_BT1).transpose(1, 2)
        read = [
            torch.relu(window(F.pad(words_BWT, margins)))
            for window, margins in zip(self.windows, _MARGINS, strict=True)
        ]
        features_BTE = torch.cat(read, dim=1).transpose(1, 2)
        highest_BE = features_BTE.masked_fill(counts_BT1 == 0, UNREAD).amax(1)
        return features_BTE, highest_BE
