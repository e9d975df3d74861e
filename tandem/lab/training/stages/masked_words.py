"""Masks caption words, for masked language modelling (MLM) with the caption's image as context.

The model predicts a masked word from the rest of the caption and from its image. The published
encoders that Geigle et al. begin with were pretrained this way; ours begin with random weights. A
pair's label is a single bit, which says little about how many objects there are and where; a masked
"left" asks exactly that.

Shapes: B rows, T text tokens.
"""

import random

import torch
from tokenizers import Tokenizer

from tandem.lab.training.data.batches import MaskedBatch, MatchBatch, TextBatch
from tandem.model_io.texts.special_tokens import SpecialTokens, special_tokens

_MASKS = ("[MASK]", "<mask>")


def mask_id(tokenizer: Tokenizer) -> int:
    """Returns the token id that replaces a masked word.

    A published tokenizer has one. Ours uses the padding's id, which no text has at a position that
    counts.

    >>> from tandem.lab.training.data.caption_tokenizer import train_tokenizer
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
    """Returns the batch with each word masked with probability `share`.

    Padding and special tokens are never masked. At least one word is, so that the mean loss is
    defined.
    """
    ids_BT = batch.texts.ids
    around = torch.tensor([special.cls_id, special.sep_id, special.pad_id])
    is_word_BT = batch.texts.mask.bool() & ~torch.isin(ids_BT, around)
    generator = torch.Generator().manual_seed(rng.getrandbits(63))
    chances_BT = torch.rand(ids_BT.shape, generator=generator).masked_fill(~is_word_BT, 2.0)
    is_masked_BT = chances_BT < max(share, float(chances_BT.min()) + 1e-6)
    texts = TextBatch(ids_BT.masked_fill(is_masked_BT, mask_id), batch.texts.mask)
    return MaskedBatch(texts, batch.tokens, batch.image_mask, is_masked_BT, ids_BT)


def with_hidden_words(
    texts: TextBatch, share: float, mask_id: int, rng: random.Random
) -> TextBatch:
    """Returns the texts with a share of their tokens masked, never the first.

    Nothing is drawn where the share is 0.
    """
    if not share:
        return texts
    generator = torch.Generator().manual_seed(rng.getrandbits(63))
    is_hidden_BT = torch.rand(texts.ids.shape, generator=generator) < share
    is_hidden_BT = is_hidden_BT & texts.mask.bool()
    is_hidden_BT[:, 0] = False
    return TextBatch(texts.ids.masked_fill(is_hidden_BT, mask_id), texts.mask)
