"""A published model's parts give what transformers itself gives, eager, traced and exported."""

import copy
import shutil
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tandem.contract.content import TruncationPolicy
from tandem.model_io.inference.buckets import bucket_of
from tandem.model_io.pictures.image import decode_image
from tandem.model_io.pictures.image_rules import Fit, ImageRules
from tandem.model_io.texts.text import TextPreprocessor
from tandem.model_io.texts.text_rules import TextRules
from tandem.model_io.texts.visible_text import visible_text
from tandem.modeling.families.published_model import BiEncoderParts, PublishedModel
from tandem.modeling.families.reader import read_published_model
from tandem.modeling.published.files import PublishedCheckpointInvalid
from tests.support.modeling.library_embeddings import (
    library_pictures,
    library_texts,
    pixel_rules,
)
from tests.support.modeling.odd_contents import odd_pictures, odd_texts
from tests.support.modeling.published_pairs import change_json

Published = Callable[[str], Path]
Embeddings = NDArray[np.float32]
Forms = Sequence[Callable[[nn.Module, tuple[Tensor, ...]], Callable[..., Tensor]]]

NAMES = ("clip", "clip of old files", "metaclip_2", "siglip", "siglip 2")
# Cosine distance: a search by one finds what a search by the other finds.
CLOSE = 1e-5
# The text with the names of special tokens, which are letters to us and tokens to the library.
TEXTS = [text for text in odd_texts() if "</s>" not in text]


@pytest.fixture(scope="module")
def read(published: Published) -> Callable[[str], PublishedModel]:
    """Reads a model once."""
    made: dict[str, PublishedModel] = {}

    def model_of(name: str) -> PublishedModel:
        if name not in made:
            made[name] = read_published_model(published(name))
        return made[name]

    return model_of


def parts_of(model: PublishedModel) -> BiEncoderParts:
    assert model.bi_encoder is not None
    return model.bi_encoder


def rows(model: PublishedModel, texts: Sequence[str], rules: TextRules) -> list[tuple[Tensor, ...]]:
    """Returns ids and mask of each text, int64 [1, T], as a service pads it."""
    split = TextPreprocessor(model.tokenizers[rules.tokenizer], rules.max_tokens)
    made: list[tuple[Tensor, ...]] = []
    for text in texts:
        [ids] = split.windows(text, TruncationPolicy.TRUNCATE).windows
        length = bucket_of(len(ids), rules.lengths)
        padded = np.full((1, length), rules.pad_id, dtype=np.int64)
        padded[0, : len(ids)] = ids
        mask = np.ones_like(padded)
        if not rules.reads_padding:
            mask[0, len(ids) :] = 0
        made.append((torch.from_numpy(padded), torch.from_numpy(mask)))
    return made


@torch.inference_mode()
def embedded(function: Callable[..., Tensor], inputs: Sequence[tuple[Tensor, ...]]) -> Embeddings:
    """Returns float32 [B, d], row by row."""
    return torch.cat([function(*each) for each in inputs]).numpy()


def pixels(files: Sequence[bytes], rules: ImageRules) -> list[tuple[Tensor]]:
    return [(torch.from_numpy(decode_image(file, rules).copy())[None],) for file in files]


def distance(ours: Embeddings, theirs: Embeddings) -> float:
    """Returns the largest cosine distance of a row."""
    np.testing.assert_allclose(np.linalg.norm(ours, axis=1), 1, atol=1e-5)
    return float((1 - (ours.astype(np.float64) * theirs).sum(axis=1)).max())


def eager(module: nn.Module, example: tuple[Tensor, ...]) -> Callable[..., Tensor]:
    return module


def traced(module: nn.Module, example: tuple[Tensor, ...]) -> Callable[..., Tensor]:
    with warnings.catch_warnings():
        # Of the checks of lengths and sizes, which are the same for every input.
        warnings.simplefilter("ignore", torch.jit.TracerWarning)  # type: ignore[attr-defined]
        return torch.jit.trace(module, example, check_trace=False)


def exported(module: nn.Module, example: tuple[Tensor, ...]) -> Callable[..., Tensor]:
    batch = torch.export.Dim("batch", min=1, max=64)
    shape: dict[int, object] = {0: batch}
    if len(example) == 2 and example[0].shape[1] != 64:  # a text of any length
        shape[1] = torch.export.Dim("tokens", min=2, max=77)
    made = torch.export.export(module, example, dynamic_shapes=(shape,) * len(example))
    return made.module()


def two(inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Returns the example twice: a dimension of 1 would be exported as a constant."""
    return tuple(each.repeat(2, *(1 for _ in each.shape[1:])) for each in inputs)


FORMS: Forms = (eager, traced, exported)


@pytest.mark.parametrize("name", NAMES)
def test_texts_are_embedded_as_the_library_embeds_them(
    published: Published, read: Callable[[str], PublishedModel], name: str
) -> None:
    model = read(name)
    parts = parts_of(model)
    inputs = rows(model, TEXTS, parts.text)
    theirs = library_texts(published(name), [visible_text(text) for text in TEXTS])
    example = two(inputs[0])
    for form in FORMS:
        assert distance(embedded(form(parts.embed_text, example), inputs), theirs) <= CLOSE
    # The control: texts are far apart, so that a distance would be seen.
    assert distance(np.roll(theirs, 1, axis=0), theirs) > 0.01


@pytest.mark.parametrize("name", NAMES)
def test_pictures_are_embedded_as_the_library_embeds_them(
    published: Published, read: Callable[[str], PublishedModel], name: str
) -> None:
    parts = parts_of(read(name))
    files, pictures = zip(*odd_pictures(), strict=True)
    inputs = pixels(files, pixel_rules(parts))
    theirs = library_pictures(published(name), pictures)
    example = two(inputs[0])
    for form in FORMS:
        assert distance(embedded(form(parts.embed_image, example), inputs), theirs) <= CLOSE
    assert distance(np.roll(theirs, 1, axis=0), theirs) > 0.01


@pytest.mark.parametrize("name", ["siglip", "siglip 2"])
def test_a_siglip_text_that_is_padded_to_less_is_another(
    published: Published, read: Callable[[str], PublishedModel], name: str
) -> None:
    """It pools the last position: what a service of other models does would be silently wrong."""
    model = read(name)
    parts = parts_of(model)
    theirs = library_texts(published(name), TEXTS[:1])
    short = rows(model, TEXTS[:1], replace(parts.text, lengths=(16, 64)))
    other_id = rows(model, TEXTS[:1], replace(parts.text, pad_id=3))
    assert distance(embedded(parts.embed_text, short), theirs) > 100 * CLOSE
    assert distance(embedded(parts.embed_text, other_id), theirs) > 100 * CLOSE


def test_a_siglip_attends_to_padding(read: Callable[[str], PublishedModel]) -> None:
    model = read("siglip")
    parts = parts_of(model)
    masked = rows(model, ["two dogs"], replace(parts.text, reads_padding=False))
    whole = rows(model, ["two dogs"], parts.text)
    assert int(masked[0][1].sum()) < 64 == int(whole[0][1].sum())
    assert np.array_equal(embedded(parts.embed_text, masked), embedded(parts.embed_text, whole))


def test_without_lower_case_a_siglip_2_reads_another_text(
    published: Published, read: Callable[[str], PublishedModel]
) -> None:
    """The hub's tokenizer.json keeps case; transformers lowers it in code."""
    from tandem.model_io.texts.tokenizer_file import read_tokenizer_file

    model = read("siglip 2")
    parts = parts_of(model)
    kept = copy.copy(model.tokenizers)
    kept["tokenizer.json"] = read_tokenizer_file(published("siglip 2") / "tokenizer.json")
    cased = rows(replace(model, tokenizers=kept), ["TWO DOGS"], parts.text)
    theirs = library_texts(published("siglip 2"), ["TWO DOGS"])
    assert distance(embedded(parts.embed_text, cased), theirs) > 100 * CLOSE


def test_a_siglip_2_that_names_no_padding_side_is_refused(
    published: Published, tmp_path: Path
) -> None:
    """transformers then pads on the left, by the class; with either file's right it is read."""
    folder = shutil.copytree(published("siglip 2"), tmp_path / "siglip 2")
    change_json(folder / "tokenizer_config.json", padding_side=None)
    read_published_model(folder)
    change_json(folder / "tokenizer.json", padding=None)
    left, right = (library_texts(each, ["two dogs"]) for each in (folder, published("siglip 2")))
    assert distance(left, right) > 0.01

    with pytest.raises(PublishedCheckpointInvalid, match=r"on the left.*write padding_side into"):
        read_published_model(folder)


def test_a_length_of_tokenizer_json_alone_is_no_limit(published: Published, tmp_path: Path) -> None:
    """transformers takes its limit from tokenizer_config.json."""
    folder = shutil.copytree(published("clip"), tmp_path / "clip")
    change_json(folder / "tokenizer_config.json", model_max_length=None)
    cut = {"max_length": 32, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    change_json(folder / "tokenizer.json", truncation=cut)
    model, text = read_published_model(folder), " ".join(["two dogs"] * 30)

    found = embedded(parts_of(model).embed_text, rows(model, [text], parts_of(model).text))

    assert distance(found, library_texts(folder, [text])) <= CLOSE


@pytest.mark.parametrize("name", ["clip", "clip of old files", "metaclip_2"])
def test_a_clip_text_that_is_cut_keeps_its_end(
    read: Callable[[str], PublishedModel], name: str
) -> None:
    model = read(name)
    parts = parts_of(model)
    long, longer = (" ".join(["two dogs"] * count) for count in (250, 400))
    inputs = rows(model, [long, longer], parts.text)
    end_id = 519 if name.startswith("clip") else 2
    assert [ids.shape[1] for ids, _ in inputs] == [77, 77]
    assert [int(ids[0, -1]) for ids, _ in inputs] == [end_id, end_id]
    # The control: without its end a text is pooled at another place.
    endless = [(torch.cat([ids[:, :-1], ids[:, 1:2]], dim=1), mask) for ids, mask in inputs[:1]]
    whole, without = embedded(parts.embed_text, inputs[:1]), embedded(parts.embed_text, endless)
    assert distance(without, whole) > 100 * CLOSE


@pytest.mark.parametrize("name", ["clip", "clip of old files", "metaclip_2"])
def test_padding_does_not_matter_to_a_clip(
    read: Callable[[str], PublishedModel], name: str
) -> None:
    """Neither its length nor its id, nor whether it is masked, as open_clip does not mask it."""
    model = read(name)
    parts = parts_of(model)
    expected = embedded(parts.embed_text, rows(model, ["two dogs"], parts.text))
    for rules in (
        replace(parts.text, lengths=(77,)),
        replace(parts.text, pad_id=0, lengths=(77,)),
        replace(parts.text, lengths=(77,), reads_padding=True),
    ):
        assert (
            distance(embedded(parts.embed_text, rows(model, ["two dogs"], rules)), expected) < CLOSE
        )


@pytest.mark.parametrize("name", ["clip", "siglip"])
def test_another_fit_is_another_picture(
    published: Published, read: Callable[[str], PublishedModel], name: str
) -> None:
    parts = parts_of(read(name))
    file, picture = odd_pictures(10)[9]
    theirs = library_pictures(published(name), [picture])
    other = Fit.CROP if pixel_rules(parts).fit is Fit.SQUASH else Fit.SQUASH
    for fit in (other, Fit.LETTERBOX):
        inputs = pixels([file], replace(pixel_rules(parts), fit=fit))
        assert distance(embedded(parts.embed_image, inputs), theirs) > 100 * CLOSE
