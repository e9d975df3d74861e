"""Two small checkpoints that fit together, as a BE and the CE that began with it."""

from pathlib import Path

from tandem.modeling.checkpoint import save_checkpoint
from tandem.modeling.config import Encoder
from tests.support.modeling.tiny_checkpoint import TEXTS, tiny_model, tiny_tokenizer


def save_be_and_ce(
    folder: Path, encoder: Encoder = "pre_norm", texts: tuple[str, ...] = TEXTS
) -> tuple[Path, Path]:
    """Writes both; returns their folders. They share backbone and tokenizer, and no encoder."""
    tokenizer = tiny_tokenizer(texts)
    models = [tiny_model(seed, tokenizer.get_vocab_size(), encoder) for seed in (1, 2)]
    models[1].image_backbone.load_state_dict(models[0].image_backbone.state_dict())
    folders = (folder / "be", folder / "ce")
    for path, model in zip(folders, models, strict=True):
        save_checkpoint(path, model, tokenizer, {"recipe": {"name": path.name, "seed": 1}})
    return folders
