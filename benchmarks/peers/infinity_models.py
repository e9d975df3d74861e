"""Writes the small models that `bench_infinity.py` compares on; runs in infinity-emb's environment.

    python infinity_models.py FOLDER TOKENIZER_JSON

A BERT of MiniLM's size (6 layers of 384) with random weights, as a text encoder with mean pooling;
the same with a classifier on top, as a cross-encoder; and a CLIP whose image side is a vision
transformer of that size over 7 x 7 patches of 16 pixels.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    CLIPConfig,
    CLIPImageProcessor,
    CLIPModel,
    CLIPProcessor,
    CLIPTokenizerFast,
    PreTrainedTokenizerFast,
)
from transformers.models.clip.tokenization_clip import bytes_to_unicode

WIDTH, LAYERS, HEADS = 384, 6, 12
IMAGE_SIZE, PATCH_SIZE = 112, 16
MAX_TOKENS = 128


def main(folder: Path, tokenizer_path: Path) -> None:
    """Writes text_encoder, cross_encoder and image_encoder."""
    torch.manual_seed(0)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(tokenizer_path),
        model_max_length=MAX_TOKENS,
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        unk_token="[UNK]",
    )
    shape = {
        "vocab_size": len(tokenizer),
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": 4 * WIDTH,
        "max_position_embeddings": MAX_TOKENS,
        "layer_norm_eps": 1e-12,
        "pad_token_id": tokenizer.pad_token_id,
    }
    _save(BertModel(BertConfig(**shape)), tokenizer, folder / "text_encoder")
    _write_pooling(folder / "text_encoder")
    cross_encoder = BertForSequenceClassification(BertConfig(**shape, num_labels=1))
    _save(cross_encoder, tokenizer, folder / "cross_encoder")
    _write_clip(folder / "image_encoder")


def _save(model: torch.nn.Module, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _write_pooling(folder: Path) -> None:
    """Says that an embedding is the mean over a text's tokens, of unit length, as ours is."""
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {
            "idx": 1,
            "name": "1",
            "path": "1_Pooling",
            "type": "sentence_transformers.models.Pooling",
        },
        {
            "idx": 2,
            "name": "2",
            "path": "2_Normalize",
            "type": "sentence_transformers.models.Normalize",
        },
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    for name in ("1_Pooling", "2_Normalize"):
        (folder / name).mkdir()
    pooling = {"word_embedding_dimension": WIDTH, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))


def _write_clip(folder: Path) -> None:
    folder.mkdir(parents=True)
    letters = list(bytes_to_unicode().values())
    words = [*letters, *(f"{letter}</w>" for letter in letters)]
    words += ["<|startoftext|>", "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({word: n for n, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    tokenizer = CLIPTokenizerFast(
        str(folder / "vocab.json"), str(folder / "merges.txt"), model_max_length=32
    )
    layers = {"num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
    sizes = {"hidden_size": WIDTH, "intermediate_size": 4 * WIDTH, "projection_dim": WIDTH}
    config = CLIPConfig(
        text_config={
            "vocab_size": len(words),
            "max_position_embeddings": 32,
            "eos_token_id": len(words) - 1,
            "bos_token_id": len(words) - 2,
            **layers,
            **sizes,
        },
        vision_config={"image_size": IMAGE_SIZE, "patch_size": PATCH_SIZE, **layers, **sizes},
        projection_dim=WIDTH,
    )
    CLIPModel(config).save_pretrained(folder)
    size = {"height": IMAGE_SIZE, "width": IMAGE_SIZE}
    images = CLIPImageProcessor(size={"shortest_edge": IMAGE_SIZE}, crop_size=size)
    CLIPProcessor(images, tokenizer).save_pretrained(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
