"""Converts the weights of open_clip's towers to the names of transformers.

Both compute the same: open_clip keeps query, key and value in one matrix, and its two projections
transposed.
"""

import re
from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor

_LAYER: Final = re.compile(r"(visual\.|)transformer\.resblocks\.(\d+)\.(.+)")
_LAYER_PARTS: Final = {
    "ln_1": "layer_norm1",
    "ln_2": "layer_norm2",
    "attn.out_proj": "self_attn.out_proj",
    "mlp.c_fc": "mlp.fc1",
    "mlp.c_proj": "mlp.fc2",
}
_QUERY_KEY_VALUE: Final = ("q_proj", "k_proj", "v_proj")
_NAMES: Final = {
    "logit_scale": "logit_scale",
    "token_embedding.weight": "text_model.embeddings.token_embedding.weight",
    "positional_embedding": "text_model.embeddings.position_embedding.weight",
    "ln_final.weight": "text_model.final_layer_norm.weight",
    "ln_final.bias": "text_model.final_layer_norm.bias",
    "visual.class_embedding": "vision_model.embeddings.class_embedding",
    "visual.positional_embedding": "vision_model.embeddings.position_embedding.weight",
    "visual.conv1.weight": "vision_model.embeddings.patch_embedding.weight",
    # Spelled so in transformers.
    "visual.ln_pre.weight": "vision_model.pre_layrnorm.weight",
    "visual.ln_pre.bias": "vision_model.pre_layrnorm.bias",
    "visual.ln_post.weight": "vision_model.post_layernorm.weight",
    "visual.ln_post.bias": "vision_model.post_layernorm.bias",
}
_TRANSPOSED: Final = {
    "text_projection": "text_projection.weight",
    "visual.proj": "visual_projection.weight",
}
# Older files store the causal mask; the bias, as SigLIP's loss has one, changes no embedding.
_UNUSED: Final = ("attn_mask", "logit_bias")
_SCALE: Final = "logit_scale"


def named_as_clip(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns the weights by the names of CLIPModel; those of unknown names keep theirs.

    A text tower of its own class (`text.…`) is named as one without.
    """
    named: dict[str, Tensor] = {}
    for stored_name, tensor in weights.items():
        name = stored_name.removeprefix("text.")
        if name in _UNUSED:
            continue
        if name == _SCALE and tensor.numel() == 1:  # "nonscalar" files have one in a list
            tensor = tensor.reshape(())
        if layer := _LAYER.fullmatch(name):
            named |= _layer_weights(layer, tensor)
        elif name in _TRANSPOSED and tensor.dim() == 2:
            named[_TRANSPOSED[name]] = tensor.t().contiguous()
        elif name in _NAMES:
            named[_NAMES[name]] = tensor
        else:
            named[stored_name] = tensor
    return named


def _layer_weights(layer: re.Match[str], tensor: Tensor) -> dict[str, Tensor]:
    side, number, part = layer.groups()
    prefix = f"{'vision' if side else 'text'}_model.encoder.layers.{number}"
    if part in ("attn.in_proj_weight", "attn.in_proj_bias"):
        end = part.rpartition("_")[2]
        return {
            f"{prefix}.self_attn.{name}.{end}": each.contiguous()
            for name, each in zip(_QUERY_KEY_VALUE, torch.chunk(tensor, 3), strict=False)
        }
    module, _, end = part.rpartition(".")
    return {f"{prefix}.{_LAYER_PARTS.get(module, module)}.{end}": tensor}
