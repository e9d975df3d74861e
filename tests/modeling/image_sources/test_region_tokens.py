"""Regions: OSCAR's numbers of a box, a file of them, and a model that reads them."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from tandem.corpus.readable_records import ModelCheck, RecordUnreadable
from tandem.corpus.records import Record
from tandem.corpus.scenes.records import scene_records
from tandem.model_io.repository.manifest import JOINT_ENCODER, read_manifest
from tandem.model_io.repository.precision import Precision
from tandem.model_io.texts.text import TextPreprocessor
from tandem.modeling.checkpoint import load_checkpoint, save_checkpoint
from tandem.modeling.config import Encoder, JointConfig
from tandem.modeling.export.export import export_model
from tandem.modeling.export.verification import verify_repository
from tandem.modeling.image_sources.region_tokens import (
    RegionFile,
    RegionFileInvalid,
    region_tokens,
    write_region_file,
    write_regions,
)
from tandem.modeling.joint_model import JointModel
from tests.support.modeling.tiny_checkpoint import tiny_tokenizer

RECORDS: list[Record] = list(scene_records("test", 1, 4))[:3]


def regions(count: int, seed: int = 0) -> NDArray[np.float16]:
    """Returns random regions of an image of 200 x 100 pixels."""
    rng = np.random.default_rng(seed)
    corners = np.sort(rng.random((count, 2, 2)), axis=1) * [200, 100]
    return region_tokens(rng.random((count, 2048)), corners.reshape(count, 4), 200, 100)


@pytest.fixture(name="file")
def _file(tmp_path: Path) -> RegionFile:
    """Of three records with 2, 5 and 0 regions, of which 3 are kept."""
    own = {
        record.record_id: regions(count, count)
        for record, count in zip(RECORDS, (2, 5, 0), strict=True)
    }
    write_regions(tmp_path / "regions.safetensors", own, region_count=3)
    return RegionFile(tmp_path / "regions.safetensors")


def model_of(encoder: Encoder, vocabulary_size: int = 100) -> JointModel:
    """Returns a tiny untrained model that reads regions."""
    config = JointConfig(
        vocabulary_size=vocabulary_size,
        width=16,
        layer_count=2,
        head_count=2,
        encoder=encoder,
        image_source="regions",
        region_count=3,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return JointModel(config).eval()


def test_a_region_carries_its_box() -> None:
    said = np.arange(2048)[None] / 2048

    [token] = region_tokens(said, np.array([[50, 20, 150, 30]]), 200, 100)

    assert_allclose(token[2048:], [0.25, 0.2, 0.75, 0.3, 0.5, 0.1], atol=1e-3)
    assert_allclose(token[:2048], said[0], atol=1e-3)


def test_boxes_in_another_unit_are_refused() -> None:
    """Other numbers than OSCAR was trained on would be read without a word."""
    for width, boxes, message in (
        (1024, [[0, 0, 1, 1]], r"shapes \[1, 1024\] and boxes \[1, 4\], not \[n, 2048\]"),
        (2048, [[0, 0, 300, 50]], "reach out of an image of 200 x 100 pixels"),
        (2048, [[150, 0, 50, 50]], "boxes end before they begin"),
    ):
        with pytest.raises(ValueError, match=message):
            region_tokens(np.zeros((1, width)), np.array(boxes), 200, 100)


def test_records_get_their_regions_in_their_order(file: RegionFile) -> None:
    second, first, third = RECORDS[1], RECORDS[0], RECORDS[2]

    tokens, mask = file.of([second, first, third])

    assert tokens.dtype is torch.float16
    assert tokens.shape == (3, 3, 2054)
    assert mask.tolist() == [[1, 1, 1], [1, 1, 0], [0, 0, 0]]
    assert np.array_equal(tokens[0], regions(5, 5)[:3])
    assert np.array_equal(tokens[1, :2], regions(2, 2))
    assert tokens[1, 2].abs().max() == 0


@pytest.mark.parametrize("left_out", [(), ("photo-0", "photo-1", "photo-4")])
def test_images_that_were_announced_may_not_come(tmp_path: Path, left_out: tuple[str, ...]) -> None:
    every = {f"photo-{number}": regions(number + 1, number) for number in range(5)}
    own = {name: each for name, each in every.items() if name not in left_out}
    path = tmp_path / "streamed.safetensors"

    count = write_region_file(path, iter(own.items()), list(every), 3)

    assert count == len(own)
    streamed = RegionFile(path)
    assert list(streamed.record_ids()) == list(own)
    for name, vectors in own.items():
        assert np.array_equal(streamed.vectors(name), vectors[:3])
    assert [each.name for each in tmp_path.glob(".*")] == []


def test_a_fault_on_the_way_leaves_the_file_that_is_there(tmp_path: Path) -> None:
    path = tmp_path / "it.safetensors"
    path.write_bytes(b"as it was")

    def failing() -> Iterator[tuple[str, NDArray[np.float16]]]:
        yield "a", regions(1)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_region_file(path, failing(), ["a", "b"], 3)

    assert path.read_bytes() == b"as it was"
    assert list(tmp_path.iterdir()) == [path]


def test_a_record_is_found_by_its_number(tmp_path: Path) -> None:
    write_regions(tmp_path / "it.safetensors", {"391895": regions(1)}, 3)

    file = RegionFile(tmp_path / "it.safetensors")

    assert "COCO_val2014_000000391895" in file
    assert "COCO_val2014_000000391896" not in file


def test_a_record_without_regions_is_named(file: RegionFile) -> None:
    stranger = next(iter(scene_records("val", 9, 4)))

    with pytest.raises(RegionFileInvalid, match=f"no regions of record '{stranger.record_id}'"):
        file.of([RECORDS[0], stranger])


def test_a_file_of_something_else_is_refused(tmp_path: Path, file: RegionFile) -> None:
    path = tmp_path / "regions.safetensors"
    whole, tensors = path.read_bytes(), load_file(path)
    save_file(tensors, tmp_path / "without-ids.safetensors")
    (tmp_path / "cut.safetensors").write_bytes(whole[:-5])
    narrow = tensors | {"tokens": tensors["tokens"][:, :, :2048].contiguous()}
    save_file(narrow, tmp_path / "narrow.safetensors", {"record_ids": '["a", "b", "c"]'})

    for name, message in [
        ("without-ids", "is not a file of regions: KeyError"),
        ("cut", "is not a file of regions: SafetensorError"),
        ("narrow", r"tokens \[3, 3, 2048\], not F16 \[3, 3, 2054\]"),
    ]:
        with pytest.raises(RegionFileInvalid, match=f"{name}.safetensors.*{message}"):
            RegionFile(tmp_path / f"{name}.safetensors")


@torch.inference_mode()
@pytest.mark.parametrize("encoder", ["pre_norm", "post_norm"])
def test_regions_have_no_order_and_padding_is_not_read(file: RegionFile, encoder: Encoder) -> None:
    model = model_of(encoder)
    tokens, mask = file.of(RECORDS[:2])
    noisy = tokens.clone()
    noisy[0, 2] = 7.0
    ids = torch.full((2, 4), 5)

    for one, other, close in [
        ((tokens, mask), (noisy, mask), True),
        ((tokens, mask), (tokens.flip(1), mask.flip(1)), True),
        ((tokens, mask), (noisy, torch.ones_like(mask)), False),
    ]:
        embeddings = [model.embed_images(each, 2, of) for each, of in (one, other)]
        logits = [model.match_logits(ids, torch.ones_like(ids), *each) for each in (one, other)]
        for before, after in (embeddings, logits):
            assert bool((before - after).abs().max() < 1e-5) is close


def test_a_model_of_regions_is_exported_without_a_backbone(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    model = model_of("post_norm", tokenizer.get_vocab_size())
    save_checkpoint(tmp_path / "ours", model, tokenizer, {})
    loaded = load_checkpoint(tmp_path / "ours")

    manifest = export_model(tmp_path / "ours", tmp_path / "repository", Precision.FP32)

    assert loaded.model.config.image_token_count == 3
    assert manifest.models.keys() == {JOINT_ENCODER}
    assert (manifest.image, manifest.functions.image_tokens) == (None, None)
    assert manifest.regions == loaded.model.config.region_rules
    assert (manifest.image_token_count, manifest.token_width) == (3, 2054)
    assert read_manifest(tmp_path / "repository") == manifest
    verify_repository(tmp_path / "repository", tmp_path / "ours")
    with pytest.raises(ValueError, match="not pixels; give it a file of regions"):
        loaded.model.image_backbone(torch.zeros(1, 112, 112, 3, dtype=torch.uint8))


def test_a_count_that_cannot_be_is_refused(tmp_path: Path, file: RegionFile) -> None:
    path = tmp_path / "regions.safetensors"
    tensors = load_file(path) | {"counts": torch.tensor([1, 4, 0])}
    save_file(tensors, path, {"record_ids": json.dumps(["a", "b", "c"])})

    with pytest.raises(RegionFileInvalid, match="counts regions outside 0 to 3"):
        RegionFile(path)


def test_regions_that_are_not_numbers_are_named(tmp_path: Path, file: RegionFile) -> None:
    """Also in a row that does not count: it would spread through attention."""
    path = tmp_path / "regions.safetensors"
    tensors = load_file(path)
    tensors["tokens"][0, 2, 5] = torch.nan
    save_file(tensors, path, {"record_ids": json.dumps([each.record_id for each in RECORDS])})
    texts = TextPreprocessor(
        tiny_tokenizer(tuple(c.text for each in RECORDS for c in each.captions)), 64
    )

    check = ModelCheck(RegionFile(path).content, texts)

    with pytest.raises(RecordUnreadable, match=f"{RECORDS[0].record_id}.*NaN or infinity"):
        check(RECORDS[0])
    check(RECORDS[1])
