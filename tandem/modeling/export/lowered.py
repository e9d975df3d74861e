"""Lowers a model to bf16, fp16 or int8, as it is exported."""

import copy
import warnings
from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from tandem.model_io.repository.precision import Precision
from tandem.modeling.image_sources.vision_tower import VisionTower
from tandem.modeling.joint_encoder import JointEncoder
from tandem.modeling.joint_model import JointModel
from tandem.modeling.separate_encoders import encoders_in
from tandem.modeling.towers.two_towers import TwoTowers

Layers = TypeVar("Layers", bound=nn.Module)

# A head gives one number, or one for each of two classes.
_SCORE_WIDTH = 2
_HALVES = {Precision.BF16: torch.bfloat16, Precision.FP16: torch.float16}


def lowered(model: JointModel, precision: Precision) -> JointModel:
    """Returns a copy whose matrix products are in `precision`; in fp32, the model itself.

    Long sums stay in float32: the residual stream, norms, pooling and heads. In int8 only the
    encoder's layers are lowered, since torch has no dynamic quantisation of convolutions.
    """
    if precision is Precision.FP32:
        return model
    model = copy.deepcopy(model)
    parts = _layered(model.joint_encoder)
    if precision is Precision.INT8:
        for part in parts:
            part.layers = _quantised(part.layers)  # type: ignore[type-var]
        return model
    dtype = _HALVES[precision]
    # transformers' networks read their layers' weights, which a halved layer does not have.
    if not isinstance(model.image_backbone, VisionTower):
        _halve(model.image_backbone, dtype)
    for part in parts:
        _halve(part.layers, dtype)  # type: ignore[arg-type]
        if isinstance(part, JointEncoder):
            part.image_project = _Halved(part.image_project, dtype)  # type: ignore[assignment]
    return model


def _layered(encoder: nn.Module) -> Sequence[nn.Module]:
    """Returns the parts whose layers are lowered; a matcher and the head over a grid are not."""
    if isinstance(encoder, TwoTowers):
        return [*encoder.text_trunks(), *encoder.text_tops()]
    return encoders_in(encoder)


def lowered_part(module: Layers, precision: Precision) -> Layers:
    """Returns a copy of a published model's module with its linear layers in `precision`.

    Between them everything stays in float32, and so do heads that give a score, and attention
    modules that read the weights of their layers themselves. In fp32 it is the module itself.
    """
    if precision is Precision.FP32:
        return module
    module = copy.deepcopy(module)
    if precision is Precision.INT8:
        return _quantised(module)
    _halve_linear(module, _HALVES[precision])
    return module


class _Halved(nn.Module):
    """Runs a linear layer or a convolution in half precision, whatever its input."""

    def __init__(
        self, inner: nn.Module, dtype: torch.dtype, *, is_returned_whole: bool = False
    ) -> None:
        super().__init__()
        self.inner = inner.to(dtype)
        self.dtype = dtype
        self.is_returned_whole = is_returned_whole

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.inner(x.to(self.dtype))
        return output.float() if self.is_returned_whole else output


def _halve(module: nn.Module, dtype: torch.dtype) -> None:
    for name, child in module.named_children():
        if isinstance(child, nn.Linear | nn.Conv2d):
            setattr(module, name, _Halved(child, dtype))
        else:
            _halve(child, dtype)


def _halve_linear(module: nn.Module, dtype: torch.dtype) -> None:
    # Not the convolution of a ViT's patches, whose dtype transformers looks up: it is one of many.
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            # Logits of 8 bits would be equal for neighbours in the order.
            if child.out_features > _SCORE_WIDTH:
                setattr(module, name, _Halved(child, dtype, is_returned_whole=True))
        elif not isinstance(child, nn.MultiheadAttention):
            _halve_linear(child, dtype)


def _quantised(layers: Layers) -> Layers:
    with warnings.catch_warnings():
        # Deprecated since torch 2.10. Its replacement (torchao) cannot be traced to TorchScript,
        # and torch is pinned.
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", UserWarning)
        quantised: Layers = torch.ao.quantization.quantize_dynamic(layers, {nn.Linear})
    return quantised
