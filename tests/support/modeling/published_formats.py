"""Folders in open_clip's and sentence-transformers' formats: made here, tiny and random."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from tests.support.modeling.published_folders import bert_tokenizer
from tests.support.modeling.published_pairs import (
    SIZE,
    clip_tokenizer,
    published_clip,
    write_card,
    write_json,
    write_tokenizer,
    xlm_tokenizer,
)

if TYPE_CHECKING:
    from transformers import CLIPModel, DistilBertModel, XLMRobertaModel

WIDTH, DIM = 32, 24
VISION = {"image_size": SIZE, "layers": 2, "width": WIDTH, "patch_size": 8, "head_width": 8}
_ACTIVATION = "torch.nn.modules.linear.Identity"


def published_open_clip(folder: Path, twin: Path, *, has_text_class: bool = False) -> CLIPModel:
    """Writes a CLIP in open_clip's format, and in that of transformers as its `twin`.

    The names are those that open_clip 3.3 gives to the weights of CLIP, and of CustomTextCLIP.
    """
    model = published_clip(twin, end_id=2)
    prefix = "text." if has_text_class else ""
    weights = _open_clip_names(model.state_dict(), prefix)
    save_file(weights, folder / "open_clip_model.safetensors")
    tokenizer = clip_tokenizer()
    vocabulary_size = model.config.text_config.vocab_size
    text = {"context_length": 77, "vocab_size": vocabulary_size, "width": WIDTH, "layers": 2}
    write_json(
        folder / "open_clip_config.json",
        {
            "model_cfg": {
                "embed_dim": DIM,
                "quick_gelu": True,
                "vision_cfg": VISION | {"mlp_ratio": 1.5},
                "text_cfg": text | {"heads": 4, "mlp_ratio": 1.5},
            },
            "preprocess_cfg": {"interpolation": "bicubic", "resize_mode": "shortest"},
        },
    )
    write_tokenizer(folder, tokenizer, "CLIPTokenizer", pad="<|endoftext|>", length=77)
    write_card(folder, "mit")
    return model


def published_open_clip_xlm_roberta(folder: Path) -> tuple[XLMRobertaModel, nn.Module]:
    """Writes a CLIP of open_clip whose text tower is an XLM-R; returns that and its projection."""
    from transformers import XLMRobertaConfig, XLMRobertaModel

    tokenizer = xlm_tokenizer()
    config = XLMRobertaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=96,
        max_position_embeddings=130,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        pad_token_id=1,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = XLMRobertaModel(config, add_pooling_layer=False).eval()
        inner = (128 + DIM) // 2
        projection = nn.Sequential(
            nn.Linear(128, inner, bias=False), nn.GELU(), nn.Linear(inner, DIM, bias=False)
        )
    twin = folder / "twin"
    twin.mkdir()
    clip = published_clip(twin, act="gelu")
    weights = {
        name: each
        for name, each in _open_clip_names(clip.state_dict(), "").items()
        if name.startswith("visual.") or name == "logit_scale"
    }
    weights |= {f"text.transformer.{name}": each for name, each in model.state_dict().items()}
    weights |= {f"text.proj.{name}": each for name, each in projection.state_dict().items()}
    torch.save(weights, folder / "open_clip_pytorch_model.bin")
    text = {"hf_model_name": "xlm-roberta-base", "hf_tokenizer_name": "xlm-roberta-base"}
    text |= {"hf_proj_type": "mlp", "hf_pooler_type": "mean_pooler"}
    write_json(
        folder / "open_clip_config.json",
        {
            "model_cfg": {
                "embed_dim": DIM,
                "vision_cfg": VISION | {"mlp_ratio": 1.5},
                "text_cfg": text,
            }
        },
    )
    write_tokenizer(folder, tokenizer, "XLMRobertaTokenizer", pad="<pad>", length=512)
    write_card(folder, "mit")
    return model, projection


def published_text_tower(folder: Path) -> tuple[DistilBertModel, nn.Linear]:
    """Writes a DistilBERT, a mean pooling and a layer, as clip-ViT-B-32-multilingual-v1 is."""
    from transformers import DistilBertConfig, DistilBertModel

    tokenizer = bert_tokenizer()
    config = DistilBertConfig(
        vocab_size=tokenizer.get_vocab_size(),
        dim=WIDTH,
        n_layers=2,
        n_heads=4,
        hidden_dim=48,
        max_position_embeddings=80,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = DistilBertModel(config).eval()
        for parameter in model.parameters():
            parameter.data += 0.1 * torch.randn_like(parameter)
        layer = nn.Linear(WIDTH, DIM, bias=False)
    model.save_pretrained(folder)
    write_tokenizer(folder, tokenizer, "DistilBertTokenizer", pad="[PAD]", length=40)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 40, "do_lower_case": False})
    for name in ("1_Pooling", "2_Dense"):
        (folder / name).mkdir()
    write_json(
        folder / "1_Pooling" / "config.json",
        {"word_embedding_dimension": WIDTH, "pooling_mode_mean_tokens": True},
    )
    dense = {"in_features": WIDTH, "out_features": DIM, "bias": False}
    write_json(folder / "2_Dense" / "config.json", dense | {"activation_function": _ACTIVATION})
    torch.save({"linear.weight": layer.weight.detach()}, folder / "2_Dense" / "pytorch_model.bin")
    package = "sentence_transformers.models"
    write_modules(
        folder,
        [
            {"idx": 0, "name": "0", "path": "", "type": f"{package}.Transformer"},
            {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{package}.Pooling"},
            {"idx": 2, "name": "2", "path": "2_Dense", "type": f"{package}.Dense"},
        ],
    )
    write_card(folder, "apache-2.0")
    return model, layer


def write_modules(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Writes modules.json."""
    (folder / "modules.json").write_text(json.dumps(rows), encoding="utf-8")


def _open_clip_names(weights: dict[str, Tensor], text_prefix: str) -> dict[str, Tensor]:
    named = {"logit_scale": weights["logit_scale"]}
    for side, prefix in (("text", text_prefix), ("vision", "visual.")):
        inner = f"{side}_model.encoder.layers."
        for number in range(2):
            layer, own = f"{inner}{number}.", f"{prefix}transformer.resblocks.{number}."
            for end in ("weight", "bias"):
                named[f"{own}attn.in_proj_{end}"] = torch.cat(
                    [weights[f"{layer}self_attn.{part}_proj.{end}"] for part in "qkv"]
                )
                for part, own_part in (
                    ("self_attn.out_proj", "attn.out_proj"),
                    ("layer_norm1", "ln_1"),
                    ("layer_norm2", "ln_2"),
                    ("mlp.fc1", "mlp.c_fc"),
                    ("mlp.fc2", "mlp.c_proj"),
                ):
                    named[f"{own}{own_part}.{end}"] = weights[f"{layer}{part}.{end}"]
    text, vision = "text_model.embeddings", "vision_model.embeddings"
    named |= {
        f"{text_prefix}token_embedding.weight": weights[f"{text}.token_embedding.weight"],
        f"{text_prefix}positional_embedding": weights[f"{text}.position_embedding.weight"],
        f"{text_prefix}text_projection": weights["text_projection.weight"].t().contiguous(),
        "visual.class_embedding": weights[f"{vision}.class_embedding"],
        "visual.positional_embedding": weights[f"{vision}.position_embedding.weight"],
        "visual.conv1.weight": weights[f"{vision}.patch_embedding.weight"],
        "visual.proj": weights["visual_projection.weight"].t().contiguous(),
    }
    for end in ("weight", "bias"):
        named[f"{text_prefix}ln_final.{end}"] = weights[f"text_model.final_layer_norm.{end}"]
        named[f"visual.ln_pre.{end}"] = weights[f"vision_model.pre_layrnorm.{end}"]
        named[f"visual.ln_post.{end}"] = weights[f"vision_model.post_layernorm.{end}"]
    return named
