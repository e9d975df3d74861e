"""From a picture's file and a text to the numbers that transformers' own classes give.

The library's side is its processor, its tokenizer and its forward; ours the rules and the parts.
"""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from tandem.model_io.pictures.image import decode_image
from tandem.model_io.pictures.image_rules import ImageRules
from tandem.model_io.texts.text_rules import TextRules
from tandem.modeling.families.published_model import PublishedModel
from tandem.modeling.families.reader import read_published_model
from tests.support.modeling.library_embeddings import pixel_rules
from tests.support.modeling.published_cross_encoders import WORD_COUNT

Published = Callable[[str], Path]

TEXTS = ("two dogs", "one umbrella left of two cats", "")


@pytest.mark.parametrize("name", ["blip", "blip-2", "vilt"])
def test_pixels_and_ids_are_those_of_the_library(published: Published, name: str) -> None:
    model = read_published_model(published(name))
    parts = model.cross_encoder
    assert parts is not None
    scale = _image_part(model).scale
    files = [_png(width, height) for width, height in ((32, 32), (90, 90), (47, 47))]
    if name != "vilt":  # whose own processor keeps the shape
        files += [_png(70, 33), _png(20, 61)]

    for file in files:
        wanted = _library_pixels(published(name), file)
        assert torch.allclose(scale(_pixels(file, pixel_rules(parts))), wanted, atol=1e-5)
    ids, mask = _rows(model, parts.text)
    library = _library_rows(published(name))
    library_ids = library["input_ids"]
    if parts.text.first_id is not None:
        library_ids[:, 0] = parts.text.first_id
    assert torch.equal(ids, library_ids)
    assert torch.equal(mask, library["attention_mask"])


@torch.inference_mode()
def test_blip_embeds_as_transformers_does(published: Published) -> None:
    model, library = _both(published("blip"))
    parts = model.bi_encoder
    assert parts is not None
    files = [_png(70, 33), _png(32, 32)]
    pixels = torch.cat([_pixels(file, pixel_rules(parts)) for file in files])

    image, _ = parts.embed_image(pixels)
    text = parts.embed_text(*_rows(model, parts.text))

    wanted = library(
        **_library_rows(published("blip")),
        pixel_values=torch.cat([_library_pixels(published("blip"), file) for file in files]),
        use_itm_head=False,
    ).itm_score
    assert torch.allclose(image @ text.T, wanted, atol=1e-5)
    assert torch.allclose(image.norm(dim=1), torch.ones(2))
    assert (wanted[0] - wanted[1]).abs().min() > 1e-3


@torch.inference_mode()
def test_blip_scores_a_pair_as_its_authors_do(published: Published) -> None:
    """With [ENC] for [CLS], as train_retrieval.py of salesforce/BLIP; no other row will do."""
    model, library = _both(published("blip"))
    parts = model.cross_encoder
    assert parts is not None
    assert parts.text.first_id == WORD_COUNT + 1
    file = _png(70, 33)
    score = _scores(model, file)

    rows = _library_rows(published("blip"))
    pixels = _library_pixels(published("blip"), file).expand(len(TEXTS), -1, -1, -1)
    wanted = {}
    for name, first_id in (("[CLS]", 2), ("[DEC]", WORD_COUNT), ("[ENC]", WORD_COUNT + 1)):
        rows["input_ids"][:, 0] = first_id
        logits = library(**rows, pixel_values=pixels).itm_score
        wanted[name] = logits[:, 1] - logits[:, 0]

    # Tokens are kept in float16.
    assert torch.allclose(score, wanted["[ENC]"], atol=1e-3)
    assert (score - wanted["[CLS]"]).abs().min() > 5e-3
    assert (score - wanted["[DEC]"]).abs().min() > 5e-3


@torch.inference_mode()
def test_blip2_scores_a_pair_as_transformers_does(published: Published) -> None:
    model, library = _both(published("blip-2"))
    file = _png(70, 33)

    logits = library(
        **_library_rows(published("blip-2")),
        pixel_values=_library_pixels(published("blip-2"), file).expand(len(TEXTS), -1, -1, -1),
        use_image_text_matching_head=True,
    ).logits_per_image

    assert torch.allclose(_scores(model, file), logits[:, 1] - logits[:, 0], atol=1e-3)


def test_blip2_has_no_bi_encoder_and_says_why(published: Published) -> None:
    model = read_published_model(published("blip-2"))

    assert model.bi_encoder is None
    assert "5 query vectors" in model.notes[0]


@torch.inference_mode()
def test_vilt_scores_a_square_as_transformers_does(published: Published) -> None:
    """The library draws patches at random, here all of them in a random order."""
    model, library = _both(published("vilt"))
    file = _png(32, 32)
    rows = _library_rows(published("vilt"))
    pixels = _library_pixels(published("vilt"), file).expand(len(TEXTS), -1, -1, -1)

    wanted = library(**rows, pixel_values=pixels).logits[:, 0]

    score = _scores(model, file)
    assert torch.allclose(score, wanted, atol=1e-3)
    assert torch.equal(_scores(model, file), score)
    assert (_scores(model, _png(32, 32, seed=2)) - score).abs().min() > 2e-3


def _both(folder: Path) -> tuple[PublishedModel, Any]:
    import transformers

    model = read_published_model(folder)
    kind = getattr(transformers, model.architecture)
    return model, kind.from_pretrained(folder, dtype=torch.float32).eval()


def _image_part(model: PublishedModel) -> Any:
    if model.bi_encoder is not None:
        return model.bi_encoder.embed_image
    assert model.cross_encoder is not None
    return model.cross_encoder.image_tokens


def _scores(model: PublishedModel, file: bytes) -> Tensor:
    parts = model.cross_encoder
    assert parts is not None
    output = _image_part(model)(_pixels(file, pixel_rules(parts)))
    tokens = output[1] if isinstance(output, tuple) else output
    tokens = tokens.expand(len(TEXTS), -1, -1)
    mask = torch.ones(tokens.shape[:2], dtype=torch.int64)
    score: Tensor = parts.score_pair(*_rows(model, parts.text), tokens, mask)[:, 0]
    return score


def _rows(model: PublishedModel, rules: TextRules) -> tuple[Tensor, Tensor]:
    told = [model.tokenizers[rules.tokenizer].encode(text) for text in TEXTS]
    rows = [each.ids[: sum(each.attention_mask)] for each in told]
    length = max(map(len, rows))
    ids = torch.tensor([[*row, *[rules.pad_id] * (length - len(row))] for row in rows])
    mask = torch.tensor([[int(place < len(row)) for place in range(length)] for row in rows])
    if rules.first_id is not None:
        ids[:, 0] = rules.first_id
    return ids, mask


def _pixels(file: bytes, rules: ImageRules) -> Tensor:
    return torch.from_numpy(decode_image(file, rules).copy())[None]


def _library_rows(folder: Path) -> dict[str, Tensor]:
    from transformers import BertTokenizer

    tokenizer = BertTokenizer.from_pretrained(folder)
    rows = tokenizer(list(TEXTS), padding=True, return_tensors="pt")
    return {name: rows[name] for name in ("input_ids", "attention_mask")}


def _library_pixels(folder: Path, file: bytes) -> Tensor:
    from transformers import AutoImageProcessor

    processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
    pixels: Tensor = processor(Image.open(io.BytesIO(file)), return_tensors="pt")["pixel_values"]
    return pixels


def _png(width: int, height: int, seed: int = 1) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()
