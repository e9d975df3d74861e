"""Scores pairs of a gallery by a model of two towers, whose sides meet only in the matcher.

Each caption and each picture is read once, when it first occurs in a pool, where the joint encoder
reads it again with every partner. A pair then only costs the matcher.

Shapes: P pairs, T text tokens of the longest caption, B captions or pictures read together.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from tandem.modeling.towers.two_towers import PairSide

Inputs = Callable[[Sequence[int]], tuple[Tensor, Tensor]]
"""Gives what a side reads of items by number: ids or image tokens, and their mask."""
_Read = tuple[Tensor, ...]
"""One item's embedding, and with a matcher its unit vectors of parts and whole."""

_BATCH_SIZE = 64


class TowerPairs:
    """Scores pairs by the numbers of caption and picture, and keeps what it has read of them."""

    def __init__(self, pair: PairSide, texts: Inputs, images: Inputs) -> None:
        self._pair = pair
        self._texts = _Side(pair.read_text, texts)
        self._images = _Side(pair.read_image, images)

    def logits(self, captions: Sequence[int], images: Sequence[int]) -> Tensor:
        """Returns the match logit of each caption with the picture at its place, float32 [P]."""
        return self._pair.scored(self._texts.of(captions), self._images.of(images))[:, 0]


class _Side:
    def __init__(
        self,
        read: Callable[[Tensor, Tensor], tuple[Tensor, tuple[Tensor, ...] | None]],
        inputs: Inputs,
    ) -> None:
        self._read, self._inputs = read, inputs
        self._found: dict[int, _Read] = {}

    def of(self, numbers: Sequence[int]) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor] | None]:
        missing = sorted({*numbers} - self._found.keys())
        for start in range(0, len(missing), _BATCH_SIZE):
            some = missing[start : start + _BATCH_SIZE]
            embeddings_BE, parts = self._read(*self._inputs(some))
            for place, number in enumerate(some):
                found: _Read = (embeddings_BE[place],)
                if parts is not None:
                    parts_LM, whole_M, counts_L = (each[place] for each in parts)
                    found = (*found, parts_LM[counts_L], whole_M)
                self._found[number] = found
        rows = [self._found[number] for number in numbers]
        embeddings_PE = torch.stack([row[0] for row in rows])
        if len(rows[0]) == 1:
            return embeddings_PE, None
        counts_PL = pad_sequence(
            [torch.ones(len(row[1]), dtype=torch.bool) for row in rows], batch_first=True
        )
        parts_PLM = pad_sequence([row[1] for row in rows], batch_first=True)
        return embeddings_PE, (parts_PLM, torch.stack([row[2] for row in rows]), counts_PL)
