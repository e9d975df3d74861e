"""Holds BE and CE as two encoders with the interface of the joint one (Sep+Coop).

Geigle et al. 2022, section 3. Both read the same image tokens, so an index stores one kind, and
serving, storage and evaluation do not depend on the kind of model.
"""

from torch import Tensor, nn


class SeparateEncoders(nn.Module):
    """Routes a single side to the BE and a pair to the CE."""

    def __init__(self, bi_encoder: nn.Module, cross_encoder: nn.Module) -> None:
        super().__init__()
        self.bi_encoder = bi_encoder
        self.cross_encoder = cross_encoder

    def forward(
        self, input_ids: Tensor, text_mask: Tensor, image_tokens: Tensor, image_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Returns embedding and match logit of each row, like JointEncoder.forward.

        A missing side has one position, as has the [CLS] that goes with an image alone. So the
        lengths, which all rows share, select the encoder. The embedding of a pair and the logit of
        one side are meaningless.
        """
        # One expression per branch, because TorchScript compiles this (exported.py).
        if input_ids.shape[1] > 1 and image_tokens.shape[1] > 1:
            return self.cross_encoder(input_ids, text_mask, image_tokens, image_mask)
        return self.bi_encoder(input_ids, text_mask, image_tokens, image_mask)


def encoders_in(encoder: nn.Module) -> list[nn.Module]:
    """Returns the encoder itself, or its BE and CE."""
    if isinstance(encoder, SeparateEncoders):
        return [encoder.bi_encoder, encoder.cross_encoder]
    return [encoder]
