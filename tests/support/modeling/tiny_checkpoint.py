"""An untrained model small enough to make, save and export in a moment."""

from pathlib import Path

import torch
from tokenizers import Tokenizer

from tandem.lab.training.data.caption_tokenizer import train_tokenizer
from tandem.modeling.checkpoint import save_checkpoint
from tandem.modeling.config import Encoder, JointConfig
from tandem.modeling.joint_model import JointModel

TEXTS = ("two dogs left of one umbrella", "drei Katzen oben", "dvě kočky dole")


def tiny_tokenizer(texts: tuple[str, ...] = TEXTS) -> Tokenizer:
    """Returns a tokenizer that knows these texts' words."""
    return train_tokenizer(texts, vocabulary_size=100)


def tiny_model(
    seed: int = 0,
    vocabulary_size: int = 60,
    encoder: Encoder = "pre_norm",
    image_size: int = 112,
) -> JointModel:
    """Returns a model in evaluation mode whose weights are drawn from the seed."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = JointConfig(
            vocabulary_size=vocabulary_size,
            width=16,
            layer_count=2,
            head_count=2,
            encoder=encoder,
            image_size=image_size,
        )
        return JointModel(config).eval()


def save_tiny_checkpoint(
    folder: Path,
    seed: int = 0,
    texts: tuple[str, ...] = TEXTS,
    encoder: Encoder = "pre_norm",
    image_size: int = 112,
) -> JointModel:
    """Writes a checkpoint and returns the model as it was before it was rounded."""
    tokenizer = tiny_tokenizer(texts)
    model = tiny_model(seed, tokenizer.get_vocab_size(), encoder, image_size)
    save_checkpoint(folder, model, tokenizer, {"recipe": {"name": "untrained", "seed": seed}})
    return model
