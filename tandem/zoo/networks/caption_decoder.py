"""Generates a picture's caption from its regions, word by word: the second loss of VSRN.

Shapes: B batch, T words, R regions, D width of regions, H width of the decoder, V vocabulary.
"""

from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_UNREAD: Final = -1e4


class CaptionDecoder(nn.Module):
    """Reads regions by a GRU, and decodes words by another that attends to its states."""

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
        logits_BR = self.weigh(fits_BRH)[..., 0].masked_fill(is_region_BR == 0, _UNREAD)
        context_BH: Tensor = (logits_BR.softmax(-1)[..., None] * states_BRH).sum(1)
        return context_BH
