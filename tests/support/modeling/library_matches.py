"""What transformers itself gives for a text and a picture: the reference of cross-encoders."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor


@torch.inference_mode()
def blip_matches(
    folder: Path, texts: Sequence[str], files: Sequence[bytes], first_id: int
) -> NDArray[np.float32]:
    """Returns the logits of texts and pictures [texts, pictures], pairs beginning with `first_id`.

    By the library's tokenizer, image processor and whole model.
    """
    model, ids, mask = _model_and_rows(folder, texts)
    ids[:, 0] = first_id
    columns = []
    for pixels in _pixels(folder, files).split(1):
        pictures = pixels.expand(len(texts), -1, -1, -1)
        logits = model(input_ids=ids, attention_mask=mask, pixel_values=pictures).itm_score
        columns.append(logits[:, 1] - logits[:, 0])
    return torch.stack(columns, dim=1).numpy()


@torch.inference_mode()
def blip_similarities(
    folder: Path, texts: Sequence[str], files: Sequence[bytes]
) -> NDArray[np.float32]:
    """Returns the similarities of texts and pictures [texts, pictures]."""
    model, ids, mask = _model_and_rows(folder, texts)
    pixels = _pixels(folder, files)
    told = model(input_ids=ids, attention_mask=mask, pixel_values=pixels, use_itm_head=False)
    return np.asarray(told.itm_score.T)


@torch.inference_mode()
def pair_matches(
    folder: Path, kind: str, texts: Sequence[str], files: Sequence[bytes]
) -> NDArray[np.float32]:
    """Returns the logits [texts, pictures] of BLIP-2's and ViLT's classes for retrieval."""
    model, ids, mask = _model_and_rows(folder, texts, kind)
    options = {"use_image_text_matching_head": True} if kind.startswith("Blip2") else {}
    columns = []
    for pixels in _pixels(folder, files).split(1):
        pictures = pixels.expand(len(texts), -1, -1, -1)
        made = model(input_ids=ids, attention_mask=mask, pixel_values=pictures, **options)
        logits = made.logits_per_image if options else made.logits
        columns.append(logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits[:, 0])
    return torch.stack(columns, dim=1).numpy()


def _model_and_rows(
    folder: Path, texts: Sequence[str], kind: str = "BlipForImageTextRetrieval"
) -> tuple[Any, Tensor, Tensor]:
    import transformers

    tokenizer = transformers.BertTokenizer.from_pretrained(folder)
    rows = tokenizer(list(texts), padding=True, return_tensors="pt")
    model = getattr(transformers, kind).from_pretrained(folder).eval()
    return model, rows["input_ids"], rows["attention_mask"]


def _pixels(folder: Path, files: Sequence[bytes]) -> Tensor:
    from transformers import AutoImageProcessor

    processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
    pictures = [Image.open(io.BytesIO(file)).convert("RGB") for file in files]
    return torch.cat([processor(each, return_tensors="pt")["pixel_values"] for each in pictures])
