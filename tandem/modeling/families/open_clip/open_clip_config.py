"""Reads open_clip_config.json: the towers' shapes in terms of CLIPModel, and how pictures are made.

A setting that CLIPModel has no place for is refused by name: most change no weight, only the
function.
"""

from collections.abc import Mapping
from typing import Any, Final

from tandem.model_io.pictures.image_rules import Filter, Fit, ImageRules, Transparency
from tandem.modeling.image_sources.pixel_scale import PixelScale
from tandem.modeling.published.files import OPEN_CLIP_CONFIG
from tandem.modeling.published.folder import PublishedFolder
from tandem.platform.files.json_object import shown

# OpenAI's, which open_clip takes where a file names none.
_MEAN: Final = (0.48145466, 0.4578275, 0.40821073)
_STD: Final = (0.26862954, 0.26130258, 0.27577711)
_FITS: Final = {"shortest": Fit.CROP, "squash": Fit.SQUASH}
_FILTERS: Final = {
    "bicubic": Filter.BICUBIC,
    "bilinear": Filter.BILINEAR,
    # A random filter is for training; open_clip evaluates with this one.
    "random": Filter.BICUBIC,
}
_SERVED: Final = {
    "resize_mode": tuple(_FITS),
    "interpolation": tuple(_FILTERS),
    "mode": ("RGB",),
}
_READ: Final = {
    *("embed_dim", "quick_gelu", "vision_cfg", "text_cfg", "width", "layers", "mlp_ratio"),
    *("image_size", "patch_size", "head_width", "context_length", "vocab_size", "heads"),
}
_READ_OF_HUGGING_FACE: Final = {"hf_model_name", "hf_proj_type", "hf_pooler_type"}
# Settings of training, of the tokenizer, of the logits of a whole batch, and of what a forward
# returns besides.
_WITHOUT_EFFECT: Final = {
    *("cast_dtype", "custom_text", "init_logit_bias", "init_logit_scale", "nonscalar_logit_scale"),
    *("output_dict", "output_tokens", "patch_dropout", "pad_id"),
    *("hf_tokenizer_name", "hf_model_pretrained"),
}
# The values with which a setting has no effect; for settings not listed here, any false value.
_PLAIN: Final[Mapping[str, tuple[object, ...]]] = {
    "pool_type": ("tok", "argmax"),
    "pos_embed_type": ("learnable",),
    "proj_type": ("linear",),
    "block_type": (None, "default"),
    "attn_pooler_queries": (256,),
    "attn_pooler_heads": (8,),
    "eos_id": (2,),
}


def open_clip_fields(folder: PublishedFolder) -> dict[str, Any]:
    """Returns the folder's open_clip_config.json; refuses settings that CLIPModel lacks."""
    fields = folder.fields(OPEN_CLIP_CONFIG)
    model = fields["model_cfg"]
    text, vision = model["text_cfg"], model["vision_cfg"]
    known = _READ | _WITHOUT_EFFECT
    if text.get("hf_model_name"):
        known |= _READ_OF_HUGGING_FACE
    if not vision.get("timm_model_name"):
        known |= {name for name in vision if name.startswith("timm_")}
    for side in (model, vision, text):
        for name, value in side.items():
            is_plain = value in _PLAIN[name] if name in _PLAIN else not value
            if name not in known and not is_plain:
                raise folder.refused(
                    f"it has {name} {shown(value)}, which CLIPModel does not have; take the same "
                    "model in the format of transformers, if its publisher has it"
                )
    return fields


def clip_fields(model: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of a CLIPConfig; those of the text side only if it is CLIP's own."""
    dim, vision, text = model["embed_dim"], model["vision_cfg"], model["text_cfg"]
    act = "quick_gelu" if model.get("quick_gelu") else "gelu"
    width = vision.get("width", 768)
    fields: dict[str, Any] = {
        "projection_dim": dim,
        "vision_config": {
            "hidden_size": width,
            "intermediate_size": int(width * vision.get("mlp_ratio", 4.0)),
            "num_hidden_layers": vision.get("layers", 12),
            "num_attention_heads": width // vision.get("head_width", 64),
            "image_size": _side(vision.get("image_size", 224)),
            "patch_size": _side(vision.get("patch_size", 16)),
            "hidden_act": act,
            "projection_dim": dim,
        },
    }
    if text.get("hf_model_name"):
        return fields
    width = text.get("width", 512)
    return fields | {
        "text_config": {
            "vocab_size": text.get("vocab_size", 49408),
            "hidden_size": width,
            "intermediate_size": int(width * text.get("mlp_ratio", 4.0)),
            "num_hidden_layers": text.get("layers", 12),
            "num_attention_heads": text.get("heads", 8),
            "max_position_embeddings": context_length(text),
            "hidden_act": act,
            "projection_dim": dim,
            # 2 means to CLIPModel that the highest id ends a text, as it does to open_clip.
            "eos_token_id": 2,
        }
    }


def context_length(text: Mapping[str, Any]) -> int:
    return int(text.get("context_length", 77))


def open_clip_image_rules(
    folder: PublishedFolder, wanted: Mapping[str, Any], size: int
) -> tuple[ImageRules, PixelScale]:
    """Returns how open_clip makes pictures when it evaluates, by its `preprocess_cfg`."""
    folder.check_served(wanted, _SERVED | {"size": (size, [size, size])})
    rules = ImageRules(
        size=size,
        fit=_FITS[wanted.get("resize_mode", "shortest")],
        filter=_FILTERS[wanted.get("interpolation", "bicubic")],
        transparency=Transparency.IGNORE,
        is_exact=True,
    )
    # As open_clip reads them: null means OpenAI's.
    return rules, PixelScale(1 / 255, wanted.get("mean") or _MEAN, wanted.get("std") or _STD)


def _side(stated: Any) -> Any:  # noqa: ANN401  of a file
    """Returns the side of a square, of which some files state both."""
    return stated[0] if isinstance(stated, list) else stated
