"""A SigLIP of full size with random weights, in the hub's layout.

Its embeddings mean nothing, and what it computes takes as long as if they did: the sizes are those
of google/siglip-base-patch16-224, 203 million weights.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

VOCABULARY_SIZE = 32_000
_PADDING, _UNKNOWN = "</s>", "<unk>"
_LONGEST_PIECE = 6


def write_siglip(folder: Path, seed: int = 0) -> None:
    """Writes weights, configuration, tokenizer and image processor of the base model."""
    from transformers import SiglipConfig, SiglipModel

    folder.mkdir(parents=True, exist_ok=True)
    # Both parts' defaults are the base model's.
    config = SiglipConfig(text_config={"vocab_size": VOCABULARY_SIZE}, vision_config={})
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        SiglipModel(config).save_pretrained(folder)
    random_tokenizer(seed).save(str(folder / "tokenizer.json"))
    _write(
        folder / "tokenizer_config.json",
        {"tokenizer_class": "SiglipTokenizer", "pad_token": _PADDING, "model_max_length": 64},
    )
    _write(
        folder / "preprocessor_config.json",
        {
            "image_processor_type": "SiglipImageProcessor",
            "size": {"height": 224, "width": 224},
            "resample": 3,
            "image_mean": [0.5, 0.5, 0.5],
            "image_std": [0.5, 0.5, 0.5],
        },
    )


def random_tokenizer(seed: int) -> Tokenizer:
    """Returns a tokenizer of random pieces, as many as SigLIP's, that splits any text."""
    random = np.random.default_rng(seed)
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    pieces = dict.fromkeys([*letters, *(f"▁{letter}" for letter in letters), "▁"])
    while len(pieces) < VOCABULARY_SIZE - 3:
        codes = random.integers(ord("a"), ord("z") + 1, _LONGEST_PIECE, dtype=np.uint8)
        word = bytes(codes[: random.integers(2, _LONGEST_PIECE + 1)]).decode()
        pieces[word if len(pieces) % 2 else f"▁{word}"] = None
    scored = [(each, 0.0) for each in ("<pad>", _PADDING, _UNKNOWN)]
    scored += [(piece, -float(number) / 1000 - 1) for number, piece in enumerate(pieces)]
    tokenizer = Tokenizer(models.Unigram(scored, unk_id=2))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Lowercase(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens(["<pad>", _PADDING, _UNKNOWN])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {_PADDING}", special_tokens=[(_PADDING, 1)]
    )
    return tokenizer


def _write(path: Path, fields: dict[str, Any]) -> None:
    path.write_text(json.dumps(fields, indent=2), encoding="utf-8")
