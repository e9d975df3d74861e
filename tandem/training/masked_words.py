"""Masked words: what a text leaves out is told from the rest of it and from its image.

BERT's objective with an image beside the text (masked language modelling, MLM), by which the
published encoders that Geigle et al. begin with had learned before. Ours begin at random, and a
pair's single bit, match or no match, says little of which thing is how many and where; a masked
"left" asks for just that.

Shapes: B rows, T text tokens.
"""

import random

import torch
from tokenizers import Tokenizer

from tandem.model_io.special_tokens import SpecialTokens, special_tokens
from tandem.training.data.batches import MaskedBatch, MatchBatch, TextBatch

_MASKS = ("[MASK]", "<mask>")


def mask_id(tokenizer: Tokenizer) -> int:
    """Returns the id that stands where a word is masked.

    A published tokenizer has one for it. Ours has none, and takes the padding's: no text has that
    where it counts.

    >>> from tandem.training.data.caption_tokenizer import train_tokenizer
    >>> mask_id(train_tokenizer(["two cats"], 50))
    0
    """
    for name in _MASKS:
        if (number := tokenizer.token_to_id(name)) is not None:
            return int(number)
    return special_tokens(tokenizer).pad_id


def masked(
    batch: MatchBatch, share: float, mask_id: int, special: SpecialTokens, rng: random.Random
) -> MaskedBatch:
    """Returns the batch with so large a share of its words masked, each by the same chance.

    Padding and what stands around a text are never masked. One word at least is, so that a loss has
    something to be the mean of. Raises ValueError for a share outside 0 to 1 and for texts without
    words.
    """
    if not 0 < share <= 1:
        raise ValueError(f"the masked share is {share}; it must be above 0 and at most 1")
    ids_BT = batch.texts.ids
    around = torch.tensor([special.cls_id, special.sep_id, special.pad_id])
    is_word_BT = batch.texts.mask.bool() & ~torch.isin(ids_BT, around)
    if not is_word_BT.any():
        raise ValueError("no text of the batch has a word that could be masked")
    generator = torch.Generator().manual_seed(rng.getrandbits(63))
    chances_BT = torch.rand(ids_BT.shape, generator=generator).masked_fill(~is_word_BT, 2.0)
    is_masked_BT = chances_BT < max(share, float(chances_BT.min()) + 1e-6)
    texts = TextBatch(ids_BT.masked_fill(is_masked_BT, mask_id), batch.texts.mask)
    return MaskedBatch(texts, batch.tokens, batch.image_mask, is_masked_BT, ids_BT)
