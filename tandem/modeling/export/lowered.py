"""Lowers a model to bf16, fp16 or int8, as it is exported."""

import copy
import warnings

import torch
from torch import Tensor, nn

from tandem.model_io.precision import Precision
from tandem.modeling.joint_model import JointModel
from tandem.modeling.separate_encoders import encoders_in
from tandem.modeling.two_towers import TwoTowers

_HALVES = {Precision.BF16: torch.bfloat16, Precision.FP16: torch.float16}


def lowered(model: JointModel, precision: Precision) -> JointModel:
    """Returns a copy whose matrix products are in `precision`; in fp32, the model itself.

    Long sums stay in float32: the residual stream, norms, pooling and heads. In int8 only the
    encoder's layers are lowered, since torch has no dynamic quantisation of convolutions.
    """
    if precision is Precision.FP32:
        return model
    model = copy.deepcopy(model)
    if isinstance(model.joint_encoder, TwoTowers):
        _lower_towers(model, precision)
        return model
    encoders = encoders_in(model.joint_encoder)
    if precision is Precision.INT8:
        for encoder in encoders:
            encoder.layers = _quantised(encoder.layers)  # type: ignore[arg-type]
        return model
    dtype = _HALVES[precision]
    _halve(model.image_backbone, dtype)
    for encoder in encoders:
        _halve(encoder.layers, dtype)  # type: ignore[arg-type]
        encoder.image_project = _Halved(encoder.image_project, dtype)  # type: ignore[arg-type]
    return model


def _lower_towers(model: JointModel, precision: Precision) -> None:
    """Lowers the text's layers, and the picture's network; head and matcher stay in float32."""
    assert isinstance(model.joint_encoder, TwoTowers), "the caller has asked"
    tower = model.joint_encoder.text.tower
    if precision is Precision.INT8:
        tower.layers = _quantised(tower.layers)
        return
    _halve(model.image_backbone, _HALVES[precision])
    _halve(tower.layers, _HALVES[precision])


class _Halved(nn.Module):
    """Runs a linear layer or a convolution in half precision, whatever its input."""

    def __init__(self, inner: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.inner = inner.to(dtype)
        self.dtype = dtype

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.inner(x.to(self.dtype))
        return output


def _halve(module: nn.Module, dtype: torch.dtype) -> None:
    for name, child in module.named_children():
        if isinstance(child, nn.Linear | nn.Conv2d):
            setattr(module, name, _Halved(child, dtype))
        else:
            _halve(child, dtype)


def _quantised(layers: nn.ModuleList) -> nn.ModuleList:
    with warnings.catch_warnings():
        # Deprecated since torch 2.10. Its replacement (torchao) cannot be traced to TorchScript,
        # and torch is pinned.
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", UserWarning)
        quantised: nn.ModuleList = torch.ao.quantization.quantize_dynamic(layers, {nn.Linear})
    return quantised
