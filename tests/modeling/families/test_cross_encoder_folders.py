"""Folders of cross-encoders become models with their rules, or are refused by name."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor

from tandem.model_io.pictures.image_rules import Filter, Fit
from tandem.modeling.families.published_model import PublishedModel
from tandem.modeling.families.reader import read_published_model
from tandem.modeling.published.files import PublishedCheckpointInvalid
from tests.support.modeling.published_cross_encoders import WORD_COUNT
from tests.support.modeling.published_pairs import SIZE, change_json

Published = Callable[[str], Path]
Change = Callable[[Path], None]

ENCODE_ID = WORD_COUNT + 1


@pytest.fixture
def copied(published: Published, tmp_path: Path) -> Published:
    """Returns a folder that a test may change."""

    def folder_of(name: str) -> Path:
        shutil.copytree(published(name), tmp_path / name)
        return tmp_path / name

    return folder_of


@pytest.mark.parametrize(
    ("name", "architecture", "longest", "token_shape"),
    [
        ("blip", "BlipForImageTextRetrieval", 35, (17, 32)),
        ("blip-2", "Blip2ForImageTextRetrieval", 35, (17, 40)),
        ("vilt", "ViltForImageAndTextRetrieval", 40, (17, 32)),
    ],
)
def test_a_folder_becomes_a_cross_encoder(
    published: Published, name: str, architecture: str, longest: int, token_shape: tuple[int, int]
) -> None:
    model = read_published_model(published(name))
    parts = model.cross_encoder
    assert parts is not None
    assert (model.family, model.architecture) == (name, architecture)
    assert model.licence == "bsd-3-clause"
    assert (parts.text.max_tokens, parts.text.lengths[-1], parts.text.pad_id) == (
        longest,
        longest,
        0,
    )
    assert (parts.image.size, parts.image.fit, parts.image.filter) == (
        SIZE,
        Fit.SQUASH,
        Filter.BICUBIC,
    )
    image_part = parts.image_tokens or (model.bi_encoder and model.bi_encoder.embed_image)
    assert image_part
    output = image_part(torch.zeros(2, SIZE, SIZE, 3, dtype=torch.uint8))
    tokens = output if isinstance(output, Tensor) else output[1]
    assert tokens.dtype is torch.float16
    assert tokens.shape == (2, *token_shape)
    assert token_shape == (parts.image_token_count, parts.token_width)


def test_blip_is_both_encoders_and_adds_their_scores(published: Published) -> None:
    model = read_published_model(published("blip"))
    be, ce = model.bi_encoder, model.cross_encoder
    assert be is not None
    assert ce is not None
    assert be.has_image_tokens
    assert ce.image_tokens is None
    assert be.embedding_dim == 16
    assert model.default_fusion == "add"
    # Only the first id tells a pair's text from a text alone.
    assert (be.text.first_id, ce.text.first_id) == (None, ENCODE_ID)
    assert be.image == ce.image
    [note] = model.notes
    assert "--fusion logit_add" in note


def test_blip_finds_enc_by_name_or_begins_pairs_with_cls_and_says_so(copied: Published) -> None:
    folder = copied("blip")
    change_json(folder / "config.json", text_config=_text_config(folder) | {"bos_token_id": 1})

    model = read_published_model(folder)

    assert _first_id(folder) is None
    assert "has no [ENC]" in model.notes[1]
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_special_tokens(["[ENC]"])
    tokenizer.save(str(folder / "tokenizer.json"))
    assert _first_id(folder) == WORD_COUNT


@torch.inference_mode()
def test_settings_of_a_call_change_no_score(copied: Published, published: Published) -> None:
    """A configuration may keep what a caller once set; the model is the same."""
    folder = copied("blip")
    field = {"return_dict": False, "output_hidden_states": True, "chunk_size_feed_forward": 7}
    text = _text_config(folder) | field
    vision = json.loads((folder / "config.json").read_text())["vision_config"] | field
    change_json(folder / "config.json", text_config=text, vision_config=vision, **field)

    one, other = (read_published_model(each) for each in (published("blip"), folder))

    assert torch.equal(_pair_score(one), _pair_score(other))


def _pair_score(model: PublishedModel) -> Tensor:
    assert model.bi_encoder is not None
    assert model.cross_encoder is not None
    ids = torch.tensor([[ENCODE_ID, 4, 5, 3]])
    _, tokens = model.bi_encoder.embed_image(torch.zeros(1, SIZE, SIZE, 3, dtype=torch.uint8))
    mask = torch.ones(tokens.shape[:2], dtype=torch.int64)
    score: Tensor = model.cross_encoder.score_pair(ids, torch.ones_like(ids), tokens, mask)
    return score


def _with(name: str, **fields: object) -> Change:
    return lambda folder: change_json(folder / name, **fields)


def _changed_weights(change: Callable[[dict[str, Tensor]], object]) -> Change:
    def changed(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        change(weights)
        save_file(weights, folder / "model.safetensors")

    return changed


def _without(name: str) -> Change:
    return _changed_weights(lambda weights: weights.pop(name))


_OTHER_SIZE = _with("preprocessor_config.json", size={"height": 48, "width": 48})


@pytest.mark.parametrize(
    ("name", "change", "told"),
    [
        ("blip", _without("itm_head.weight"), "missing itm_head.weight"),
        ("blip-2", _without("query_tokens"), "missing query_tokens"),
        ("vilt", _without("rank_output.bias"), "missing rank_output.bias"),
        ("blip", _OTHER_SIZE, "48 pixels per side, and its image tower takes 32"),
        (
            "blip",
            lambda folder: change_json(
                folder / "config.json", text_config=_text_config(folder) | {"is_decoder": False}
            ),
            "is_decoder is false",
        ),
    ],
)
def test_a_folder_is_refused_by_name(
    copied: Published, name: str, change: Change, told: str
) -> None:
    folder = copied(name)
    change(folder)
    with pytest.raises(PublishedCheckpointInvalid, match=told) as refused:
        read_published_model(folder)
    assert str(folder) in str(refused.value)


def test_the_tokenizer_of_another_model_is_refused(copied: Published, published: Published) -> None:
    folder = copied("vilt")
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(published("clip") / file, folder / file)
    with pytest.raises(PublishedCheckpointInvalid, match=r"token|vocab"):
        read_published_model(folder)


def test_a_tokenizer_that_ends_texts_otherwise_is_refused(copied: Published) -> None:
    folder = copied("blip")
    change_json(folder / "config.json", text_config=_text_config(folder) | {"sep_token_id": 4})
    with pytest.raises(
        PublishedCheckpointInvalid, match=r"ends texts with .3. and its configuration with 4"
    ):
        read_published_model(folder)


def _first_id(folder: Path) -> int | None:
    model: PublishedModel = read_published_model(folder)
    assert model.cross_encoder is not None
    return model.cross_encoder.text.first_id


def _text_config(folder: Path) -> dict[str, object]:
    fields: dict[str, object] = json.loads((folder / "config.json").read_text())["text_config"]
    return fields
