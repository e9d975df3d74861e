"""Reads models in open_clip's format: open_clip_config.json and one file of weights.

They become CLIPModel of transformers, or its image side and an XLM-R. A weight that is missing or
unused is an error.
"""

from collections.abc import Mapping
from typing import Any, Final

from torch import Tensor, nn

from tandem.model_io.pictures.image_rules import ImageRules
from tandem.modeling.families.clip import clip_text_rules
from tandem.modeling.families.described import described
from tandem.modeling.families.loaded_model import load_model, read_config
from tandem.modeling.families.open_clip.open_clip_config import (
    clip_fields,
    context_length,
    open_clip_fields,
    open_clip_image_rules,
)
from tandem.modeling.families.open_clip.open_clip_weights import named_as_clip
from tandem.modeling.families.published_model import BiEncoderParts, PublishedModel
from tandem.modeling.families.text_rules import read_text_rules
from tandem.modeling.families.towers import ImageTower, PooledTextTower, TextTower
from tandem.modeling.image_sources.pixel_scale import PixelScale
from tandem.modeling.published.files import OPEN_CLIP_WEIGHTS
from tandem.modeling.published.folder import PublishedFolder
from tandem.platform.files.json_object import shown

FAMILY: Final = "open_clip"
_XLM_ROBERTA: Final = "xlm-roberta-"
# Every XLM-R has heads of this width; its file of weights does not state it.
_HEAD_WIDTH: Final = 64


def read_open_clip(folder: PublishedFolder) -> PublishedModel:
    """Returns a model of open_clip's format whose towers are those of CLIP, or an XLM-R."""
    from transformers import CLIPConfig

    fields = open_clip_fields(folder)
    model = fields["model_cfg"]
    name = str(model["text_cfg"].get("hf_model_name") or "")
    if name and not name.rpartition("/")[2].startswith(_XLM_ROBERTA):
        raise folder.unserved(
            f"its text tower is {shown(name)}; CLIP's own and {_XLM_ROBERTA}… are served"
        )
    config = read_config(folder, CLIPConfig, clip_fields(model))
    image, scale = open_clip_image_rules(
        folder, fields.get("preprocess_cfg") or {}, config.vision_config.image_size
    )
    weights = folder.read_weights(OPEN_CLIP_WEIGHTS)
    read = _with_xlm_roberta if name else _two_towers
    return read(folder, model, config, weights, image, scale)


def _two_towers(
    folder: PublishedFolder,
    fields: Mapping[str, Any],
    config: Any,  # noqa: ANN401  of transformers
    weights: Mapping[str, Tensor],
    image: ImageRules,
    scale: PixelScale,
) -> PublishedModel:
    from transformers import CLIPModel

    tokenizer, text = clip_text_rules(folder, config.text_config)
    model = load_model(folder, CLIPModel, config, weights=named_as_clip(weights))
    parts = BiEncoderParts(
        embed_text=TextTower(model.text_model, model.text_projection).eval(),
        embed_image=ImageTower(scale, model.vision_model, model.visual_projection).eval(),
        text=text,
        image=image,
        embedding_dim=fields["embed_dim"],
    )
    modules = parts.embed_text, parts.embed_image
    return described(folder, FAMILY, "CLIPModel", tokenizer, *modules, bi_encoder=parts)


def _with_xlm_roberta(
    folder: PublishedFolder,
    fields: Mapping[str, Any],
    config: Any,  # noqa: ANN401  of transformers
    weights: Mapping[str, Tensor],
    image: ImageRules,
    scale: PixelScale,
) -> PublishedModel:
    from transformers import CLIPVisionModelWithProjection

    of_text = {name: each for name, each in weights.items() if name.startswith("text.")}
    of_image = {
        name: each
        for name, each in weights.items()
        if name not in of_text and name not in ("logit_scale", "logit_bias")
    }
    vision = load_model(
        folder,
        CLIPVisionModelWithProjection,
        config.vision_config,
        weights=named_as_clip(of_image),
    )
    embed_text, vocabulary_size = _xlm_roberta(folder, fields, of_text)
    tokenizer, text = read_text_rules(
        folder,
        vocabulary_size=vocabulary_size,
        position_count=context_length(fields["text_cfg"]),
    )
    parts = BiEncoderParts(
        embed_text=embed_text,
        embed_image=ImageTower(scale, vision.vision_model, vision.visual_projection).eval(),
        text=text,
        image=image,
        embedding_dim=fields["embed_dim"],
    )
    modules = parts.embed_text, parts.embed_image
    return described(
        folder, FAMILY, "CLIPVisionModel, XLMRobertaModel", tokenizer, *modules, bi_encoder=parts
    )


def _xlm_roberta(
    folder: PublishedFolder, fields: Mapping[str, Any], weights: Mapping[str, Tensor]
) -> tuple[nn.Module, int]:
    """Returns the text tower, with the shape of its weights, and the size of its vocabulary."""
    from transformers import XLMRobertaConfig, XLMRobertaModel

    folder.check_served(fields["text_cfg"], {"hf_pooler_type": ("mean_pooler",)})
    encoder = _inside(weights, "text.transformer.")
    xlm_config = read_config(folder, XLMRobertaConfig, _xlm_roberta_fields(encoder))
    model = load_model(
        folder,
        XLMRobertaModel,
        xlm_config,
        weights=encoder,
        options={"add_pooling_layer": False},
    )
    head = _projection(folder, fields, weights, xlm_config.hidden_size)
    return PooledTextTower(model, "mean", head).eval(), xlm_config.vocab_size


def _xlm_roberta_fields(weights: Mapping[str, Tensor]) -> dict[str, Any]:
    layers = {name.split(".")[2] for name in weights if name.startswith("encoder.layer.")}
    words = weights["embeddings.word_embeddings.weight"]
    positions = weights["embeddings.position_embeddings.weight"]
    inner = weights["encoder.layer.0.intermediate.dense.weight"]
    return {
        "vocab_size": words.shape[0],
        "hidden_size": words.shape[1],
        "num_hidden_layers": len(layers),
        "num_attention_heads": max(1, words.shape[1] // _HEAD_WIDTH),
        "intermediate_size": inner.shape[0],
        "max_position_embeddings": positions.shape[0],
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-5,
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
    }


def _projection(
    folder: PublishedFolder,
    fields: Mapping[str, Any],
    weights: Mapping[str, Tensor],
    width: int,
) -> nn.Module:
    """Returns the layers between pooling and embedding; refuses missing and unused weights."""
    kind, dim = fields["text_cfg"].get("hf_proj_type", "mlp"), fields["embed_dim"]
    inner = (width + dim) // 2
    made: Mapping[str, nn.Module] = {
        "linear": nn.Linear(width, dim, bias=False),
        "mlp": nn.Sequential(
            nn.Linear(width, inner, bias=False), nn.GELU(), nn.Linear(inner, dim, bias=False)
        ),
    }
    folder.check_served({"hf_proj_type": kind}, {"hf_proj_type": tuple(made)})
    made[kind].load_state_dict(_inside(weights, "text.proj."))
    return made[kind].requires_grad_(False)


def _inside(weights: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): each for n, each in weights.items() if n.startswith(prefix)}
