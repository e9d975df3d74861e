"""What transformers itself gives for texts and pictures: the reference of published models."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from tandem.model_io.pictures.image_rules import ImageRules
from tandem.modeling.families.published_model import BiEncoderParts, CrossEncoderParts


@torch.inference_mode()
def library_texts(folder: Path, texts: Sequence[str]) -> NDArray[np.float32]:
    """Returns unit vectors, float32 [B, d], by the library's tokenizer and whole model.

    As each model's page says: a CLIP's texts padded together with a mask, a SigLIP's to 64 without.
    """
    from transformers import AutoModel

    model = AutoModel.from_pretrained(folder).eval()
    is_siglip = model.config.model_type == "siglip"
    rows = []
    for start in range(0, len(texts), 20):
        inputs = _tokenizer(folder, is_siglip)(
            list(texts[start : start + 20]),
            padding="max_length" if is_siglip else True,
            truncation=True,
            max_length=64 if is_siglip else 77,
            return_tensors="pt",
        )
        mask = None if is_siglip else inputs["attention_mask"]
        told = model.get_text_features(input_ids=inputs["input_ids"], attention_mask=mask)
        rows.append(torch.nn.functional.normalize(told.pooler_output, dim=-1))
    return torch.cat(rows).numpy()


@torch.inference_mode()
def library_pictures(folder: Path, pictures: Sequence[Image.Image]) -> NDArray[np.float32]:
    """Returns unit vectors, float32 [B, d], by the library's image processor and whole model."""
    from transformers import AutoImageProcessor, AutoModel

    model = AutoModel.from_pretrained(folder).eval()
    inputs = AutoImageProcessor.from_pretrained(folder)(images=list(pictures), return_tensors="pt")
    told = model.get_image_features(pixel_values=inputs["pixel_values"])
    return torch.nn.functional.normalize(told.pooler_output, dim=-1).numpy()


def _tokenizer(folder: Path, is_siglip: bool) -> Any:
    from transformers import AutoTokenizer, PreTrainedTokenizerFast, Siglip2Tokenizer

    config = (folder / "tokenizer_config.json").read_text(encoding="utf-8")
    if "GemmaTokenizer" in config:
        # What transformers takes for a SigLIP 2; the hub's files name Gemma's.
        return Siglip2Tokenizer.from_pretrained(folder)
    if is_siglip:  # its own class reads spiece.model, by a library that is not here
        return PreTrainedTokenizerFast(
            tokenizer_file=str(folder / "tokenizer.json"), pad_token="</s>"
        )
    return AutoTokenizer.from_pretrained(folder)


def pixel_rules(parts: BiEncoderParts | CrossEncoderParts) -> ImageRules:
    """Returns the rules of the pixels that a model reads."""
    assert isinstance(parts.image, ImageRules)
    return parts.image
