"""The two functions that are exported of a model: pixels to what is stored, and the rest.

Where a model has layers apart (layers_apart.py), the image's side of them goes to the first.

Shapes: B rows, H W pixels, T text tokens, R image tokens, D width.
"""

import copy

import torch
from torch import Tensor, nn

from tandem.modeling.image_tokens import Backbone
from tandem.modeling.joint_model import JointEncoder, JointModel
from tandem.modeling.pretrained_encoder import PretrainedEncoder
from tandem.modeling.separate_encoders import SeparateEncoders

_TEXTS_AND_HEADS = ("word", "text_position", "pooler", "classifier")
_IMAGES = ("image_project", "image_row", "image_column")


def served_parts(model: JointModel) -> tuple[nn.Module, nn.Module]:
    """Returns what is exported as image_backbone and as joint_encoder, in evaluation mode.

    Of a model without layers apart they are its own parts. Together they give what the model does.
    """
    encoder = model.joint_encoder
    # Two encoders have no layers apart; it is said here for the type alone.
    if not model.config.apart_layer_count or isinstance(encoder, SeparateEncoders):
        return model.image_backbone, encoder
    parts = (BackboneAndLayers(model.image_backbone, encoder), JoinedLayers(encoder))
    return parts[0].eval(), parts[1].eval()


class BackboneAndLayers(nn.Module):
    """Pixels to an image's hidden states behind the layers that are apart."""

    def __init__(self, backbone: Backbone, encoder: JointEncoder | PretrainedEncoder) -> None:
        super().__init__()
        self.backbone = backbone
        self.encoder = copy.deepcopy(encoder)
        _forget(self.encoder, _TEXTS_AND_HEADS)
        self.encoder.layers = self.encoder.layers[: encoder.apart_layer_count]

    def forward(self, pixels: Tensor) -> Tensor:
        """uint8 [B, H, W, 3] -> float16 [B, R, D], what the index stores."""
        tokens_BRD: Tensor = self.backbone(pixels)
        every_BR = torch.ones_like(tokens_BRD[:, :, 0], dtype=torch.int64)
        return self.encoder.image_side(tokens_BRD, every_BR).half()


class JoinedLayers(nn.Module):
    """JointEncoder.forward of images whose layers apart are behind them."""

    def __init__(self, encoder: JointEncoder | PretrainedEncoder) -> None:
        super().__init__()
        self.encoder = copy.deepcopy(encoder)
        _forget(self.encoder, _IMAGES)

    def forward(
        self, input_ids: Tensor, text_mask: Tensor, image_tokens: Tensor, image_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Returns embedding and match logit, as JointEncoder.forward does; image_tokens [B, R, D].

        The names are those by which config.pbtxt knows the inputs.
        """
        text_BTD = self.encoder.text_side(input_ids, text_mask)
        return self.encoder.joined(text_BTD, text_mask, image_tokens, image_mask)


def _forget(encoder: nn.Module, names: tuple[str, ...]) -> None:
    # A trace keeps every weight that a module has, also those that it never reads.
    for name in names:
        delattr(encoder, name)
