"""Turns pixels into image tokens with a vision network of others, through transformers' classes.

A checkpoint of ours holds its weights and its configuration, so that only the class is needed to
load it; the exported network needs nothing.

Shapes: B batch, H W pixels, C channels, R image tokens, D token width.
"""

from collections.abc import Mapping
from typing import Any, Final

from torch import Tensor, nn

from tandem.modeling.config import JointConfig
from tandem.modeling.image_sources.pixel_scale import PixelScale
from tandem.platform.files.json_object import shown

VISION_CLASSES: Final[Mapping[str, tuple[str, str]]] = {
    "clip_vision_model": ("CLIPVisionConfig", "CLIPVisionModel"),
    "convnext": ("ConvNextConfig", "ConvNextModel"),
    "convnextv2": ("ConvNextV2Config", "ConvNextV2Model"),
    "deit": ("DeiTConfig", "DeiTModel"),
    "dinov2": ("Dinov2Config", "Dinov2Model"),
    "dinov2_with_registers": ("Dinov2WithRegistersConfig", "Dinov2WithRegistersModel"),
    "resnet": ("ResNetConfig", "ResNetModel"),
    "siglip_vision_model": ("SiglipVisionConfig", "SiglipVisionModel"),
    "vit": ("ViTConfig", "ViTModel"),
}
"""Configuration and model of transformers, by the `model_type` of a configuration."""

PIXEL_FACTOR: Final = 1 / 255
"""Pixels are scaled to levels of 0 to 1 before mean and deviation."""
# Fields that change what a forward returns, or in how many pieces, and not its values.
_ANSWERS: Final = frozenset(
    {"chunk_size_feed_forward", "output_attentions", "output_hidden_states", "return_dict"}
)
# Their classes make a pooled output, with weights that a checkpoint may lack.
_WITHOUT_POOLER: Final = frozenset({"deit", "vit"})


class VisionTower(nn.Module):
    """Holds a network that gives a state for each part of a picture."""

    def __init__(self, config: JointConfig) -> None:
        super().__init__()
        vision = config.vision or {}
        self.scale = PixelScale(PIXEL_FACTOR, vision["mean"], vision["std"])
        self.network = vision_network(vision["network"])
        self.eval().requires_grad_(False)

    def forward(self, pixels: Tensor) -> Tensor:
        """uint8 [B, H, W, 3] -> float16 [B, R, D]."""
        return self.tokens(pixels).half()

    def tokens(self, pixels: Tensor) -> Tensor:
        """Returns [B, R, D] in the precision of the weights, for training."""
        states: Tensor = self.network(pixel_values=self.scale(pixels)).last_hidden_state
        # Convolutional networks end in a grid [B, D, S, S].
        return states.flatten(2).transpose(1, 2) if states.ndim == 4 else states

    def train(self, mode: bool = True) -> "VisionTower":
        """Stays in evaluation mode, so that dropout and norms are as in use."""
        return super().train(False)


def vision_network(fields: Mapping[str, Any]) -> nn.Module:
    """Returns the network of a configuration of transformers, with random weights.

    Raises ValueError for a `model_type` that is not in VISION_CLASSES, for fields that its class
    refuses, and where transformers is not installed.
    """
    kind = fields.get("model_type")
    if not isinstance(kind, str) or kind not in VISION_CLASSES:
        raise ValueError(
            f"model_type {shown(kind)} is not a vision network that image tokens can come from; "
            f"there are {', '.join(VISION_CLASSES)}"
        )
    try:
        import transformers
    except ImportError as error:
        raise ValueError(
            f"image tokens of {kind} need transformers: pip install 'tandem-search[models]'"
        ) from error
    config_name, model_name = VISION_CLASSES[kind]
    try:
        config = getattr(transformers, config_name).from_dict(
            {**model_fields(fields), "dtype": "float32"}
        )
        network: nn.Module = getattr(transformers, model_name)(config, **class_options(fields))
    except Exception as error:  # whatever a configuration makes its layers raise
        raise ValueError(f"no {model_name} has this configuration: {error}") from error
    return network


def class_options(fields: Mapping[str, Any]) -> dict[str, bool]:
    return {"add_pooling_layer": False} if fields["model_type"] in _WITHOUT_POOLER else {}


def model_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields, and those of its parts, without what a caller of the model sets."""
    return {
        name: model_fields(value) if isinstance(value, Mapping) else value
        for name, value in fields.items()
        if name not in _ANSWERS
    }
