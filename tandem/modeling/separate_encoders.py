"""BE and CE as two encoders (Sep+Coop, Geigle et al. 2022, section 3), called as the joint one is.

They read the same image tokens, so that an index stores one kind. Whoever serves, stores or
measures a model need not know which kind it is.
"""

from torch import Tensor, nn


class SeparateEncoders(nn.Module):
    """Two encoders of one shape: the BE reads a side alone, the CE a pair."""

    def __init__(self, bi_encoder: nn.Module, cross_encoder: nn.Module) -> None:
        super().__init__()
        self.bi_encoder = bi_encoder
        self.cross_encoder = cross_encoder

    def forward(
        self, input_ids: Tensor, text_mask: Tensor, image_tokens: Tensor, image_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Returns embedding and match logit of each row, inputs and outputs as JointEncoder's.

        A side that is absent has one position, and so has the [CLS] beside an image: lengths tell
        which encoder is meant, since the rows of a batch share them. The other's half of the answer
        means nothing: a pair's embedding, the logit of a side alone.
        """
        # One expression a branch, for this is compiled as it stands (exported.py).
        if input_ids.shape[1] > 1 and image_tokens.shape[1] > 1:
            return self.cross_encoder(input_ids, text_mask, image_tokens, image_mask)
        return self.bi_encoder(input_ids, text_mask, image_tokens, image_mask)


def encoders_in(encoder: nn.Module) -> list[nn.Module]:
    """Returns the encoders that a model's encoder consists of: itself, or BE and CE."""
    if isinstance(encoder, SeparateEncoders):
        return [encoder.bi_encoder, encoder.cross_encoder]
    return [encoder]
