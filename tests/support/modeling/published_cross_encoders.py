"""Folders as others publish cross-encoders: made here with transformers, tiny and random.

Each function imports transformers itself, which takes three seconds: every worker collects every
test, and few run these.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from tests.support.modeling.published_folders import WORDS, bert_tokenizer
from tests.support.modeling.published_pairs import SIZE, write_card, write_json, write_tokenizer

if TYPE_CHECKING:
    from transformers import (
        Blip2ForImageTextRetrieval,
        BlipForImageTextRetrieval,
        PreTrainedModel,
        ViltForImageAndTextRetrieval,
        VisualBertForPreTraining,
    )

Model = TypeVar("Model", bound="PreTrainedModel")

WORD_COUNT = 4 + len(WORDS)
MEAN = [0.48, 0.46, 0.41]
STD = [0.27, 0.26, 0.28]

_TOWER: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
_INNER: dict[str, Any] = {"intermediate_size": 48}
_PICTURE: dict[str, Any] = {"image_size": SIZE, "patch_size": 8}


def published_blip(folder: Path, *, size: int = SIZE) -> BlipForImageTextRetrieval:
    """Writes a BLIP, whose vocabulary has [DEC] and [ENC] behind the tokenizer's words."""
    from transformers import BlipConfig, BlipForImageTextRetrieval

    text = {
        "vocab_size": WORD_COUNT + 2,
        "bos_token_id": WORD_COUNT,
        "max_position_embeddings": 64,
        "sep_token_id": 3,
        "encoder_hidden_size": 32,
    }
    config = BlipConfig(
        text_config={**_TOWER, **_INNER, **text},
        vision_config={**_TOWER, **_INNER, **_PICTURE, "image_size": size},
        image_text_hidden_size=16,
    )
    model = _saved(BlipForImageTextRetrieval, config, folder)
    write_json(folder / "preprocessor_config.json", _squash("BlipImageProcessor", size))
    return model


def published_blip2(folder: Path) -> Blip2ForImageTextRetrieval:
    """Writes a BLIP-2 of 5 queries."""
    from transformers import Blip2Config, Blip2ForImageTextRetrieval

    reader = {
        "vocab_size": WORD_COUNT + 1,
        "encoder_hidden_size": 40,
        "max_position_embeddings": 64,
        "use_qformer_text_input": True,
        "cross_attention_frequency": 1,
    }
    vision = {"hidden_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = Blip2Config(
        qformer_config={**_TOWER, **_INNER, **reader},
        vision_config={**vision, **_INNER, **_PICTURE},
        text_config={
            "model_type": "opt",
            "vocab_size": 20,
            "hidden_size": 16,
            "ffn_dim": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "word_embed_proj_dim": 16,
        },
        num_query_tokens=5,
        image_text_hidden_size=16,
        image_token_index=None,
    )
    model = _saved(Blip2ForImageTextRetrieval, config, folder)
    write_json(folder / "preprocessor_config.json", _squash("BlipImageProcessor"))
    return model


def published_vilt(folder: Path) -> ViltForImageAndTextRetrieval:
    """Writes a ViLT of 16 patches."""
    from transformers import ViltConfig, ViltForImageAndTextRetrieval

    config = ViltConfig(
        **_TOWER, **_INNER, **_PICTURE, vocab_size=WORD_COUNT, max_position_embeddings=40
    )
    model = _saved(ViltForImageAndTextRetrieval, config, folder)
    fields = {**_squash("ViltImageProcessor"), "size": {"shortest_edge": SIZE}, "size_divisor": 8}
    write_json(folder / "preprocessor_config.json", fields)
    return model


def published_visual_bert(folder: Path) -> VisualBertForPreTraining:
    """Writes a VisualBERT whose regions have 24 features."""
    from transformers import VisualBertConfig, VisualBertForPreTraining

    config = VisualBertConfig(
        **_TOWER,
        **_INNER,
        vocab_size=WORD_COUNT,
        max_position_embeddings=64,
        visual_embedding_dim=24,
    )
    return _saved(VisualBertForPreTraining, config, folder)


def _saved(kind: type[Model], config: Any, folder: Path) -> Model:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = kind(config).eval()
        # Published biases, norms and positions are not at the zeros and ones of a fresh model.
        for parameter in model.parameters():
            parameter.data += 0.1 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    write_tokenizer(folder, bert_tokenizer(), "BertTokenizer", pad="[PAD]", length=512)
    write_card(folder, "bsd-3-clause")
    return model


def _squash(name: str, size: int = SIZE) -> dict[str, Any]:
    return {
        "image_processor_type": name,
        "do_resize": True,
        "size": {"height": size, "width": size},
        "resample": 3,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": MEAN,
        "image_std": STD,
        "do_convert_rgb": True,
    }
