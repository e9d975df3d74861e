"""A BLIP of full size with random weights, in the hub's layout.

Its scores mean nothing, and what it computes takes as long as if they did: the sizes are those of
Salesforce/blip-itm-base-coco, 224 million weights.
"""

import json
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
# BERT's; [DEC] and [ENC] come behind them.
_WORD_COUNT = 30_522


def write_blip(folder: Path, seed: int = 0) -> None:
    """Writes weights, configuration, tokenizer and image processor of the base model."""
    from transformers import BlipConfig, BlipForImageTextRetrieval

    folder.mkdir(parents=True, exist_ok=True)
    # Other defaults are the base model's. Weights as small as the default makes them would be
    # lost in float16.
    config = BlipConfig(
        text_config={"num_attention_heads": 12, "sep_token_id": 3},
        vision_config={"initializer_range": 0.02},
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        BlipForImageTextRetrieval(config).save_pretrained(folder)
    _tokenizer().save(str(folder / "tokenizer.json"))
    _write(
        folder / "tokenizer_config.json",
        {"tokenizer_class": "BertTokenizer", "pad_token": "[PAD]", "model_max_length": 512},
    )
    _write(
        folder / "preprocessor_config.json",
        {
            "image_processor_type": "BlipImageProcessor",
            "size": {"height": 384, "width": 384},
            "resample": 3,
            "image_mean": [0.48145466, 0.4578275, 0.40821073],
            "image_std": [0.26862954, 0.26130258, 0.27577711],
        },
    )


def _tokenizer() -> Tokenizer:
    """Returns a WordPiece tokenizer of single letters and made-up words, as many as BERT's."""
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    words = [*_SPECIAL, *letters, *(f"##{letter}" for letter in letters)]
    words += [f"[unused{number}]" for number in range(_WORD_COUNT - len(words))]
    ids = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(list(_SPECIAL))
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def _write(path: Path, fields: dict[str, object]) -> None:
    path.write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")
