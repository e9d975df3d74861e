"""Folders as others publish encoders: made here with transformers, tiny and random.

Each function imports transformers itself, which takes three seconds: every worker collects every
test, and few run these.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

if TYPE_CHECKING:
    from transformers import BertConfig, BertModel, XLMRobertaConfig, XLMRobertaModel

Model = TypeVar("Model", "BertModel", "XLMRobertaModel")

WORDS = ("two", "dogs", "left", "of", "one", "umbrella", "cat", "##s")


def published_bert(
    folder: Path, *, width: int = 32, layer_count: int = 3, head_count: int = 4, type_count: int = 2
) -> BertModel:
    """Writes a BERT and returns it in evaluation mode."""
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=20,
        hidden_size=width,
        num_hidden_layers=layer_count,
        num_attention_heads=head_count,
        intermediate_size=3 * width,
        max_position_embeddings=80,
        type_vocab_size=type_count,
        layer_norm_eps=1e-12,
    )
    return _saved(BertModel, config, bert_tokenizer(), folder)


def published_xlm_r(folder: Path) -> XLMRobertaModel:
    """Writes an XLM-R, whose padding is 1 and whose positions begin at 2; returns it."""
    from transformers import XLMRobertaConfig, XLMRobertaModel

    config = XLMRobertaConfig(
        vocab_size=20,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=82,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
    )
    return _saved(XLMRobertaModel, config, xlm_r_tokenizer(), folder)


def bert_tokenizer() -> Tokenizer:
    """Returns a lower-casing WordPiece tokenizer whose file asks for padding, as MiniLM's does."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS]
    tokenizer = Tokenizer(
        models.WordPiece({word: number for number, word in enumerate(words)}, unk_token="[UNK]")
    )
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(words[:4])
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.enable_padding(length=40, pad_id=0, pad_token="[PAD]")
    tokenizer.enable_truncation(40)
    return tokenizer


def xlm_r_tokenizer() -> Tokenizer:
    """Returns a Unigram tokenizer with XLM-R's special tokens and their ids."""
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    pieces = [*special, "▁", *(f"▁{word}" for word in WORDS[:-1]), "s"]
    tokenizer = Tokenizer(models.Unigram([(piece, -2.0) for piece in pieces], unk_id=3))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens(special)
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", 2), ("<s>", 0), add_prefix_space=False
    )
    return tokenizer


def _saved(
    kind: type[Model], config: BertConfig | XLMRobertaConfig, tokenizer: Tokenizer, folder: Path
) -> Model:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = kind(config).eval()  # type: ignore[arg-type]
        # Published biases and norms are not at the zeros and ones that a fresh model has.
        for parameter in model.parameters():
            parameter.data += 0.1 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    return model
