"""Random checkpoints of OSCAR, UNITER and M3P in their authors' layouts."""

import json
import math
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from tests.support.modeling.published_folders import WORDS, xlm_r_tokenizer

Weights = dict[str, Tensor]

FEATURE_WIDTH = 12
WIDTH, INNER_WIDTH, LAYER_COUNT, HEAD_COUNT = 128, 96, 2, 2
"""Heads are 64 wide, as M3P's are."""
VOCABULARY = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS, "The", "Cat", *"abcdefgh")
BERT_FIELDS = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYER_COUNT,
    "num_attention_heads": HEAD_COUNT,
    "intermediate_size": INNER_WIDTH,
    "max_position_embeddings": 80,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
}


class Random:
    """Draws weights by a seed; norms are near one, so that no signal dies."""

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)

    def table(self, *shape: int) -> Tensor:
        """Returns numbers of a size that keeps sums near one."""
        return torch.randn(*shape, generator=self._generator) / math.sqrt(shape[-1])

    def linear(self, name: str, into: int, out: int) -> Weights:
        """Returns weight and bias of a linear layer."""
        return {f"{name}.weight": self.table(out, into), f"{name}.bias": self.table(out)}

    def norm(self, name: str, ends: tuple[str, str] = ("weight", "bias")) -> Weights:
        """Returns scale and shift of a layer norm."""
        scale, shift = 1 + 0.3 * self.table(WIDTH), self.table(WIDTH)
        return {f"{name}.{ends[0]}": scale, f"{name}.{ends[1]}": shift}

    def bert(self, ends: tuple[str, str] = ("weight", "bias")) -> Weights:
        """Returns BERT's weights without a prefix."""
        weights = {
            "embeddings.word_embeddings.weight": self.table(len(VOCABULARY), WIDTH),
            "embeddings.position_embeddings.weight": self.table(80, WIDTH),
            "embeddings.token_type_embeddings.weight": self.table(2, WIDTH),
            **self.norm("embeddings.LayerNorm", ends),
            **self.linear("pooler.dense", WIDTH, WIDTH),
        }
        for number in range(LAYER_COUNT):
            layer = f"encoder.layer.{number}"
            for part in ("query", "key", "value"):
                weights |= self.linear(f"{layer}.attention.self.{part}", WIDTH, WIDTH)
            weights |= self.linear(f"{layer}.attention.output.dense", WIDTH, WIDTH)
            weights |= self.linear(f"{layer}.intermediate.dense", WIDTH, INNER_WIDTH)
            weights |= self.linear(f"{layer}.output.dense", INNER_WIDTH, WIDTH)
            weights |= self.norm(f"{layer}.attention.output.LayerNorm", ends)
            weights |= self.norm(f"{layer}.output.LayerNorm", ends)
        return weights


def oscar_weights(seed: int = 0, ends: tuple[str, str] = ("weight", "bias")) -> Weights:
    """Returns a checkpoint that was fine-tuned for retrieval, with a head of pretraining left."""
    random = Random(seed)
    bert = random.bert(ends) | random.linear("img_embedding", FEATURE_WIDTH + 6, WIDTH)
    return {
        **{f"bert.{name}": weight for name, weight in bert.items()},
        "bert.embeddings.position_ids": torch.arange(80)[None],
        **random.linear("classifier", WIDTH, 2),
        **random.linear("cls.seq_relationship", WIDTH, 2),
    }


def uniter_weights(seed: int = 0) -> Weights:
    """Returns a checkpoint of the authors' retrieval training, with both heads."""
    random = Random(seed)
    image = {
        **random.linear("img_embeddings.img_linear", FEATURE_WIDTH, WIDTH),
        **random.norm("img_embeddings.img_layer_norm"),
        **random.linear("img_embeddings.pos_linear", 7, WIDTH),
        **random.norm("img_embeddings.pos_layer_norm"),
        **random.norm("img_embeddings.LayerNorm"),
        "img_embeddings.mask_embedding.weight": random.table(2, FEATURE_WIDTH),
    }
    return {
        **{f"uniter.{name}": weight for name, weight in (random.bert() | image).items()},
        **random.linear("itm_output", WIDTH, 2),
        **random.linear("rank_output", WIDTH, 1),
        **random.linear("cls.predictions.transform.dense", WIDTH, WIDTH),
        **random.linear("feat_regress.net.0", WIDTH, WIDTH),
        **random.linear("region_classifier.net.0", WIDTH, WIDTH),
    }


def m3p_weights(seed: int = 0, vocabulary_size: int = 20) -> Weights:
    """Returns a checkpoint with layers that other tasks need."""
    random = Random(seed)
    weights = {
        "embeddings.weight": random.table(vocabulary_size, WIDTH),
        "position_embeddings.weight": random.table(514, WIDTH),
        **random.norm("layer_norm_emb"),
        **random.linear("image_embeddings.image_embeddings", FEATURE_WIDTH, WIDTH),
        **random.linear("image_embeddings.image_location_embeddings", 5, WIDTH),
        **random.linear("image_embeddings.image_distbution_embeddings", 16, WIDTH),
        **random.norm("image_embeddings.LayerNorm"),
        **random.linear("pooled_layer.dense", WIDTH, WIDTH),
        **random.linear("seq_relationship", WIDTH, 1),
        **random.linear("refine_embeddings.layers.0.feed_forward.lin1", WIDTH, WIDTH),
        **random.linear("mrfr_dense", WIDTH, FEATURE_WIDTH),
    }
    for number in range(LAYER_COUNT):
        for part in ("q_lin", "k_lin", "v_lin", "out_lin"):
            weights |= random.linear(f"attentions.{number}.{part}", WIDTH, WIDTH)
            weights |= random.linear(f"encoder_attn.{number}.{part}", WIDTH, WIDTH)
        weights |= random.linear(f"ffns.{number}.lin1", WIDTH, INNER_WIDTH)
        weights |= random.linear(f"ffns.{number}.lin2", INNER_WIDTH, WIDTH)
        for norm in ("layer_norm1", "layer_norm15", "layer_norm2"):
            weights |= random.norm(f"{norm}.{number}")
    return weights


def write_oscar(folder: Path, weights: Weights, **fields: object) -> Path:
    """Writes a folder as OSCAR's release has it."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(weights, folder / "pytorch_model.bin")
    known = {"img_feature_dim": FEATURE_WIDTH + 6, "img_feature_type": "faster_r-cnn"}
    (folder / "config.json").write_text(json.dumps(BERT_FIELDS | known | fields))
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    return folder


def write_uniter(folder: Path, weights: Weights) -> Path:
    """Writes a folder of UNITER's weights and BERT's cased vocabulary."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(weights, folder / "pytorch_model.bin")
    (folder / "config.json").write_text(json.dumps(BERT_FIELDS))
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    return folder


def write_m3p(folder: Path, weights: Weights) -> Path:
    """Writes a folder of M3P's weights and XLM-R's tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    whole = {f"module.{name}": weight for name, weight in weights.items()}
    torch.save({"model": whole, "epoch": 3}, folder / "m3p_under_weights.pth")
    xlm_r_tokenizer().save(str(folder / "tokenizer.json"))
    return folder


def linear(weights: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    """Returns a linear layer's output."""
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]
