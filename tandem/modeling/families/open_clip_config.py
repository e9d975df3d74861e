"""Reads open_clip_config.json: the towers' shapes in terms of CLIPModel, and how pictures are made.

A setting that CLIPModel has no place for is refused by name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from tandem.files.json_object import shown
from tandem.modeling.families.image_rules import PixelScale
from tandem.modeling.published.files import OPEN_CLIP_CONFIG
from tandem.modeling.published.folder import PublishedFolder
from tandem.pictures.image_rules import Filter, Fit, ImageRules, Transparency

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
_MODEL: Final = {"embed_dim", "quick_gelu", "vision_cfg", "text_cfg"}
# Settings of training, of the logits of a whole batch, and of a forward's return value.
_MODEL_WITHOUT_EFFECT: Final = {
    "cast_dtype",
    "custom_text",
    "init_logit_bias",
    "init_logit_scale",
    "nonscalar_logit_scale",
    "output_dict",
}
_TIMM: Final = "timm_model_name"
_VISION: Final = {"image_size", "layers", "width", "head_width", "mlp_ratio", "patch_size"}
_TEXT: Final = {"context_length", "vocab_size", "width", "heads", "layers", "mlp_ratio"}
_HUGGING_FACE_TEXT: Final = {"hf_model_name", "hf_proj_type", "hf_pooler_type"}
# Settings of training, of the tokenizer, and of a tower's further outputs.
_WITHOUT_EFFECT: Final = {
    "patch_dropout",
    "hf_tokenizer_name",
    "hf_model_pretrained",
    "output_tokens",
    "pad_id",
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


@dataclass(frozen=True, slots=True)
class OpenClipConfig:
    """Holds the settings of a model of open_clip's format."""

    folder: PublishedFolder
    embedding_dim: int
    quick_gelu: bool
    vision: Mapping[str, Any]
    text: Mapping[str, Any]
    preprocessing: Mapping[str, Any]

    @classmethod
    def read(cls, folder: PublishedFolder) -> Self:
        """Reads the folder's open_clip_config.json; refuses settings that CLIPModel lacks."""
        fields = folder.fields(OPEN_CLIP_CONFIG)
        model = fields["model_cfg"]
        _check_known(folder, "model_cfg", model, _MODEL | _MODEL_WITHOUT_EFFECT)
        folder.check_served(model, {"quick_gelu": (False, True)})
        config = cls(
            folder=folder,
            embedding_dim=_integer(folder, model, "embed_dim", None),
            quick_gelu=bool(model.get("quick_gelu")),
            vision=model["vision_cfg"],
            text=model["text_cfg"],
            preprocessing=fields.get("preprocess_cfg") or {},
        )
        _check_known(folder, "vision_cfg", _without_timm(config.vision), _VISION)
        of_text = _TEXT | _HUGGING_FACE_TEXT if config.text_model else _TEXT
        _check_known(folder, "text_cfg", config.text, of_text)
        return config

    @property
    def text_model(self) -> str | None:
        """The name of a text tower of transformers; None for CLIP's own."""
        name = self.text.get("hf_model_name")
        return None if name is None else str(name)

    @property
    def context_length(self) -> int:
        """The longest text in tokens."""
        return self._text_integer("context_length", 77)

    def clip_fields(self) -> dict[str, Any]:
        """Returns the fields of a CLIPConfig; those of the text side only if it is CLIP's own."""
        act = "quick_gelu" if self.quick_gelu else "gelu"
        width, head_width = (
            self._vision_integer(name, unset)
            for name, unset in (("width", 768), ("head_width", 64))
        )
        vision = {
            "hidden_size": width,
            "intermediate_size": int(width * self.vision.get("mlp_ratio", 4.0)),
            "num_hidden_layers": self._vision_integer("layers", 12),
            "num_attention_heads": width // head_width,
            "image_size": self._vision_integer("image_size", 224),
            "patch_size": self._vision_integer("patch_size", 16),
            "hidden_act": act,
            "projection_dim": self.embedding_dim,
        }
        fields = {"projection_dim": self.embedding_dim, "vision_config": vision}
        return fields if self.text_model else fields | {"text_config": self._text_fields(act)}

    def image_rules(self) -> tuple[ImageRules, PixelScale]:
        """Returns how open_clip makes pictures when it evaluates."""
        wanted, size = self.preprocessing, self._vision_integer("image_size", 224)
        self.folder.check_served(wanted, _SERVED | {"size": (size, [size, size])})
        fit = _FITS[wanted.get("resize_mode", "shortest")]
        kernel = _FILTERS[wanted.get("interpolation", "bicubic")]
        rules = ImageRules(
            size=size, fit=fit, filter=kernel, transparency=Transparency.IGNORE, is_exact=True
        )
        # As open_clip reads them: null means OpenAI's.
        mean, std = wanted.get("mean") or _MEAN, wanted.get("std") or _STD
        return rules, PixelScale(1 / 255, mean, std)

    def _text_fields(self, act: str) -> dict[str, Any]:
        return {
            "vocab_size": self._text_integer("vocab_size", 49408),
            "hidden_size": (width := self._text_integer("width", 512)),
            "intermediate_size": int(width * self.text.get("mlp_ratio", 4.0)),
            "num_hidden_layers": self._text_integer("layers", 12),
            "num_attention_heads": self._text_integer("heads", 8),
            "max_position_embeddings": self.context_length,
            "hidden_act": act,
            "projection_dim": self.embedding_dim,
            # 2 means to CLIPModel that the highest id ends a text, as it does to open_clip.
            "eos_token_id": 2,
        }

    def _vision_integer(self, name: str, unset: int) -> int:
        return _integer(self.folder, self.vision, name, unset)

    def _text_integer(self, name: str, unset: int) -> int:
        return _integer(self.folder, self.text, name, unset)


def _integer(
    folder: PublishedFolder, fields: Mapping[str, Any], name: str, unset: int | None
) -> int:
    value = fields.get(name, unset)
    if isinstance(value, list) and len(set(map(str, value))) == 1:
        value = value[0]  # both sides of a square
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise folder.unserved(
            f"{name} is {shown(value)}, not a positive integer: its tower is not a transformer of "
            "CLIP's kind"
        )
    return value


def _without_timm(vision: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings without those of timm's towers, unless it is one."""
    if vision.get(_TIMM):
        return dict(vision)
    return {name: value for name, value in vision.items() if not name.startswith("timm_")}


def _check_known(
    folder: PublishedFolder, side: str, fields: Mapping[str, Any], known: set[str]
) -> None:
    for name, value in fields.items():
        if name in known | _WITHOUT_EFFECT:
            continue
        if (name in _PLAIN and value in _PLAIN[name]) or (name not in _PLAIN and not value):
            continue
        raise folder.refused(
            f"{side} has {name} {shown(value)}, which CLIPModel does not have; take the same model "
            "in the format of transformers, if its publisher has it"
        )
