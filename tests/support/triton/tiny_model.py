"""A joint model small enough to export and serve in seconds; its weights are random."""

from pathlib import Path

import torch

from tandem.lab.training.data.caption_tokenizer import train_tokenizer
from tandem.modeling.checkpoint import save_checkpoint
from tandem.modeling.config import JointConfig
from tandem.modeling.joint_model import JointModel

CONFIG = JointConfig(vocabulary_size=200, width=32, layer_count=1, head_count=2)
SENTENCES = (
    "two dogs left of one umbrella",
    "a red cat above three blue cars",
    "one green tree right of four yellow stars",
)


def save_tiny_checkpoint(folder: Path) -> Path:
    """Writes a checkpoint of the same random weights each time; returns `folder`."""
    torch.manual_seed(20)
    tokenizer = train_tokenizer(SENTENCES, CONFIG.vocabulary_size)
    save_checkpoint(folder, JointModel(CONFIG), tokenizer, {})
    return folder
