"""Untrained models of the zoo, small enough to make and to compute by hand in a moment."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tandem.lab.zoo.checkpoint import save_zoo_checkpoint
from tandem.lab.zoo.config import TextReader, ZooConfig, ZooName
from tandem.lab.zoo.network import ZooNetwork
from tandem.lab.zoo.zoo_model import NETWORKS, ZooModel
from tandem.modeling.config import JointConfig
from tests.support.modeling.tiny_checkpoint import TEXTS, tiny_tokenizer

REGION_COUNT = 4
WIDTH = 16
VOCABULARY_SIZE = 30
_TOKEN_WIDTH = 6


def tiny_config(model: ZooName, *, text_reader: TextReader = "gru", **inputs: Any) -> ZooConfig:
    fields: dict[str, Any] = {
        "vocabulary_size": VOCABULARY_SIZE,
        "width": 8,
        "layer_count": 1,
        "head_count": 2,
        "image_size": 32,
        "grid_width": _TOKEN_WIDTH,
    }
    return ZooConfig(
        model=model,
        inputs=JointConfig(**(fields | inputs)),
        text_reader=text_reader,
        width=WIDTH,
        word_width=5,
    )


def tiny_network(model: ZooName, seed: int = 0, text_reader: TextReader = "gru") -> ZooNetwork:
    """Returns a network in evaluation mode whose weights are drawn from the seed."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return NETWORKS[model](tiny_config(model, text_reader=text_reader)).eval()


def tiny_texts(count: int = 3, length: int = 5, seed: int = 1) -> tuple[Tensor, Tensor]:
    """Returns random ids and a mask, int64 [B, T]: the first text is whole, later ones shorter."""
    generator = torch.Generator().manual_seed(seed)
    ids_BT = torch.randint(1, VOCABULARY_SIZE, (count, length), generator=generator)
    lengths_B1 = (length - torch.arange(count) % (length - 1))[:, None]
    return ids_BT, (torch.arange(length) < lengths_B1).long()


def tiny_tokens(count: int = 3, region_count: int = REGION_COUNT, seed: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, region_count, _TOKEN_WIDTH, generator=generator).half()


def all_regions(tokens_BRI: Tensor) -> Tensor:
    return torch.ones(tokens_BRI.shape[:2], dtype=torch.int64)


def save_tiny_zoo(folder: Path, model: ZooName, seed: int = 0, **inputs: Any) -> ZooModel:
    """Writes a checkpoint and returns the model as it was before it was rounded."""
    tokenizer = tiny_tokenizer(TEXTS)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        count = tokenizer.get_vocab_size()
        made = ZooModel(tiny_config(model, vocabulary_size=count, **inputs)).eval()
    save_zoo_checkpoint(folder, made, tokenizer, {"recipe": {"name": "untrained", "seed": seed}})
    return made
